"""More items than can be searched: settle the large ones greedily, solve for the small ones exactly."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.exact import solve_exactly
from strongticket.ops.subset_sum.lockstep import Workspace
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of, settle_if_unreachable

SEARCHED_ITEMS = 24  # as many as a row may take time for
NEAR, UNREACHABLE = int(Status.NEAR), int(Status.UNREACHABLE)


@njit(nogil=True, cache=True)
def choose_greedily(w: float, a: NDArray[np.float64], left: int, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Decide all but the `left` smallest items; return the places of those, in item order.

    Seen from the middle of all sums, choosing an item moves the sum by half of it one way, and dropping it by as much
    the other way. Taking the items from large to small and always moving towards the target leaves a remainder near
    the middle of what the small items can reach, where their sums lie densest.
    """
    order = np.argsort(-np.abs(a), kind="mergesort")
    gap = w - 0.5 * a.sum()
    for k in order[: len(a) - left]:
        mask[k] = (gap >= 0.0) == (a[k] >= 0.0)
        gap -= 0.5 * a[k] if mask[k] else -0.5 * a[k]
    return np.sort(order[len(a) - left :])


@njit(nogil=True, cache=True)
def remainder(w: float, a: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    """What is left of w after the chosen items."""
    for k in range(len(a)):
        if mask[k]:
            w -= a[k]
    return w


@njit(nogil=True, cache=True)
def solve_surplus(
    w: NDArray[np.float64],
    a: NDArray[np.float64],
    mask: NDArray[np.bool_],
    error: NDArray[np.float64],
    status: NDArray[np.uint8],
    work: Workspace,
) -> None:
    """Find a close subset for each row: targets w (rows,), items a (rows, n), n above `SEARCHED_ITEMS`."""
    rows = len(w)
    small = np.empty((rows, SEARCHED_ITEMS), np.int64)
    rest = np.empty(rows)
    searched = np.empty((rows, SEARCHED_ITEMS))
    mask[:] = False
    for row in range(rows):
        small[row] = choose_greedily(w[row], a[row], SEARCHED_ITEMS, mask[row])
        rest[row] = remainder(w[row], a[row], mask[row])
        searched[row] = a[row][small[row]]
    chosen = np.empty((rows, SEARCHED_ITEMS), np.bool_)
    solve_exactly(rest, searched, chosen, error, status, work)
    for row in range(rows):
        mask[row][small[row]] = chosen[row]
        status[row] = UNREACHABLE if settle_if_unreachable(w[row], a[row], mask[row]) else NEAR
        error[row] = error_of(w[row], a[row], mask[row])
