"""A run's state on disk: hashed, so that damage is detected, and kept in two generations, so that it costs little.

A file is the output of `torch.save`, its SHA-256, and an eight-byte mark.
"""

import hashlib
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from strongticket.errors import StrongTicketError, first_line
from strongticket.files import atomic_write, regular

MARK = b"sha256.1"


class DamagedError(StrongTicketError):
    """A file is not a checkpoint, or is damaged."""


def before(path: Path) -> Path:
    """Return the path of the previous generation."""
    return path.with_name(f"{path.stem}-before{path.suffix}")


def write(path: Path, state: Mapping[str, Any], *, keep: bool = True) -> None:
    """Replace a checkpoint; with `keep`, the old one becomes the previous generation. On a full disk, one stays."""
    with atomic_write(path) as file:
        hashed: Any = _Hashed(file)  # Any: torch asks for more of a file than it uses
        torch.save(dict(state), hashed)
        file.write(hashed.digest.digest() + MARK)
        file.flush()
        if keep and path.exists():
            os.replace(path, before(path))


def read(path: Path, device: torch.device, check: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        path: the file.
        device: where its tensors go.
        check: raises if the run cannot resume from the state.

    Raises:
        DamagedError: the file is not a checkpoint, or `check` raised anything but a StrongTicketError.
    """
    try:
        state: Any = torch.load(
            io.BytesIO(_verified(regular(path).read_bytes())), map_location=device, weights_only=True
        )
        if not isinstance(state, dict):
            raise ValueError("it holds something else")
        check(state)
    except (StrongTicketError, FileNotFoundError):
        raise
    except Exception as error:  # unpickling can raise anything
        raise DamagedError(f"{path} cannot be read ({first_line(error)}).") from None
    return state


def remove(path: Path) -> None:
    """Remove both generations."""
    path.unlink(missing_ok=True)
    before(path).unlink(missing_ok=True)


def _verified(data: bytes) -> memoryview:
    """Verify the hash and strip it."""
    size = hashlib.sha256().digest_size + len(MARK)
    body, end = memoryview(data)[:-size], data[-size:]
    if not end.endswith(MARK):
        raise ValueError("it is truncated, damaged, or not a checkpoint")
    if hashlib.sha256(body).digest() + MARK != end:
        raise ValueError("its SHA-256 does not match: it was damaged")
    return body


class _Hashed(io.RawIOBase):
    """Hash data while writing it to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.file.write(data)
