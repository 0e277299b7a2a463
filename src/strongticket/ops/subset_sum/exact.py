"""Up to 32 items: the proved optimum of every row, by the fastest method."""

import numpy as np

from strongticket.ops.array_types import F64, I64, U8, Bools, Records
from strongticket.ops.compiled import kernel, part
from strongticket.ops.subset_sum.bisection import make_room, solve_by_bisection
from strongticket.ops.subset_sum.enumeration import MOST_ITEMS, solve_by_enumeration
from strongticket.ops.subset_sum.lockstep import set_up_lane, solve_group
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of_mask, reach_of, settle_if_unreachable, write_bits
from strongticket.ops.subset_sum.workspace import MIN_ITEMS, Workspace, make_workspace

EXACT_ITEMS = 32  # the limit of masks and lists
# Up to here 32-bit integers mostly single out the optimum; beyond, doubtful pairs cost more than they save.
NARROW_ITEMS = 28
# After a group of which lanes solve few rows, so many groups go straight to bisection: ties seldom come alone, and to
# try a group takes about as long as bisecting for a fifth of it.
UNTRIED = 7
OPTIMAL, UNREACHABLE = int(Status.OPTIMAL), int(Status.UNREACHABLE)


def exact_workspace(n: int) -> Workspace:
    """Allocate the memory a thread needs to solve rows of n items."""
    return make_workspace(max(n, MIN_ITEMS), np.int32 if n <= NARROW_ITEMS else np.int64)


def solve_exactly(w: F64, a: F64, mask: Bools, error: F64, status: U8, work: Workspace) -> None:
    """Solve each row: targets w (rows,), items a (rows, n); mask, error and status are written."""
    bits = np.full(len(w), -1, np.int64)
    solve_most(w, a, mask, error, status, bits, work)
    left = np.flatnonzero((status == OPTIMAL) & (bits < 0))
    # Called from here, so that it is compiled when the first row is left to it.
    if len(left):
        n = a.shape[1]
        solve_by_bisection(left, w, a, make_room(n, work.merged), error, bits)
        mask[left] = bits[left, None] >> np.arange(n) & 1


@kernel
def solve_most(w: F64, a: F64, mask: Bools, error: F64, status: U8, bits: I64, work: Workspace) -> None:
    """Solve each row, except for those of 8 items or more whose entry in `bits` stays -1."""
    n = a.shape[1]
    sums = np.empty(1 << MOST_ITEMS)
    lanes = work.lanes
    # Not plain zeros: numba would compile what follows once more for that very number.
    row, untried = int(np.int64(0)), 0
    while row < len(w):
        used = int(np.int64(0))
        while used < len(lanes) and row < len(w):
            reach = reach_of(a[row])
            status[row] = OPTIMAL
            if settle_if_unreachable(w[row], a[row], reach, mask[row]):
                status[row] = UNREACHABLE
                error[row] = error_of_mask(w[row], a[row], mask[row])
            elif n <= MOST_ITEMS:
                bits[row], error[row] = solve_by_enumeration(w[row], a[row], sums)
            elif untried:
                untried -= 1
            elif set_up_lane(row, w[row], a[row], reach, used, work.items, work.vectors, lanes):
                used += 1
            row += 1
        if used:
            solve_group(w, a, used, work, error, bits)
            untried = UNTRIED * len(lanes) if few_solved(lanes, bits) else 0
    for row in range(len(w)):
        if bits[row] >= 0:
            write_bits(bits[row], mask[row])


@part
def few_solved(lanes: Records, bits: I64) -> bool:
    """Whether the rows of more than three in four lanes are still to be solved."""
    solved = 0
    for index in range(len(lanes)):
        solved += bits[lanes[index].row] >= 0
    return 4 * solved < len(lanes)
