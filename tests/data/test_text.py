import hashlib
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from strongticket.data.hub import fetch_wikitext, write_rows
from strongticket.data.text import load_text, training_batch
from strongticket.errors import MissingExtraError, StrongTicketError


def test_the_sample_is_bytes_of_wikipedia() -> None:
    text = load_text("sample")
    assert (text.name, text.tokenizer.name, text.tokenizer.vocabulary) == ("sample", "bytes", 256)
    assert (len(text.train), len(text.valid)) == (328_723, 38_758)
    # Pinned: results on the sample are compared across machines and releases.
    assert text.digest == "1d5e14f3f019ade54972a59179434a8fb7ec980c90c4dd463ca3d429a00314a5"
    articles = re.findall(r"(?m)^= (.+) =$", text.tokenizer.decode(text.train) + text.tokenizer.decode(text.valid))
    licence = (Path(__file__).parents[2] / "src/strongticket/data/sample/LICENCE.md").read_text()
    assert "CC BY-SA 3.0" in licence
    assert len(articles) == 21
    assert all(f"| {title} | " in licence for title in articles)


def test_several_files_are_one_text_each_encoded_by_itself(tmp_path: Path) -> None:
    (tmp_path / "train_a.txt").write_text("one")
    (tmp_path / "train_b.txt.xz").write_bytes(lzma.compress(b"two"))
    (tmp_path / "dev.raw").write_text("three")
    text = load_text(str(tmp_path), tokenizer="bytes")
    assert text.tokenizer.decode(text.train) == "onetwo"
    assert text.tokenizer.decode(text.valid) == "three"


def test_only_splits_that_were_asked_for_are_there() -> None:
    text = load_text("sample", splits=["valid"])
    with pytest.raises(StrongTicketError, match="the train split was not loaded, only valid"):
        _ = text.train
    assert text.splits["valid"].digest == load_text("sample").splits["valid"].digest


def test_shapes_for_a_model() -> None:
    inputs, targets = training_batch(load_text("sample").train, length=128, sequences=4, seed=0, step=0)
    assert inputs.shape == targets.shape == (4, 128)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            (),
            r"has no train and no valid text; found nothing\. The folder needs train\.txt and valid\.txt",
        ),
        (("notes.txt", "articles.tsv"), r"found articles\.tsv, notes\.txt\."),
        (
            ("wiki.test.tokens", "wiki.valid.tokens"),
            r"has no train text; found wiki\.test\.tokens, wiki\.valid\.tokens",
        ),
        (("train.txt",), r"has no valid text; found train\.txt"),
    ],
)
def test_missing_text_says_what_layout_works(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    for name in files:
        (tmp_path / name).write_text("text")
    with pytest.raises(StrongTicketError, match=message):
        load_text(str(tmp_path), tokenizer="bytes")


def test_empty_text_is_named(tmp_path: Path) -> None:
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).touch()
    with pytest.raises(StrongTicketError, match=r"train\.txt contains no text"):
        load_text(str(tmp_path), tokenizer="bytes")


def test_names_that_are_not_utf_8_are_spelled_out(tmp_path: Path) -> None:
    """A ticket holds the name and must be UTF-8: a search would fail at its end."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text("text")
    assert load_text(str(folder), tokenizer="bytes", cache=tmp_path).name == r"caf\udce9"


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("text")
    with pytest.raises(StrongTicketError, match=r"train\.txt is a file; data must be sample, wikitext-103 or a folder"):
        load_text(str(tmp_path / "train.txt"))
    with pytest.raises(StrongTicketError, match="nowhere does not exist; data must be sample"):
        load_text(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("splits", [(), ("train", "dev")])
def test_unknown_splits_are_refused(splits: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="splits must be some of train, valid, test"):
        load_text("sample", splits=splits)


@pytest.mark.parametrize(
    ("folder", "counts"),
    [
        ("wikitext-103", {"valid": 249_735, "test": 285_234}),
        ("wikitext-2-raw", {"valid": 249_887}),
    ],
)
def test_real_folders_have_the_tokens_their_readme_says(shared_data: Path, folder: str, counts: dict[str, int]) -> None:
    text = load_text(str(shared_data / folder), tokenizer=str(shared_data / "gpt2_bpe"), splits=list(counts))
    assert {name: len(split.tokens) for name, split in text.splits.items()} == counts
    assert text.tokenizer.name == "gpt2"


@pytest.mark.slow
def test_a_large_file_has_the_tokens_its_readme_says(shared_data: Path) -> None:
    text = load_text(
        str(shared_data / "wikipedia-fa-ga-2019"), tokenizer=str(shared_data / "gpt2_bpe"), splits=["train"]
    )
    assert len(text.train) == 28_985_785


# --- The hub ---------------------------------------------------------------------------------------------------------


def test_rows_become_the_file_they_were_made_from(shared_data: Path, tmp_path: Path) -> None:
    """The data set's own script turns blank lines into empty rows and keeps the others, ends and all."""
    text = lzma.decompress((shared_data / "wikitext-2-raw" / "wiki.valid.raw.xz").read_bytes()).decode()
    rows = [line + "\n" if line.strip() else "" for line in text.split("\n")[:-1]]
    write_rows(rows, tmp_path / "valid.txt")
    assert hashlib.sha256((tmp_path / "valid.txt").read_bytes()).digest() == hashlib.sha256(text.encode()).digest()


