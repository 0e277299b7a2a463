import lzma
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongticket.data.text_files import cut_pieces, find_text_files, read_lines, read_pieces, split_of
from strongticket.errors import StrongTicketError


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.txt", "train"),
        ("train.txt.xz", "train"),
        ("train", "train"),
        ("train-00002.txt", "train"),
        ("train1.raw", "train"),
        ("wiki.train.tokens", "train"),
        ("wiki.valid.raw.xz", "valid"),
        ("validation.txt", "valid"),
        ("val.txt", "valid"),
        ("dev.txt", "valid"),
        ("wiki.test.tokens.xz", "test"),
        ("articles.tsv.xz", None),
        ("train.py", None),
        ("train.npy", None),
        ("trainer.txt", None),
        ("valuable.txt", None),
        (".train.txt", None),
        ("README.md", None),
    ],
)
def test_names_tell_the_split(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("train_b.txt", "wiki.valid.raw", "train_a.txt.xz", "notes.txt", "articles.tsv"):
        (tmp_path / name).touch()
    (tmp_path / "test").mkdir()
    found = find_text_files(tmp_path)
    assert {split: [path.name for path in files] for split, files in found.items()} == {
        "train": ["train_a.txt.xz", "train_b.txt"],
        "valid": ["wiki.valid.raw"],
    }


def test_the_same_text_packed_and_plain_is_refused(tmp_path: Path) -> None:
    for name in ("train.txt", "train.txt.xz"):
        (tmp_path / name).touch()
    with pytest.raises(StrongTicketError, match=r"train\.txt\.xz and the same name without \.xz would be read twice"):
        find_text_files(tmp_path)


texts = st.text(st.sampled_from("ab é字🎉 \n\t\u2003.'\r\x1c"), max_size=200)


def write(folder: Path, content: bytes, packed: bool) -> Path:
    path = folder / ("train.txt.xz" if packed else "train.txt")
    path.write_bytes(lzma.compress(content) if packed else content)
    return path


@given(texts, st.integers(1, 40), st.booleans())
def test_pieces_make_the_text_and_end_where_words_end(text: str, block_size: int, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pieces = list(read_pieces(write(Path(folder), text.encode(), packed), block_size=block_size))
    assert "".join(pieces) == text
    for left, right in pairwise(pieces):
        assert not left[-1].isspace()
        assert right[0] in " \n"


def cut_by_searching_all(parts: list[str]) -> Iterator[str]:
    """What pieces are, by definition: after each part, all that is not given out yet, up to its last cut."""
    text = ""
    for part in parts:
        text += part
        if found := re.match(r".*\S(?=[ \n])", text, re.DOTALL):
            yield text[: found.end()]
            text = text[found.end() :]
    if text:
        yield text


@given(st.lists(st.text(st.sampled_from("ab \n\t\u2003"), max_size=4)))
def test_pieces_are_those_of_searching_all_again(parts: list[str]) -> None:
    assert list(cut_pieces(parts)) == list(cut_by_searching_all(parts))


def seconds_to_cut(part: str) -> float:
    start = time.process_time()
    assert sum(map(len, cut_pieces([part] * 5_000))) == 5_000 * len(part)
    return time.process_time() - start


def test_a_text_without_spaces_takes_hardly_longer_than_one_with() -> None:
    with_spaces, without = (min(seconds_to_cut(part) for _ in range(2)) for part in ("ab cd", "abcde"))
    # Searching all again at every part takes some 300 times as long.
    assert without < 10 * with_spaces


@given(texts, st.integers(1, 40), st.booleans())
def test_lines_are_those_between_the_ends(text: str, block_size: int, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = list(read_lines(write(Path(folder), text.encode(), packed), block_size=block_size))
    assert lines == text.replace("\r", "\n").split("\n")


@pytest.mark.parametrize("block_size", [1, 2, 3, 1000])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, block_size: int) -> None:
    path = write(tmp_path, "\N{BYTE ORDER MARK}The \N{BYTE ORDER MARK}end".encode("utf-8"), packed=False)
    assert "".join(read_pieces(path, block_size=block_size)) == "The \N{BYTE ORDER MARK}end"
    assert list(read_lines(path, block_size=block_size)) == ["The \N{BYTE ORDER MARK}end"]


def test_a_long_text_comes_in_many_pieces(tmp_path: Path) -> None:
    pieces = list(read_pieces(write(tmp_path, b"a line of words\n" * 1000, packed=True), block_size=100))
    assert len(pieces) == 161
    assert max(map(len, pieces)) < 120


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block_size", [1, 3, 4, 1000])
@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"good \xff bad", 5),
        ("\N{EURO SIGN}uro".encode("utf-8") + b"\xe2\x82 cut", 6),
        (b"ends inside \xe2\x82", 12),
        ("caf\xe9 noir".encode("latin-1"), 3),
        (b"\xef\xbb\xbfgood \xff bad", 8),
    ],
)
def test_other_encodings_name_file_and_byte(
    tmp_path: Path, content: bytes, offset: int, block_size: int, packed: bool
) -> None:
    path = write(tmp_path, content, packed)
    with pytest.raises(StrongTicketError, match=rf"{path.name} is not UTF-8 \((unpacked, )?byte {offset}:"):
        list(read_pieces(path, block_size=block_size))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[:50] + b"xx" + data[52:], lambda data: b""]
)
def test_damaged_archives_are_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "train.txt.xz"
    path.write_bytes(damage(lzma.compress(random.Random(0).randbytes(500).hex().encode())))
    with pytest.raises(StrongTicketError, match=r"train\.txt\.xz cannot be unpacked"):
        list(read_pieces(path))


@pytest.mark.parametrize("packed", [False, True])
def test_progress_adds_up_to_the_stored_bytes(tmp_path: Path, packed: bool) -> None:
    path = write(tmp_path, b"a line of words\n" * 1000, packed)
    amounts: list[int] = []
    list(read_pieces(path, amounts.append, block_size=1000))
    assert sum(amounts) == path.stat().st_size
