"""More than 32 items: settle the large ones greedily, solve for the small ones exactly."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.bisection import solve_by_bisection
from strongticket.ops.subset_sum.rows import write_bits

EXACT_ITEMS = 24


@njit(nogil=True, cache=True)
def choose_greedily(w: float, a: NDArray[np.float64], exact: int, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Decide all but the `exact` smallest items; return the places of those, in item order.

    Seen from the middle of all sums, choosing an item moves the sum by half of it one way and dropping it by half of
    it the other way. Taking the items from large to small and always moving towards the target leaves a remainder
    near the middle of what the small items can reach, where their sums lie densest.
    """
    order = np.argsort(-np.abs(a), kind="mergesort")
    gap = w - 0.5 * a.sum()
    for k in order[: len(a) - exact]:
        mask[k] = (gap >= 0.0) == (a[k] >= 0.0)
        gap -= 0.5 * a[k] if mask[k] else -0.5 * a[k]
    return np.sort(order[len(a) - exact :])


@njit(nogil=True, cache=True)
def solve_surplus(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_]) -> None:
    """A close subset of more than 24 items."""
    small = choose_greedily(w, a, EXACT_ITEMS, mask)
    mask[small] = False
    rest = w
    for k in range(len(a)):
        if mask[k]:
            rest -= a[k]
    chosen = np.empty(len(small), np.bool_)
    write_bits(solve_by_bisection(rest, a[small]), chosen)
    mask[small] = chosen
