r"""Exact meet-in-the-middle on a register's worth of problems at a time.

Write $2 (w - s) = W - \sum_k \pm a_k$ with $W = 2 w - \sum_k a_k$: plus for a chosen item, minus for a dropped one.
Items and W are rounded to a fixed point that fills the integers of a lane. The signed sums of the first and of the
second half of the items are listed in order (`network.list_sums`), one list is mirrored and moved by W, and the two
are merged; each subset is then a pair, one value from each list, and its gap is how far apart they lie. W is rounded
so that values of different lists differ in parity, and so the pair of least gap shows as the least odd gap between
neighbours. An odd item out is tried with both signs.

Exactness. A gap differs from the true doubled error by at most a bound that is computed for each row: its rounding
errors summed, plus what float64 loses in adding up. Every pair whose gap is within twice that bound of the least one
is turned back into its subset and judged in float64 in item order, smallest mask first among equals. Rows where pairs
are many or coincide (equal items, wild magnitudes) are left to `bisection`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.lanes import (
    bits_not_above,
    lane_buffer,
    load,
    lowest_bit,
    smaller,
    spread,
    store,
    where_equal,
)
from strongticket.ops.subset_sum.network import Buffer, list_sums, merge_lists, sort_runs_and_find_gaps
from strongticket.ops.subset_sum.rows import Reach, error_of

MIN_ITEMS = 8  # the network lists the sums of at least four items
MAX_PAIRS = 96  # a row with more close pairs is left to `bisection`
UNIT_ROUNDOFF = 2.0**-53
# A gap takes fewer float64 roundings than this times (n + 8), each of at most a unit of all magnitudes together: n in
# adding the chosen items, 2 n in W, n in scaling, twice that because gaps are doubled.
ROUNDINGS = 8.0
# Outside these the scale could overflow, or sums could; such rows are left to `bisection`.
LEAST_TOTAL, LARGEST_TOTAL = 1e-280, 1e280


# What is known of the problem in each lane.
LANE = np.dtype(
    [
        ("row", np.int64),  # which row of the chunk it is
        ("scale", np.float64),  # fixed point = scale times value
        ("bound", np.float64),  # how far a gap may be from the true doubled error, in fixed point
        ("aim", np.int64),  # W
        ("total_first", np.int64),  # the sum of the first half of the items
        ("total_second", np.int64),
        ("flipped", np.bool_),  # whether the target is negative; the lists are then read mirrored
        ("pairs", np.int64),  # how many have been noted; more than MAX_PAIRS: too many
    ],
    align=True,
)
PAIR = np.dtype([("gap", np.int64), ("first", np.int64), ("second", np.int64), ("out", np.int64)])

# The places of single vectors in `Workspace.vectors`.
CENTRE, TARGET, LIMIT, WANTED_FIRST, WANTED_SECOND, FOUND_FIRST, FOUND_SECOND, VECTORS = range(8)


class Workspace(NamedTuple):
    """The memory one thread needs for n items; h = n // 2 of them are in each half."""

    items: Buffer  # (n, lanes), fixed point
    first: Buffer  # (2^(h-1), lanes), the upper half of the signed sums of the first half of the items
    second: Buffer  # (2^(h-1), lanes)
    merged: Buffer  # (2^(h+1), lanes)
    least: Buffer  # (2^(h-2), lanes), least odd gap of every eight
    lows: Buffer  # (2^(h//2), lanes), subset sums of a quarter of the items
    highs: Buffer  # (2^(h-h//2), lanes), of the next quarter
    vectors: Buffer  # (VECTORS, lanes)
    lanes: NDArray[np.void]  # (lanes,) LANE
    pairs: NDArray[np.void]  # (lanes, MAX_PAIRS) PAIR, by gap


def make_workspace(n: int, dtype: type[np.signedinteger[Any]]) -> Workspace:
    """Memory for n items in lanes of int32 or int64."""
    h = n // 2
    sizes = n, 1 << h - 1, 1 << h - 1, 2 << h, 1 << h - 2, 1 << h // 2, 1 << h - h // 2, VECTORS
    buffers = [lane_buffer(size, dtype) for size in sizes]
    lanes = buffers[0].shape[1]
    return Workspace._make([*buffers, np.zeros(lanes, LANE), np.zeros((lanes, MAX_PAIRS), PAIR)])


@njit(nogil=True, cache=True)
def largest(buffer: Buffer) -> int:
    """The largest integer a lane holds."""
    return np.iinfo(buffer.dtype).max


@njit(nogil=True, cache=True)
def zero_of(buffer: Buffer) -> int:
    """Where lists have their 0: the bits of smaller positive integers are those of denormal floats."""
    return largest(buffer) // 128 if largest(buffer) < 1 << 32 else largest(buffer) // 1024


