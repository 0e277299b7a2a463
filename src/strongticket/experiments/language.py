"""Runs on text as rows of a figure: each run of a plan is done once, kept as a row, and found again by its settings.

So a figure is gathered over many short stretches of GPU time, and drawn from its rows without any.
"""

import gc
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from strongticket.container import Json, atomic_write, canonical_json
from strongticket.data.text import Text
from strongticket.errors import StrongTicketError
from strongticket.files import read_json
from strongticket.search.config import RunConfig
from strongticket.search.folder import RUN
from strongticket.search.run import Means, Watch, run

ROWS = "rows.jsonl"
UNDER_WAY = "under-way"
SET_UP_SECONDS = 10.0  # validating and the like, beside the steps themselves

# Called with the runs done, all of them, and the settings of the next.
Progress = Callable[[int, int, RunConfig], object]


class Rows:
    """The finished runs of some figures.

    Args:
        folder: where new rows are kept.
        others: folders of other figures, whose rows are used as well.
    """

    def __init__(self, folder: Path, others: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._own = _read(folder / ROWS)
        self._others = [row for path in others for row in _read(path / ROWS)]
        _check_alike(self.all(), folder)

    def all(self) -> list[Json]:
        """Every row there is."""
        return [*self._own, *self._others]

    def find(self, config: RunConfig) -> Json | None:
        """Give the row of a run, if it is finished."""
        wanted = config.as_json()
        return next((row for row in self.all() if row["config"] == wanted), None)

    def keep(self, row: Json) -> None:
        """Add a row, on disk before anything else is begun."""
        self._own.append(row)
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / ROWS) as file:
            file.write(b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in self._own))

    def check_text(self, text: Text) -> None:
        """Refuse to mix runs on one text with runs on another."""
        for row in self.all()[:1]:  # the others are on the same
            if row["text"]["digest"] != text.digest:
                raise StrongTicketError(
                    f"{self.folder} has runs on other text ({row['text']['data']}); {text.name} needs another --out."
                )

    def speed(self, config: RunConfig) -> float | None:
        """Tokens a second of the latest run like this one."""
        like = [
            row for row in self.all() if all(row["config"][key] == getattr(config, key) for key in ("size", "mode"))
        ]
        return float(like[-1]["run"]["tokens_per_second"]) if like else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What it takes to do the runs that are missing."""

    text: Text
    means: Means
    deadline: float | None = None  # begin no run that would not end before this time of `time.monotonic`


def run_missing(plan: Sequence[RunConfig], rows: Rows, work: Work, *, progress: Progress, watch: Watch) -> None:
    """Do the runs of a plan that have no row yet, in order, as far as the time goes."""
    rows.check_text(work.text)
    for done, config in enumerate(plan):
        progress(done, len(plan), config)
        if rows.find(config) is not None:
            continue
        if work.deadline is not None and time.monotonic() + _seconds_needed(config, rows) > work.deadline:
            return
        rows.keep(_run_one(config, rows.folder, work, watch))
        gc.collect()  # a compiled model is full of cycles, and holds a GPU's memory until they are found


def _seconds_needed(config: RunConfig, rows: Rows) -> float:
    """What a run takes, with a tenth to spare; where none like it is known, only what is not steps."""
    speed = rows.speed(config)
    return SET_UP_SECONDS + (1.1 * config.steps * config.tokens_a_step / speed if speed else 0.0)


def _run_one(config: RunConfig, folder: Path, work: Work, watch: Watch) -> Json:
    path = folder / UNDER_WAY / name_of(config)
    result = run(config, work.text, path, work.means, watch=watch)
    measured = {key: value for key, value in result.items() if key != "config"}
    row = {"config": config.as_json(), "text": work.text.describe(), **measured, "run": read_json(path / RUN)}
    if not work.means.keep:
        shutil.rmtree(path)
    return row


def name_of(config: RunConfig) -> str:
    """Name a run: for people first, then a few digits of its settings' hash.

    Example:
        >>> name_of(RunConfig(size="mini", mode="dense", seed=2))[:-8]
        'mini-dense-seed2-'
    """
    policy = config.policy
    kind = "dense" if config.mode == "dense" else f"embeddings-{policy.embeddings}-scale{policy.qk_scale:.3g}"
    digest = hashlib.sha256(canonical_json(config.as_json()).encode()).hexdigest()
    return f"{config.size}-{kind}-seed{config.seed}-{digest[:8]}"


def _read(path: Path) -> list[Json]:
    try:
        rows = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except (ValueError, RecursionError) as error:
        raise StrongTicketError(f"{path} is not JSON lines ({error}); mend it or move it away.") from None
    for number, row in enumerate(rows, 1):
        if not _is_row(row):
            raise StrongTicketError(f"{path}: line {number} is no finished run; mend it or move the file away.")
    return rows


def _is_row(row: Json) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(key), dict) for key in ("config", "text", "run")):
        return False
    losses = [row.get("best_validation_loss"), row.get("final_validation_loss")]
    return {"digest", "data"} <= row["text"].keys() and all(
        isinstance(loss, int | float) and math.isfinite(loss) for loss in losses
    )


def _check_alike(rows: Sequence[Json], folder: Path) -> None:
    """Refuse rows that cannot stand in one figure: on different texts, or of one run with different outcomes."""
    if len(texts := {row["text"]["digest"]: row["text"]["data"] for row in rows}) > 1:
        raise StrongTicketError(f"{folder} and its neighbours have runs on several texts: {', '.join(texts.values())}.")
    losses: dict[str, float] = {}
    for row in rows:
        loss = losses.setdefault(canonical_json(row["config"]), row["final_validation_loss"])
        if loss != row["final_validation_loss"]:
            name = f"{row['config'].get('size')}, seed {row['config'].get('seed')}"
            raise StrongTicketError(
                f"{folder} and its neighbours have two outcomes of one run ({name}): "
                f"{loss} and {row['final_validation_loss']}. Remove one of these rows."
            )