def test_wikitext_without_datasets_says_what_works_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'strongticket\[hf\]', or use --data sample, .* DIR\. The folder needs"
    ):
        load_text("wikitext-103", cache=tmp_path)


def test_wikitext_offline_says_what_works_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StrongTicketError, match=r"does not answer: .*; use --data sample, .* DIR\. The folder"):
        load_text("wikitext-103", cache=tmp_path)


class Rows(list[str]):
    """A split of `datasets`, as far as it is used."""

    def iter(self, batch_size: int) -> Iterator[dict[str, list[str]]]:
        yield {"text": self}


def stub_datasets(copy: dict[str, Rows] | None) -> SimpleNamespace:
    """Stand in for `datasets` where the hub is down: it gives its copy if told to, or else would try for long."""

    def load_dataset(path: str, name: str) -> dict[str, Rows]:
        assert config.HF_HUB_OFFLINE
        if copy is None:
            raise ConnectionError("Couldn't reach it (OfflineModeIsEnabled)")
        return copy

    config = SimpleNamespace(HF_HUB_OFFLINE=False)
    return SimpleNamespace(config=config, load_dataset=load_dataset)


def test_wikitext_comes_from_the_copy_datasets_keeps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    stub = stub_datasets({name: Rows([f" = {name} = \n"]) for name in ("train", "validation", "test")})
    monkeypatch.setitem(sys.modules, "datasets", stub)
    fetch_wikitext(tmp_path)
    assert (tmp_path / "valid.txt").read_text() == " = validation = \n"
    assert stub.config.HF_HUB_OFFLINE is False


def test_wikitext_without_hub_and_copy_says_that_the_hub_is_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "datasets", stub_datasets(None))
    with pytest.raises(StrongTicketError, match=r"\(the Hugging Face hub does not answer: .*\); use --data sample"):
        fetch_wikitext(tmp_path)


def test_wikitext_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f" = {split} = \n")
    monkeypatch.setitem(sys.modules, "datasets", None)
    fetch_wikitext(tmp_path)


ENCODE = """
from strongticket.data.tokenizer import find_tokenizer
from strongticket.errors import StrongTicketError
try:
    print(find_tokenizer("gpt2").encode("Hello world"))
except StrongTicketError as error:
    print(error)
"""


def encode_with_gpt2(home: Path) -> str:
    """Encode in a process whose hub is a port where nobody listens, and whose copies of its files are in `home`."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run([sys.executable, "-c", ENCODE], env=environment, capture_output=True, text=True, check=True)
    assert "Retry" not in done.stderr  # which would take the better part of a minute
    return done.stdout


def test_gpt2_offline_says_what_works_instead(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    line = r"GPT-2's tokenizer cannot be fetched \(.* does not answer: .*\); set --tokenizer to a folder with .*\n"
    assert re.fullmatch(line, encode_with_gpt2(tmp_path))


def test_gpt2_comes_from_the_copy_transformers_keeps(shared_data: Path, tmp_path: Path) -> None:
    copies = tmp_path / "hub" / "models--gpt2"
    for folder in ("snapshots/0123", "refs"):
        (copies / folder).mkdir(parents=True)
    (copies / "refs" / "main").write_text("0123")
    (copies / "snapshots" / "0123" / "config.json").write_text('{"model_type": "gpt2"}')
    for file in (shared_data / "gpt2_bpe").iterdir():
        (copies / "snapshots" / "0123" / file.name).symlink_to(file)
    assert encode_with_gpt2(tmp_path) == "[15496, 995]\n"
