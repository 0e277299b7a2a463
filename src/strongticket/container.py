"""The safetensors container: a length, a JSON header, the bytes. Written and read here so that every byte is pinned.

Only what tickets and exports need: headers in canonical JSON, data without gaps, whole-file writes that are atomic.
"""

import json
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

# A JSON value as Python's json module reads and writes it.
Json = Any

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "U8": torch.uint8}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor's place in the container's table."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of payload."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def canonical_json(value: Json) -> str:
    """Write JSON the one way we accept: sorted keys, no spaces, UTF-8, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_canonical_json(text: str) -> Json:
    """Read JSON that `canonical_json` could have written; a ValueError says what is wrong with any other.

    Writing the value again and comparing rules out repeated keys, NaN, odd numbers and spacing in one stroke.
    """
    try:
        value = json.loads(text)
        if canonical_json(value) != text:
            raise ValueError("JSON is not in canonical form (sorted, unrepeated keys; no spaces; plain finite numbers)")
        text.encode()
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("JSON holds half a surrogate pair") from None
    return value


def header_of(entries: list[Entry], metadata: dict[str, str]) -> dict[str, Json]:
    """Lay the entries out one after another and give the container's header."""
    header: dict[str, Json] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for entry in entries:
        end = offset + entry.nbytes
        header[entry.name] = {"data_offsets": [offset, end], "dtype": entry.dtype, "shape": list(entry.shape)}
        offset = end
    return header


def header_bytes(header: dict[str, Json]) -> bytes:
    """Serialise a header with its length in front, padded with spaces to a multiple of eight."""
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


@contextmanager
def atomic_write(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes `path`'s place only when the block ends well; otherwise nothing is left behind.

    `durable=False` does not wait for the disk: after a power cut the file may be there and damaged.
    """
    place = Path(os.path.realpath(path))  # a link goes on leading to the file
    temporary = place.with_name(f".{secrets.token_hex(6)}.part")  # short, whatever the length of the name
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # A full disk names no file at all, and a missing folder one that nobody asked for.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
