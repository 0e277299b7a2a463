"""More items than can be searched: settle the large ones greedily, solve 32 small ones exactly.

**More items never make a row worse.** Everything tried for a row depends only on its first few items: on the first
`start`, the fewest (at least 32) that reach the target, and on fixed numbers of items beyond (`birthday`). A longer row
tries the same and more, and the best is kept. If 32 items reach the target, these 32 are solved exactly; if it takes
more, all but 32 of the first `start` are settled greedily. A target at the very end of the reachable interval is hard
to meet, so such a row is solved again with 1, 2, 4, 8, ... more items.
"""

import numpy as np

from strongticket.ops.array_types import F64, I64, U8, Bools
from strongticket.ops.compiled import kernel, part
from strongticket.ops.subset_sum.exact import EXACT_ITEMS, exact_workspace, solve_exactly
from strongticket.ops.subset_sum.result import Status
from strongticket.ops.subset_sum.rows import error_of_mask, reach_of, settle_if_unreachable
from strongticket.ops.subset_sum.workspace import Workspace

NEAR, UNREACHABLE = int(Status.NEAR), int(Status.UNREACHABLE)


def solve_surplus(w: F64, a: F64, mask: Bools, error: F64, status: U8) -> I64:
    """Find a close subset for each row: targets w (rows,), items a (rows, n), n above 32; return each row's `start`."""
    starts = np.empty(len(w), np.int64)
    settle_ends(w, a, starts, mask, error, status)
    rows, ahead, work = np.flatnonzero(status == NEAR), 0, exact_workspace(EXACT_ITEMS)
    while len(rows):
        search_small_ones(w, a, rows, starts[rows] + ahead, mask, error, work)
        ahead = max(1, 2 * ahead)
        rows = rows[(starts[rows] > EXACT_ITEMS) & (starts[rows] + ahead <= a.shape[1])]
    return starts


def search_small_ones(w: F64, a: F64, rows: I64, lengths: I64, mask: Bools, error: F64, work: Workspace) -> None:
    """Search the first `lengths[i]` items of row `rows[i]`, and keep any closer subset."""
    shape = len(rows), EXACT_ITEMS
    tried, rest = np.zeros((len(rows), a.shape[1]), np.bool_), np.empty(len(rows))
    left, searched, chosen = np.empty(shape, np.int64), np.empty(shape), np.empty(shape, np.bool_)
    reduce_rows(w, a, rows, lengths, tried, left, rest, searched)
    solve_exactly(rest, searched, chosen, np.empty(len(rows)), np.empty(len(rows), np.uint8), work)
    keep_closer(w, a, rows, tried, left, chosen, mask, error)


@kernel
def settle_ends(w: F64, a: F64, starts: I64, mask: Bools, error: F64, status: U8) -> None:
    """Find each row's `start`, and set a first answer: the nearer end, or nothing chosen."""
    mask[:] = False
    for row in range(len(w)):
        starts[row] = start_of(w[row], a[row])
        before = a[row, : starts[row] - 1]
        out = settle_if_unreachable(w[row], before, reach_of(before), mask[row])
        status[row] = UNREACHABLE if out and len(before) == a.shape[1] else NEAR
        error[row] = error_of_mask(w[row], a[row], mask[row])


@part
def start_of(w: float, a: F64) -> int:
    """Return how many items, at least 32, it takes to reach w; n + 1 if all are too few."""
    low, high = 0.0, 0.0
    for k in range(len(a)):
        low += min(a[k], 0.0)
        high += max(a[k], 0.0)
        if k + 1 >= EXACT_ITEMS and low <= w <= high:
            return k + 1
    return len(a) + 1


@kernel
def reduce_rows(w: F64, a: F64, rows: I64, lengths: I64, tried: Bools, left: I64, rest: F64, searched: F64) -> None:
    """Decide the large items of each row, and set up the rest, in item order, as separate problems."""
    for i in range(len(rows)):
        items = a[rows[i], : lengths[i]]
        rest[i], left[i] = w[rows[i]], np.arange(EXACT_ITEMS)
        if len(items) > EXACT_ITEMS:
            rest[i] = choose_greedily(rest[i], items, tried[i], left[i])
            left[i].sort()
        searched[i] = items[left[i]]


@kernel
def keep_closer(w: F64, a: F64, rows: I64, tried: Bools, left: I64, chosen: Bools, mask: Bools, error: F64) -> None:
    """Put the two parts of each mask together, and keep those that are closer than what was found before."""
    for i in range(len(rows)):
        row = rows[i]
        for k in range(EXACT_ITEMS):
            tried[i, left[i, k]] = chosen[i, k]
        reached = error_of_mask(w[row], a[row], tried[i])
        if reached < error[row]:
            mask[row], error[row] = tried[i], reached


@part
def choose_greedily(w: float, a: F64, mask: Bools, left: I64) -> float:
    """Decide all but the smallest items; return the remainder of w, and in `left` the indices of the undecided items.

    Seen from the middle of all sums, choosing an item moves the sum by half of it one way, and dropping it by as much
    the other way. Taking the items from large to small and always moving toward the target leaves a remainder near the
    middle of the small items' reach, where their sums are densest.
    """
    order = np.argsort(-np.abs(a), kind="mergesort")
    decided = len(a) - len(left)
    gap = w - 0.5 * a.sum()
    for k in order[:decided]:
        mask[k] = (gap >= 0.0) == (a[k] >= 0.0)
        gap -= 0.5 * a[k] if mask[k] else -0.5 * a[k]
        if mask[k]:
            w -= a[k]
    left[:] = order[decided:]
    return w
