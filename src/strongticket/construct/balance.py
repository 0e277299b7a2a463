"""Which input gets how many hidden units: about as many of either sign for all, and more where weights are large.

In equal blocks of 2 n units the signs of the first layer's weights decide how many items each half of an entry has: n
on average, but 8 instead of 20 in one of some thousand, and the error there is 2^12 times larger. Blocks that end where
both signs have enough have no such halves, and need no more units. A weight far above 1, which n products seldom reach,
gets more of them.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct.source import RandomMatrix

# The positive ones of m products of U[0, 1] and U[-1, 1] sum to m / 8 on average, and rarely to less than half of it.
_ITEMS_A_UNIT_OF_WEIGHT = 16

Signs = NDArray[np.uint8]


def balanced_blocks(
    matrix: RandomMatrix, weight: Tensor, items: int, seed: int, device: torch.device | str | None
) -> tuple[int, ...]:
    """Give the sizes of consecutive blocks, one an input, that have as many units of either sign as fit.

    Args:
        matrix: the first layer, (units, inputs), units on axis 0.
        weight: the target (outputs, inputs); only the largest entry of each column matters.
        items: wanted of each sign; fewer if they do not fit into the units there are.
        seed: of the random weights.
        device: where they are drawn.
    """
    signs = _packed_signs(matrix, seed, device)
    largest = weight.detach().abs().amax(dim=0).double().cpu().numpy()  # (inputs,)
    for share in (1.0, 0.5, 0.25, 0.0):
        wanted = np.ceil(share * _ITEMS_A_UNIT_OF_WEIGHT * largest).astype(np.int64)
        for least in range(items, math.ceil(items / 2) - 1, -1):
            sizes = _walk(signs, np.maximum(wanted, least), matrix.units)
            if sizes is not None:
                return sizes
    return (matrix.units // matrix.coordinates,) * matrix.coordinates


def _packed_signs(matrix: RandomMatrix, seed: int, device: torch.device | str | None) -> Signs:
    """Tell which weights are positive: bit j % 8 of byte [unit, j // 8]."""
    parts = [
        np.packbits((part > 0).cpu().numpy(), axis=1, bitorder="little") for part in matrix.draw_rows(seed, device)
    ]
    return np.concatenate(parts)


def _walk(signs: Signs, wanted: NDArray[np.int64], units: int) -> tuple[int, ...] | None:
    """End each block where both signs have what is wanted; None if the units run out."""
    start, sizes = 0, []
    for j, want in enumerate(wanted.tolist()):
        reach = 4 * want + 32
        while True:
            positive = np.cumsum(signs[start : start + reach, j // 8] >> (j % 8) & 1, dtype=np.int64)
            count = np.arange(1, len(positive) + 1)
            enough = np.flatnonzero((positive >= want) & (count - positive >= want))
            if len(enough) or start + reach >= units:
                break
            reach *= 2
        if not len(enough):
            return None
        sizes.append(int(enough[0]) + 1)
        start += sizes[-1]
    return tuple(sizes)
