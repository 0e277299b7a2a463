import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.little_bpe import pairs_bpe, write_bpe

from strongticket.data.text import Text, load_text
from strongticket.data.token_cache import default_root
from strongticket.errors import StrongTicketError

TRAIN, VALID = "The river.\n\nIt's né 字!\n" * 50, "A flame robin.\n" * 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "prose"
    folder.mkdir()
    (folder / "train.txt").write_text(TRAIN, "utf-8")
    (folder / "valid.txt.xz").write_bytes(lzma.compress(VALID.encode()))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_bpe(tmp_path_factory.mktemp("words")))


def entry_of(cache: Path) -> Path:
    (entry,) = (path for path in (cache / "tokens").iterdir() if path.is_dir())
    return entry


def load(data: Path, cache: Path, tokenizer: str, calls: list[tuple[int, int]] | None = None) -> Text:
    return load_text(
        str(data),
        tokenizer=tokenizer,
        cache=cache,
        progress=lambda done, total: calls.append((done, total)) if calls is not None else None,
    )


def test_tokens_are_made_once(data: Path, cache: Path, words: str) -> None:
    calls: list[tuple[int, int]] = []
    first = load(data, cache, words, calls)
    assert first.tokenizer.decode(first.train) == TRAIN
    assert first.tokenizer.decode(first.valid) == VALID
    assert first.name == "prose"
    assert isinstance(first.train, np.memmap)
    assert first.train.dtype == np.uint16
    assert not first.train.flags.writeable
    assert first.text_bytes("train") == len(TRAIN.encode())
    size = (data / "train.txt").stat().st_size + (data / "valid.txt.xz").stat().st_size
    assert calls[-1] == (size, size)
    calls.clear()
    again = load(data, cache, words, calls)
    assert not calls
    assert again.describe() == first.describe()
    assert again.tokenizer.encode("The river") == first.tokenizer.encode("The river")


def test_the_key_is_the_content(data: Path, cache: Path, words: str, tmp_path: Path) -> None:
    first = load(data, cache, words)
    moved = data.rename(tmp_path / "renamed")
    assert load(moved, cache, words).digest == first.digest
    assert entry_of(cache)
    (moved / "train.txt").write_text(TRAIN.replace("river", "water"), "utf-8")
    assert load(moved, cache, words).digest != first.digest
    load(moved, cache, "bytes")
    assert sum(path.is_dir() for path in (cache / "tokens").iterdir()) == 3


