r"""More than 32 items: the generalised birthday method, given enough time, down to the limit of float64.

The smallest of a row's first items (the others are settled greedily, see `surplus`) are dealt into 4 or 8 lists. All
signed sums of each list are stored, and lists are joined in pairs: of all sums of two members only those in a narrow
window are kept, so that the next join starts closer to its goal. The last join looks for the closest pairs. Four lists
of 2^16 members represent 2^64 subsets; the joins keep a tiny but fair sample, which comes within 1e-14 at 64 items.

Sums are integers in fixed point, of doubled and centred value as in `lockstep`. The closest pairs are judged in
float64 in item order, and the best is kept.
"""

import math
from typing import NamedTuple

import numpy as np

from strongticket.ops.compiled import kernel, part
from strongticket.ops.subset_sum.exact import EXACT_ITEMS
from strongticket.ops.subset_sum.lanes import lane_buffer, load, spread
from strongticket.ops.subset_sum.lockstep import LARGEST_TOTAL, LEAST_TOTAL
from strongticket.ops.subset_sum.network import Buffer, list_sums
from strongticket.ops.subset_sum.result import Effort
from strongticket.ops.subset_sum.rows import error_of_mask
from strongticket.ops.subset_sum.surplus import Floats, Integers, Mask, choose_greedily
from strongticket.ops.subset_sum.workspace import zero_of

INDEX_BITS = 17  # of an index into a joined list
SORTED_BITS = 22  # by which sums are sorted: many more values than there are sums
JUDGED = 16  # closest pairs to judge
FIXED_POINT = 2.0**60  # the sum of all magnitudes in fixed point; two of them still fit
ZERO = zero_of(np.int64)  # where the lists of the network have it
ROUNDING = 2.0**9  # per item, in fixed point: effect on a doubled error of rounding the item and a float64 sum


class Level(NamedTuple):
    """How hard to try: `lists` of the sums of `members` items each, and how many sums a join keeps."""

    lists: int
    members: int
    kept: int  # at most 2^(INDEX_BITS - 1)

    @property
    def surplus(self) -> int:
        """The number of items a row needs beyond those it starts with."""
        return self.lists * self.members - EXACT_ITEMS


# A row goes through all levels it has items for, so it is never worse than a shorter row, or than with less effort.
DEFAULT_LEVELS = (Level(4, 12, 1 << 11),)
HIGH_LEVELS = (
    Level(4, 10, 1 << 15),
    *DEFAULT_LEVELS,
    Level(4, 12, 1 << 15),
    Level(4, 14, 1 << 15),
    Level(4, 16, 1 << 16),
    Level(8, 12, 1 << 12),
    Level(8, 14, 1 << 13),
)


def levels_for(n: int, effort: Effort) -> list[Level]:
    """Return the levels that rows of n items go through."""
    return [x for x in (HIGH_LEVELS if effort == "high" else DEFAULT_LEVELS) if x.surplus + EXACT_ITEMS <= n]


class Lists(NamedTuple):
    """The memory one thread needs for a level."""

    items: Buffer  # (members, 8), fixed point; each list has a lane
    halves: Buffer  # (2^(members-1), 8), the upper half of the signed sums
    spare: Buffer  # the same again
    sums: Integers  # (lists, 2^members), in order
    joined: Integers  # (lists - 2, 2 * kept): first of two lists each, then of two joined ones
    sources: Integers  # the indices of the two members, likewise
    keys: Integers  # (2, 2 * kept), for sorting


