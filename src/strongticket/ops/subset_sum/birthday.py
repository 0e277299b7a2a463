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

from strongticket.ops.array_types import F64, I64, Bools
from strongticket.ops.compiled import kernel, part
from strongticket.ops.subset_sum.exact import EXACT_ITEMS
from strongticket.ops.subset_sum.lanes import lane_buffer, load, load_eight, spread, store_eight, transposed
from strongticket.ops.subset_sum.lockstep import LARGEST_TOTAL, LEAST_TOTAL
from strongticket.ops.subset_sum.network import Buffer, list_sums
from strongticket.ops.subset_sum.result import Effort
from strongticket.ops.subset_sum.rows import error_of_mask
from strongticket.ops.subset_sum.surplus import choose_greedily
from strongticket.ops.subset_sum.workspace import zero_of

INDEX_BITS = 17  # of an index into a joined list
DIGIT = 11  # bits by which sums are sorted at a time, twice: many more values than there are sums
LAST_DIGIT = (1 << DIGIT) - 1
ONE = np.uint64(1)
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
    """The memory one thread needs for a level; as many rows are listed at once as fit in the lanes."""

    items: Buffer  # (members, 8), fixed point; each list has a lane
    halves: Buffer  # (2^(members-1), 8), the upper half of the signed sums
    spare: Buffer  # the same again
    sums: I64  # (rows, lists, 2^members), in order
    joined: I64  # (lists - 2, 2 * kept): first of two lists each, then of two joined ones
    sources: I64  # the indices of the two members, likewise
    work: I64  # (4, 2 * kept + 1), for a join


