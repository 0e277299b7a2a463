"""Text files in a folder: which belong to which split, and their text in pieces."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from strongticket.errors import StrongTicketError

SPLITS = ("train", "valid", "test")
LAYOUT = (
    "The folder needs train.txt and valid.txt (or wiki.train.tokens, train_1.raw and train_2.raw, val, dev; "
    "plain UTF-8 or .xz), and test.txt for a test"
)

_SPLIT_OF_WORD = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
_ENDINGS = ("", ".txt", ".text", ".raw", ".tokens")
_BLOCK = 1 << 17

# Called with the number of stored bytes read since the last call.
Advance = Callable[[int], object]


def name_of(folder: Path) -> str:
    """Return a folder's own name as text that a ticket can hold: bytes that are not UTF-8 are spelled out."""
    return folder.resolve().name.encode(errors="backslashreplace").decode()


def split_of(name: str) -> str | None:
    """Return which split a file holds, from a word in its name, or None; the ending must be that of a text file.

    Example:
        >>> [split_of(name) for name in ("wiki.valid.tokens", "train_2.txt.xz", "train.py", "trainer.txt")]
        ['valid', 'train', None, None]
    """
    path = Path(name.lower().removesuffix(".xz"))
    if name.startswith(".") or path.suffix not in _ENDINGS:
        return None
    words = re.findall("[a-z]+", path.name)
    return next((_SPLIT_OF_WORD[word] for word in words if word in _SPLIT_OF_WORD), None)


def find_text_files(folder: Path) -> Mapping[str, list[Path]]:
    """Find the text files of each split in a folder, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (split := split_of(path.name)):
            found.setdefault(split, []).append(path)
    for files in found.values():
        plain = {path.name for path in files}
        if twice := [path.name for path in files if path.name.endswith(".xz") and path.stem in plain]:
            raise StrongTicketError(
                f"{folder}: {twice[0]} and the same name without .xz would be read twice; keep one."
            )
    return found


def read_pieces(path: Path, advance: Advance | None = None, *, block_size: int = _BLOCK) -> Iterator[str]:
    """Read a UTF-8 file, plain or .xz, in pieces made by `cut_pieces`."""
    return cut_pieces(_read_text(path, advance, block_size))


def read_lines(path: Path, *, block_size: int = _BLOCK) -> Iterator[str]:
    """Read the lines of a UTF-8 file, plain or .xz, without line ends; both CR and LF end a line."""
    line: list[str] = []
    for part in _read_text(path, None, block_size):
        first, *others = re.split("[\r\n]", part)
        line.append(first)
        for other in others:
            yield "".join(line)
            line = [other]
    yield "".join(line)


def cut_pieces(parts: Iterable[str]) -> Iterator[str]:
    r"""Cut a text that comes in parts into pieces whose tokens, in sequence, are the tokens of the whole.

    A piece ends before a space or line end that follows a visible character. GPT-2's rule for splitting text into words
    always splits there and never looks back, so the cut changes nothing.

    Example:
        >>> list(cut_pieces(["The end", ".\n\nThen", "ce"]))
        ['The', ' end.', '\n\nThence']
    """
    # Parts that wait for a cut are not searched again: a text may have none for megabytes.
    waiting: list[str] = []
    last = ""  # character of those parts
    for part in parts:
        seam = last + part
        if cut := _last_cut(seam):
            cut -= len(last)
            yield "".join((*waiting, part[:cut]))
            waiting = [part[cut:]]
        else:
            waiting.append(part)
        last = seam[-1:]
    if rest := "".join(waiting):
        yield rest


def _last_cut(text: str) -> int:
    match = re.match(r".*\S(?=[ \n])", text, re.DOTALL)
    return match.end() if match else 0


def _read_text(path: Path, advance: Advance | None, block_size: int) -> Iterator[str]:
    # "sig": a byte order mark, which some editors put first, is not part of the text.
    decoder, done = codecs.getincrementaldecoder("utf-8-sig")(), 0
    for block in _read_bytes(path, advance, block_size):
        try:
            # An empty block is the last: an incomplete character is then an error too.
            yield decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            # The decoder's input may start with bytes of an incomplete character from the last block.
            offset = done + len(block) - len(error.object) + error.start
            unpacked = "unpacked, " if path.suffix == ".xz" else ""
            raise StrongTicketError(
                f"{path} is not UTF-8 ({unpacked}byte {offset:,}: {error.reason}); convert it, for instance with iconv."
            ) from None
        done += len(block)


def _read_bytes(path: Path, advance: Advance | None, block_size: int) -> Iterator[bytes]:
    """Read unpacked bytes, with an empty block at the end; progress counts stored bytes."""
    with open(path, "rb") as stored:
        position = 0
        for block in _unpack(path, stored, block_size) if path.suffix == ".xz" else _blocks(stored, block_size):
            yield block
            if advance:
                advance(stored.tell() - position)
                position = stored.tell()


def _unpack(path: Path, stored: IO[bytes], block_size: int) -> Iterator[bytes]:
    import lzma  # here, because some Pythons are built without it

    try:
        with lzma.open(stored) as unpacked:
            yield from _blocks(unpacked, block_size)
    except (lzma.LZMAError, EOFError) as error:
        raise StrongTicketError(f"{path} cannot be unpacked ({error}); copy or download it again.") from None


def _blocks(file: IO[bytes], block_size: int) -> Iterator[bytes]:
    while block := file.read(block_size):
        yield block
    yield b""
