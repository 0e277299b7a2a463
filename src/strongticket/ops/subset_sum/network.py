"""Sorting networks over lanes: one problem per lane of a register, all in the same steps, without branches.

A sequence is bitonic if, read in a circle, it rises once and falls once. Comparing each element with the one half the
length away splits it into a lower and an upper half that are bitonic again, so log2(length) such stages sort it.
Stages are done three at a time on eight vectors held in registers, which divides the memory traffic by three; the
first three even before the sequence is stored.

All values must have the bits of positive normal floats (see `lanes.lower`).
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.lanes import least_odd, load, lower, magnitude, spread, store, upper

Buffer = NDArray[np.signedinteger[Any]]
Eight = tuple[Any, Any, Any, Any, Any, Any, Any, Any]

IN_CACHE = 512  # vectors that stay in the first-level cache while their last stages are done


@njit(nogil=True, cache=True, forceinline=True)
def order(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the smaller, then the larger of two, lane by lane."""
    return lower(a, b), upper(a, b)


@njit(nogil=True, cache=True, forceinline=True)
def three_stages(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Eight:
    """Do three stages on eight vectors, evenly spaced in a bitonic sequence."""
    a, e = order(a, e)
    b, f = order(b, f)
    c, g = order(c, g)
    d, h = order(d, h)
    a, c = order(a, c)
    b, d = order(b, d)
    e, g = order(e, g)
    f, h = order(f, h)
    a, b = order(a, b)
    c, d = order(c, d)
    e, f = order(e, f)
    g, h = order(g, h)
    return a, b, c, d, e, f, g, h


@njit(nogil=True, cache=True, forceinline=True)
def load_eight(x: Buffer, i: int, step: int) -> Eight:
    """Load eight vectors, `step` apart."""
    return (
        load(x, i),
        load(x, i + step),
        load(x, i + 2 * step),
        load(x, i + 3 * step),
        load(x, i + 4 * step),
        load(x, i + 5 * step),
        load(x, i + 6 * step),
        load(x, i + 7 * step),
    )


@njit(nogil=True, cache=True, forceinline=True)
def store_eight(x: Buffer, i: int, step: int, eight: Eight) -> None:
    """Store eight vectors, `step` apart."""
    store(x, i, eight[0])
    store(x, i + step, eight[1])
    store(x, i + 2 * step, eight[2])
    store(x, i + 3 * step, eight[3])
    store(x, i + 4 * step, eight[4])
    store(x, i + 5 * step, eight[5])
    store(x, i + 6 * step, eight[6])
    store(x, i + 7 * step, eight[7])


@njit(nogil=True, cache=True)
def sort_eighths(x: Buffer, start: int, end: int, size: int) -> int:
    """Do three stages on each bitonic run of `size` in x[start:end]; return the new size of the runs."""
    step = size // 8
    for run in range(start, end, size):
        for i in range(run, run + step):
            store_eight(x, i, step, three_stages(*load_eight(x, i, step)))
    return step


@njit(nogil=True, cache=True)
def sort_halves(x: Buffer, start: int, end: int, size: int) -> int:
    """Do one stage on each bitonic run of `size` in x[start:end]; return the new size of the runs."""
    step = size // 2
    for run in range(start, end, size):
        for i in range(run, run + step):
            a, b = order(load(x, i), load(x, i + step))
            store(x, i, a)
            store(x, i + step, b)
    return step


@njit(nogil=True, cache=True)
def sort_quarters(x: Buffer, start: int, end: int, size: int) -> int:
    """Do two stages on each bitonic run of `size` in x[start:end]; return the new size of the runs."""
    step = size // 4
    for run in range(start, end, size):
        for i in range(run, run + step):
            a, c = order(load(x, i), load(x, i + 2 * step))
            b, d = order(load(x, i + step), load(x, i + 3 * step))
            a, b = order(a, b)
            c, d = order(c, d)
            store(x, i, a)
            store(x, i + step, b)
            store(x, i + 2 * step, c)
            store(x, i + 3 * step, d)
    return step


@njit(nogil=True, cache=True)
def sort_to_eighths(x: Buffer, start: int, end: int, size: int) -> int:
    """Do stages on each bitonic run of x[start:end] until its size is 8, or 1 if it was smaller; return that size."""
    stages = 0
    while 1 << stages < size:
        stages += 1
    if stages % 3 == 1:
        size = sort_halves(x, start, end, size)
    elif stages % 3 == 2:
        size = sort_quarters(x, start, end, size)
    while size > 8:
        size = sort_eighths(x, start, end, size)
    return size


@njit(nogil=True, cache=True)
def sort_runs(x: Buffer, end: int, size: int) -> None:
    """Sort each bitonic run of `size` in x[:end]; sizes are powers of two."""
    while size > IN_CACHE:
        size = sort_eighths(x, 0, end, size)
    block = min(end, IN_CACHE)
    for start in range(0, end, block):
        if sort_to_eighths(x, start, start + block, size) == 8:
            sort_eighths(x, start, start + block, 8)


@njit(nogil=True, cache=True)
def sort_runs_and_find_gaps(x: Buffer, size: int, none: int, least: Buffer) -> None:
    """Sort each bitonic run of `size`, at least 8, in x; record the least odd gaps between neighbours in all of x.

    `least[i]` is the least odd of the eight gaps that end in x[8 i : 8 i + 8], or `none` if there is none.
    """
    while size > IN_CACHE:
        size = sort_eighths(x, 0, len(x), size)
    block = min(len(x), IN_CACHE)
    for start in range(0, len(x), block):
        sort_to_eighths(x, start, start + block, size)
        find_gaps(x, start, start + block, none, least)


@njit(nogil=True, cache=True)
def find_gaps(x: Buffer, start: int, end: int, none: int, least: Buffer) -> None:
    """Do the last three stages on the runs of eight in x[start:end], and record the gaps."""
    nothing = spread(none, load(x, start))
    # The first value has no left neighbour; compared with itself it has a gap of 0, which is even.
    before = load(x, start - 1) if start else three_stages(*load_eight(x, 0, 1))[0]
    for i in range(start, end, 8):
        a, b, c, d, e, f, g, h = three_stages(*load_eight(x, i, 1))
        best = least_odd(nothing, a - before)
        best = least_odd(best, b - a)
        best = least_odd(best, c - b)
        best = least_odd(best, d - c)
        best = least_odd(best, e - d)
        best = least_odd(best, f - e)
        best = least_odd(best, g - f)
        best = least_odd(best, h - g)
        store(least, i // 8, best)
        store_eight(x, i, 1, (a, b, c, d, e, f, g, h))
        before = h


@njit(nogil=True, cache=True)
def list_sums(items: Buffer, zero: int, x: Buffer, spare: Buffer) -> None:
    """List in order, into x, the non-negative half of all sums of plus or minus each item, with its 0 at `zero`.

    There are at least four items; `spare` is as large as x. The whole list mirrors this half. With one more item
    of magnitude c, the sums are those of the list plus c and minus c; the non-negative half of these is |p - c| and
    p + c for the p of the old half: a bitonic sequence as written.
    """
    # Each step reads one buffer and writes the other; the last one must write x.
    source, target = (x, spare) if len(items) % 2 else (spare, x)
    origin = spread(zero, load(items, 0))
    list_three(items, origin, source)
    size = 4
    for k in range(3, len(items)):
        add_item(magnitude(load(items, k)), origin, source, size, target)
        source, target = target, source
        size *= 2
        sort_runs(source, size, size // 8)


@njit(nogil=True, cache=True)
def list_three(items: Buffer, origin: Any, x: Buffer) -> None:
    """List the sums of the first three items."""
    p, q = magnitude(load(items, 0)), magnitude(load(items, 1))
    p, q = magnitude(p - q), p + q
    r = magnitude(load(items, 2))
    a, c = order(origin + magnitude(p - r), origin + (q + r))
    b, d = order(origin + magnitude(q - r), origin + (p + r))
    a, b = order(a, b)
    c, d = order(c, d)
    store(x, 0, a)
    store(x, 1, b)
    store(x, 2, c)
    store(x, 3, d)


@njit(nogil=True, cache=True)
def add_item(c: Any, origin: Any, x: Buffer, size: int, y: Buffer) -> None:
    """Write into y the sums x[:size] with one more item, their first three stages done."""
    moved = origin + c
    step = size // 4
    for i in range(step):
        j = size - 1 - i
        eight = three_stages(
            origin + magnitude(load(x, i) - moved),
            origin + magnitude(load(x, i + step) - moved),
            origin + magnitude(load(x, i + 2 * step) - moved),
            origin + magnitude(load(x, i + 3 * step) - moved),
            load(x, j) + c,
            load(x, j - step) + c,
            load(x, j - 2 * step) + c,
            load(x, j - 3 * step) + c,
        )
        store_eight(y, i, step, eight)


@njit(nogil=True, cache=True)
def merge_lists(first: Buffer, second: Buffer, centre: Any, target: Any, origin: Any, merged: Buffer) -> None:
    """Start to merge two lists given by their upper halves, the first shifted by `target`.

    Written out, the second list in ascending order before the first one in descending order is bitonic; its first
    three stages are done here. The 0 of the halves is at `origin`, that of the merged list at `centre`.
    """
    up, down = centre - origin, centre + origin
    up_moved, down_moved = up + target, down + target
    half = len(second)
    step = half // 2
    for i in range(step):
        j = half - 1 - i
        eight = three_stages(
            down - load(second, j),
            down - load(second, j - step),
            up + load(second, i),
            up + load(second, i + step),
            up_moved + load(first, j),
            up_moved + load(first, j - step),
            down_moved - load(first, i),
            down_moved - load(first, i + step),
        )
        store_eight(merged, i, step, eight)
