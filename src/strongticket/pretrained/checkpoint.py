"""Finished pieces of an interrupted construction, one small file each, in a folder beside the ticket to be."""

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from strongticket.construct.product import Miss
from strongticket.errors import StrongTicketError
from strongticket.files import BusyError, Json, atomic_write, difference, discard, lock, read_json, sweep, write_json
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.tickets.symbols import Bits

_SETTINGS, _LOCK, _FACTS = "settings.json", "lock", "facts"


class Checkpoint:
    """What is done so far; without a folder nothing is kept.

    Args:
        folder: made when work begins.
        settings: everything the masks depend on, as JSON; a folder of other settings is refused.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Json]) -> None:
        self._folder, self._settings = folder, settings

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
        """Give what was found for a piece, or None if it has to be solved; a damaged file counts as none."""
        if self._folder is None:
            return None
        try:
            with np.load(self._folder / f"{piece.name}.npz", allow_pickle=False) as file:
                facts = json.loads(file[_FACTS].tobytes())
                arrays = {name: file[name] for name in file.files if name != _FACTS}
            bits: dict[str, Bits] = {name: array for name, array in arrays.items() if array.dtype == np.uint8}
            owners = {name: array for name, array in arrays.items() if array.dtype == np.int32}
            missed = [(matrix, Miss(*miss)) for matrix, miss in facts.pop("unreachable")]
            solved = Solved(bits=bits, owners=owners, unreachable=missed, **facts)
            complete = len(list(piece.tensors(solved))) == 2 * len(bits)
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        return solved if complete else None

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
        # Nothing is lost if a power cut takes the last of them: the check sums inside tell, and they are solved again.
        with atomic_write(self._folder / f"{solved.name}.npz", durable=False) as file:
            file.write(buffer.getbuffer())

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
