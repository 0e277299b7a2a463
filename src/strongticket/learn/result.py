"""What the files of a run hold: its settings, `result.json`, `run.json` and the lines of `metrics.jsonl`."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from strongticket.files import Json


class RunSettings(TypedDict):
    """A run's settings as a file has them: those that figures name."""

    size: str
    mode: str
    stored: str
    seed: int
    length: int
    sequences: int
    steps: int
    warmup: int
    lr: float
    policy: NotRequired[dict[str, Json]]  # of a search


class Found(TypedDict, total=False):
    """The file that a run found; older results lack some of this."""

    ticket: str | None  # its name, if it was kept
    weights: str | None  # likewise, of a trained model
    unwritable: str  # why there is no ticket
    bytes: int
    rule_version: int
    identity: str
    strong: bool
    strength: str


class RunResult(TypedDict):
    """The numbers of a finished run."""

    config: Mapping[str, object] | None  # None without a folder
    best_validation_loss: float | None  # None without validation
    best_step: int
    final_validation_loss: float | None
    curve: list[tuple[int, float]]
    nonzero: dict[str, int]
    also: NotRequired[dict[str, float]]  # losses on other texts
    found: NotRequired[Found]


class RunRecord(TypedDict, total=False):
    """How a run was made: what figures read of it."""

    date: str
    commit: str
    cpu: str
    gpu: str | None
    seconds: float
    tokens_per_second: float


class Metric(TypedDict):
    """A step's training loss, or the validation loss after it."""

    step: int
    loss: NotRequired[float]
    validation_loss: NotRequired[float]
