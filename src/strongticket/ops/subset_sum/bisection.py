"""One problem, exactly, for any numbers: equal items, cancelling pairs, 1e-30 beside 1e30.

The method is the reference's meet-in-the-middle: for each choice of the later items, bisect over the sorted sums of
the earlier ones. Rounding is monotone, so this is exact in floating point as it stands, and ties cannot make it slow.

Choices are bisected in blocks, in loops that are mostly vectorised, and roughly at first: with one sum of the chosen
items, which exactly would be added one by one. The two differ by at most `slack`. Often this shows that no choice of
the block can be the best; if not, the few starts within the slack are bisected exactly. So the time is bounded for any
numbers: 2^(n/2) merges and at most n 2^(n/2) comparisons and n^2 2^(n/2) / 4 additions. Rows made to be slow take 11 to
16 times as long as random ones at 12 to 24 items, 8 times at 28 and 6 times at 32.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.rows import UNIT_ROUNDOFF

LOG_BLOCK = 6
BLOCK = 1 << LOG_BLOCK  # choices bisected together

Floats = NDArray[np.float64]
Places = NDArray[np.uint64]  # unsigned: vectors have no negative indices


@njit(nogil=True, cache=True)
def subset_sums(a: Floats) -> Floats:
    """Return the sum of every subset of `a` in item order, indexed by its mask as an integer."""
    sums = np.zeros(1 << len(a))
    size = 1
    for item in a:
        for k in range(size):
            sums[size + k] = sums[k] + item
        size *= 2
    return sums


@njit(nogil=True, cache=True)
def distinct_sums(a: Floats) -> Floats:
    """Return the distinct sums of the subsets of `a` in item order, ascending, between minus infinity and infinities.

    Adding an item to all of an ascending list leaves it ascending, since rounding is monotone; so lists are merged.
    """
    room = (1 << len(a)) + 2
    sums, moved, merged = np.empty(room), np.empty(room), np.empty(room)
    sums[0] = moved[0] = merged[0] = -np.inf
    sums[1], sums[2] = 0.0, np.inf
    size = 1
    for item in a:
        for k in range(1, size + 1):
            moved[k] = sums[k] + item
        moved[size + 1] = np.inf
        merge(sums, moved, np.uint64(size), merged)
        sums, merged = merged, sums
        size *= 2
        sums[size + 1] = np.inf
    distinct = np.empty(4 * size + 1)
    count = 0  # minus infinity included
    for k in range(size + 1):
        distinct[count] = sums[k]
        count += sums[k] != sums[k + 1]
    while size >= 2 * (count - 1):
        size //= 2
    distinct[count : 4 * size + 1] = np.inf  # as far as bisection reads
    return distinct[: 4 * size + 1]


@njit(nogil=True, cache=True)
def merge(x: Floats, y: Floats, size: np.uint64, merged: Floats) -> None:
    """Merge x[1 : size + 1] and y[1 : size + 1], both between infinities, from both ends and from the middle."""
    one = np.uint64(1)
    least, most = size - size, size  # of x among the lower half of both
    while least < most:
        middle = (least + most) // np.uint64(2)
        if x[middle + one] <= y[size - middle]:
            least = middle + one
        else:
            most = middle
    # Four merges at once: each waits for its own comparisons only.
    low, high = one, size
    down, up = least, least + one
    for k in range(np.uint64(1), size // np.uint64(2) + one):
        low_x, low_y = x[low], y[k + one - low]
        merged[k] = min(low_x, low_y)
        low += np.uint64(low_x <= low_y)
        down_x, down_y = x[down], y[size - k + one - down]
        merged[size - k + one] = max(down_x, down_y)
        down -= np.uint64(down_x > down_y)
        up_x, up_y = x[up], y[size + k + one - up]
        merged[size + k] = min(up_x, up_y)
        up += np.uint64(up_x <= up_y)
        high_x, high_y = x[high], y[size + size - k + one - high]
        merged[size + size - k + one] = max(high_x, high_y)
        high -= np.uint64(high_x > high_y)
    if size == one:
        merged[1], merged[2] = min(x[1], y[1]), max(x[1], y[1])


@njit(nogil=True, cache=True)
def finish(x: Floats, table: Floats, chosen: Floats) -> None:
    """Add to x[i] the items of choice i of a block, in item order: the table's, then those of the whole block."""
    for i in range(BLOCK):
        x[i] = x[i] + table[0, i] + table[1, i] + table[2, i] + table[3, i] + table[4, i] + table[5, i]
    for item in chosen:
        for i in range(BLOCK):
            x[i] += item


