"""The folder of one run: its progress, its measurements, its results.

config.json      the settings; another run's folder is refused
metrics.jsonl    a line every few steps: training loss and speed; validation losses
checkpoint.pt    all that is needed to resume; removed at the end, except by a search in the caller's module
checkpoint-before.pt  the previous one, in case the newest is damaged
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
from strongticket.files import append_line, lock, read_json, regular, sealed, write_json
from strongticket.learn import checkpoint
from strongticket.learn.result import Metric, RunResult
from strongticket.learn.rules.rule import as_rule
from strongticket.settings import other_settings

CONFIG, METRICS, CHECKPOINT, RESULT, RUN = "config.json", "metrics.jsonl", "checkpoint.pt", "result.json", "run.json"
TICKET, WEIGHTS = "best.ticket", "model.safetensors"


def _with_rule(config: object) -> object:
    """Spell out the settings of the policy's rule; an unknown rule stays as it is."""
    if not isinstance(config, dict):
        return config
    if not isinstance(policy := config.get("policy"), dict) or not isinstance(rule := policy.get("rule"), str):
        return config
    try:
        return {**config, "policy": {**policy, "rule": as_rule(rule).settings()}}
    except ValueError:
        return config


class RunFolder:
    """Where a run keeps its files.

    Args:
        path: created when the run starts.
        config: all settings, as JSON.
        kind: the dataclass of the settings, for files older than some of them.
        option: the option that chose the folder, for messages.
    """

    def __init__(self, path: Path, config: Mapping[str, object], kind: type[Any], option: str = "--out") -> None:
        self.path, self.config, self.kind, self.option = path, config, kind, option
        self.caller = "command" if option.startswith("--") else "call"  # what resumes the run
        self._newest_is_whole = True  # of two checkpoints

    def finished(self) -> RunResult | None:
        """Read the result if the run is finished; a folder with other settings is refused."""
        result: RunResult | None = read_json(self.path / RESULT)
        config = read_json(self.path / CONFIG)
        if config is not None:
            self._check(CONFIG, config)
        if result is not None:
            self._check(RESULT, result.get("config") if isinstance(result, dict) else None)
        return result

    def _check(self, name: str, config: object) -> None:
        if not isinstance(config, dict):
            raise StrongTicketError(
                f"{self.path / name} is not what a run writes; move that folder away and run again."
            )
        if first := self._other_settings(config):
            if first.startswith("text.digest"):  # a hash tells people nothing
                first = "its text or its tokenizer has changed since"
            raise StrongTicketError(
                f"{self.path} holds a run with other settings ({first}). Choose another {self.option}, or move that "
                "folder away."
            )

    def _other_settings(self, found: object) -> str | None:
        """Return the first setting that differs; the order of a rule's settings does not matter."""
        return other_settings(_with_rule(found), _with_rule(self.config), self.kind)

    @contextmanager
    def opened(self, *, writes: bool) -> Iterator[None]:
        """Create the folder and lock it while the block runs; a process that only reads takes no lock."""
        if not writes:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with open(regular(self.path / METRICS), "ab") as file:
            lock(file, self.path)
            if not (self.path / CONFIG).exists():
                write_json(self.path / CONFIG, self.config)
            yield

    def append_metrics(self, row: Mapping[str, object]) -> None:
        """Add a line."""
        with open(self.path / METRICS, "ab", buffering=0) as file:
            append_line(file, row)

    def metrics(self) -> list[Metric]:
        """Read the complete lines."""
        return [row for row, _ in self._lines()]

    def rewind_metrics(self, step: int) -> int:
        """Drop the lines of steps that will be repeated; return how many lines are left."""
        kept = [size for _, size in takewhile(lambda line: line[0]["step"] <= step, self._lines())]
        # Truncated in place, since the lock is on this file, and in one call, so that no kill can interrupt it.
        with open(self.path / METRICS, "r+b") as file:
            file.truncate(sum(kept))
            os.fsync(file.fileno())
        return len(kept)

    def _lines(self) -> list[tuple[Metric, int]]:
        """Return the content of each complete line, and its length."""
        path = self.path / METRICS
        lines = regular(path).read_bytes().splitlines(keepends=True) if path.exists() else []
        try:
            rows: list[tuple[Metric, int]] = [(json.loads(line), len(line)) for line in lines if line.endswith(b"\n")]
            if any(type(row["step"]) is not int for row, _ in rows):
                raise ValueError("a line whose step is not a number")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise StrongTicketError(
                f"{path} is not a run's JSON lines ({first_line(error)}); repair it, or choose another {self.option}."
            ) from None
        return rows

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint; if the disk is full, the previous one stays."""
        path = self.path / CHECKPOINT
        try:
            # Measurements before a checkpoint are not repeated after it.
            with open(self.path / METRICS, "r+b") as metrics:
                os.fsync(metrics.fileno())
            checkpoint.write(path, {"config": self.config, **state}, keep=self._newest_is_whole)
        except (OSError, RuntimeError) as error:  # torch raises a RuntimeError for a failed write
            cause = error if isinstance(error, OSError) else error.__context__ or error
            kept = (
                "an earlier one is kept" if path.exists() or checkpoint.before(path).exists() else "there is none yet"
            )
            raise StrongTicketError(
                f"{path} could not be written ({cause}); {kept}. Mend that; then the same {self.caller} resumes."
            ) from None
        self._newest_is_whole = True

    def load_checkpoint(
        self, device: torch.device, check: Callable[[Mapping[str, Any]], object], warn: Callable[[str], object]
    ) -> Mapping[str, Any] | None:
        """Read the checkpoint, if there is one; if it is damaged, the previous one.

        Args:
            device: where its tensors go.
            check: raises a ValueError if the state does not fit the run.
            warn: called with a line about any damage.
        """

        def checked(state: Mapping[str, Any]) -> None:
            if "config" not in state:
                raise ValueError("it has no settings")
            if first := self._other_settings(state["config"]):
                raise StrongTicketError(
                    f"{newest} belongs to a run with other settings ({first}); "
                    f"delete it to start over, or choose another {self.option}."
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
                warn(f"{damage[0]} The run resumes from the previous checkpoint, {path.name}.")
            return state
        if damage:
            raise StrongTicketError(f"{' '.join(damage)} Delete {'it' if len(damage) == 1 else 'both'} to start over.")
        return None

    def remove_checkpoint(self) -> None:
        """Remove the checkpoints, which a finished run no longer needs."""
        checkpoint.remove(self.path / CHECKPOINT)

    def finish(self, result: RunResult, run: Mapping[str, object]) -> None:
        """Write both files, the result last: while it is missing, the run counts as unfinished."""
        write_json(self.path / RUN, run)
        write_json(self.path / RESULT, sealed(result))