def make_lists(level: Level) -> Lists:
    """Allocate the memory for a level."""
    size, capacity, items = 1 << level.members, 2 * level.kept, lane_buffer(level.members, np.int64)
    return Lists(
        items=items,
        halves=lane_buffer(size // 2, np.int64),
        spare=lane_buffer(size // 2, np.int64),
        sums=np.empty((items.shape[1] // level.lists, level.lists, size), np.int64),
        joined=np.empty((level.lists - 2, capacity), np.int64),
        sources=np.empty((level.lists - 2, capacity), np.int64),
        work=np.empty((4, capacity + 1), np.int64),
    )


def solve_by_birthday(w: F64, a: F64, starts: I64, mask: Bools, error: F64, effort: Effort) -> None:
    """Look for subsets closer than those in `mask`: targets w (rows,), items a (rows, n), n above 32."""
    for level in levels_for(a.shape[1], effort):
        improve_rows(w, a, starts + level.surplus, mask, error, make_lists(level))


@kernel
def improve_rows(w: F64, a: F64, lengths: I64, mask: Bools, error: F64, lists: Lists) -> None:
    """Look for closer subsets of the first `lengths[row]` items, in the rows that have that many."""
    at_once, count = lists.sums.shape[:2]
    tried = np.empty((at_once, a.shape[1]), np.bool_)
    small = np.empty((at_once, count * len(lists.items)), np.int64)
    scales, aims = np.empty(at_once), np.empty(at_once, np.int64)
    gaps, pairs = np.empty(JUDGED, np.int64), np.empty(JUDGED, np.int64)
    rows = np.flatnonzero((error > 0.0) & (lengths <= a.shape[1]))
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        tried[:], lists.items[:] = False, 0
        for k in range(len(some)):
            first = a[some[k], : lengths[some[k]]]
            rest = choose_greedily(w[some[k]], first, tried[k], small[k])
            scales[k], aims[k] = deal(rest, first[small[k]], lists.items[:, k * count : (k + 1) * count])
        write_lists(lists)
        for k in range(len(some)):
            if scales[k] == 0.0:
                continue
            row, items = some[k], lists.items[:, k * count : (k + 1) * count]
            for i in range(join_all(aims[k], items, lists.sums[k], lists, gaps, pairs)):
                if gaps[i] > 2.0 * scales[k] * error[row] + ROUNDING * lengths[row]:
                    break
                choose_members(items, lists.sums[k], members_of(pairs[i], lists.sources), small[k], tried[k])
                reached = error_of_mask(w[row], a[row], tried[k])
                if reached < error[row]:
                    error[row], mask[row] = reached, tried[k]


@part
def choose_members(items: Buffer, sums: I64, places: I64, small: I64, tried: Bools) -> None:
    """Choose the items that make up one sum of each list."""
    for t in range(len(sums)):
        bits = subset_of(items[:, t], sums[t, places[t]])
        for k in range(len(items)):
            tried[small[k * len(sums) + t]] = bits >> k & 1


@part
def join(a: I64, b: I64, centre: int, width: int, work: I64, joined: I64, sources: I64) -> int:
    """List in order the sums of a member of a and one of b within `width` of the centre, relative to it.

    Returns how many there are; those beyond the capacity are left out.
    """
    if not len(a) or not len(b):
        return 0
    count_partners(a, b, centre + width, work[0])
    count = list_pairs(a, b, centre, width, work)
    sort_joined(count, width, work, joined, sources)
    return count


@part
def count_partners(a: I64, b: I64, most: int, counts: I64) -> None:
    """Count, for each member of a, the members of b that add up with it to at most that.

    Both lists are in order. Comparisons are added up, since branches would be mispredicted; each waits for the one
    before, so four walks, from both ends and from the middle to either side, go on at once.
    """
    # Unsigned, since numba would look for negative indices.
    i, j, u, v = np.uint64(0), np.uint64(len(b)), np.uint64(len(a) - 1), np.uint64(0)
    p, q = find_halfway(a, b, most)
    x, y = p, q
    steps = ONE
    while steps:
        # A step brings two walks closer by at most two.
        steps = min(min(p - i, j - q), min(u - x, y - v)) // np.uint64(2)
        for _ in range(steps):
            i, j = step_up(a, b, most, i, j, counts)
            p, q = step_down(a, b, most, p, q, counts)
            x, y = step_up(a, b, most, x, y, counts)
            u, v = step_down(a, b, most, u, v, counts)
    finish_walk(a, b, most, i, j, p, q, counts)
    finish_walk(a, b, most, x, y, u, v, counts)


@part
def find_halfway(a: I64, b: I64, most: int) -> tuple[np.uint64, np.uint64]:
    """Return the member of a where steps up are halfway, and how many partners it has."""
    # After so many steps, members passed and partners left behind add up to them.
    steps = (len(a) + len(b)) // 2
    low, high = max(0, steps - len(b)), min(steps, len(a) - 1)
    while low < high:
        middle = (low + high) // 2
        if a[middle] + b[len(b) - steps + middle] <= most:
            low = middle + 1
        else:
            high = middle
    count = len(b) - steps + low
    while count < len(b) and a[low] + b[count] <= most:
        count += 1
    while count > 0 and a[low] + b[count - 1] > most:
        count -= 1
    return np.uint64(low), np.uint64(count)


@part
def step_up(a: I64, b: I64, most: int, i: np.uint64, j: np.uint64, counts: I64) -> tuple[np.uint64, np.uint64]:
    """Member i has at most j partners: if so many, go on to the next member, else to one partner fewer."""
    counts[i] = j
    enough = np.uint64(a[i] + b[j - ONE] <= most)
    return i + enough, j - (ONE - enough)


@part
def step_down(a: I64, b: I64, most: int, i: np.uint64, j: np.uint64, counts: I64) -> tuple[np.uint64, np.uint64]:
    """Member i has at least j partners: if so many, go on to the member before, else to one partner more."""
    counts[i] = j
    enough = np.uint64(a[i] + b[j] > most)
    return i - enough, j + (ONE - enough)


@part
def finish_walk(a: I64, b: I64, most: int, i: np.uint64, j: np.uint64, p: np.uint64, q: np.uint64, counts: I64) -> None:
    """Count the partners of members i to p: at least q, at most j."""
    for k in range(i, p + ONE):
        while j > q and a[k] + b[j - ONE] > most:
            j -= ONE
        counts[k] = j


@part
def list_pairs(a: I64, b: I64, centre: int, width: int, work: I64) -> int:
    """List the sums within the window, for each member of a from the largest on; return how many there was room for.

    Sums are written before it is known whether they count, since branches would be mispredicted.
    """
    counts, sums, members, places = work[0], work[1], work[2], work[3]
    size, found, low = len(a), 0, centre - width
    while size and not counts[size - 1]:
        size -= 1
    for i in range(size):
        places[np.uint64(found)] = i
        found += a[np.uint64(i)] + b[np.uint64(counts[np.uint64(i)] - 1)] >= low
    room, count = len(sums) - 1, 0
    for k in range(found):
        i = places[np.uint64(k)]
        x, j, source = a[np.uint64(i)], counts[np.uint64(i)] - 1, i << INDEX_BITS
        # Two at a time: few members have more.
        while count < room:
            total, second = x + b[np.uint64(j)], x + b[np.uint64(max(j, 1) - 1)]
            sums[np.uint64(count)], members[np.uint64(count)] = total - centre, source | j
            sums[np.uint64(count + 1)], members[np.uint64(count + 1)] = second - centre, source | (j - 1)
            count += 1 + ((j > 0) & (second >= low))
            j -= 2
            if j < 0 or x + b[np.uint64(j)] < low:
                break
    return min(count, room)


@part
def sort_joined(count: int, width: int, work: I64, joined: I64, sources: I64) -> None:
    """Sort by the leading bits of the sums, which is all that a later join needs: first by the last digit of these."""
    spare, sums, members, keys = work[0], work[1], work[2], work[3]
    shift = 0
    while 2 * width >> shift >= 1 << 2 * DIGIT:
        shift += 1
    last, first = np.zeros(1 << DIGIT, np.int64), np.zeros(1 << DIGIT, np.int64)
    for k in range(count):
        # A joined list is in order only by leading bits, so the next join may take pairs just outside its window.
        key = max(0, min(sums[k] + width, 2 * width)) >> shift
        keys[k] = key << INDEX_BITS | k
        last[np.uint64(key & LAST_DIGIT)] += 1
        first[np.uint64(key >> DIGIT)] += 1
    before_last, before_first = 0, 0
    for x in range(1 << DIGIT):
        before_last, last[x] = before_last + last[x], before_last
        before_first, first[x] = before_first + first[x], before_first
    for k in range(count):
        digit = np.uint64(keys[k] >> INDEX_BITS & LAST_DIGIT)
        spare[np.uint64(last[digit])] = keys[k]
        last[digit] += 1
    for k in range(count):
        digit, place = np.uint64(spare[k] >> INDEX_BITS + DIGIT), np.uint64(spare[k] & (1 << INDEX_BITS) - 1)
        at = np.uint64(first[digit])
        joined[at], sources[at] = sums[place], members[place]
        first[digit] += 1


@part
def closest_pairs(a: I64, b: I64, gaps: I64, pairs: I64) -> int:
    """Record sums and indices of the pairs whose sum is closest to 0, nearest first; return how many."""
    count = 0
    i, j = 0, len(b) - 1
    while i < len(a) and j >= 0:
        gap = a[np.uint64(i)] + b[np.uint64(j)]
        if count < len(pairs) or abs(gap) < gaps[count - 1]:
            place = min(count, len(pairs) - 1)
            while place > 0 and gaps[place - 1] > abs(gap):
                gaps[place], pairs[place] = gaps[place - 1], pairs[place - 1]
                place -= 1
            gaps[place], pairs[place] = abs(gap), i << INDEX_BITS | j
            count = min(count + 1, len(pairs))
        below = int(gap < 0)  # no branch, which would be mispredicted
        i, j = i + below, j - (1 - below)
    return count


@part
def subset_of(items: I64, signed_sum: int) -> int:
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
def signed_sums(items: I64) -> I64:
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
def deal(rest: float, a: F64, items: Buffer) -> tuple[float, int]:
    """Round the items of a row to fixed point and deal them out to its lists; return the scale and the target.

    The scale is 0 if fixed point does not fit, or the target is out of reach.
    """
    size = np.abs(a).sum()
    aim = 2.0 * rest - a.sum()
    if not LEAST_TOTAL < size < LARGEST_TOTAL or abs(aim) > size:
        return 0.0, 0
    scale = FIXED_POINT / size
    count = items.shape[1]
    for k in range(len(a)):
        items[k // count, k % count] = np.int64(np.rint(a[k] * scale))
    return scale, round(aim * scale)


@part
def write_lists(lists: Lists) -> None:
    """List the signed sums of all lists."""
    items, halves, sums = lists.items, lists.halves, lists.sums.reshape(-1)
    list_sums(items, spread(ZERO, load(items, 0)), halves, lists.spare)
    half, lanes = halves.shape
    for i in range(0, half, lanes):
        store_eight(sums, (half + i) // lanes, 2 * half // lanes, transposed(load_eight(halves, i, 1)))
    for middle in range(half, len(sums), 2 * half):
        for i in range(half):
            sums[np.uint64(middle + i)] -= ZERO
            sums[np.uint64(middle - 1 - i)] = -sums[np.uint64(middle + i)]


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
def join_all(aim: int, items: Buffer, sums: I64, lists: Lists, gaps: I64, pairs: I64) -> int:
    """Join the lists of a row in pairs until two are left, and record the closest pairs of those; return how many."""
    joined, sources, work = lists.joined, lists.sources, lists.work
    count = len(sums)
    firsts = count // 2
    kept = joined.shape[1] // 2
    lengths, widths = np.empty(count - 2, np.int64), np.empty(count - 2, np.int64)
    for k in range(firsts):
        # The target is split evenly, so that every join looks near the middle of its sums, where they are densest.
        centre = aim // firsts if k else aim - (firsts - 1) * (aim // firsts)
        widths[k] = int(first_width(items, 2 * k, kept))
        lengths[k] = join(sums[2 * k], sums[2 * k + 1], centre, widths[k], work, joined[k], sources[k])
    for k in range(firsts, count - 2):
        left, right = 2 * (k - firsts), 2 * (k - firsts) + 1
        # Sums of two windows are densest in the middle; this keeps about `kept` of them.
        share = kept / max(1.0, float(lengths[left]) * float(lengths[right]))
        widths[k] = np.int64(min(share, 1.0) * max(widths[left], widths[right])) + 1
        a, b = joined[left, : lengths[left]], joined[right, : lengths[right]]
        lengths[k] = join(a, b, 0, widths[k], work, joined[k], sources[k])
    a, b = joined[count - 4, : lengths[count - 4]], joined[count - 3, : lengths[count - 3]]
    return closest_pairs(a, b, gaps, pairs)


@part
def members_of(pair: int, sources: I64) -> I64:
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
