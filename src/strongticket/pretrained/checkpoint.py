"""Finished pieces of an interrupted construction, one small file each, in a folder beside the ticket to be."""

import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from strongticket.construct.product import Miss
from strongticket.errors import StrongTicketError, first_line
from strongticket.files import (
    BusyError,
    Json,
    atomic_write,
    canonical_json,
    difference,
    discard,
    lock,
    read_json,
    sweep,
    write_json,
)
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.tickets.symbols import Bits

_SETTINGS, _LOCK, _FACTS = "settings.json", "lock", "facts"
_DIGEST = hashlib.sha256().digest_size  # bytes after a piece


class Checkpoint:
    """What is done so far; without a folder nothing is kept.

    Args:
        folder: made when work begins.
        settings: everything the masks depend on, as JSON; a folder of other settings is refused.
        tell: told of damage.
    """

    def __init__(
        self, folder: Path | None, settings: dict[str, Json], tell: Callable[[str], object] = warnings.warn
    ) -> None:
        self._tell = tell
        self._folder, self._settings = folder, settings
        self._about = canonical_json(settings).encode()

    @contextmanager
    def open(self) -> Iterator["Checkpoint"]:
        """Hold the folder while the block runs: a second run is kept out."""
        if self._folder is None:
            yield self
            return
        self._folder.mkdir(exist_ok=True)
        with open(self._folder / _LOCK, "ab") as file:
            lock(file, self._folder)
            self._check_settings(self._folder / _SETTINGS)
            try:
                yield self
            except BaseException:
                if not any(self._folder.glob("*.npz")):
                    discard(self._folder)
                raise

    def load(self, piece: Piece) -> Solved | None:
        """Give what was found for a piece, or None if it has to be solved; a damaged file is told, and not used."""
        if self._folder is None:
            return None
        try:
            data = (self._folder / f"{piece.name}.npz").read_bytes()
            if data[-_DIGEST:] != self._digest(piece.name, data[:-_DIGEST]):
                raise ValueError("another SHA-256")
            with np.load(io.BytesIO(data[:-_DIGEST]), allow_pickle=False) as file:
                facts = json.loads(file[_FACTS].tobytes())
                arrays = {name: file[name] for name in file.files if name != _FACTS}
            bits: dict[str, Bits] = {name: array for name, array in arrays.items() if array.dtype == np.uint8}
            owners = {name: array for name, array in arrays.items() if array.dtype == np.int32}
            missed = [(matrix, Miss(*miss)) for matrix, miss in facts.pop("unreachable")]
            solved = Solved(bits=bits, owners=owners, unreachable=missed, **facts)
            list(piece.tensors(solved))
        except FileNotFoundError:
            return None
        except (OSError, EOFError, TypeError, ValueError, LookupError, zipfile.BadZipFile) as error:
            self._tell(f"{self._folder / piece.name}.npz is damaged ({first_line(error)}); it is solved again.")
            return None
        return solved

    def keep(self, solved: Solved) -> None:
        """Keep a finished piece."""
        if self._folder is None:
            return
        facts = {
            field.name: getattr(solved, field.name) for field in fields(solved) if field.name not in ("bits", "owners")
        }
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(facts, allow_nan=False).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {
            _FACTS: encoded,
            **solved.bits,
            **solved.owners,
        }  # Any: numpy has a keyword of its own beside them
        np.savez(buffer, **arrays)
        # Nothing is lost if a power cut takes the last of them: the digest tells, and they are solved again.
        with atomic_write(self._folder / f"{solved.name}.npz", durable=False) as file:
            file.write(buffer.getbuffer())
            file.write(self._digest(solved.name, buffer.getbuffer()))

    def _digest(self, name: str, data: bytes | memoryview) -> bytes:
        """Hash a piece with what it is a piece of: that of another model or seed is as good as damaged."""
        return hashlib.sha256(b"\0".join((self._about, name.encode(), data))).digest()

    def _check_settings(self, path: Path) -> None:
        theirs = read_json(path)
        if theirs is None:
            write_json(path, self._settings)
        elif theirs != self._settings:
            raise StrongTicketError(
                f"{path.parent} holds unfinished work of another kind ({difference(theirs, self._settings)}). "
                "Finish that first, choose another --out, or delete the folder."
            )


def remove_checkpoint(folder: Path) -> None:
    """Remove a folder that is no longer needed, if it is there; another run at work in it removes it in its turn."""
    sweep(folder.parent)  # where a kill may have left half of one
    if folder.exists():
        with suppress(BusyError), open(folder / _LOCK, "ab") as file:
            lock(file, folder)
            discard(folder)
