"""The unit of work: some sources of one width, pruned into one target, and their measurements."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from strongticket.construct.assignment import Assignment
from strongticket.construct.source import Blocks, Init
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.ticket import Ticket

# Certificates hold for real arithmetic. Both networks are evaluated in float64 on values of order 1, which changes
# their difference by less than this.
ROUNDING = 1e-13
SEED_BITS = 53  # JSON readers keep integers exact up to here


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The settings common to every figure; the numbers depend on these and on what a figure adds."""

    # Options that make a variant of the figure, and the fields they set; with a dot, a field of the target.
    varied: ClassVar[Mapping[str, str]] = {}

    seed: int = 0
    targets: int = 1
    sources: int = 100  # for each target and width
    widths: tuple[int, ...] = ()
    init: Init = "theory"
    blocks: Blocks = "input"
    effort: Effort = "high"  # of the subset sums; it matters above 32 items, where optima are not proved
    assignments: tuple[Assignment, ...] = ("equal", "adaptive")  # as the paper shares out hidden units, and as we do


class Indexed(TypedDict):
    """A target as a result file has it; what else describes it is the figure's."""

    index: int


C = TypeVar("C", bound=SourceConfig)
T = TypeVar("T", bound=Indexed)
Sources = dict[str, list[Any]]  # columns with an entry for each source: its seed, its certificate and what was measured


class Rows(TypedDict):
    """What a task found."""

    target: int
    width: int
    sources: Sources


@dataclass(frozen=True, slots=True)
class Task(Generic[C, T]):
    """Sources `first` to `last` - 1 of one width, target and assignment of units."""

    config: C
    assignment: Assignment
    target: T
    width: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Name the task uniquely, even if the work is split differently."""
        sources = f"sources {self.first} to {self.last - 1}"
        return f"{self.assignment}, target {self.target['index']}, width {self.width}, {sources}"

    def shares_width(self, other: "Task[C, T]") -> bool:
        """Tell whether another task has the same width, target and assignment of units."""
        return all(getattr(self, own) == getattr(other, own) for own in ("assignment", "width", "target"))

    def sources(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments each source is drawn and pruned with; every target, width and source has its own seed.

        Seeds are the same for each assignment, so that only the assignment differs.
        """
        config, n = self.config, self.width
        same: dict[str, Any] = {"key_width": n, "value_width": n, "init": config.init, "blocks": config.blocks}
        same |= {"assignment": self.assignment, "effort": config.effort}
        for source in range(self.first, self.last):
            yield same | {"seed": derive_seed(config.seed, "source", self.target["index"], n, source)}


def cut(config: C, targets: Sequence[T], sources_per_task: int) -> list[Task[C, T]]:
    """Split the work into tasks, in the order assignment, target, width, source."""
    return [
        Task(config, assignment, target, width, first, min(first + sources_per_task, config.sources))
        for assignment in config.assignments
        for target in targets
        for width in config.widths
        for first in range(0, config.sources, sources_per_task)
    ]


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Hash an experiment's seed and its purpose into a new seed, so that different uses never share a seed.

    Example:
        >>> derive_seed(0, "source", 8, 1) == derive_seed(0, "source", 81)
        False
    """
    text = ":".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - SEED_BITS)


def token_errors(module: nn.Module, expected: Tensor, x: Tensor) -> Tensor:
    """Return each input's largest error norm over its tokens, (N,)."""
    with torch.inference_mode():
        worst: Tensor = (module(x) - expected).norm(dim=-1).amax(dim=-1)
    return worst


def describe_ticket(ticket: Ticket) -> dict[str, object]:
    """Return a ticket's certified error and how many entries were out of reach."""
    certificate = ticket.certificate
    assert certificate is not None
    out_of_reach = certificate.details["unreachable"]
    worst = out_of_reach["worst"]
    return {
        "seed": ticket.seed,
        "certificate": certificate.error,
        "unreachable": out_of_reach["count"],
        "missed": worst[0]["missed"] if worst else 0.0,
    }


def violated(certificate: float, worst: float) -> bool:
    """Tell whether an error exceeds its certificate by more than rounding explains."""
    return worst > certificate + ROUNDING


def columns(rows: list[dict[str, object]]) -> Sources:
    """Turn rows with the same fields into one list per field.

    Example:
        >>> columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
        {'a': [1, 3], 'b': [2, 4]}
    """
    return {name: [row[name] for row in rows] for name in rows[0]}


def sources_of(rows: Sequence[Rows], target: int, width: int) -> Sources:
    """Concatenate the columns of all chunks of one target and width."""
    parts = [row["sources"] for row in rows if (row["target"], row["width"]) == (target, width)]
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def worst_and_certified(sources: Sources) -> tuple[list[float], list[float]]:
    """Return each source's worst error and its certificate, if a figure keeps one of each."""
    return sources["worst"], sources["certificate"]
