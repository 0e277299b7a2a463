"""The small pieces every CPU solver shares: a row's reach, the error of a subset, masks as bits and as booleans."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(nogil=True, cache=True)
def settle_if_unreachable(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_]) -> bool:
    """If w lies outside the interval of possible sums, choose the nearer end and say True."""
    low, high = 0.0, 0.0
    for item in a:
        if item < 0.0:
            low += item
        else:
            high += item
    if low <= w <= high:
        return False
    for k in range(len(a)):
        mask[k] = a[k] < 0.0 if w < low else a[k] > 0.0
    return True


@njit(nogil=True, cache=True)
def error_of(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    """|w - sum of the chosen items|, added in item order."""
    total = 0.0
    for k in range(len(a)):
        if mask[k]:
            total += a[k]
    return abs(w - total)


@njit(nogil=True, cache=True)
def write_bits(bits: int, mask: NDArray[np.bool_]) -> None:
    """Unpack an integer mask, item 0 the lowest bit."""
    for k in range(len(mask)):
        mask[k] = bits >> k & 1
