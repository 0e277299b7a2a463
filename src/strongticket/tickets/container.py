"""The safetensors container: a length, a JSON header, the bytes. Written and read here so that every byte is fixed.

Only what tickets and exports need: headers in canonical JSON, data without gaps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

import torch

from strongticket.files import canonical_json

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


class Place(TypedDict):
    """Where the data of an entry lies, and what they are."""

    data_offsets: list[int]  # from the end of the header: first byte, and the one after the last
    dtype: str
    shape: list[int]


def places_of(entries: list[Entry]) -> dict[str, Place]:
    """Lay out the entries one after another."""
    places: dict[str, Place] = {}
    offset = 0
    for entry in entries:
        end = offset + entry.nbytes
        places[entry.name] = {"data_offsets": [offset, end], "dtype": entry.dtype, "shape": list(entry.shape)}
        offset = end
    return places


def header_of(entries: list[Entry], metadata: dict[str, str]) -> dict[str, object]:
    """Return the header of a container that holds these entries."""
    return {**({"__metadata__": metadata} if metadata else {}), **places_of(entries)}


def header_bytes(header: Mapping[str, object]) -> bytes:
    """Serialise a header, preceded by its length and padded with spaces to a multiple of eight."""
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
