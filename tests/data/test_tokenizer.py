import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.little_bpe import pairs_bpe, train_bpe

from strongticket.data.byte_level import BpeCodec, bpe_from_folder, bpe_from_json
from strongticket.data.text_files import cut_pieces, read_pieces
from strongticket.data.tokenizer import GPT2_DIGEST, GPT2_VOCABULARY, find_tokenizer
from strongticket.errors import MissingExtraError, StrongTicketError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with vocab.json and merges.txt of a small BPE."""
    folder = tmp_path_factory.mktemp("words")
    train_bpe().model.save(str(folder))
    return folder


@pytest.fixture(scope="module")
def codec(folder: Path) -> BpeCodec:
    return bpe_from_folder(folder)


NASTY = "It's  the\n\n rock<|endoftext|>'s é字🎉 1990s\t\u00a0 x\r\n" + "".join(map(chr, range(1, 256)))


def test_bytes() -> None:
    tokenizer = find_tokenizer("bytes")
    assert tokenizer.vocabulary == 256
    assert tokenizer.encode("é!") == [0xC3, 0xA9, 0x21]
    assert tokenizer.decode([0xC3, 0xA9, 0x21, 0xC3]) == "é!\ufffd"


@given(st.text())
def test_what_is_encoded_decodes_again(codec: BpeCodec, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert codec.to_bytes(codec.encode(text)).decode() == text


def test_tokens_are_those_of_transformers(codec: BpeCodec, folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.GPT2TokenizerFast.from_pretrained(str(folder))
    assert codec.encode(NASTY) == theirs.encode(NASTY)
    assert codec.special["<|endoftext|>"] in codec.encode(NASTY)
    # Through transformers and through files: one and the same tokenizer.
    assert bpe_from_json(theirs.backend_tokenizer.to_str(), "theirs").digest == codec.digest


def test_both_kinds_of_files_give_the_same(codec: BpeCodec, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(codec.to_json(), "utf-8")
    again = find_tokenizer(str(tmp_path))
    assert again.digest == codec.digest
    assert again.encode(NASTY) == codec.encode(NASTY)
    assert again.vocabulary == codec.vocabulary
    assert again.name == tmp_path.name


parts = st.lists(st.text(st.sampled_from("theandof'slé字🎉  \n\n\t\u2003.1\r\x1c\u2028"), max_size=20))


@given(parts)
def test_pieces_give_the_tokens_of_the_whole(codec: BpeCodec, parts: list[str]) -> None:
    tokens = [int(token) for array in codec.encode_pieces(cut_pieces(parts)) for token in array]
    assert tokens == codec.encode("".join(parts))


def test_real_text_in_pieces_gives_the_tokens_of_the_whole(shared_data: Path) -> None:
    codec = find_tokenizer(str(shared_data / "gpt2_bpe")).codec
    for file, count in (("wikitext-103/wiki.valid.tokens.xz", 249_735), ("wikipedia-fa-ga-2019/valid.txt.xz", 329_742)):
        with lzma.open(shared_data / file, "rt", encoding="utf-8", newline="\n") as opened:
            text = opened.read()
        pieces = list(read_pieces(shared_data / file, block_size=1 << 14))
        assert len(pieces) > 60
        tokens = np.concatenate(list(codec.encode_pieces(pieces)))
        assert len(tokens) == count
        assert tokens.tolist() == codec.encode(text)


def test_gpt2_is_known_by_its_rules(shared_data: Path) -> None:
    tokenizer = find_tokenizer(str(shared_data / "gpt2_bpe"))
    assert tokenizer.describe() == {"name": "gpt2", "vocabulary": GPT2_VOCABULARY, "digest": GPT2_DIGEST}
    assert tokenizer.describe() == find_tokenizer("gpt2").describe()
    assert tokenizer.encode("Hello world<|endoftext|>") == [15496, 995, 50256]


def test_large_vocabularies_need_32_bits() -> None:
    codec = pairs_bpe()
    assert codec.vocabulary == 256 + 256 * 256
    (tokens,) = codec.encode_pieces(["\N{EURO SIGN}" * 3])
    assert tokens.dtype == np.uint32
    assert tokens.max() > 65_535
    assert codec.to_bytes(tokens.tolist()).decode() == "\N{EURO SIGN}" * 3


def changed(codec: BpeCodec, change: Callable[[Any], object]) -> str:
    content = json.loads(codec.to_json())
    change(content)
    return json.dumps(content)


def add_token(content: Any, text: object) -> None:
    number = len(content["model"]["vocab"])
    content["model"]["vocab"][text] = number
    content["added_tokens"].append({"id": number, "content": text, "special": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(type="WordPiece"), "the model is WordPiece"),
        (lambda c: c["pre_tokenizer"].update(add_prefix_space=True), "add_prefix_space"),
        (lambda c: c["pre_tokenizer"].update(use_regex=False), "use_regex"),
        (lambda c: c.update(pre_tokenizer=None), "pre-tokenizer is not ByteLevel"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "pre-tokenizer is not ByteLevel"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "normalizer"),
        (lambda c: c["model"].update(dropout=0.1), "dropout is 0.1"),
        (lambda c: c["model"].update(ignore_merges=True), "ignore_merges"),
        (lambda c: c["model"]["vocab"].pop("a"), "lacks 1 of the 256 single bytes|not numbered consecutively from 0"),
        (lambda c: c["model"]["vocab"].update(the=0), "not numbered consecutively from 0"),
        (lambda c: c["model"]["merges"].append(["q", "Q"]), "1 merged tokens are not in the vocabulary"),
        (lambda c: c["model"]["merges"].append("a b c"), "too many values"),
        (lambda c: c["added_tokens"][0].update(lstrip=True), "absorbs the spaces"),
        (lambda c: add_token(c, "<start of turn>"), "the added token '<start of turn>' contains some"),
        (lambda c: add_token(c, "<turn>\n"), "cut at white space"),
        (lambda c: add_token(c, " . "), "cut at white space"),
        (lambda c: add_token(c, 5), "TypeError"),
        (lambda c: c.pop("model"), "KeyError"),
        (lambda c: c["model"].update(vocab=[1, 2]), "not a byte-level BPE"),
        (lambda c: c["model"]["vocab"].update({"字": len(c["model"]["vocab"])}), "not made of bytes, for example '字'"),
    ],
)
def test_other_tokenizers_are_refused(codec: BpeCodec, change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(StrongTicketError, match=message) as raised:
        bpe_from_json(changed(codec, change), "mine.json")
    assert "mine.json is not a byte-level BPE" in str(raised.value)


@pytest.mark.parametrize("token", ["    ", "\n\n", " <turn>", "a\tb"])
def test_added_tokens_that_no_cut_can_part_are_taken(codec: BpeCodec, token: str) -> None:
    own = bpe_from_json(changed(codec, lambda c: add_token(c, token)), "mine.json")
    text = f"the rock{token}{token} of {token}\n{token}the end"
    whole = own.encode(text)
    assert own.special[token] in whole
    for cut in range(len(text)):
        pieces = cut_pieces([text[:cut], text[cut:]])
        assert np.concatenate(list(own.encode_pieces(pieces))).tolist() == whole


@pytest.mark.parametrize("content", ["", "[]", "{", "null", "3"])
def test_files_that_are_no_tokenizer_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "vocab.json").write_text(content)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\n")
    with pytest.raises(StrongTicketError, match=r"vocab\.json and merges\.txt are not a byte-level BPE"):
        find_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(StrongTicketError, match=r"tokenizer\.json is not a byte-level BPE"):
        find_tokenizer(str(tmp_path))


def test_a_folder_without_a_tokenizer_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(StrongTicketError, match=r"no tokenizer here; it needs vocab\.json and merges\.txt"):
        find_tokenizer(str(tmp_path))
    with pytest.raises(StrongTicketError, match="must be bytes, gpt2 or a folder"):
        find_tokenizer(str(tmp_path / "nowhere"))


def test_a_missing_package_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    tokenizer = find_tokenizer(str(folder))
    with pytest.raises(MissingExtraError, match=r"pip install 'strongticket\[hf\]'"):
        tokenizer.encode("text")
