r"""Angular velocity from points on the unit circle (paper, appendix B.1).

A sequence is $x_t = (\cos(\omega t + \theta_0), \sin(\omega t + \theta_0))$ for $t = 1 \ldots T$, with $\omega$ uniform
on $[-\pi, \pi]$ and $\theta_0$ uniform on $[0, \pi]$; the task is to predict $\omega$. A regression token comes first.
Attention without positions cannot see the order of the points, so it learns almost nothing about the sign of $\omega$,
and a trained model's loss stays close to the variance of $\omega$, 3.3. The paper's figures use this task.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Split = Literal["train", "validation", "test"]
SAMPLES = 10_000  # in each split, as in the paper


@dataclass(frozen=True, slots=True)
class AngularData:
    """Samples of one split; sequences of any length can be made from them."""

    velocity: Tensor  # ω, (N,) float64
    phase: Tensor  # θ_0, (N,) float64

    def __len__(self) -> int:
        return len(self.velocity)

    def __getitem__(self, chosen: Tensor | slice) -> "AngularData":
        return AngularData(self.velocity[chosen], self.phase[chosen])

    def sequences(self, length: int) -> Tensor:
        """Return the first `length` points of every sample, (N, T, 2)."""
        if length < 1:
            raise ValueError(f"a sequence needs at least one point; got length {length}.")
        steps = torch.arange(1, length + 1, dtype=torch.float64)
        angle = self.velocity[:, None] * steps + self.phase[:, None]  # (N, T)
        return torch.stack([angle.cos(), angle.sin()], dim=-1)


def draw_angular(split: Split, samples: int = SAMPLES, *, seed: int = 0) -> AngularData:
    """Draw the samples of a split; each split and seed has its own random stream.

    Args:
        split: "train", "validation" or "test".
        samples: how many; a smaller number gives the first of a larger one.
        seed: 0 or more.

    Example:
        >>> draw_angular("test", 3).sequences(length=5).shape
        torch.Size([3, 5, 2])
    """
    splits = get_args(Split)
    if split not in splits:
        raise ValueError(f"split must be one of {', '.join(splits)}; got {split!r}.")
    if samples < 1 or seed < 0:
        raise ValueError(f"samples must be at least 1 and seed at least 0; got {samples} and {seed}.")
    generator = torch.Generator().manual_seed(len(splits) * seed + splits.index(split))
    velocity, phase = torch.rand(samples, 2, generator=generator, dtype=torch.float64).T.contiguous()
    return AngularData(math.pi * (2 * velocity - 1), math.pi * phase)


def with_token(token: Tensor, sequences: Tensor) -> Tensor:
    """Put the regression token, (2,), in front of every sequence: (N, T, 2) -> (N, T + 1, 2)."""
    return torch.cat([token.expand(len(sequences), 1, -1), sequences], dim=1)