@njit(nogil=True, cache=True)
def set_up_lane(
    row: int,
    w: float,
    a: NDArray[np.float64],
    reach: Reach,
    index: int,
    items: Buffer,
    vectors: Buffer,
    lanes: NDArray[np.void],
) -> bool:
    """Round a row whose target is within reach to fixed point; say False if its magnitude does not allow it."""
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
    scale = (31.0 / 32.0) * largest(items) / span
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
    vectors[CENTRE, index] = zero_of(items) + np.int64(max(size_first, size_second) * scale) + n
    return True


@njit(nogil=True, cache=True)
def set_targets(sign: int, items: Buffer, vectors: Buffer, lanes: NDArray[np.void]) -> None:
    """Set the target of every lane: W less the item out with that sign (0: there is none)."""
    for index in range(len(lanes)):
        target = lanes[index].aim - sign * np.int64(items[len(items) - 1, index])
        lanes[index].flipped = target < 0
        vectors[TARGET, index] = abs(target)


@njit(nogil=True, cache=True)
def set_limits(least: Buffer, vectors: Buffer, lanes: NDArray[np.void], pairs: NDArray[np.void]) -> None:
    """In each lane, gaps up to the least one seen yet plus twice the bound matter."""
    best = load(least, 0)
    for i in range(1, len(least)):
        best = smaller(best, load(least, i))
    store(vectors, LIMIT, best)
    for index in range(len(lanes)):
        gap: int = vectors[LIMIT, index]
        if lanes[index].pairs:
            gap = min(gap, pairs[index, 0].gap)
        limit = gap + int(2.0 * lanes[index].bound) + 1
        vectors[LIMIT, index] = min(limit, largest(least) - 1)


@njit(nogil=True, cache=True)
def collect_pairs(
    out: int, least: Buffer, merged: Buffer, vectors: Buffer, lanes: NDArray[np.void], pairs: NDArray[np.void]
) -> None:
    """Note, in every lane, all pairs whose gap matters; `out` is 1 if the item out is chosen."""
    limit = load(vectors, LIMIT)
    for i in range(len(least)):
        close = bits_not_above(load(least, i), limit)
        while close:
            collect_from_eight(8 * i, lowest_bit(close), out, merged, vectors, lanes, pairs)
            close &= close - 1


@njit(nogil=True, cache=True)
def collect_from_eight(
    start: int,
    index: int,
    out: int,
    merged: Buffer,
    vectors: Buffer,
    lanes: NDArray[np.void],
    pairs: NDArray[np.void],
) -> None:
    """Note the pairs that enclose an odd gap ending in merged[start : start + 8].

    A pair may enclose other values. It is noted at the first change of parity it encloses, and so exactly once.
    """
    x, limit, lane = merged[:, index], vectors[LIMIT, index], lanes[index]
    centre, target = vectors[CENTRE, index], vectors[TARGET, index]
    close = 0
    for i in range(8):
        gap = x[start + i] - x[max(start + i - 1, 0)]
        close |= (gap & 1 & (gap <= limit)) << i
    while close:
        above = start + lowest_bit(close)
        close &= close - 1
        low = above - 1
        while low >= 0 and (x[above] - x[low]) & 1 and x[above] - x[low] <= limit:
            high = above
            while high < len(x) and x[high] - x[low] <= limit:
                if (x[high] - x[low]) & 1:
                    note_pair(x[low], x[high], out, centre, target, lane, pairs[index])
                # Among equal values there would be millions.
                if lane.pairs > MAX_PAIRS:
                    return
                high += 1
            low -= 1


@njit(nogil=True, cache=True)
def note_pair(low: int, high: int, out: int, centre: int, target: int, lane: Any, pairs: NDArray[np.void]) -> None:
    """Insert a pair by its gap, as the two signed sums it stands for."""
    if lane.pairs >= MAX_PAIRS:
        lane.pairs = MAX_PAIRS + 1
        return
    # Values of the second list have the parity of its items.
    low_is_second = (low - centre - lane.total_second) & 1 == 0
    second = np.int64(low if low_is_second else high) - centre
    first = np.int64(high if low_is_second else low) - centre - target
    place = lane.pairs
    while place > 0 and pairs[place - 1].gap > high - low:
        pairs[place] = pairs[place - 1]
        place -= 1
    pairs[place].gap = high - low
    pairs[place].first = first if lane.flipped else -first
    pairs[place].second = -second if lane.flipped else second
    pairs[place].out = out
    lane.pairs += 1


@njit(nogil=True, cache=True)
def list_quarter(items: Buffer, sums: Buffer) -> None:
    """The subset sums of some items, by mask."""
    zero = load(items, 0) - load(items, 0)
    store(sums, 0, zero)
    size = 1
    for k in range(len(items)):
        item = load(items, k)
        for i in range(size):
            store(sums, size + i, load(sums, i) + item)
        size *= 2


