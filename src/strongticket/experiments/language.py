"""Runs on text as rows of a figure: each run of a plan is done once, kept as a row, and looked up by its settings.

So a figure can be collected over many short GPU sessions, and drawn from its rows without a GPU. Processes with the
same plan and folder share the work.
"""

import gc
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TypeGuard

from strongticket.data.text import Text
from strongticket.environment import environment
from strongticket.errors import StrongTicketError
from strongticket.experiments.figure import Progress, Work
from strongticket.experiments.text_rows import RunRow, TextResult
from strongticket.files import (
    BusyError,
    atomic_write,
    canonical_json,
    discard,
    lock_file,
    read_json,
    regular,
    sealed,
    sweep,
    unsealed,
)
from strongticket.learn.config import RunConfig, settings_that_count
from strongticket.learn.folder import RUN
from strongticket.learn.rules.rule import as_rule
from strongticket.learn.run import Watch
from strongticket.learn.text_run import run
from strongticket.settings import filled, value_before

ROWS = "rows.jsonl"
UNDER_WAY = "under-way"
DONE_WITH = "done-with"  # marks the folder of a run that has its row and can be removed
SET_UP_SECONDS = 10.0  # validation and the like, in addition to the steps


class Rows:
    """The finished runs of some figures: a folder for new rows, and other folders whose rows are used as well."""

    def __init__(self, folder: Path, others: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._own = _read(folder / ROWS)
        self._others = [row for path in others for row in _read(path / ROWS)]
        _check_alike(self.all(), folder)

    def all(self) -> list[RunRow]:
        """Return every row."""
        return [*self._own, *self._others]

    def find(self, config: RunConfig) -> RunRow | None:
        """Return the row of a run if it is finished; a row from another version of its rule does not count."""
        wanted, version = config.as_json(), as_rule(config.policy.rule).version if config.mode == "search" else 1
        alike = (row for row in self.all() if row["config"] == wanted)
        return next((row for row in alike if _version_of(row) == version), None)

    def read_again(self) -> None:
        """Read rows that other processes have added."""
        self._own = _read(self.folder / ROWS)

    def keep(self, row: RunRow) -> None:
        """Write a row to disk at once, after rows that other processes may have added."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / ROWS
        with lock_file(path.with_name(f"{ROWS}.lock")):
            self._own = _read(path)
            if any(row["config"] == own["config"] and _version_of(row) == _version_of(own) for own in self._own):
                return
            self._own.append(row)
            # Earlier lines stay as they are: settings they do not record must not be guessed.
            lines = [*_lines(path), json.dumps(sealed(row), allow_nan=False).encode()]
            with atomic_write(path) as file:
                file.write(b"".join(line + b"\n" for line in lines))

    def check_text(self, text: Text) -> None:
        """Refuse to mix runs on different texts."""
        for row in self.all()[:1]:  # all rows are on the same text
            if row["text"]["digest"] != text.digest:
                raise StrongTicketError(
                    f"{self.folder} has runs on other text ({row['text']['data']}); {text.name} needs another --out."
                )

    def speed(self, config: RunConfig, machine: Mapping[str, object]) -> float | None:
        """Return the tokens per second of the latest run like this one on a machine like this one."""
        like = [
            row["run"]
            for row in self.all()
            if (row["config"]["size"], row["config"]["mode"]) == (config.size, config.mode)
            and (row["run"].get("gpu"), row["run"].get("cpu")) == (machine["gpu"], machine["cpu"])
        ]
        latest = max(like, key=lambda run: str(run.get("date")), default=None)
        return float(latest["tokens_per_second"]) if latest else None


def run_missing(plan: Sequence[RunConfig], rows: Rows, work: Work, *, progress: Progress, watch: Watch) -> None:
    """Do the runs of a plan that have no row yet, in order, until the deadline."""
    rows.check_text(work.text)
    machine = environment(str(work.means.share.device))
    _tidy(rows.folder / UNDER_WAY)
    for done, config in enumerate(plan):
        progress(done, len(plan), name_of(config))
        path = rows.folder / UNDER_WAY / name_of(config)
        rows.read_again()
        if rows.find(config) is not None:
            if (path / DONE_WITH).exists():  # the process was killed before it was removed
                discard(path)
                _tidy(path.parent)
            continue
        # With a tenth to spare; without a similar run, only the set-up time is known.
        speed = rows.speed(config, machine)
        needed = SET_UP_SECONDS + (1.1 * config.steps * config.tokens_per_step / speed if speed else 0.0)
        if work.deadline is not None and time.monotonic() + needed > work.deadline:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Locked until the row is kept; runs of other processes are left to them.
        with suppress(BusyError), lock_file(path.with_name(f"{path.name}.claim"), waits=False):
            rows.read_again()
            if rows.find(config) is None:  # another process may just have finished it
                _do(config, rows, work, path, watch)
        _tidy(path.parent)
        gc.collect()  # a compiled model has reference cycles, which hold GPU memory until they are collected


def _do(config: RunConfig, rows: Rows, work: Work, path: Path, watch: Watch) -> None:
    """Do one run, and keep its row."""
    found = run(config, work.text, path, work.means, watch=watch)
    measured = {key: value for key, value in found.items() if key != "config"}
    row = {"config": config.as_json(), "text": work.text.describe(), **measured, "run": read_json(path / RUN)}
    assert _is_row(row)
    if not work.means.keep:
        (path / DONE_WITH).touch()
    rows.keep(row)
    if not work.means.keep:
        discard(path)


def _version_of(row: RunRow) -> int:
    """Return the version of the rule that made a row; rows older than versions have the first."""
    return row.get("found", {}).get("rule_version", 1)


def _tidy(under_way: Path) -> None:
    sweep(under_way)
    with suppress(OSError):  # it does not exist, or has other runs in it
        under_way.rmdir()


def name_of(config: RunConfig) -> str:
    """Name a run: readable words, then a few digits of its settings' hash.

    Example:
        >>> name_of(RunConfig(size="mini", mode="dense", seed=2, steps=400, warmup=40, lr=3e-3, final_lr=3e-4))[:-8]
        'mini-dense-400steps-warmup40-lr0.003-seed2-'
        >>> from strongticket.learn.policy import Policy
        >>> policy = Policy(embeddings="trained", qk_scale=2.83, init="uniform", rescale=True)
        >>> name_of(RunConfig(size="mini", policy=policy, steps=400, warmup=20))[:-8]
        'mini-embeddings-trained-scale2.83-init-uniform-rescale-400steps-warmup20-lr0.0001-seed0-'
    """
    policy, settings = config.policy, settings_that_count(config.as_json())
    words = [config.size, "dense" if config.stored == "float32" else config.stored]
    if config.mode != "dense":
        words[1:] = [f"embeddings-{policy.embeddings}", f"scale{policy.qk_scale:.3g}"]
    for own in fields(policy):
        value = getattr(policy, own.name)
        if own.name not in ("embeddings", "qk_scale") and value != value_before(own):
            if isinstance(value, Mapping):
                value = ",".join(f"{pattern}={number:g}" for pattern, number in value.items()).replace("*", "+")
            words.append(own.name if value is True else f"{own.name}-{value}")
    words += [f"{config.steps}steps", f"warmup{config.warmup}", f"lr{config.lr:.2g}"]
    if not math.isclose(config.final_lr, config.lr / 10):  # as usual
        words.append(f"to{config.final_lr:.2g}")
    words.append(f"seed{config.seed}")
    return "-".join((*words, hashlib.sha256(canonical_json(settings).encode()).hexdigest()[:8]))


def fewer_runs(before: object, now: TextResult) -> str | None:
    """Warn if a figure is drawn from fewer runs than the one it replaces, and name the runs now missing."""
    then = before if isinstance(before, dict) else {}
    if now["runs"] >= then.get("runs", 0):
        return None
    gone = [name for name in now["missing"] if name not in then.get("missing", [])]
    named = ", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    which = f"; newly missing: {named}" if gone else ""
    return f"{now['config']['figure']} is drawn from {now['runs']} runs, the one before from {then['runs']}{which}."


def _read(path: Path) -> list[RunRow]:
    return [_row(line, number, path) for number, line in enumerate(_lines(path), 1) if line.strip()]


def _lines(path: Path) -> list[bytes]:
    return regular(path).read_bytes().splitlines() if path.exists() else []


def _row(line: bytes, number: int, path: Path) -> RunRow:
    try:
        row, wrong = unsealed(json.loads(line)), ""
    except (ValueError, RecursionError) as error:
        # Without the error's own line number, which is always 1.
        wrong = f" is damaged, or not JSON lines: line {number} ({getattr(error, 'msg', error)})"
        row = None
    if not _is_row(row):
        wrong = wrong or f": line {number} is not a finished run, or is from another release"
        raise StrongTicketError(f"{path}{wrong}; repair or remove that line.")
    return {**row, "config": filled(row["config"], RunConfig)}


def _is_row(row: object) -> TypeGuard[RunRow]:
    """Tell whether a line has everything that figures read from a row; its settings are compared with a plan's."""
    parts = ("config", "text", "run", "nonzero", "also")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), dict) for key in parts):
        return False
    found = row.get("found", {})
    if not isinstance(found, dict) or type(found.get("rule_version", 1)) is not int:
        return False
    numbers = [
        *(row.get(key) for key in ("best_validation_loss", "final_validation_loss")),
        *(row["nonzero"].get(key) for key in ("all", "without_embeddings")),
        *row["also"].values(),
        row["run"].get("tokens_per_second"),
    ]
    finite = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    return finite and {"digest", "data"} <= row["text"].keys() and isinstance(row.get("curve"), list)


def _check_alike(rows: Sequence[RunRow], folder: Path) -> None:
    """Refuse rows that cannot share a figure: on different texts, or different outcomes of one run."""
    if len(texts := {row["text"]["digest"]: row["text"]["data"] for row in rows}) > 1:
        raise StrongTicketError(f"{folder} and its neighbours have runs on several texts: {', '.join(texts.values())}.")
    outcomes: dict[str, tuple[float, float]] = {}
    for row in rows:
        found = row["best_validation_loss"], row["final_validation_loss"]
        first = outcomes.setdefault(canonical_json([row["config"], _version_of(row)]), found)
        if first != found:
            name = f"{row['config'].get('size')}, seed {row['config'].get('seed')}"
            raise StrongTicketError(
                f"{folder} and its neighbours have two outcomes of one run ({name}): best and final losses "
                f"{first[0]}, {first[1]} and {found[0]}, {found[1]}. Remove one of these rows."
            )
