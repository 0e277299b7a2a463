"""The learning rate: linear warm-up, then cosine decay (paper, B.2)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate at each step.

    Example:
        >>> schedule = Schedule(steps=10, lr=1.0, final_lr=0.1, warmup=2)
        >>> [round(schedule.at(step), 2) for step in (0, 1, 2, 6, 9)]
        [0.5, 1.0, 1.0, 0.55, 0.13]
    """

    steps: int
    lr: float = 1e-4  # the highest
    final_lr: float = 1e-5  # end of the cosine, one step after the last
    warmup: int = 0  # steps up to the highest

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a schedule needs 1 step or more; got {self.steps}.")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"the warm-up must be 0 to {self.steps:,} steps; got {self.warmup:,}.")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"the learning rate must be above 0 and finite; got {self.lr:g}.")
        if not 0 <= self.final_lr <= self.lr:
            raise ValueError(f"final_lr must be between 0 and lr, {self.lr:g}; got {self.final_lr:g}.")

    def at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.final_lr + (self.lr - self.final_lr) * 0.5 * (1 + math.cos(math.pi * done))
