"""One problem, exactly, whatever its numbers: equal items, cancelling pairs, 1e-30 beside 1e30.

The method is the reference's meet-in-the-middle: for each choice of the later items, bisect over the sorted sums of
the earlier ones. Rounding is monotone, so this is exact in floating point as it stands, and ties cannot make it slow.

Choices are bisected by the block, in loops that mostly become vectors, and roughly at first: with one sum of the
chosen items where exactly they are added one by one. The two differ by no more than `slack`. Often this shows that no
choice of the block can be the best; if not, the few starts within the slack are left to be bisected exactly. So the
time has a bound whatever the numbers: 2^(n/2) merges and at most n 2^(n/2) comparisons and n^2 2^(n/2) / 4 additions.
Rows made to be slow take 20 times as long as random ones at 20 items, 10 times at 32.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.rows import UNIT_ROUNDOFF

LOG_BLOCK = 6  # of the choices bisected together

Floats = NDArray[np.float64]
Places = NDArray[np.uint64]  # unsigned: vectors have no places counted from the end


@njit(nogil=True, cache=True)
def subset_sums(a: Floats) -> Floats:
    """The sum of every subset of `a` in item order, at the position its mask has as an integer."""
    sums = np.zeros(1 << len(a))
    size = 1
    for item in a:
        for k in range(size):
            sums[size + k] = sums[k] + item
        size *= 2
    return sums


@njit(nogil=True, cache=True)
def distinct_sums(a: Floats) -> Floats:
    """The different sums of the subsets of `a` in item order, ascending, after minus infinity and before infinities.

    Adding an item to all of an ascending list leaves it ascending, since rounding is monotone; so lists are merged,
    from both ends at once.
    """
    sums, moved, merged = np.empty(1 << len(a)), np.empty(1 << len(a)), np.empty(1 << len(a))
    sums[0] = 0.0
    size, one = np.uint64(1), np.uint64(1)  # unsigned, like `Places`
    for item in a:
        for k in range(size):
            moved[k] = sums[k] + item
        low, high = np.uint64(0), size - one
        for k in range(size):
            x, y = sums[low], moved[k - low]
            merged[k] = min(x, y)
            low += np.uint64(x <= y)
            x, y = sums[high], moved[size + size - one - one - k - high]
            merged[size + size - one - k] = max(x, y)
            high -= np.uint64(x > y)
        sums, merged = merged, sums
        size += size
    count = 1
    for k in range(1, len(sums)):
        sums[count] = sums[k]
        count += sums[count] != sums[count - 1]
    top = 1
    while top < count:
        top *= 2
    padded = np.full(4 * top + 1, np.inf)  # as far as bisection looks
    padded[0] = -np.inf
    padded[1 : count + 1] = sums[:count]
    return padded


@njit(nogil=True, cache=True)
def finish(x: Floats, table: Floats, later: Floats, block: int) -> None:
    """Add to x[i] the items of choice i of the block, in item order; the table has those that differ within a block."""
    for k in range(len(table)):
        for i in range(len(x)):
            x[i] += table[k, i]
    for k in range(len(later) - len(table)):
        if block >> k & 1:
            for i in range(len(x)):
                x[i] += later[len(table) + k]


@njit(nogil=True, cache=True)
def bisect(goals: Floats, starts: Floats, count: Places) -> None:
    """How many of the starts are at most goals[i]."""
    step = np.uint64(len(starts) // 4)
    count[:] = np.uint64(0)
    while step:
        for i in range(len(count)):
            count[i] += step if starts[count[i] + step] <= goals[i] else np.uint64(0)
        step //= np.uint64(2)


@njit(nogil=True, cache=True)
def bisect_exactly(
    w: float, upper: Floats, starts: Floats, count: Places, x: Floats, table: Floats, later: Floats, block: int
) -> None:
    """How many of the starts finish at w or below, counted from `count` on and at most up to `upper`."""
    step = np.uint64(1)
    while step < len(starts) // 2:
        beyond = True
        for i in range(len(count)):
            beyond &= starts[count[i] + step] > upper[i]
        if beyond:
            break
        step *= np.uint64(2)
    step //= np.uint64(2)
    while step:
        for i in range(len(count)):
            x[i] = starts[count[i] + step]
        finish(x, table, later, block)
        for i in range(len(count)):
            count[i] += step if x[i] <= w else np.uint64(0)
        step //= np.uint64(2)


@njit(nogil=True, cache=True)
def solve_by_bisection(w: float, a: Floats) -> tuple[int, float]:
    """The mask of least error, the smallest of equals, and that error, for up to 32 items of a reachable problem."""
    half = len(a) // 2
    starts, later = distinct_sums(a[:half]), a[half:]
    log_size = min(LOG_BLOCK, len(later))
    size = 1 << log_size
    low, high = subset_sums(later[:log_size]), subset_sums(later[log_size:])
    table = np.empty((log_size, size))
    for k in range(log_size):
        for i in range(size):
            table[k, i] = later[k] * (i >> k & 1)
    # Fewer than n + 8 roundings, each of a number no larger than twice the sum of all magnitudes.
    slack = 2.0 * (len(a) + 8) * UNIT_ROUNDOFF * np.abs(a).sum()
    wanted, lower, upper, x, errors = np.empty((5, size))
    count = np.empty(size, np.uint64)
    best, best_choice = np.inf, 0
    for block in range(len(high)):
        for i in range(size):
            wanted[i] = w - (low[i] + high[block])
            lower[i] = wanted[i] - slack if slack < np.inf else -np.inf
            upper[i] = wanted[i] + slack if slack < np.inf else np.inf
        bisect(lower, starts, count)
        closest = np.inf
        for i in range(size):
            closest = min(closest, wanted[i] - starts[count[i]], starts[count[i] + np.uint64(1)] - wanted[i])
        if closest - 2.0 * slack >= best:
            continue
        bisect_exactly(w, upper, starts, count, x, table, later, block)
        errors[:] = np.inf
        for side in range(2):
            for i in range(size):
                x[i] = starts[count[i] + np.uint64(side)]
            finish(x, table, later, block)
            for i in range(size):
                errors[i] = min(errors[i], abs(w - x[i]))
        # Only a strict gain counts: the later items are the high bits, so the first of equals is the smallest.
        least = errors.min()
        if least < best:
            best, best_choice = least, block * size + int(errors.argmin())
        if best == 0.0:
            break
    return best_choice << half | first_start(w, a[:half], later, best_choice, best, slack), best


@njit(nogil=True, cache=True)
def first_start(w: float, a: Floats, later: Floats, choice: int, error: float, slack: float) -> int:
    """The smallest mask of the earlier items that has the given error together with a choice of the later ones."""
    chosen = np.array([later[k] for k in range(len(later)) if choice >> k & 1])
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
