"""One problem, exactly, for any numbers: equal items, cancelling pairs, 1e-30 beside 1e30.

The method is the reference's meet-in-the-middle: for each choice of the later items, bisect over the sorted sums of
the earlier ones. Rounding is monotone, so this is exact in floating point as it stands, and ties cannot make it slow.

Choices are bisected in blocks, in loops that are mostly vectorised, and roughly at first: with one sum of the chosen
items, which exactly would be added one by one. The two differ by at most `slack`. Often this shows that no choice of
the block can be the best; if not, its choices are finished exactly, and where rounding moved one past w, the starts
around it are bisected exactly, ever farther. So the time is bounded for any numbers: n^2 2^(n/2) / 8 steps of a network
that sorts the sums of eight rows at once, at most n 2^(n/2) comparisons and n^3 2^(n/2) / 48 additions. Rows made to be
slow take up to 10 times as long as random ones (`python -m strongticket.bench.worst_rows`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strongticket.ops.compiled import kernel, part, part_without_nan
from strongticket.ops.subset_sum.lanes import (
    add_floats,
    lane_buffer,
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
# Not plain numbers: numba would compile what looks up starts for each of them.
HERE, NEXT = np.int64(0), np.int64(1)
LARGEST = 1e308  # where sums reach farther, a difference may overflow

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Room(NamedTuple):
    """The memory in which rows are solved, eight at a time; the first half of the items is the longer one."""

    items: Buffer  # (first half, 8), the bits of float64: a row in each lane
    lists: Buffer  # (2^(first half), 8), the sums of these in order
    item_floats: Floats  # the same two as float64
    list_floats: Floats
    starts: Floats  # (4 * 2^(first half) + 1,), those of one row
    low: Floats  # (BLOCK,), the sums of the first later items
    high: Floats  # of the other later items
    spans: Floats  # of their magnitudes
    chosen: Floats  # (second half,)
    table: Floats  # (LOG_BLOCK, BLOCK), the first later items as each choice has them
    blocks: Floats  # (3, BLOCK), numbers for each choice of a block
    places: Places  # (BLOCK,)


def make_room(n: int, merged: Buffer) -> Room:
    """Room for rows of n items; `merged` is that of a workspace for as many."""
    # To sort one start takes a fourth of the time of bisecting for one choice.
    later = max(LOG_BLOCK, (n - 1) // 2)
    half = n - later
    items, lists = lane_buffer(half, np.int64), merged.view(np.int64)[: 1 << half]
    items[:] = 0
    blocks = lane_buffer((5 + LOG_BLOCK) * BLOCK // ROWS, np.int64).view(np.float64).reshape(-1, BLOCK)
    return Room(
        items,
        lists,
        items.view(np.float64),
        lists.view(np.float64),
        np.empty((4 << half) + 1),
        blocks[3],
        np.empty(1 << later - LOG_BLOCK),
        np.empty(1 << later - LOG_BLOCK),
        np.empty(later),
        blocks[5:],
        blocks[:3],
        blocks[4].view(np.int64),
    )


@part
def write_sums(a: Floats, sums: Floats) -> None:
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
def distinct_sums(x: Floats, starts: Floats) -> Floats:
    """The different ones of ascending sums, after minus infinity and before infinities."""
    size = len(x)
    starts[0] = -np.inf
    count, last = 1, x[0]
    for k in range(1, size):
        following = x[k]
        starts[count] = last
        count += last < following
        last = following
    starts[count] = last
    count += last < np.inf
    while size >= 2 * max(4, count - 1):
        size //= 2
    beyond = starts[count : 4 * size + 1]  # as far as bisection looks
    for k in range(len(beyond)):
        beyond[k] = np.inf
    return starts[: 4 * size + 1]


@part
def finish(starts: Floats, count: Places, step: int | np.int64, table: Floats, chosen: Floats, x: Floats) -> None:
    """Take the start so many beyond each place, and add the items of choice i of a block to it, in item order.

    First come those of the table, then those of the whole block.
    """
    vectors = BLOCK // ROWS
    for i in range(0, vectors, 4):  # four at a time, since an addition waits for the one before it
        a, b = look_up(starts, count, i, step), look_up(starts, count, i + 1, step)
        c, d = look_up(starts, count, i + 2, step), look_up(starts, count, i + 3, step)
        for k in range(i, i + LOG_BLOCK * vectors, vectors):
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
def look_ahead(starts: Floats, count: Places, step: int | np.int64, x: Floats) -> None:
    """Look up the start that is so many beyond each place."""
    for i in range(BLOCK // ROWS):
        store(x, i, look_up(starts, count, i, step))


@part
def bisect(goals: Floats, starts: Floats, count: Places) -> None:
    """Count the starts that are at most goals[i]."""
    first = max(1, len(starts) // 32)
    for i in range(BLOCK // ROWS):
        goal, at = load(goals, i), load(count, i)
        at, one = at - at, spread(first, at)
        # The first four halvings at once: vectors compare with fifteen starts sooner than they look four up.
        for k in range(1, 16):
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
def bisect_exactly(
    w: float, reach: int, starts: Floats, count: Places, table: Floats, chosen: Floats, x: Floats
) -> None:
    """Count the starts that finish at w or below, if that is fewer than `reach` from the place of each choice."""
    for i in range(BLOCK):
        count[i] = max(count[i] - reach, 0)
    step = reach
    while step:
        finish(starts, count, step, table, chosen, x)
        for i in range(BLOCK // ROWS):
            at, end = load(count, i), load(x, i)
            store(count, i, at + where_at_most(end, spread(w, end), spread(step, at)))
        step //= 2


@part_without_nan
def least_around(goals: Floats, below: Floats, above: Floats) -> float:
    """The least distance between a goal and the numbers below and above it; negative if a goal is not between them."""
    least = np.inf
    for i in range(BLOCK):
        least = min(least, min(goals[i] - below[i], above[i] - goals[i]))
    return least


@part_without_nan
def least_distance(w: float, x: Floats) -> float:
    """The least distance between w and the numbers x."""
    least = np.inf
    for i in range(len(x)):
        least = min(least, abs(w - x[i]))
    return least


@part
def choose(items: Floats, choice: int, chosen: Floats) -> int:
    """Write the items of a choice into `chosen`, in order; return how many there are."""
    count = 0
    for k in range(len(items)):
        chosen[count] = items[k]
        count += choice >> k & 1
    return count


@kernel
def solve_by_bisection(
    rows: NDArray[np.int64], w: Floats, a: Floats, room: Room, error: Floats, bits: NDArray[np.int64]
) -> None:
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
            choice, error[row] = best_choice(w[row], later, starts, size, room)
            start = first_start(w[row], a[row, :half], later, choice, error[row], size, room)
            bits[row] = choice << half | start


@part
def size_of(a: Floats) -> float:
    """The largest magnitude of a sum of some items; infinite if a difference of two sums may overflow."""
    low, high = 0.0, 0.0
    for item in a:
        low += min(item, 0.0)
        high += max(item, 0.0)
    return max(high, -low) if high - low < LARGEST else np.inf


@part
def slack_of(later: int, size: float, near: float) -> float:
    """How far w less one sum of the chosen later items may be from the start that finishes at w; infinite if sums are.

    No partial sum is beyond `size`. Each later item is rounded off once in either way of adding; the rest is for the
    sum of both parts, and for w less that, which may be twice as large.

    Where a few items dwarf the rest, most choices do better than that. `near` is |w| and the magnitudes of the chosen
    items, added up. Starts within 4 times that have partial sums within 5 times. Those beyond finish beyond w, whatever
    the rounding, and are not the best: they miss w by almost 3 times `near`, the empty subset by |w|.
    """
    return (2 * later + 8) * UNIT_ROUNDOFF * min(size, 5.0 * near)


@part
def best_choice(w: float, later: Floats, starts: Floats, size: float, room: Room) -> tuple[int, float]:
    """The first choice of later items that attains the least error, and that error."""
    low, high, table, count = room.low, room.high, room.table, room.places
    write_sums(later[:LOG_BLOCK], low)
    write_sums(later[LOG_BLOCK:], high)
    span = abs(w)
    for k in range(len(later)):
        room.chosen[k] = abs(later[k])
    write_sums(room.chosen[LOG_BLOCK : len(later)], room.spans)
    for k in range(LOG_BLOCK):
        span += room.chosen[k]
        for i in range(BLOCK):
            table[k, i] = later[k] * (i >> k & 1)
    finite = size < np.inf  # otherwise bounds may be NaN; nothing is ruled out by them
    wanted, below, above = room.blocks
    best, best_choice = np.inf, 0
    for block in range(len(high)):
        rest = high[block]
        for i in range(BLOCK):
            wanted[i] = w - (low[i] + rest)
        bisect(wanted, starts, count)
        look_ahead(starts, count, HERE, below)
        look_ahead(starts, count, NEXT, above)
        slack = slack_of(len(later), size, span + room.spans[block])
        if finite and least_around(wanted, below, above) - 2.0 * slack >= best:
            continue
        chosen = room.chosen[: choose(later[LOG_BLOCK:], block, room.chosen)]
        finish(starts, count, HERE, table, chosen, below)
        finish(starts, count, NEXT, table, chosen, above)
        for i in range(BLOCK):
            wanted[i] = w
        least, reach = least_around(wanted, below, above), 1
        while least < 0.0:
            reach = min(8 * reach, len(starts) // 4)
            bisect_exactly(w, reach, starts, count, table, chosen, below)
            finish(starts, count, HERE, table, chosen, below)
            finish(starts, count, NEXT, table, chosen, above)
            least = least_around(wanted, below, above)
        # Only a strict gain counts: the later items are the high bits, so the first of equals is the smallest.
        if least < best:
            first = 0
            while min(w - below[first], above[first] - w) > least:
                first += 1
            best, best_choice = least, block * BLOCK + first
        if best == 0.0:
            break
    return best_choice, best


@part
def first_start(w: float, a: Floats, later: Floats, choice: int, error: float, size: float, room: Room) -> int:
    """The smallest mask of the earlier items that has the given error together with a choice of the later ones."""
    chosen = room.chosen[: choose(later, choice, room.chosen)]
    rest, slack = 0.0, 2.0 * slack_of(len(later), size, size)
    for item in chosen:
        rest += item
    sums = room.starts[: 1 << len(a)]
    write_sums(a, sums)
    for block in range(0, len(sums), BLOCK):
        part = sums[block : block + BLOCK]
        if slack < np.inf and least_distance(w - rest, part) > error + slack:
            continue
        for item in chosen:
            for i in range(len(part)):
                part[i] += item
        if least_distance(w, part) == error:
            first = 0
            while abs(w - part[first]) != error:
                first += 1
            return block + first
    raise AssertionError("the best error was seen in the search, so some start attains it")
