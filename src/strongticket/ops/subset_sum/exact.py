"""Up to 32 items: the proved optimum of every row, by whichever method is quickest."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.bisection import solve_by_bisection
from strongticket.ops.subset_sum.lockstep import MIN_ITEMS, Workspace, judge, make_workspace, solve_in_lockstep
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of, settle_if_unreachable, write_bits

EXACT_ITEMS = 32  # masks and lists are laid out for no more
# Up to here the optimum mostly stands out among integers of 32 bits; beyond, doubtful pairs cost more than they save.
NARROW_ITEMS = 25
OPTIMAL, UNREACHABLE = int(Status.OPTIMAL), int(Status.UNREACHABLE)


def exact_workspace(n: int) -> Workspace:
    """The memory a thread needs to solve rows of n items."""
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
    """Solve each row: targets w (rows,), items a (rows, n); the last but one three are written."""
    rows, n = a.shape
    bits = np.full(rows, -1, np.int64)
    reachable = np.empty(rows, np.int64)
    count = 0
    for row in range(rows):
        status[row] = UNREACHABLE if settle_if_unreachable(w[row], a[row], mask[row]) else OPTIMAL
        if status[row] == UNREACHABLE:
            error[row] = error_of(w[row], a[row], mask[row])
        else:
            reachable[count] = row
            count += 1
    if n >= MIN_ITEMS:
        solve_in_lockstep(w, a, reachable[:count], work, error, bits)
    for row in reachable[:count]:
        if bits[row] < 0:
            bits[row] = solve_by_bisection(w[row], a[row])
            error[row] = judge(w[row], a[row], bits[row])
        write_bits(bits[row], mask[row])