def make_lists(level: Level) -> Lists:
    """Allocate the memory for a level."""
    size, capacity = 1 << level.members, 2 * level.kept
    return Lists(
        items=lane_buffer(level.members, np.int64),
        halves=lane_buffer(size // 2, np.int64),
        spare=lane_buffer(size // 2, np.int64),
        sums=np.empty((level.lists, size), np.int64),
        joined=np.empty((level.lists - 2, capacity), np.int64),
        sources=np.empty((level.lists - 2, capacity), np.int64),
        keys=np.empty((2, capacity), np.int64),
    )


def solve_by_birthday(w: Floats, a: Floats, starts: Integers, mask: Mask, error: Floats, effort: Effort) -> None:
    """Look for subsets closer than those in `mask`: targets w (rows,), items a (rows, n), n above 32."""
    for level in levels_for(a.shape[1], effort):
        improve_rows(w, a, starts + level.surplus, mask, error, make_lists(level))


@kernel
def improve_rows(w: Floats, a: Floats, lengths: Integers, mask: Mask, error: Floats, lists: Lists) -> None:
    """Look for closer subsets of the first `lengths[row]` items, in the rows that have that many."""
    for row in range(len(w)):
        if error[row] > 0.0 and lengths[row] <= a.shape[1]:
            error[row] = improve(w[row], a[row, : lengths[row]], mask[row], error[row], lists)


@part
def improve(w: float, a: Floats, mask: Mask, error: float, lists: Lists) -> float:
    """Look for a subset closer than the one in `mask`; write it there, and return its error."""
    tried = np.zeros(len(a), np.bool_)
    count, members = len(lists.sums), len(lists.items)
    small = np.empty(count * members, np.int64)
    rest = choose_greedily(w, a, tried, small)
    scale, aim = write_lists(rest, a[small], lists)
    if scale == 0.0:
        return error
    gaps, pairs = np.empty(JUDGED, np.int64), np.empty(JUDGED, np.int64)
    for i in range(join_all(aim, lists, gaps, pairs)):
        if gaps[i] > 2.0 * scale * error + ROUNDING * len(a):
            break
        places = members_of(pairs[i], lists.sources)
        for t in range(count):
            bits = subset_of(lists.items[:, t], lists.sums[t, places[t]])
            for k in range(members):
                tried[small[k * count + t]] = bits >> k & 1
        reached = error_of_mask(w, a, tried)
        if reached < error:
            error = reached
            mask[: len(a)], mask[len(a) :] = tried, False
    return error


@part
def join(a: Integers, b: Integers, centre: int, width: int, keys: Integers, joined: Integers, sources: Integers) -> int:
    """List in order the sums of a member of a and one of b within `width` of the centre, relative to it.

    Returns how many there are; those beyond the capacity are left out.
    """
    count, start = 0, len(b)
    for i in range(len(a)):
        # Members of b from `start` on are too large for a[i], and for all after it.
        while start > 0 and a[i] + b[start - 1] - centre > width:
            start -= 1
        j = start - 1
        while j >= 0 and a[i] + b[j] - centre >= -width and count < len(joined):
            joined[count] = a[i] + b[j] - centre
            sources[count] = i << INDEX_BITS | j
            count += 1
            j -= 1
    sort_joined(count, width, keys, joined, sources)
    return count


@part
def sort_joined(count: int, width: int, keys: Integers, joined: Integers, sources: Integers) -> None:
    """Sort by the leading bits of the sums, which is all that a later join needs."""
    shift = 0
    while 2 * width >> shift >= 1 << SORTED_BITS:
        shift += 1
    for i in range(count):
        keys[0, i] = (joined[i] + width >> shift) << INDEX_BITS | i
    sort_by_bits(keys[:, :count], INDEX_BITS, INDEX_BITS + SORTED_BITS)
    order = keys[0, :count] & (1 << INDEX_BITS) - 1
    joined[:count] = joined[order]
    sources[:count] = sources[order]


@part
def sort_by_bits(keys: Integers, low: int, high: int) -> None:
    """Sort keys[0], not negative, by the bits from `low` up to `high`, with keys[1] as scratch space."""
    digit = 11
    source, target = keys[0], keys[1]
    for shift in range(low, high, digit):
        places = np.zeros((1 << digit) + 1, np.int64)
        for key in source:
            places[(key >> shift & (1 << digit) - 1) + 1] += 1
        places = np.cumsum(places)
        for key in source:
            value = key >> shift & (1 << digit) - 1
            target[places[value]] = key
            places[value] += 1
        source, target = target, source
    if (high - low + digit - 1) // digit % 2:
        keys[0] = keys[1]


@part
def closest_pairs(a: Integers, b: Integers, gaps: Integers, pairs: Integers) -> int:
    """Record sums and indices of the pairs whose sum is closest to 0, nearest first; return how many."""
    count = 0
    i, j = 0, len(b) - 1
    while i < len(a) and j >= 0:
        gap = a[i] + b[j]
        if count < len(pairs) or abs(gap) < gaps[count - 1]:
            place = min(count, len(pairs) - 1)
            while place > 0 and gaps[place - 1] > abs(gap):
                gaps[place], pairs[place] = gaps[place - 1], pairs[place - 1]
                place -= 1
            gaps[place], pairs[place] = abs(gap), i << INDEX_BITS | j
            count = min(count + 1, len(pairs))
        if gap < 0:
            i += 1
        else:
            j -= 1
    return count


@part
def subset_of(items: Integers, signed_sum: int) -> int:
    """Return the mask, with plus for set bits and minus for the others, that has the given sum."""
    half = len(items) // 2
    lows, highs = signed_sums(items[:half]), signed_sums(items[half:])
    for high in range(len(highs)):
        rest = signed_sum - highs[high]
        seen = False
        for low in range(len(lows)):
            seen |= lows[low] == rest
        if seen:
            for low in range(len(lows)):
                if lows[low] == rest:
                    return high << half | low
    raise AssertionError("every sum in a list is that of some subset")


@part
def signed_sums(items: Integers) -> Integers:
    """Return the sums of plus or minus each item, by mask."""
    sums = np.empty(1 << len(items), np.int64)
    sums[0] = -items.sum()
    size = 1
    for item in items:
        for i in range(size):
            sums[size + i] = sums[i] + 2 * item
        size *= 2
    return sums


@part
def write_lists(rest: float, a: Floats, lists: Lists) -> tuple[float, int]:
    """Round the items to fixed point, deal them out and list their signed sums; return the scale and the target.

    The scale is 0 if fixed point does not fit, or the target is out of reach.
    """
    items, halves, sums = lists.items, lists.halves, lists.sums
    size = np.abs(a).sum()
    aim = 2.0 * rest - a.sum()
    if not LEAST_TOTAL < size < LARGEST_TOTAL or abs(aim) > size:
        return 0.0, 0
    scale = FIXED_POINT / size
    items[:] = 0
    for k in range(len(a)):
        items[k // len(sums), k % len(sums)] = np.int64(np.rint(a[k] * scale))
    list_sums(items, spread(ZERO, load(items, 0)), halves, lists.spare)
    half = len(halves)
    for t in range(len(sums)):
        for i in range(half):
            sums[t, half + i] = halves[i, t] - ZERO
            sums[t, half - 1 - i] = ZERO - halves[i, t]
    return scale, round(aim * scale)


@part
def first_width(items: Buffer, t: int, kept: int) -> float:
    """Return the window that keeps about `kept` sums of lists t and t + 1, which are about normally distributed."""
    variance, largest = 0.0, 0.0
    for k in range(len(items)):
        variance += float(items[k, t]) ** 2 + float(items[k, t + 1]) ** 2
        largest += abs(items[k, t]) + abs(items[k, t + 1])
    pairs = 4.0 ** len(items)
    return min(0.5 * kept * math.sqrt(2.0 * math.pi * variance) / pairs, largest)


@part
def join_all(aim: int, lists: Lists, gaps: Integers, pairs: Integers) -> int:
    """Join the lists in pairs until two are left, and record the closest pairs of those; return how many."""
    sums, joined, sources, keys = lists.sums, lists.joined, lists.sources, lists.keys
    count = len(sums)
    firsts = count // 2
    kept = joined.shape[1] // 2
    lengths, widths = np.empty(count - 2, np.int64), np.empty(count - 2, np.int64)
    for k in range(firsts):
        # The target is split evenly, so that every join looks near the middle of its sums, where they are densest.
        centre = aim // firsts if k else aim - (firsts - 1) * (aim // firsts)
        widths[k] = int(first_width(lists.items, 2 * k, kept))
        lengths[k] = join(sums[2 * k], sums[2 * k + 1], centre, widths[k], keys, joined[k], sources[k])
    for k in range(firsts, count - 2):
        left, right = 2 * (k - firsts), 2 * (k - firsts) + 1
        # Sums of two windows are densest in the middle; this keeps about `kept` of them.
        share = kept / max(1.0, float(lengths[left]) * float(lengths[right]))
        widths[k] = np.int64(min(share, 1.0) * max(widths[left], widths[right])) + 1
        a, b = joined[left, : lengths[left]], joined[right, : lengths[right]]
        lengths[k] = join(a, b, 0, widths[k], keys, joined[k], sources[k])
    a, b = joined[count - 4, : lengths[count - 4]], joined[count - 3, : lengths[count - 3]]
    return closest_pairs(a, b, gaps, pairs)


@part
def members_of(pair: int, sources: Integers) -> Integers:
    """Follow a pair of the last two joined lists back to its member of each first list."""
    joins = len(sources)
    firsts = joins // 2 + 1
    place = np.empty(joins, np.int64)
    members = np.empty(2 * firsts, np.int64)
    low = (1 << INDEX_BITS) - 1
    place[joins - 2], place[joins - 1] = pair >> INDEX_BITS, pair & low
    for k in range(joins - 1, -1, -1):
        left, right = sources[k, place[k]] >> INDEX_BITS, sources[k, place[k]] & low
        if k < firsts:
            members[2 * k], members[2 * k + 1] = left, right
        else:
            place[2 * (k - firsts)], place[2 * (k - firsts) + 1] = left, right
    return members