def test_large_vocabularies_are_kept_as_uint32(data: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(pairs_bpe().to_json(), "utf-8")
    text = load(data, cache, str(tmp_path))
    assert text.train.dtype == np.uint32
    assert text.tokenizer.decode(text.train) == TRAIN


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda entry: os.truncate(entry / "train.npy", 200),
    "emptied": lambda entry: os.truncate(entry / "valid.npy", 0),
    "one bit": lambda entry: flip(entry / "train.npy"),
    "missing": lambda entry: (entry / "valid.npy").unlink(),
    "float": lambda entry: np.save(entry / "train.npy", np.zeros(400)),
    "pickled": lambda entry: np.save(entry / "train.npy", np.array([{}]), allow_pickle=True),
    "swapped": lambda entry: shutil.copy(entry / "valid.npy", entry / "train.npy"),
    "junk": lambda entry: (entry / "tokens.json").write_bytes(b"\xff{"),
    "a list": lambda entry: (entry / "tokens.json").write_text("[]"),
    "nested": lambda entry: (entry / "tokens.json").write_text("[" * 100_000),
    "no description": lambda entry: (entry / "tokens.json").unlink(),
    "newer": lambda entry: edit(entry / "tokens.json", lambda about: about.update(format=2)),
    "foreign": lambda entry: edit(entry / "tokens.json", lambda about: about.update(key="0" * 64)),
    "no splits": lambda entry: edit(entry / "tokens.json", lambda about: about.update(splits=None)),
    "small": lambda entry: edit(entry / "tokens.json", lambda about: about["tokenizer"].update(vocabulary=30)),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_entries_are_made_again(data: Path, cache: Path, words: str, damage: Callable[[Path], object]) -> None:
    digest = load(data, cache, words).digest
    damage(entry_of(cache))
    calls: list[tuple[int, int]] = []
    again = load(data, cache, words, calls)
    assert calls
    assert again.digest == digest
    assert again.tokenizer.decode(again.train) == TRAIN
    entry_of(cache)  # there is exactly one


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_entries_given_as_data_are_refused(
    data: Path, cache: Path, words: str, damage: Callable[[Path], object]
) -> None:
    load(data, cache, words)
    damage(entry := entry_of(cache))
    if damage is DAMAGES["foreign"]:  # nobody says what it should have been made from
        assert load_text(str(entry)).tokenizer.decode(load_text(str(entry)).train) == TRAIN
        return
    with pytest.raises(StrongTicketError, match=r"cannot be used as tokens|has no train and no valid text"):
        load_text(str(entry))


def test_an_entry_can_be_carried_elsewhere(data: Path, cache: Path, words: str, tmp_path: Path) -> None:
    first = load(data, cache, words)
    carried = tmp_path / "carried"
    shutil.move(entry_of(cache), carried)
    for tokenizer in (None, words):
        text = load_text(str(carried), tokenizer=tokenizer, cache=tmp_path / "unused")
        assert text.describe() == first.describe()
        assert text.tokenizer.decode(text.train) == TRAIN
    assert not (tmp_path / "unused").exists()
    # It serves as the tokenizer's folder as well.
    assert load(data, cache, str(carried)).digest == first.digest


def test_an_entry_without_its_tokenizer_still_has_tokens(data: Path, cache: Path, words: str) -> None:
    first = load(data, cache, words)
    (entry_of(cache) / "tokenizer.json").unlink()
    text = load_text(str(entry_of(cache)))
    assert text.digest == first.digest
    assert text.tokenizer.vocabulary == 600
    with pytest.raises(StrongTicketError, match=r"has tokens but no tokenizer\.json; use --tokenizer"):
        text.tokenizer.encode("The river")
    assert load_text(str(entry_of(cache)), tokenizer=words).tokenizer.encode("The river")


def test_an_entry_with_another_tokenizer_is_refused(data: Path, cache: Path, words: str, tmp_path: Path) -> None:
    load(data, cache, words)
    with pytest.raises(StrongTicketError, match=r"made with .* \(600 tokens\), not with bytes \(256 tokens\)"):
        load_text(str(entry_of(cache)), tokenizer="bytes")
    (entry_of(cache) / "tokenizer.json").write_text(pairs_bpe().to_json(), "utf-8")
    with pytest.raises(StrongTicketError, match="is not the tokenizer the tokens were made with"):
        load_text(str(entry_of(cache))).tokenizer.encode("The river")


def test_splits_an_entry_lacks_are_named(data: Path, cache: Path, words: str) -> None:
    load_text(str(data), tokenizer=words, splits=["valid"], cache=cache)
    entry = str(entry_of(cache))
    assert load_text(entry, splits=["valid"]).tokenizer.decode(load_text(entry, splits=["valid"]).valid) == VALID
    with pytest.raises(StrongTicketError, match="it has no train split, only valid"):
        load_text(entry)


def test_what_a_killed_process_left_is_cleared(data: Path, cache: Path, words: str) -> None:
    load(data, cache, words)
    entry = entry_of(cache)
    left = entry.with_name(f".{entry.name}.0123456789ab.part")
    shutil.move(entry, left)
    load(data, cache, words)
    assert entry.is_dir()
    assert not left.exists()
    lock = entry.with_name(f".{entry.name}.lock")
    assert not lock.exists()
    lock.touch()
    load(data, cache, words)
    assert not lock.exists()


LOAD = """
import sys
from pathlib import Path
from strongticket.data.text import load_text
data, cache, tokenizer = sys.argv[1:]
print(load_text(data, tokenizer=tokenizer, cache=Path(cache), progress=lambda *done: print("made")).digest)
"""


def test_processes_at_once_all_succeed(data: Path, cache: Path, words: str) -> None:
    (data / "train.txt").write_text(TRAIN * 2000, "utf-8")
    command = [sys.executable, "-c", LOAD, data, cache, words]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({output[-1] for output in outputs}) == 1
    assert sum("made" in output for output in outputs) == 1
    entry_of(cache)


def test_no_room_is_one_line_and_leaves_nothing(data: Path, cache: Path, words: str) -> None:
    (data / "train.txt").write_text(TRAIN * 2000, "utf-8")
    # A limit on the size of files stands in for a full disk: the write fails half-way.
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + LOAD
    done = subprocess.run([sys.executable, "-c", limited, data, cache, words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "StrongTicketError: cannot store tokens: [Errno 27] File too large" in done.stderr
    assert "Set STRONGTICKET_CACHE" in done.stderr
    assert not [path for path in (cache / "tokens").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_made_is_one_line(data: Path, tmp_path: Path, words: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StrongTicketError, match=r"cannot store tokens: .*Set STRONGTICKET_CACHE"):
        load(data, tmp_path / "file", words)


def test_text_that_is_unreadable_leaves_nothing(data: Path, cache: Path, words: str) -> None:
    (data / "valid.txt.xz").unlink()
    (data / "valid.txt").write_bytes(b"fine \xff")
    with pytest.raises(StrongTicketError, match=r"valid\.txt is not UTF-8 \(byte 5"):
        load(data, cache, words)
    assert not [path for path in (cache / "tokens").iterdir() if path.is_dir()]


def test_where_tokens_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("STRONGTICKET_CACHE", raising=False)
    assert default_root() == tmp_path / ".cache" / "strongticket"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg" / "strongticket"
    monkeypatch.setenv("STRONGTICKET_CACHE", str(tmp_path / "mine"))
    assert default_root() == tmp_path / "mine"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("STRONGTICKET_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(StrongTicketError, match="no home folder; set STRONGTICKET_CACHE"):
        default_root()
