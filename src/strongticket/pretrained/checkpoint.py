"""Finished pieces of an interrupted construction, one small file each, in a folder next to the future ticket."""

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

from strongticket.bounds.certificate import HeadNorms, LinearNorms
from strongticket.construct.product import Miss
from strongticket.errors import StrongTicketError, first_line
from strongticket.files import (
    BusyError,
    atomic_write,
    canonical_json,
    difference,
    discard,
    is_part,
    lock,
    read_json,
    regular,
    sweep,
    write_json,
)
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.tickets.symbols import Bits

_SETTINGS, _LOCK, _FACTS = "settings.json", "lock", "facts"
_DIGEST = hashlib.sha256().digest_size  # bytes after a piece


class Checkpoint:
    """The pieces finished so far; without a folder nothing is kept.

    Args:
        folder: created when work starts, removed when it is done; one with other files in it is refused.
        settings: everything the masks depend on, as JSON; a folder with other settings is refused.
        warn: called with a message if a file is damaged.
    """

    def __init__(
        self, folder: Path | None, settings: dict[str, object], warn: Callable[[str], object] = warnings.warn
    ) -> None:
        self._warn = warn
        self._folder, self._settings = folder, settings
        self._about = canonical_json(settings).encode()

    @contextmanager
    def open(self) -> Iterator["Checkpoint"]:
        """Lock the folder while the `with` block runs, so that a second run is refused."""
        if self._folder is None:
            yield self
            return
        self._folder.mkdir(exist_ok=True)
        if not _is_ours(self._folder):
            raise StrongTicketError(
                f"{self._folder} exists and is not a construction's unfinished work; choose another place, or move it."
            )
        with open(regular(self._folder / _LOCK), "ab") as file:
            lock(file, self._folder)
            self._check_settings(self._folder / _SETTINGS)
            try:
                yield self
            except BaseException:
                if not any(self._folder.glob("*.npz")):
                    discard(self._folder)
                raise

    def load(self, piece: Piece) -> Solved | None:
        """Return the solution of a piece, or None if it must be solved; a damaged file is reported and not used."""
        if self._folder is None:
            return None
        try:
            data = regular(self._folder / f"{piece.name}.npz").read_bytes()
            if data[-_DIGEST:] != self._digest(piece.name, data[:-_DIGEST]):
                raise ValueError("wrong SHA-256")
            with np.load(io.BytesIO(data[:-_DIGEST]), allow_pickle=False) as file:
                facts = json.loads(file[_FACTS].tobytes())
                arrays = {name: file[name] for name in file.files if name != _FACTS}
            bits: dict[str, Bits] = {name: array for name, array in arrays.items() if array.dtype == np.uint8}
            owners = {name: array for name, array in arrays.items() if array.dtype == np.int32}
            missed = [(matrix, Miss(*miss)) for matrix, miss in facts.pop("unreachable")]
            solved = Solved(bits=bits, owners=owners, unreachable=missed, **facts)
            list(piece.tensors(solved))
            _check_facts(piece, solved)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, AttributeError, TypeError, ValueError, LookupError, zipfile.BadZipFile) as error:
            self._warn(f"{self._folder / piece.name}.npz is damaged ({first_line(error)}); it is solved again.")
            return None
        return solved

    def keep(self, solved: Solved) -> None:
        """Save a finished piece."""
        if self._folder is None:
            return
        facts = {
            field.name: getattr(solved, field.name) for field in fields(solved) if field.name not in ("bits", "owners")
        }
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(facts, allow_nan=False).encode(), dtype=np.uint8)
        # Any: savez also has a keyword of another type.
        arrays: dict[str, Any] = {_FACTS: encoded, **solved.bits, **solved.owners}
        np.savez(buffer, **arrays)
        # If a power cut damages the last pieces, their digests show it, and they are solved again.
        with atomic_write(self._folder / f"{solved.name}.npz", durable=False) as file:
            file.write(buffer.getbuffer())
            file.write(self._digest(solved.name, buffer.getbuffer()))

    def _digest(self, name: str, data: bytes | memoryview) -> bytes:
        """Hash a piece together with the settings: a piece of another model or seed counts as damaged."""
        return hashlib.sha256(b"\0".join((self._about, name.encode(), data))).digest()

    def _check_settings(self, path: Path) -> None:
        theirs = read_json(path)
        if theirs is None:
            write_json(path, self._settings)
        elif theirs != self._settings:
            raise StrongTicketError(
                f"{path.parent} holds unfinished work with other settings ({difference(theirs, self._settings)}). "
                "Finish that first, choose another --out, or delete the folder."
            )


def _check_facts(piece: Piece, solved: Solved) -> None:
    """Raise an error for anything but a solution of this piece: another release may have kept other facts."""
    (HeadNorms if "vo" in piece.products else LinearNorms)(**solved.norms)
    numbers = [*solved.norms.values(), solved.worst_entry, solved.worst_reached]
    misses = [(type(matrix), *map(type, miss)) for matrix, miss in solved.unreachable]
    if (
        solved.assigned.keys() != {f"{piece.name}.{of}" for of in piece.products}
        or not all(type(number) is float for number in numbers)
        or type(solved.n_unreachable) is not int
        or not {*misses} <= {(str, int, int, float)}
    ):
        raise ValueError("it has other facts than a solution")


def _is_ours(folder: Path) -> bool:
    """Return whether a folder, which will be removed, holds nothing but what a construction leaves there."""
    if folder.is_symlink():
        return False
    names = {path.name for path in folder.glob("*")}  # none if another run has just removed it
    begun = _SETTINGS in names  # the first file that is written
    return all(name in (_LOCK, _SETTINGS) or is_part(name) or (begun and name.endswith(".npz")) for name in names)


def remove_checkpoint(folder: Path) -> None:
    """Remove a folder that is no longer needed, if it exists; if another run is using it, that run removes it."""
    sweep(folder.parent)  # where a killed run may have left a partial one
    if folder.is_dir() and _is_ours(folder):
        with suppress(BusyError), open(folder / _LOCK, "ab") as file:
            lock(file, folder)
            discard(folder)
