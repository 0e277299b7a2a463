"""Sentences from a plain text file."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from strongticket.data.text_files import read_lines
from strongticket.errors import StrongTicketError

_FEWEST_WORDS = 4
# A full stop, question or exclamation mark, then spaces, then a capital letter.
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def read_sentences(path: Path, limit: int) -> list[str]:
    """Read the first sentences of a UTF-8 file, plain or compressed as `.xz`, without headings and fragments."""
    sentences = list(islice(_sentences(read_lines(path)), limit))
    if not sentences:
        raise StrongTicketError(f"{path}: contains no sentence of at least {_FEWEST_WORDS} words.")
    return sentences


def _sentences(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if not line.lstrip().startswith("="):
            for sentence in _BETWEEN_SENTENCES.split(line.strip()):
                if len(sentence.split()) >= _FEWEST_WORDS:
                    yield sentence
