"""Sorting networks over lanes: one problem per lane of a register, all in the same steps, without branches.

A sequence is bitonic if, read in a circle, it rises once and falls once. Comparing each element with the one half the
length away splits it into a lower and an upper half that are bitonic again, so log2(length) such stages sort it.
Stages are done three at a time on eight vectors held in registers, which divides the memory traffic by three; the
first three even before the sequence is stored.

All values must have the bits of positive normal floats (see `lanes.order`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strongticket.ops.compiled import part
from strongticket.ops.subset_sum.lanes import (
    least_odd_gap,
    load,
    load_eight,
    magnitude,
    order,
    store,
    store_eight,
    three_stages,
)

Buffer = NDArray[np.signedinteger[Any]]

IN_CACHE = 512  # vectors that stay in the first-level cache while their last stages are done
# Sizes to sort down to. Not plain numbers: numba would compile `sort_stages` for each of them.
ONE, EIGHT = np.int64(1), np.int64(8)


@part
def sort_stages(x: Buffer, size: int, last: np.int64 | int) -> None:
    """Do stages on each bitonic run of `size` in x until its size is `last`; sizes are powers of two."""
    stages = 0
    while size >> stages > last:
        stages += 1
    if stages % 3 == 1:
        step = size // 2
        for run in range(0, len(x), size):
            for i in range(run, run + step):
                a, b = order(load(x, i), load(x, i + step))
                store(x, i, a)
                store(x, i + step, b)
        size = step
    elif stages % 3 == 2:
        step = size // 4
        for run in range(0, len(x), size):
            for i in range(run, run + step):
                a, c = order(load(x, i), load(x, i + 2 * step))
                b, d = order(load(x, i + step), load(x, i + 3 * step))
                a, b = order(a, b)
                c, d = order(c, d)
                store(x, i, a)
                store(x, i + step, b)
                store(x, i + 2 * step, c)
                store(x, i + 3 * step, d)
        size = step
    while size > last:
        step = size // 8
        for run in range(0, len(x), size):
            for i in range(run, run + step):
                store_eight(x, i, step, three_stages(load_eight(x, i, step)))
        size = step


@part
def sort_large_runs(x: Buffer, size: int) -> int:
    """Do stages on each bitonic run of `size` in x until it stays in the cache; return the size it then has."""
    small = size
    while small > IN_CACHE:
        small //= 8
    sort_stages(x, size, small)
    return small


@part
def sort_runs(x: Buffer, size: int) -> None:
    """Sort each bitonic run of `size` in x."""
    size = sort_large_runs(x, size)
    block = min(len(x), IN_CACHE)
    for start in range(0, len(x), block):
        sort_stages(x[start : start + block], size, ONE)


@part
def sort_runs_and_find_gaps(x: Buffer, size: int, none: Any, least: Buffer) -> None:
    """Sort each bitonic run of `size`, at least 8, in x; record the least odd gaps between neighbours in all of x.

    `least[i]` is the least odd of the eight gaps that end in x[8 i : 8 i + 8], or `none` if there is none.
    """
    size = sort_large_runs(x, size)
    block = min(len(x), IN_CACHE)
    for start in range(0, len(x), block):
        sort_stages(x[start : start + block], size, EIGHT)
        find_gaps(x, start, start + block, none, least)


@part
def find_gaps(x: Buffer, start: int, end: int, none: Any, least: Buffer) -> None:
    """Do the last three stages on the runs of eight in x[start:end], and record the gaps."""
    # The first value has no left neighbour; compared with itself it has a gap of 0, which is even.
    before = load(x, start - 1) if start else three_stages(load_eight(x, 0, 1))[0]
    for i in range(start, end, 8):
        eight = three_stages(load_eight(x, i, 1))
        store(least, i // 8, least_odd_gap(none, before, eight))
        store_eight(x, i, 1, eight)
        before = eight[7]


@part
def list_sums(items: Buffer, origin: Any, x: Buffer, spare: Buffer) -> None:
    """List in order, into x, the non-negative half of all sums of plus or minus each item, with its 0 at `origin`.

    There are at least four items; `spare` is as large as x. The whole list mirrors this half. With one more item
    of magnitude c, the sums are those of the list plus c and minus c; the non-negative half of these is |p - c| and
    p + c for the p of the old half: a bitonic sequence as written.
    """
    # Each step reads one buffer and writes the other; the last one must write x.
    source, target = (x, spare) if len(items) % 2 else (spare, x)
    list_three(items, origin, source)
    size = len(x) >> len(items) - 3
    for k in range(3, len(items)):
        add_item(magnitude(load(items, k)), origin, source, size, target)
        source, target = target, source
        size *= 2
        sort_runs(source[:size], size // 8)


@part
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


@part
def add_item(c: Any, origin: Any, x: Buffer, size: int, y: Buffer) -> None:
    """Write into y the sums x[:size] with one more item, their first three stages done."""
    moved = origin + c
    step = size // 4
    for i in range(step):
        j = size - 1 - i
        eight = (
            origin + magnitude(load(x, i) - moved),
            origin + magnitude(load(x, i + step) - moved),
            origin + magnitude(load(x, i + 2 * step) - moved),
            origin + magnitude(load(x, i + 3 * step) - moved),
            load(x, j) + c,
            load(x, j - step) + c,
            load(x, j - 2 * step) + c,
            load(x, j - 3 * step) + c,
        )
        store_eight(y, i, step, three_stages(eight))


@part
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
        eight = (
            down - load(second, j),
            down - load(second, j - step),
            up + load(second, i),
            up + load(second, i + step),
            up_moved + load(first, j),
            up_moved + load(first, j - step),
            down_moved - load(first, i),
            down_moved - load(first, i + step),
        )
        store_eight(merged, i, step, three_stages(eight))
