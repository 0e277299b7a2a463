"""One problem, exactly, for any numbers: equal items, cancelling pairs, 1e-30 beside 1e30.

The method is the reference's meet-in-the-middle: for each choice of the later items, bisect over the sorted sums of
the earlier ones. Rounding is monotone, so this is exact in floating point as it stands, and ties cannot make it slow.

Choices are bisected in blocks, in vectors. Added to the chosen items one by one, a start ends at w or below if it is at
most some number, which is found from the last item back (`lanes.largest_within`); where that is a rounding off, the
block is bisected again by where its starts end. So the time is bounded for any numbers: n^2 2^(n/2) / 8 steps of a
network that sorts the sums of eight rows at once, at most n 2^(n/2) comparisons and n^3 2^(n/2) / 48 additions. Rows
made to be slow take up to about 10 times as long as random ones (`python -m strongticket.bench.worst_rows`).
"""

from typing import NamedTuple

import numpy as np

from strongticket.ops.array_types import F64, I64
from strongticket.ops.compiled import kernel, part, part_without_nan
from strongticket.ops.subset_sum.lanes import (
    add_floats,
    lane_buffer,
    largest_within,
    load,
    look_up,
    order,
    spread,
    store,
    where_at_most,
)
from strongticket.ops.subset_sum.network import Buffer, sort_runs
from strongticket.ops.subset_sum.rows import UNIT_ROUNDOFF

ROWS = 8  # whose starts are sorted together, a float64 in each lane
LOG_BLOCK = 6
BLOCK = 1 << LOG_BLOCK  # choices that are bisected together
SEGMENTS = 16  # of the starts, whose ends are compared with rather than looked up
# Not plain numbers: numba would compile what looks up starts for each of them.
HERE, NEXT = np.int64(0), np.int64(1)
LARGEST = 1e308  # where sums reach farther, a difference may overflow


class Room(NamedTuple):
    """The memory in which rows are solved, eight at a time; the first half of the items is the longer one."""

    items: Buffer  # (first half, 8), the bits of float64: a row in each lane
    lists: Buffer  # (2^(first half), 8), the sums of these in order
    item_floats: F64  # the same two as float64
    list_floats: F64
    starts: F64  # (2 * 2^(first half) + 1,), those of one row, and infinities
    chosen: F64  # (second half,)
    table: F64  # (LOG_BLOCK, BLOCK), the first later items as each choice has them
    blocks: F64  # (4, BLOCK), numbers for each choice of a block, and of the best one so far
    places: I64  # (BLOCK,)


