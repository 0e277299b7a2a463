r"""Exact meet-in-the-middle on a register's worth of problems at a time.

Write $2 (w - s) = W - \sum_k \pm a_k$ with $W = 2 w - \sum_k a_k$: plus for a chosen item, minus for a dropped one.
Items and W are rounded to a fixed point that fills the integers of a lane. The signed sums of the first and of the
second half of the items are listed in order (`network.list_sums`), one list is mirrored and shifted by W, and the two
are merged; each subset is then a pair, one value from each list, and its gap is their distance. W is rounded so that
values of different lists differ in parity, so the pair of least gap is the least odd gap between neighbours. If the
number of items is odd, the item left out is tried with both signs.

Exactness. A gap differs from the true doubled error by at most a bound that is computed for each row: the sum of its
rounding errors, plus those of float64 sums. Every pair whose gap is within twice that bound of the least one is turned
back into its subset and judged in float64 in item order, smallest mask first among equals. Rows with many or coinciding
pairs (equal items, extreme magnitudes) are left to `bisection`.
"""

import numpy as np

from strongticket.ops.array_types import F64, I64, Records
from strongticket.ops.compiled import part
from strongticket.ops.subset_sum.lanes import load
from strongticket.ops.subset_sum.network import Buffer, list_sums, merge_lists, sort_runs_and_find_gaps
from strongticket.ops.subset_sum.pairs import collect_pairs, decide, set_limits
from strongticket.ops.subset_sum.rows import UNIT_ROUNDOFF, Reach
from strongticket.ops.subset_sum.workspace import CENTRE, LARGEST, TARGET, ZERO, Workspace

# Between a gap and its error in float64 lie fewer roundings than this times (n + 8), each at most a unit of the sum of
# all magnitudes: 2 n in adding up the chosen items (a gap is twice the error), n in W, fewer than 8 in the rest.
ROUNDINGS = 4.0
# Outside these the scale or the sums could overflow; such rows are left to `bisection`.
LEAST_TOTAL, LARGEST_TOTAL = 1e-280, 1e280


@part
def set_up_lane(
    row: int, w: float, a: F64, reach: Reach, index: int, items: Buffer, vectors: Buffer, lanes: Records
) -> bool:
    """Round a row whose target is within reach to fixed point; return False if its magnitude does not allow it."""
    n = len(a)
    h = n // 2
    size_first = reach.high_first - reach.low_first
    size_second = (reach.high_both - reach.low_both) - size_first
    size = reach.high - reach.low
    size_out = size - (reach.high_both - reach.low_both)
    if not LEAST_TOTAL < size < LARGEST_TOTAL:
        return False

    # The merged values lie between minus a half list and W, the item out and a half list; the rest is for rounding.
    span = max(size_first, size_second) + size + size_out + size_first
    scale = (31.0 / 32.0) * vectors[LARGEST, index] / span
    rounding = ROUNDINGS * (n + 8) * UNIT_ROUNDOFF * scale * size
    total_first, total_both, total = np.int64(0), np.int64(0), np.int64(0)
    for k in range(n):
        exact = a[k] * scale
        rounded = np.rint(exact)
        item = np.int64(rounded)
        items[k, index] = item
        rounding += abs(exact - rounded)
        total += item
        if k == h - 1:
            total_first = total
        if k == 2 * h - 1:
            total_both = total
    parity = 1 ^ total & 1
    exact = (2.0 * w - (reach.low + reach.high)) * scale
    aim = 2 * np.int64(np.rint((exact - parity) * 0.5)) + parity

    lane = lanes[index]
    lane.row = row
    lane.scale = scale
    lane.bound = rounding + abs(exact - aim)
    lane.aim = aim
    lane.total_first = total_first
    lane.total_second = total_both - total_first
    lane.pairs = 0
    vectors[CENTRE, index] = vectors[ZERO, index] + np.int64(max(size_first, size_second) * scale) + n
    return True


@part
def fill_lanes(used: int, items: Buffer, vectors: Buffer, lanes: Records) -> None:
    """Copy the first lane into unused ones, so that they hold a valid problem."""
    for index in range(used, len(lanes)):
        lanes[index] = lanes[0]
        vectors[CENTRE, index] = vectors[CENTRE, 0]
        for k in range(len(items)):
            items[k, index] = items[k, 0]


@part
def set_targets(sign: int, items: Buffer, vectors: Buffer, lanes: Records) -> None:
    """Set the target of every lane: W minus the item left out with that sign (0: there is none)."""
    for index in range(len(lanes)):
        target = lanes[index].aim - sign * np.int64(items[len(items) - 1, index])
        lanes[index].flipped = target < 0
        vectors[TARGET, index] = abs(target)


@part
def solve_group(w: F64, a: F64, used: int, work: Workspace, error: F64, bits: I64) -> None:
    """Solve the rows set up in the first lanes: least error and mask, or -1 for the mask.

    A row with -1 must be solved by another method.
    """
    items, first, second, merged, least, _, _, vectors, lanes, pairs = work
    n = len(items)
    h = n // 2
    fill_lanes(used, items, vectors, lanes)
    spare, origin = merged[: len(first)], load(vectors, ZERO)
    list_sums(items[:h], origin, first, spare)
    list_sums(items[h : 2 * h], origin, second, spare)
    for out in range(1 + n % 2):
        set_targets((2 * out - 1) * (n % 2), items, vectors, lanes)
        merge_lists(first, second, load(vectors, CENTRE), load(vectors, TARGET), origin, merged)
        sort_runs_and_find_gaps(merged, len(merged) // 8, load(vectors, LARGEST), least)
        set_limits(least, vectors, lanes, pairs)
        collect_pairs(out, least, merged, vectors, lanes, pairs)
    decide(w, a, used, work, error, bits)
