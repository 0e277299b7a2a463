"""Sentences from a plain text file."""

import lzma
import re
from collections.abc import Iterator
from pathlib import Path

from strongticket.errors import StrongTicketError

_FEWEST_WORDS = 4
# A full stop, question or exclamation mark, then spaces, then a capital letter.
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def read_sentences(path: Path, limit: int) -> list[str]:
    """Give the first sentences of a UTF-8 file, plain or compressed as `.xz`; headings and fragments are left out."""
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            sentences = [sentence for _, sentence in zip(range(limit), _sentences(file), strict=False)]
    except (UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise StrongTicketError(f"{path}: not UTF-8 text, plain or compressed by xz ({error}).") from error
    if not sentences:
        raise StrongTicketError(f"{path}: no sentence of at least {_FEWEST_WORDS} words in it.")
    return sentences


def _sentences(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if not line.lstrip().startswith("="):
            for sentence in _BETWEEN_SENTENCES.split(line.strip()):
                if len(sentence.split()) >= _FEWEST_WORDS:
                    yield sentence