@njit(nogil=True, cache=True)
def bisect(goals: Floats, starts: Floats, count: Places) -> None:
    """Count the starts that are at most goals[i]."""
    step = np.uint64(len(starts) // 4)
    count[:] = np.uint64(0)
    while step:
        for i in range(BLOCK):
            count[i] += step if starts[count[i] + step] <= goals[i] else np.uint64(0)
        step //= np.uint64(2)


@njit(nogil=True, cache=True)
def bisect_exactly(
    w: float, upper: Floats, starts: Floats, count: Places, x: Floats, table: Floats, chosen: Floats
) -> None:
    """Count the starts that finish at w or below, from `count` on and up to `upper`."""
    step = np.uint64(2)
    while step < len(starts) // 2:
        beyond = True
        for i in range(BLOCK):
            beyond &= starts[count[i] + step] > upper[i]
        if beyond:
            break
        step *= np.uint64(2)
    step //= np.uint64(2)
    while step:
        for i in range(BLOCK):
            x[i] = starts[count[i] + step]
        finish(x, table, chosen)
        for i in range(BLOCK):
            count[i] += step if x[i] <= w else np.uint64(0)
        step //= np.uint64(2)


# No error is NaN, and the sign of a zero does not matter: this lets LLVM use vectors.
@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def least_around(goals: Floats, below: Floats, above: Floats) -> float:
    """Return the least distance between a goal and the numbers below and above it."""
    least = np.inf
    for i in range(BLOCK):
        least = min(least, min(goals[i] - below[i], above[i] - goals[i]))
    return least


@njit(nogil=True, cache=True)
def look_around(starts: Floats, count: Places, below: Floats, above: Floats) -> None:
    """Look up the starts on both sides of each place."""
    for i in range(BLOCK):
        below[i], above[i] = starts[count[i]], starts[count[i] + np.uint64(1)]


@njit(nogil=True, cache=True)
def is_above(x: Floats, y: Floats) -> bool:
    """Whether each x is above its y."""
    wrong = 0
    for i in range(BLOCK):
        wrong += not x[i] > y[i]
    return wrong == 0


@njit(nogil=True, cache=True)
def choose(items: Floats, choice: int, chosen: Floats) -> int:
    """Write the items of a choice into `chosen`, in order; return how many there are."""
    count = 0
    for k in range(len(items)):
        chosen[count] = items[k]
        count += choice >> k & 1
    return count


@njit(nogil=True, cache=True)
def solve_by_bisection(w: float, a: Floats) -> tuple[int, float]:
    """Return the mask of least error, the smallest of equals, and that error; 8 to 32 items, a reachable target."""
    # Sorting one start takes a quarter of the time of bisecting for one choice.
    half = len(a) - max(LOG_BLOCK, (len(a) - 1) // 2)
    starts, later = distinct_sums(a[:half]), a[half:]
    low, high = subset_sums(later[:LOG_BLOCK]), subset_sums(later[LOG_BLOCK:])
    table = np.empty((LOG_BLOCK, BLOCK))
    for k in range(LOG_BLOCK):
        for i in range(BLOCK):
            table[k, i] = later[k] * (i >> k & 1)
    # Fewer than n + 8 roundings, each of a number no larger than twice the sum of all magnitudes.
    slack = 2.0 * (len(a) + 8) * UNIT_ROUNDOFF * np.abs(a).sum()
    finite = slack < np.inf
    wanted, lower, upper, below, above = np.empty((5, BLOCK))
    count, target = np.empty(BLOCK, np.uint64), np.full(BLOCK, w)
    room = np.empty(len(later))
    best, best_choice = np.inf, 0
    for block in range(len(high)):
        for i in range(BLOCK):
            wanted[i] = w - (low[i] + high[block])
            lower[i] = wanted[i] - slack if finite else -np.inf
            upper[i] = wanted[i] + slack if finite else np.inf
        bisect(lower, starts, count)
        look_around(starts, count, below, above)
        if finite and least_around(wanted, below, above) - 2.0 * slack >= best:
            continue
        chosen = room[: choose(later[LOG_BLOCK:], block, room)]
        if not is_above(above, upper):
            bisect_exactly(w, upper, starts, count, below, table, chosen)
            look_around(starts, count, below, above)
        finish(below, table, chosen)
        finish(above, table, chosen)
        # Only a strict gain counts: the later items are the high bits, so the first of equals is the smallest.
        least = least_around(target, below, above)
        if least < best:
            first = 0
            while min(w - below[first], above[first] - w) > least:
                first += 1
            best, best_choice = least, block * BLOCK + first
        if best == 0.0:
            break
    return best_choice << half | first_start(w, a[:half], later, best_choice, best, slack), best


@njit(nogil=True, cache=True)
def first_start(w: float, a: Floats, later: Floats, choice: int, error: float, slack: float) -> int:
    """Return the smallest mask of the earlier items that has the given error with a choice of the later ones."""
    room = np.empty(len(later))
    chosen = room[: choose(later, choice, room)]
    wanted = w - chosen.sum()
    starts = subset_sums(a)
    for mask in range(len(starts)):
        if not abs(wanted - starts[mask]) > error + 2.0 * slack:
            total = starts[mask]
            for item in chosen:
                total += item
            if abs(w - total) == error:
                return mask
    raise AssertionError("the best error was seen in the search, so some start attains it")
