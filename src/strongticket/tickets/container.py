"""The safetensors container: a length, a JSON header, the bytes. Written and read here so that every byte is fixed.

Only what tickets and exports need: headers in canonical JSON, data without gaps.
"""

import math
from dataclasses import dataclass

import torch

from strongticket.files import Json, canonical_json

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


def header_of(entries: list[Entry], metadata: dict[str, str]) -> dict[str, Json]:
    """Lay out the entries one after another and return the container's header."""
    header: dict[str, Json] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for entry in entries:
        end = offset + entry.nbytes
        header[entry.name] = {"data_offsets": [offset, end], "dtype": entry.dtype, "shape": list(entry.shape)}
        offset = end
    return header


def header_bytes(header: dict[str, Json]) -> bytes:
    """Serialise a header, preceded by its length and padded with spaces to a multiple of eight."""
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
