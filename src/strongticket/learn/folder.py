"""The folder of one run: how far it is, what it measured, what it found.

config.json      the settings; another run's folder is refused
metrics.jsonl    a line every few steps: training loss and speed; validation losses
checkpoint.pt    while the run is under way: all it needs to go on; a module of one's own keeps it
best.ticket      what a search found (dense training: model.safetensors)
result.json      losses, curve and counts; the same bytes however often the run was stopped
run.json         command, machine, date and times
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strongticket.errors import StrongTicketError, first_line
from strongticket.files import Json, atomic_write, lock, read_json, write_json
from strongticket.settings import other_settings

CONFIG, METRICS, CHECKPOINT, RESULT, RUN = "config.json", "metrics.jsonl", "checkpoint.pt", "result.json", "run.json"
TICKET, WEIGHTS = "best.ticket", "model.safetensors"


class RunFolder:
    """Where a run keeps its files.

    Args:
        path: made when the run begins.
        config: all settings, as JSON.
        kind: their dataclass, for files that are older than some of them.
    """

    def __init__(self, path: Path, config: Json, kind: type[Any]) -> None:
        self.path, self.config, self.kind = path, config, kind

    def finished(self) -> Json | None:
        """Read the result if the run is done; a folder of other settings is refused."""
        result = read_json(self.path / RESULT)
        self._check(read_json(self.path / CONFIG))
        self._check((result or {}).get("config"))
        return result

    def _check(self, config: Json | None) -> None:
        if config is not None and (first := other_settings(config, self.config, self.kind)):
            if first.startswith("text.digest"):  # which says nothing to people
                first = "its text has changed since, or its tokenizer"
            raise StrongTicketError(
                f"{self.path} holds a run of other settings ({first}). Choose another --out, or move that folder away."
            )

    @contextmanager
    def opened(self, *, writes: bool) -> Iterator[None]:
        """Make the folder and keep other runs out while the block runs; a process that only reads just goes on."""
        if not writes:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / METRICS, "ab") as file:
            lock(file, self.path)
            if not (self.path / CONFIG).exists():
                write_json(self.path / CONFIG, self.config)
            yield

    def append_metrics(self, row: Json) -> None:
        """Add a line."""
        with open(self.path / METRICS, "ab", buffering=0) as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")

    def metrics(self) -> list[Json]:
        """Read the lines, as far as they are whole."""
        path = self.path / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        try:
            return [json.loads(line) for line in lines if line.endswith(b"\n")]
        except ValueError as error:
            raise StrongTicketError(f"{path} is not JSON lines ({error}); mend it, or choose another --out.") from None

    def rewind_metrics(self, step: int) -> None:
        """Forget lines of steps that will be done again."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        # Written in place, since the lock is on this file.
        with open(self.path / METRICS, "r+b") as file:
            file.truncate(0)
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in kept))
            os.fsync(file.fileno())

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint; if there is no room for it, the one before stays."""
        try:
            # What was measured before a checkpoint is not measured again after it.
            with open(self.path / METRICS, "r+b") as metrics:
                os.fsync(metrics.fileno())
            with atomic_write(self.path / CHECKPOINT) as file:
                torch.save({"config": self.config, **state}, file)
        except (OSError, RuntimeError) as error:  # torch answers a failed write with a RuntimeError of its own
            cause = error if isinstance(error, OSError) else error.__context__ or error
            raise StrongTicketError(
                f"{self.path / CHECKPOINT} could not be written ({cause}); an earlier one is kept. "
                "Make room and run the same command again."
            ) from None

    def load_checkpoint(self, device: torch.device) -> Mapping[str, Any] | None:
        """Read the checkpoint, if there is one."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        try:
            state: Mapping[str, Any] = torch.load(path, map_location=device, weights_only=True)
            first = other_settings(state["config"], self.config, self.kind)
        except Exception as error:  # torch raises whatever its unpickler met
            raise StrongTicketError(f"{path} cannot be read ({first_line(error)}); delete it to begin anew.") from error
        if first is not None:
            raise StrongTicketError(
                f"{path} belongs to a run of other settings ({first}); "
                "delete it to begin anew, or choose another --out."
            )
        return state

    def finish(self, result: Json, run: Json) -> None:
        """Write both files, the result last: while it is missing, the run counts as unfinished."""
        write_json(self.path / RUN, run)
        write_json(self.path / RESULT, result)
