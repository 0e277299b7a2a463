"""From merged lists back to subsets: which pairs of values could be the optimum, and which one is.

See `lockstep` for what a pair is, and for why the bound makes the answer exact.
"""

from typing import Any

import numpy as np

from strongticket.ops.array_types import F64, I64, Records
from strongticket.ops.compiled import part
from strongticket.ops.subset_sum.lanes import bits_not_above, load, lowest_bit, smaller, spread, store, where_equal
from strongticket.ops.subset_sum.network import Buffer
from strongticket.ops.subset_sum.rows import error_of
from strongticket.ops.subset_sum.workspace import CENTRE, FOUND, LARGEST, LIMIT, TARGET, WANTED, Workspace


@part
def set_limits(least: Buffer, vectors: Buffer, lanes: Records, pairs: Records) -> None:
    """Set the largest relevant gap of each lane: the least one so far plus twice the bound."""
    best = load(least, 0)
    for i in range(1, len(least)):
        best = smaller(best, load(least, i))
    store(vectors, LIMIT, best)
    for index in range(len(lanes)):
        gap: int = vectors[LIMIT, index]
        if lanes[index].pairs:
            gap = min(gap, pairs[index, 0].gap)
        limit = gap + int(2.0 * lanes[index].bound) + 1
        vectors[LIMIT, index] = min(limit, vectors[LARGEST, index] - 1)


@part
def collect_pairs(out: int, least: Buffer, merged: Buffer, vectors: Buffer, lanes: Records, pairs: Records) -> None:
    """Record, in every lane, all pairs with a relevant gap; `out` is 1 if the item left out is chosen."""
    limit = load(vectors, LIMIT)
    room = -1  # one bit per lane that has room for more
    for i in range(len(least)):
        close = bits_not_above(load(least, i), limit) & room
        while close:
            index = lowest_bit(close)
            collect_from_eight(8 * i, index, out, merged, vectors, lanes, pairs)
            if lanes[index].pairs > pairs.shape[1]:
                room &= ~(1 << index)
            close &= close - 1


@part
def collect_from_eight(
    start: int, index: int, out: int, merged: Buffer, vectors: Buffer, lanes: Records, pairs: Records
) -> None:
    """Record the pairs that enclose an odd gap ending in merged[start : start + 8].

    A pair may enclose other values. It is recorded at the first change of parity it encloses, and so exactly once.
    """
    x, limit, lane, room = merged[:, index], vectors[LIMIT, index], lanes[index], pairs.shape[1]
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
                # Among equal values there would be millions, of one parity or both.
                if high - low > room:
                    lane.pairs = room + 1
                if lane.pairs > room:
                    return
                high += 1
            low -= 1


@part
def note_pair(low: int, high: int, out: int, centre: int, target: int, lane: Any, pairs: Records) -> None:
    """Insert a pair by its gap, as its two signed sums."""
    if lane.pairs >= len(pairs):
        lane.pairs = len(pairs) + 1
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


@part
def list_quarter(items: Buffer, sums: Buffer) -> None:
    """List the subset sums of some items, by mask."""
    zero = load(items, 0) - load(items, 0)
    store(sums, 0, zero)
    size = 1
    for k in range(len(items)):
        item = load(items, k)
        for i in range(size):
            store(sums, size + i, load(sums, i) + item)
        size *= 2


@part
def find_subsets(items: Buffer, wanted: Buffer, found: Buffer, lows: Buffer, highs: Buffer) -> None:
    """Find, in every lane, the mask of half of the items with the wanted sum."""
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


@part
def is_repeated(place: int, pairs: Records) -> bool:
    """Whether an earlier pair has the same sums, so that their subsets cannot be distinguished."""
    pair = pairs[place]
    for i in range(place - 1, -1, -1):
        other = pairs[i]
        if other.gap != pair.gap:
            return False
        if other.first == pair.first and other.second == pair.second and other.out == pair.out:
            return True
    return False


@part
def want_pairs(place: int, used: int, work: Workspace, error: F64, bits: I64) -> bool:
    """Request the subsets of each lane's pair at this place, if it can equal the best; return whether any was."""
    wanted = False
    for index in range(used):
        lane = work.lanes[index]
        pair = work.pairs[index, place]
        lane.judged = (
            bits[lane.row] >= 0 and place < lane.pairs and pair.gap <= 2.0 * lane.scale * error[lane.row] + lane.bound
        )
        if lane.judged:
            if is_repeated(place, work.pairs[index]):
                bits[lane.row] = -1
                lane.judged = False
            work.vectors[WANTED, index] = (pair.first + lane.total_first) // 2
            work.vectors[WANTED + 1, index] = (pair.second + lane.total_second) // 2
            wanted |= lane.judged
    return wanted


@part
def decide(w: F64, a: F64, used: int, work: Workspace, error: F64, bits: I64) -> None:
    """Judge the pairs of each lane in float64, nearest first, until no other can be as good."""
    items, vectors, lanes, pairs = work.items, work.vectors, work.lanes, work.pairs
    h = len(items) // 2
    for index in range(used):
        lane = lanes[index]
        error[lane.row] = np.inf
        bits[lane.row] = -1 if lane.pairs > pairs.shape[1] else 0
    for place in range(pairs.shape[1]):
        if not want_pairs(place, used, work, error, bits):
            break
        for half in range(2):
            part_of_items = items[half * h : (half + 1) * h]
            find_subsets(part_of_items, vectors[WANTED + half :], vectors[FOUND + half :], work.lows, work.highs)
        for index in range(used):
            if lanes[index].judged:
                row = lanes[index].row
                mask = np.int64(vectors[FOUND, index]) | np.int64(vectors[FOUND + 1, index]) << h
                mask |= pairs[index, place].out << 2 * h
                tried = error_of(w[row], a[row], mask)
                if tried < error[row] or (tried == error[row] and mask < bits[row]):
                    error[row], bits[row] = tried, mask