def make_room(n: int, merged: Buffer) -> Room:
    """Room for rows of n items; `merged` is that of a workspace for as many."""
    # To sort one start takes a fourth of the time of bisecting for one choice, or more where the sums leave the cache.
    later = max(LOG_BLOCK, (n - 2 if n < 24 else n - 1) // 2)
    half = n - later
    items, lists = lane_buffer(half, np.int64), merged.view(np.int64)[: 1 << half]
    if len(lists) < 1 << half:
        lists = lane_buffer(1 << half, np.int64)
    items[:] = 0
    blocks = lane_buffer((5 + LOG_BLOCK) * BLOCK // ROWS, np.int64).view(np.float64).reshape(-1, BLOCK)
    return Room(
        items,
        lists,
        items.view(np.float64),
        lists.view(np.float64),
        np.full(max(BLOCK, 2 << half) + 1, np.inf),
        np.empty(later),
        blocks[5:],
        blocks[:4],
        blocks[4].view(np.int64),
    )


@part
def write_sums(a: F64, sums: F64) -> None:
    """The sum of every subset of `a` in item order, at the position its mask has as an integer."""
    sums[0] = 0.0
    size = 1
    for item in a:
        for k in range(size):
            sums[size + k] = sums[k] + item
        size *= 2


@part
def list_starts(items: Buffer, x: Buffer) -> None:
    """List in order, into x, the sums of the subsets of the items of each lane, added in item order.

    Adding an item to all of an ascending list leaves it ascending, since rounding is monotone; so lists are merged.
    """
    store(x, 0, load(items, 0) - load(items, 0))  # the bits of 0.0
    size = len(x) >> len(items)
    for k in range(len(items)):
        item = load(items, k)
        # The list, then the list with the item in descending order, is bitonic; the first stage is done here.
        for i in range((size + 1) // 2):
            j = size - 1 - i
            p, q = load(x, i), load(x, j)
            (p, more_q), (q, more_p) = order(p, add_floats(q, item)), order(q, add_floats(p, item))
            store(x, i, p)
            store(x, size + i, more_q)
            store(x, j, q)
            store(x, size + j, more_p)
        size *= 2
        sort_runs(x[:size], size // 2)


@part
def distinct_sums(x: F64, starts: F64) -> F64:
    """The different ones of ascending sums, after minus infinity and before infinities."""
    starts[0] = -np.inf
    count, last = 1, x[0]
    for k in range(1, len(x)):
        following = x[k]
        starts[count] = last
        count += last < following
        last = following
    starts[count] = last
    count += last < np.inf
    beyond = starts[count : len(x) + 1]
    for k in range(len(beyond)):
        beyond[k] = np.inf
    size = SEGMENTS
    while size < count - 1:
        size *= 2
    return starts[: 2 * size + 1]  # as far as bisection looks


@part
def look_ahead(starts: F64, count: I64, step: int | np.int64, x: F64) -> None:
    """Look up the start that is so many beyond each place."""
    for i in range(BLOCK // ROWS):
        store(x, i, look_up(starts, count, i, step))


@part
def finish(table: F64, chosen: F64, x: F64) -> None:
    """Add to each x[i], in item order, what the table has at i in each of its rows, and then the chosen items."""
    vectors = BLOCK // ROWS
    for i in range(0, vectors, 4):  # four at a time, since an addition waits for the one before it
        a, b, c, d = load(x, i), load(x, i + 1), load(x, i + 2), load(x, i + 3)
        for k in range(i, i + len(table) * vectors, vectors):
            a, b = add_floats(a, load(table, k)), add_floats(b, load(table, k + 1))
            c, d = add_floats(c, load(table, k + 2)), add_floats(d, load(table, k + 3))
        for k in range(len(chosen)):  # not `for item in chosen`, for which numba counts references
            more = spread(chosen[k], a)
            a, b, c, d = add_floats(a, more), add_floats(b, more), add_floats(c, more), add_floats(d, more)
        store(x, i, a)
        store(x, i + 1, b)
        store(x, i + 2, c)
        store(x, i + 3, d)


@part
def bisect(goals: F64, starts: F64, count: I64) -> None:
    """Count the starts that are at most goals[i]."""
    first = len(starts) // (2 * SEGMENTS)
    for i in range(BLOCK // ROWS):
        goal, at = load(goals, i), load(count, i)
        at, one = at - at, spread(first, at)
        # The first four halvings at once: vectors compare with sixteen starts sooner than they look four up.
        for k in range(1, SEGMENTS + 1):
            # Unsigned, since numba would look for negative indices.
            at = at + where_at_most(spread(starts[np.uint64(k * first)], goal), goal, one)
        store(count, i, at)
    step = first // 2
    while step:
        for i in range(BLOCK // ROWS):
            at, start = load(count, i), look_up(starts, count, i, step)
            store(count, i, at + where_at_most(start, load(goals, i), spread(step, at)))
        step //= 2


@part
def trace_back(w: float, table: F64, chosen: F64, x: F64) -> None:
    """Write into x[i] the largest number, or nearly, to which the items of choice i can be added without passing w."""
    vectors = BLOCK // ROWS
    limit = spread(w, load(table, 0))
    for k in range(len(chosen)):
        limit = largest_within(limit, spread(chosen[len(chosen) - 1 - k], limit))
    for i in range(0, vectors, 4):
        a = b = c = d = limit
        for k in range(i + (LOG_BLOCK - 1) * vectors, -1, -vectors):
            a, b = largest_within(a, load(table, k)), largest_within(b, load(table, k + 1))
            c, d = largest_within(c, load(table, k + 2)), largest_within(d, load(table, k + 3))
        store(x, i, a)
        store(x, i + 1, b)
        store(x, i + 2, c)
        store(x, i + 3, d)


@part
def bisect_exactly(w: float, starts: F64, count: I64, table: F64, chosen: F64, x: F64) -> None:
    """Count the starts that finish at w or below."""
    for i in range(BLOCK):
        count[i] = 0
    step = len(starts) // 2
    while step:
        look_ahead(starts, count, step, x)
        finish(table, chosen, x)
        for i in range(BLOCK // ROWS):
            at, end = load(count, i), load(x, i)
            store(count, i, at + where_at_most(end, spread(w, end), spread(step, at)))
        step //= 2


@part
def finish_around(w: float, starts: F64, count: I64, table: F64, chosen: F64, below: F64, above: F64) -> float:
    """Finish the starts on either side of each choice's place; return how far the closest ends are from w.

    It is negative if an end is not on its side.
    """
    look_ahead(starts, count, HERE, below)
    look_ahead(starts, count, NEXT, above)
    finish(table, chosen, below)
    finish(table, chosen, above)
    return least_around(w, below, above)


@part_without_nan
def least_around(w: float, below: F64, above: F64) -> float:
    """The least distance between w and the numbers below and above it; negative if it is not between two of them."""
    least = np.inf
    for i in range(BLOCK):
        least = min(least, min(w - below[i], above[i] - w))
    return least


@part_without_nan
def least_distance(w: float, x: F64) -> float:
    """The least distance between w and the numbers x."""
    least = np.inf
    for i in range(len(x)):
        least = min(least, abs(w - x[i]))
    return least


@part
def choose(items: F64, choice: int, chosen: F64) -> int:
    """Write the items of a choice into `chosen`, in order; return how many there are."""
    count = 0
    for k in range(len(items)):
        chosen[count] = items[k]
        count += choice >> k & 1
    return count


@kernel
def solve_by_bisection(rows: I64, w: F64, a: F64, room: Room, error: F64, bits: I64) -> None:
    """Find the mask of least error, the smallest of equals, and that error, for some rows of reachable problems.

    They have 8 to 32 items.
    """
    half = len(room.items)
    for first in range(0, len(rows), ROWS):
        group = rows[first : first + ROWS]
        for lane in range(len(group)):
            for k in range(half):
                room.item_floats[k, lane] = a[group[lane], k]
        list_starts(room.items, room.lists)
        for lane in range(len(group)):
            row = group[lane]
            starts = distinct_sums(room.list_floats[:, lane], room.starts)
            size, later = size_of(a[row]), a[row, half:]
            choice, error[row] = best_choice(w[row], later, starts, room)
            start = first_start(w[row], a[row, :half], later, choice, error[row], size, room)
            bits[row] = choice << half | start


@part
def size_of(a: F64) -> float:
    """The largest magnitude of a sum of some items; infinite if a difference of two sums may overflow."""
    low, high = 0.0, 0.0
    for item in a:
        low += min(item, 0.0)
        high += max(item, 0.0)
    return max(high, -low) if high - low < LARGEST else np.inf


@part
def slack_of(later: int, size: float, near: float) -> float:
    """How far w less one sum of the chosen later items may be from the start that ends at w; infinite if sums are.

    No partial sum is beyond `size`. Each later item is rounded off once in either way of adding; the rest is for the
    sum of both parts, and for w less that, which may be twice as large.

    Where a few items dwarf the rest, most choices do better than that. `near` is |w| and the magnitudes of the chosen
    items, added up. Starts within 4 times that have partial sums within 5 times. Those beyond end beyond w, whatever
    the rounding, and are not the best: they miss w by almost 3 times `near`, the empty subset by |w|.
    """
    return (2 * later + 8) * UNIT_ROUNDOFF * min(size, 5.0 * near)


@part
def best_choice(w: float, later: F64, starts: F64, room: Room) -> tuple[int, float]:
    """The first choice of later items that attains the least error, and that error."""
    table, count = room.table, room.places
    for k in range(LOG_BLOCK):
        for i in range(BLOCK):
            table[k, i] = later[k] * (i >> k & 1)
    best, best_block, kept = np.inf, 0, 2  # `kept`: where the ends of the best block are, first those below
    for block in range(1 << len(later) - LOG_BLOCK):
        below, above = room.blocks[2 - kept], room.blocks[3 - kept]
        chosen = room.chosen[: choose(later[LOG_BLOCK:], block, room.chosen)]
        trace_back(w, table, chosen, below)
        bisect(below, starts, count)
        least = finish_around(w, starts, count, table, chosen, below, above)
        if least < 0.0:
            bisect_exactly(w, starts, count, table, chosen, below)
            least = finish_around(w, starts, count, table, chosen, below, above)
        # Only a strict gain counts: the later items are the high bits, so the first of equals is the smallest.
        if least < best:
            best, best_block, kept = least, block, 2 - kept
        if best == 0.0:
            break
    first, below, above = 0, room.blocks[kept], room.blocks[kept + 1]
    while min(w - below[first], above[first] - w) > best:
        first += 1
    return best_block * BLOCK + first, best


@part
def narrowed(w: float, error: float, low: float, high: float, chosen: F64, room: Room) -> tuple[float, float]:
    """Narrow the interval of the starts that miss w by no more than `error`, to a thirtieth at best.

    Ends never fall as starts rise; so where a start ends too low or too high, those before or after it do as well.
    """
    starts, ends = room.blocks[0], room.blocks[1]
    for i in range(BLOCK):
        starts[i] = ends[i] = low + (high - low) * (i / (BLOCK - 1))
    finish(room.table[:0], chosen, ends)
    for i in range(BLOCK):
        if w - ends[i] > error:
            low = max(low, starts[i])
        if ends[i] - w > error:
            high = min(high, starts[i])
    return low, high


@part_without_nan
def any_between(low: float, high: float, x: F64) -> bool:
    """Whether any number lies between two, or is one of them."""
    count = 0
    for i in range(len(x)):
        count += (x[i] >= low) & (x[i] <= high)
    return count > 0


@part
def first_start(w: float, a: F64, later: F64, choice: int, error: float, size: float, room: Room) -> int:
    """The smallest mask of the earlier items that has the given error together with a choice of the later ones."""
    chosen = room.chosen[: choose(later, choice, room.chosen)]
    rest, near = 0.0, abs(w)
    for item in chosen:
        rest += item
        near += abs(item)
    slack = error + 2.0 * slack_of(len(later), size, near)
    low, high = -np.inf, np.inf
    if slack < np.inf:
        low, high = w - rest - slack, w - rest + slack
        # To narrow it takes as long as to finish a few blocks.
        for _ in range(2 if len(a) > LOG_BLOCK + 4 else 0):
            low, high = narrowed(w, error, low, high, chosen, room)
    sums = room.starts[: max(BLOCK, 1 << len(a))]
    write_sums(a, sums)
    for k in range(1 << len(a), BLOCK):  # a block is finished as a whole
        sums[k] = np.inf
    for block in range(0, len(sums), BLOCK):
        part = sums[block : block + BLOCK]
        if not any_between(low, high, part):
            continue
        finish(room.table[:0], chosen, part)
        if least_distance(w, part) == error:
            first = 0
            while abs(w - part[first]) != error:
                first += 1
            return block + first
    raise AssertionError("the best error was seen in the search, so some start attains it")
