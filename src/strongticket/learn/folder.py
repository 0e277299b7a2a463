"""The folder of one run: how far it is, what it measured, what it found.

config.json      the settings; another run's folder is refused
metrics.jsonl    a line every few steps: training loss and speed; validation losses
checkpoint.pt    while the run is under way: all it needs to go on; a module of one's own keeps it
checkpoint-before.pt  the one before, in case the newest is damaged
best.ticket      what a search found (dense training: model.safetensors)
result.json      losses, curve and counts; the same bytes however often the run was stopped
run.json         command, machine, date and times
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from strongticket.errors import StrongTicketError, first_line
from strongticket.files import Json, append_line, lock, read_json, sealed, write_json
from strongticket.learn import checkpoint
from strongticket.learn.rules.rule import as_rule
from strongticket.settings import other_settings

CONFIG, METRICS, CHECKPOINT, RESULT, RUN = "config.json", "metrics.jsonl", "checkpoint.pt", "result.json", "run.json"
TICKET, WEIGHTS = "best.ticket", "model.safetensors"


def _with_rule(config: Json) -> Json:
    """Spell out the settings of the rule that a policy names; one that is not known here stays as it is."""
    policy = config.get("policy") if isinstance(config, dict) else None
    if not isinstance(policy, dict) or not isinstance(rule := policy.get("rule"), str):
        return config
    try:
        return {**config, "policy": {**policy, "rule": as_rule(rule).settings()}}
    except ValueError:
        return config


class RunFolder:
    """Where a run keeps its files.

    Args:
        path: made when the run begins.
        config: all settings, as JSON.
        kind: their dataclass, for files that are older than some of them.
        option: what the caller chose the folder with, for messages.
    """

    def __init__(self, path: Path, config: Json, kind: type[Any], option: str = "--out") -> None:
        self.path, self.config, self.kind, self.option = path, config, kind, option
        self._newest_is_whole = True  # of two checkpoints

    def finished(self) -> Json | None:
        """Read the result if the run is done; a folder of other settings is refused."""
        result = read_json(self.path / RESULT)
        self._check(read_json(self.path / CONFIG))
        if result is not None:
            self._check(result.get("config") if isinstance(result, dict) else {})
        return result

    def _check(self, config: Json | None) -> None:
        if config is not None and (first := self._other_settings(config)):
            if first.startswith("text.digest"):  # which says nothing to people
                first = "its text has changed since, or its tokenizer"
            raise StrongTicketError(
                f"{self.path} holds a run of other settings ({first}). Choose another {self.option}, or move that "
                "folder away."
            )

    def _other_settings(self, found: Json) -> str | None:
        """Name the first setting that differs; a rule is the same in whatever order its settings are written."""
        return other_settings(_with_rule(found), _with_rule(self.config), self.kind)

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
            append_line(file, row)

    def metrics(self) -> list[Json]:
        """Read the lines, as far as they are whole."""
        return [row for row, _ in self._lines()]

    def rewind_metrics(self, step: int) -> int:
        """Forget lines of steps that will be done again; say how many are left."""
        kept = [size for _, size in takewhile(lambda line: line[0]["step"] <= step, self._lines())]
        # Cut in place, since the lock is on this file, and in one go, so that no kill can come between.
        with open(self.path / METRICS, "r+b") as file:
            file.truncate(sum(kept))
            os.fsync(file.fileno())
        return len(kept)

    def _lines(self) -> list[tuple[Json, int]]:
        """Give what whole lines say, and their lengths."""
        path = self.path / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        try:
            rows = [(json.loads(line), len(line)) for line in lines if line.endswith(b"\n")]
            if any(type(row["step"]) is not int for row, _ in rows):
                raise ValueError("a line whose step is no number")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise StrongTicketError(
                f"{path} is not JSON lines of a run ({first_line(error)}); mend it, or choose another {self.option}."
            ) from None
        return rows

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint; if there is no room for it, the one before stays."""
        path = self.path / CHECKPOINT
        try:
            # What was measured before a checkpoint is not measured again after it.
            with open(self.path / METRICS, "r+b") as metrics:
                os.fsync(metrics.fileno())
            checkpoint.write(path, {"config": self.config, **state}, keep=self._newest_is_whole)
        except (OSError, RuntimeError) as error:  # torch answers a failed write with a RuntimeError of its own
            cause = error if isinstance(error, OSError) else error.__context__ or error
            kept = (
                "an earlier one is kept" if path.exists() or checkpoint.before(path).exists() else "there is none yet"
            )
            raise StrongTicketError(
                f"{path} could not be written ({cause}); {kept}. Make room and run the same command again."
            ) from None
        self._newest_is_whole = True

    def load_checkpoint(
        self, device: torch.device, check: Callable[[Mapping[str, Any]], object], tell: Callable[[str], object]
    ) -> Mapping[str, Any] | None:
        """Read the checkpoint, if there is one; where it is damaged, the one before it.

        Args:
            device: where its tensors go.
            check: raises a ValueError where the state does not fit the run.
            tell: told of damage.
        """

        def checked(state: Mapping[str, Any]) -> None:
            if "config" not in state:
                raise ValueError("it has no settings")
            if first := self._other_settings(state["config"]):
                raise StrongTicketError(
                    f"{newest} belongs to a run of other settings ({first}); "
                    f"delete it to begin anew, or choose another {self.option}."
                )
            check(state)

        newest = self.path / CHECKPOINT
        damage: list[str] = []
        for path in (newest, checkpoint.before(newest)):
            try:
                state = checkpoint.read(path, device, checked)
            except FileNotFoundError:
                continue
            except checkpoint.DamagedError as error:
                damage.append(str(error))
                continue
            if damage:
                self._newest_is_whole = False
                tell(f"{damage[0]} The run resumes from the one before it, {path.name}.")
            return state
        if damage:
            raise StrongTicketError(f"{' '.join(damage)} Delete {'it' if len(damage) == 1 else 'both'} to begin anew.")
        return None

    def remove_checkpoint(self) -> None:
        """Remove what a finished run no longer needs."""
        checkpoint.remove(self.path / CHECKPOINT)

    def finish(self, result: Json, run: Json) -> None:
        """Write both files, the result last: while it is missing, the run counts as unfinished."""
        write_json(self.path / RUN, run)
        write_json(self.path / RESULT, sealed(result))
