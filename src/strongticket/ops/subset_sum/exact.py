"""Up to 32 items: the proved optimum of every row, by the fastest method."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.bisection import solve_by_bisection
from strongticket.ops.subset_sum.enumeration import MOST_ITEMS, solve_by_enumeration
from strongticket.ops.subset_sum.lockstep import set_up_lane, solve_group
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of_mask, reach_of, settle_if_unreachable, write_bits
from strongticket.ops.subset_sum.workspace import MIN_ITEMS, Workspace, make_workspace

EXACT_ITEMS = 32  # the limit of masks and lists
# Up to here 32-bit integers mostly single out the optimum; beyond, doubtful pairs cost more than they save.
NARROW_ITEMS = 28
# After a group of which lanes solve no row, so many groups go straight to bisection: ties seldom come alone.
UNTRIED = 7
OPTIMAL, UNREACHABLE = int(Status.OPTIMAL), int(Status.UNREACHABLE)


def exact_workspace(n: int) -> Workspace:
    """Allocate the memory a thread needs to solve rows of n items."""
    return make_workspace(max(n, MIN_ITEMS), np.int32 if n <= NARROW_ITEMS else np.int64)


@njit(nogil=True, cache=True)
def solve_exactly(
    w: NDArray[np.float64],
    a: NDArray[np.float64],
    mask: NDArray[np.bool_],
    error: NDArray[np.float64],
    status: NDArray[np.uint8],
    work: Workspace,
) -> None:
    """Solve each row: targets w (rows,), items a (rows, n); mask, error and status are written."""
    n = a.shape[1]
    bits = np.full(len(w), -1, np.int64)
    sums = np.empty(1 << MOST_ITEMS)
    lanes = work.lanes
    # Not a plain 0: numba would compile all that follows once more for that very number.
    used, untried = int(np.int64(0)), int(np.int64(0))
    for row in range(len(w)):
        reach = reach_of(a[row])
        if settle_if_unreachable(w[row], a[row], reach, mask[row]):
            status[row] = UNREACHABLE
            error[row] = error_of_mask(w[row], a[row], mask[row])
            continue
        status[row] = OPTIMAL
        if n <= MOST_ITEMS:
            bits[row], error[row] = solve_by_enumeration(w[row], a[row], sums)
        elif untried:
            untried -= 1
        elif set_up_lane(row, w[row], a[row], reach, used, work.items, work.vectors, lanes):
            used += 1
            if used == len(lanes):
                solve_group(w, a, used, work, error, bits)
                used = int(np.int64(0))
                untried = UNTRIED * len(lanes) if none_solved(lanes, bits) else 0
    if used:
        solve_group(w, a, used, work, error, bits)
    left = np.flatnonzero((status == OPTIMAL) & (bits < 0))
    if len(left):
        solve_by_bisection(left, w, a, work.merged, error, bits)
    for row in range(len(w)):
        if status[row] == OPTIMAL:
            write_bits(bits[row], mask[row])


@njit(nogil=True, cache=True)
def none_solved(lanes: NDArray[np.void], bits: NDArray[np.int64]) -> bool:
    """Whether every lane's row is still to be solved."""
    solved = 0
    for index in range(len(lanes)):
        solved += bits[lanes[index].row] >= 0
    return solved == 0
