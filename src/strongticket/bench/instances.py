"""The problems every engine is measured on: products of two uniform numbers, as in a random network."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Problems:
    """Independent subset sums in float64; `problems[:100]` are the first hundred."""

    targets: NDArray[np.float64]  # (rows,)
    items: NDArray[np.float64]  # (rows, n)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice) -> "Problems":
        return Problems(self.targets[rows], self.items[rows])

    def to(self, device: str) -> tuple[Tensor, Tensor]:
        """Targets and items as tensors; on the CPU they share this memory."""
        return torch.from_numpy(self.targets).to(device), torch.from_numpy(self.items).to(device)

    def errors(self, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The errors of masks (rows, n): |target - sum|, summed in float64 in item order."""
        sums = np.zeros(len(self))
        for item, kept in zip(self.items.T, masks.T, strict=True):
            # Skipped, not added as zero times the item: the operation's exact definition.
            np.add(sums, item, out=sums, where=kept)
        return np.abs(self.targets - sums)

    def unreachable(self) -> NDArray[np.bool_]:
        """Which targets lie outside what their items can sum to, (rows,)."""
        low, high = np.minimum(self.items, 0).sum(axis=1), np.maximum(self.items, 0).sum(axis=1)
        return np.asarray((self.targets < low) | (self.targets > high))


def draw(rows: int, n: int, *, low: float = -0.5, high: float = 0.5, seed: int = 0) -> Problems:
    """Draw targets in U[low, high] and items as products of two U[-1, 1] numbers.

    The same (rows, n, seed) give the same problems on every machine: numpy's PCG64 stream is fixed.
    Sums of 8 such items reach +-1 on average, so few targets of the default range are unreachable (8 % at
    n = 8, below 0.1 % for n >= 20).
    """
    generator = np.random.default_rng([seed, n])
    targets = generator.uniform(low, high, rows)
    items = generator.uniform(-1, 1, (rows, n))
    items *= generator.uniform(-1, 1, (rows, n))
    return Problems(targets, items)
