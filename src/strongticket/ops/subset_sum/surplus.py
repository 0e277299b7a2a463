"""More items than can be searched: settle the large ones greedily, solve for the small ones exactly."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.exact import exact_workspace, solve_exactly
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of_mask, reach_of, settle_if_unreachable

SEARCHED_ITEMS = 24  # as many as a row may take time for
BINADES = 64  # powers of two told apart, from the largest item down
NEAR, UNREACHABLE = int(Status.NEAR), int(Status.UNREACHABLE)

Floats = NDArray[np.float64]


@njit(nogil=True, cache=True)
def by_magnitude(a: NDArray[np.float64]) -> NDArray[np.int64]:
    """The places of the items from large to small, to a factor of two: sorted by their power of two alone."""
    top = math.frexp(np.abs(a).max())[1]
    binade = np.empty(len(a), np.int64)
    ends = np.zeros(BINADES + 1, np.int64)
    for k in range(len(a)):
        binade[k] = min(top - math.frexp(a[k])[1], BINADES - 1) if a[k] else BINADES - 1
        ends[binade[k] + 1] += 1
    for b in range(BINADES):
        ends[b + 1] += ends[b]
    order = np.empty(len(a), np.int64)
    for k in range(len(a)):
        order[ends[binade[k]]] = k
        ends[binade[k]] += 1
    return order


@njit(nogil=True, cache=True)
def choose_greedily(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_], left: NDArray[np.int64]) -> float:
    """Decide all but about the smallest items; return what remains of w, and in `left` the places of those undecided.

    Seen from the middle of all sums, choosing an item moves the sum by half of it one way, and dropping it by as much
    the other way. Taking the items from large to small and always moving towards the target leaves a remainder near
    the middle of what the small items can reach, where their sums lie densest.
    """
    mask[:] = False
    order = by_magnitude(a)
    decided = len(a) - len(left)
    gap = w - 0.5 * a.sum()
    for k in order[:decided]:
        mask[k] = (gap >= 0.0) == (a[k] >= 0.0)
        gap -= 0.5 * a[k] if mask[k] else -0.5 * a[k]
        if mask[k]:
            w -= a[k]
    left[:] = order[decided:]
    return w


@njit(nogil=True, cache=True)
def reduce_rows(
    w: Floats, a: Floats, mask: NDArray[np.bool_], small: NDArray[np.int64], rest: Floats, searched: Floats
) -> None:
    """Decide the large items of each row, and set up what is left as problems of their own."""
    for row in range(len(w)):
        rest[row] = choose_greedily(w[row], a[row], mask[row], small[row])
        for i in range(small.shape[1]):
            searched[row, i] = a[row, small[row, i]]


@njit(nogil=True, cache=True)
def complete_rows(
    w: Floats,
    a: Floats,
    small: NDArray[np.int64],
    chosen: NDArray[np.bool_],
    mask: NDArray[np.bool_],
    error: Floats,
    status: NDArray[np.uint8],
) -> None:
    """Put the answers for the small items in place."""
    for row in range(len(w)):
        for i in range(small.shape[1]):
            mask[row, small[row, i]] = chosen[row, i]
        unreachable = settle_if_unreachable(w[row], a[row], reach_of(a[row]), mask[row])
        status[row] = UNREACHABLE if unreachable else NEAR
        error[row] = error_of_mask(w[row], a[row], mask[row])


def solve_surplus(w: Floats, a: Floats, mask: NDArray[np.bool_], error: Floats, status: NDArray[np.uint8]) -> None:
    """Find a close subset for each row: targets w (rows,), items a (rows, n), n above `SEARCHED_ITEMS`."""
    shape = len(w), SEARCHED_ITEMS
    small, searched, chosen = np.empty(shape, np.int64), np.empty(shape), np.empty(shape, np.bool_)
    rest = np.empty(len(w))
    reduce_rows(w, a, mask, small, rest, searched)
    solve_exactly(rest, searched, chosen, error, status, exact_workspace(SEARCHED_ITEMS))
    complete_rows(w, a, small, chosen, mask, error, status)
