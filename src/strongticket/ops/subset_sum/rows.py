"""Shared by the CPU solvers: a row's reach, the error of a subset, masks as bits and as booleans."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

UNIT_ROUNDOFF = 2.0**-53


class Reach(NamedTuple):
    """The sums of the negative and of the positive items in item order: the ends of the reachable interval."""

    low_first: float  # after the first half of the items
    high_first: float
    low_both: float  # after twice as many, without the last item if their number is odd
    high_both: float
    low: float
    high: float


@njit(nogil=True, cache=True)
def reach_of(a: NDArray[np.float64]) -> Reach:
    """Return the reach of the items."""
    half = len(a) // 2
    low_first, high_first = extend(0.0, 0.0, a[:half])
    low_both, high_both = extend(low_first, high_first, a[half : 2 * half])
    low, high = extend(low_both, high_both, a[2 * half :])
    return Reach(low_first, high_first, low_both, high_both, low, high)


@njit(nogil=True, cache=True)
def extend(low: float, high: float, a: NDArray[np.float64]) -> tuple[float, float]:
    """Add more items to a reach."""
    for item in a:
        low += min(item, 0.0)
        high += max(item, 0.0)
    return low, high


@njit(nogil=True, cache=True)
def settle_if_unreachable(w: float, a: NDArray[np.float64], reach: Reach, mask: NDArray[np.bool_]) -> bool:
    """If w lies outside the reach of the items, choose the nearer end and return True."""
    if reach.low <= w <= reach.high:
        return False
    for k in range(len(a)):
        mask[k] = a[k] < 0.0 if w < reach.low else a[k] > 0.0
    return True


@njit(nogil=True, cache=True)
def error_of(w: float, a: NDArray[np.float64], bits: int) -> float:
    """|w - sum of the chosen items|, added in item order."""
    total = 0.0
    for k in range(len(a)):
        # A branch would be mispredicted half of the time; adding a zero changes nothing.
        total += a[k] * (bits >> k & 1)
    return abs(w - total)


@njit(nogil=True, cache=True)
def error_of_mask(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    """The same for a mask of booleans, of any length."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * mask[k]
    return abs(w - total)


@njit(nogil=True, cache=True)
def write_bits(bits: int, mask: NDArray[np.bool_]) -> None:
    """Unpack an integer mask, item 0 the lowest bit."""
    for k in range(len(mask)):
        mask[k] = bits >> k & 1
