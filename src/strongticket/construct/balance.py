"""Which input gets how many hidden units: enough of either sign, and enough for every one of its weights.

In equal blocks of 2 n units chance decides twice. The signs of the first layer's weights decide how many items each
half of an entry has: n on average, but 8 instead of 20 in one of some thousand, and the error there is 2^12 times
larger. And what the items are decides how far they reach: one sum in some ten thousand lies outside, and these few made
nine tenths of the error of MiniLM's MLPs. A block that ends where both signs have enough items, and every
weight of its input is in reach of both, has neither, and all together need no more units.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct.source import RandomMatrix
from strongticket.ops.rng import random_chunk

# How far out of reach weights may stay: no farther than has to be, where there are too few units for all.
_SLACKS = (0.0, 1 / 16, 1 / 4, 1.0)
# Units that are looked at first to make a block longer.
_AHEAD = 16

Signs = NDArray[np.uint8]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
# (first unit, input, size) -> a size that is enough, or None
Longer = Callable[[int, int, int], int | None]


def balanced_blocks(
    first: RandomMatrix,
    second: RandomMatrix,
    weight: Tensor,
    items: int,
    seed: int,
    device: torch.device | str | None,
) -> tuple[int, ...]:
    """Give the sizes of consecutive blocks, one an input: each ends as soon as it has what its input needs.

    Args:
        first: the first layer, (units, inputs), units on axis 0.
        second: the second layer, (outputs, units), units on axis 1.
        weight: the target (outputs, inputs).
        items: wanted of each sign; fewer if they do not fit into the units there are.
        seed: of the random weights.
        device: where they are drawn; the sizes are the same everywhere.
    """
    signs = _packed_signs(first, seed, device)
    fitting = (n for n in range(items, math.ceil(items / 2) - 1, -1) if _walk(signs, first, n, None) is not None)
    most = next(fitting, None)
    if most is None:
        return (first.units // first.coordinates,) * first.coordinates
    reach = _Reach(first, second, weight, seed, device)
    for slack in _SLACKS:
        # One item less is tried, to make room for reach.
        for least in (most, most - 1):
            if (sizes := _walk(signs, first, least, partial(reach.longer, slack=slack))) is not None:
                return sizes
    sizes = _walk(signs, first, most, None)
    assert sizes is not None
    return sizes


class _Reach:
    """Makes blocks longer until no weight of their input is farther out of reach than it may be."""

    def __init__(
        self, first: RandomMatrix, second: RandomMatrix, weight: Tensor, seed: int, device: torch.device | str | None
    ) -> None:
        self._first, self._seed = first, seed
        self._free: F32 = second.draw(seed, device).cpu().numpy()  # (outputs, units)
        self._columns: F64 = weight.detach().double().cpu().numpy().T.copy()  # (inputs, outputs)

    def longer(self, start: int, j: int, size: int, *, slack: float) -> int | None:
        """Give the first size from `size` on that is long enough for input j; None if the units run out."""
        from strongticket.construct.reach import first_in_reach  # numba takes its time

        ahead = _AHEAD
        while True:
            own = self._own(start, start + size + ahead, j)
            found = first_in_reach(own, self._free[:, start:], self._columns[j], size, slack)
            if found:
                return int(found)
            if start + len(own) == self._first.units:
                return None
            size, ahead = len(own) + 1, 2 * ahead

    def _own(self, start: int, stop: int, j: int) -> F32:
        """Draw the weights of some units to input j; here and not on a device, since they are few."""
        inputs, stop = self._first.coordinates, min(stop, self._first.units)
        scale = self._first.scale
        rows = random_chunk(self._seed, self._first.name, start * inputs, stop * inputs, "uniform", scale)
        own: F32 = rows.view(-1, inputs)[:, j].numpy().copy()
        return own


def _packed_signs(matrix: RandomMatrix, seed: int, device: torch.device | str | None) -> Signs:
    """Tell which weights are positive: bit j % 8 of byte [unit, j // 8]."""
    parts = [
        np.packbits((part > 0).cpu().numpy(), axis=1, bitorder="little") for part in matrix.draw_rows(seed, device)
    ]
    return np.concatenate(parts)


def _walk(signs: Signs, first: RandomMatrix, least: int, longer: Longer | None) -> tuple[int, ...] | None:
    """End each block where both signs have `least` units, or later if `longer` says so; None if the units run out."""
    start, sizes = 0, []
    for j in range(first.coordinates):
        size = _with_both_signs(signs, start, j, least)
        if size is not None and longer is not None:
            size = longer(start, j, size)
        if size is None:
            return None
        sizes.append(size)
        start += size
    return tuple(sizes)


def _with_both_signs(signs: Signs, start: int, j: int, least: int) -> int | None:
    window = 4 * least + 32
    while True:
        positive = np.cumsum(signs[start : start + window, j // 8] >> (j % 8) & 1, dtype=np.int64)
        count = np.arange(1, len(positive) + 1)
        enough = np.flatnonzero((positive >= least) & (count - positive >= least))
        if len(enough):
            return int(enough[0]) + 1
        if start + window >= len(signs):
            return None
        window *= 2