@njit(nogil=True, cache=True)
def find_subsets(items: Buffer, wanted: Buffer, found: Buffer, lows: Buffer, highs: Buffer) -> None:
    """Find, in every lane, the mask of half of the items whose sum is the wanted one."""
    quarter = len(items) // 2
    list_quarter(items[:quarter], lows)
    list_quarter(items[quarter:], highs)
    sought = load(wanted, 0)
    mask = sought - sought
    one = spread(1, sought)
    best = mask
    for high in range(len(highs)):
        rest = sought - load(highs, high)
        for low in range(len(lows)):
            best = where_equal(rest, load(lows, low), mask, best)
            mask = mask + one
    store(found, 0, best)


@njit(nogil=True, cache=True)
def is_repeated(place: int, pairs: NDArray[np.void]) -> bool:
    """Whether an earlier pair has the same sums, so that their subsets cannot be told apart."""
    pair = pairs[place]
    for i in range(place - 1, -1, -1):
        other = pairs[i]
        if other.gap != pair.gap:
            return False
        if other.first == pair.first and other.second == pair.second and other.out == pair.out:
            return True
    return False


@njit(nogil=True, cache=True)
def want_pairs(
    place: int,
    used: int,
    vectors: Buffer,
    lanes: NDArray[np.void],
    pairs: NDArray[np.void],
    error: NDArray[np.float64],
    bits: NDArray[np.int64],
    active: NDArray[np.bool_],
) -> bool:
    """Ask for the subsets of each lane's pair of that place, if it can be as good as the best; say if there is any."""
    for index in range(used):
        lane = lanes[index]
        pair = pairs[index, place]
        active[index] = (
            bits[lane.row] >= 0 and place < lane.pairs and pair.gap <= 2.0 * lane.scale * error[lane.row] + lane.bound
        )
        if active[index]:
            if is_repeated(place, pairs[index]):
                bits[lane.row] = -1
                active[index] = False
            vectors[WANTED_FIRST, index] = (pair.first + lane.total_first) // 2
            vectors[WANTED_SECOND, index] = (pair.second + lane.total_second) // 2
    return bool(active[:used].any())


@njit(nogil=True, cache=True)
def decide(
    w: NDArray[np.float64],
    a: NDArray[np.float64],
    used: int,
    items: Buffer,
    lows: Buffer,
    highs: Buffer,
    vectors: Buffer,
    lanes: NDArray[np.void],
    pairs: NDArray[np.void],
    error: NDArray[np.float64],
    bits: NDArray[np.int64],
) -> None:
    """Judge the pairs of each lane in float64, nearest first, until no other can be as good."""
    h = len(items) // 2
    active = np.empty(used, np.bool_)
    for index in range(used):
        lane = lanes[index]
        error[lane.row] = np.inf
        bits[lane.row] = -1 if lane.pairs > MAX_PAIRS else 0
    place = int(np.int64(0))
    while place < MAX_PAIRS and want_pairs(place, used, vectors, lanes, pairs, error, bits, active):
        find_subsets(items[:h], vectors[WANTED_FIRST:], vectors[FOUND_FIRST:], lows, highs)
        find_subsets(items[h : 2 * h], vectors[WANTED_SECOND:], vectors[FOUND_SECOND:], lows, highs)
        for index in range(used):
            if active[index]:
                row = lanes[index].row
                mask = np.int64(vectors[FOUND_FIRST, index]) | np.int64(vectors[FOUND_SECOND, index]) << h
                mask |= pairs[index, place].out << 2 * h
                tried = error_of(w[row], a[row], mask)
                if tried < error[row] or (tried == error[row] and mask < bits[row]):
                    error[row], bits[row] = tried, mask
        place += 1


@njit(nogil=True, cache=True)
def solve_group(
    w: NDArray[np.float64],
    a: NDArray[np.float64],
    used: int,
    work: Workspace,
    error: NDArray[np.float64],
    bits: NDArray[np.int64],
) -> None:
    """Solve the rows that have been set up in the first lanes: least error and mask, or -1 for the mask.

    A row with -1 has to be solved otherwise. Lanes that are not used go through the motions.
    """
    items, first, second, merged, least, lows, highs, vectors, lanes, pairs = work
    n = len(items)
    h = n // 2
    spare, zero = merged[: len(first)], zero_of(items)
    list_sums(items[:h], zero, first, spare)
    list_sums(items[h : 2 * h], zero, second, spare)
    for out in range(1 + n % 2):
        set_targets((2 * out - 1) * (n % 2), items, vectors, lanes)
        centre, target = load(vectors, CENTRE), load(vectors, TARGET)
        merge_lists(first, second, centre, target, spread(zero, centre), merged)
        sort_runs_and_find_gaps(merged, len(merged) // 8, largest(merged), least)
        set_limits(least, vectors, lanes, pairs)
        collect_pairs(out, least, merged, vectors, lanes, pairs)
    decide(w, a, used, items, lows, highs, vectors, lanes, pairs, error, bits)
