"""The unit of work: some sources of one width, pruned into one target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from strongticket.construct import construct_attention
from strongticket.construct.source import Blocks, Init
from strongticket.experiments.seeds import derive_seed
from strongticket.files import Json
from strongticket.models.attention import MergedAttention
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """What every figure's configuration says; the numbers depend on this, and on what a figure adds."""

    seed: int = 0
    targets: int = 1
    sources: int = 100  # for each target and width
    widths: tuple[int, ...] = ()
    init: Init = "theory"
    blocks: Blocks = "input"
    effort: Effort = "high"  # of the subset sums; it matters above 32 items, where optima are not proved


C = TypeVar("C", bound=SourceConfig)


@dataclass(frozen=True, slots=True)
class Task(Generic[C]):
    """Sources `first` to `last` - 1 of one width and target."""

    config: C
    target: Json
    width: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Tell tasks apart, also those of another way to cut the work."""
        return f"target {self.target['index']}, width {self.width}, sources {self.first} to {self.last - 1}"

    def seeds(self) -> Iterator[int]:
        """Give the seeds of the sources; every target, width and source has its own."""
        for source in range(self.first, self.last):
            yield derive_seed(self.config.seed, "source", self.target["index"], self.width, source)


def cut(config: C, targets: Sequence[Json], sources_a_task: int) -> list[Task[C]]:
    """Cut the work into tasks, in the order target, width, source."""
    return [
        Task(config, target, width, first, min(first + sources_a_task, config.sources))
        for target in targets
        for width in config.widths
        for first in range(0, config.sources, sources_a_task)
    ]


def prune_attention(
    task: Task[C], target: MergedAttention, seed: int, input_norm: float
) -> tuple[Ticket, MergedAttention]:
    """Prune the source with this seed into an attention; give the ticket and its network, merged."""
    config, n = task.config, task.width
    ticket = construct_attention(
        target,
        key_width=n,
        value_width=n,
        seed=seed,
        init=config.init,
        blocks=config.blocks,
        assignment="equal",  # as the paper has it
        effort=config.effort,
        input_norm=input_norm,
    )
    network = ticket.build("merged", dtype=torch.float64)
    assert isinstance(network, MergedAttention)
    return ticket, network
