"""Sorting networks over lanes: as many problems as a register has lanes go through the same steps, without a branch.

A sequence is bitonic if, read in a circle, it rises once and falls once. Comparing each element with the one half the
length away splits it into a lower and an upper half that are bitonic again, so log2(length) such stages sort it.
Stages are done three at a time on eight vectors held in registers, which divides the memory traffic by three.

All values must have the bits of positive normal floats (see `lanes.lower`).
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strongticket.ops.subset_sum.lanes import least_odd, load, lower, magnitude, spread, store, upper

Buffer = NDArray[np.signedinteger[Any]]

IN_CACHE = 512  # vectors that stay in the first-level cache while their last stages are done


@njit(nogil=True, cache=True, forceinline=True)
def order(a: Any, b: Any) -> tuple[Any, Any]:
    """The pair in order."""
    return lower(a, b), upper(a, b)


@njit(nogil=True, cache=True, forceinline=True)
def clean_two(x: Buffer, i: int, step: int) -> None:
    """One stage, on two vectors."""
    a, b = order(load(x, i), load(x, i + step))
    store(x, i, a)
    store(x, i + step, b)


@njit(nogil=True, cache=True, forceinline=True)
def clean_four(x: Buffer, i: int, step: int) -> None:
    """Two stages, on four vectors `step` apart."""
    a, c = order(load(x, i), load(x, i + 2 * step))
    b, d = order(load(x, i + step), load(x, i + 3 * step))
    a, b = order(a, b)
    c, d = order(c, d)
    store(x, i, a)
    store(x, i + step, b)
    store(x, i + 2 * step, c)
    store(x, i + 3 * step, d)


@njit(nogil=True, cache=True, forceinline=True)
def cleaned_eight(x: Buffer, i: int, step: int) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """Three stages, on eight vectors `step` apart, which are returned."""
    a, e = order(load(x, i), load(x, i + 4 * step))
    b, f = order(load(x, i + step), load(x, i + 5 * step))
    c, g = order(load(x, i + 2 * step), load(x, i + 6 * step))
    d, h = order(load(x, i + 3 * step), load(x, i + 7 * step))
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
def store_eight(x: Buffer, i: int, step: int, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> None:
    """Put eight vectors `step` apart."""
    store(x, i, a)
    store(x, i + step, b)
    store(x, i + 2 * step, c)
    store(x, i + 3 * step, d)
    store(x, i + 4 * step, e)
    store(x, i + 5 * step, f)
    store(x, i + 6 * step, g)
    store(x, i + 7 * step, h)


@njit(nogil=True, cache=True, forceinline=True)
def clean_eight(x: Buffer, i: int, step: int) -> None:
    """Three stages, on eight vectors `step` apart."""
    a, b, c, d, e, f, g, h = cleaned_eight(x, i, step)
    store_eight(x, i, step, a, b, c, d, e, f, g, h)


@njit(nogil=True, cache=True)
def open_stages(x: Buffer, size: int) -> int:
    """Do the first one or two stages of a merge, so that a multiple of three remains; return the size of the runs."""
    stages = 0
    while 1 << stages < size:
        stages += 1
    if stages % 3 == 1:
        for i in range(size // 2):
            clean_two(x, i, size // 2)
    elif stages % 3 == 2:
        for i in range(size // 4):
            clean_four(x, i, size // 4)
    return size >> stages % 3


@njit(nogil=True, cache=True)
def narrow(x: Buffer, start: int, end: int, size: int, stop: int) -> None:
    """Take the bitonic runs of x[start:end] from `size` down to `stop`, three stages a pass."""
    while size > stop:
        step = size // 8
        for base in range(start, end, size):
            for i in range(base, base + step):
                clean_eight(x, i, step)
        size = step


@njit(nogil=True, cache=True)
def merge(x: Buffer, size: int) -> None:
    """Sort the bitonic sequence x[:size], size a power of two."""
    run = open_stages(x, size)
    block = min(run, IN_CACHE)
    narrow(x, 0, size, run, block)
    for start in range(0, size, block):
        narrow(x, start, start + block, block, 1)


@njit(nogil=True, cache=True)
def merge_and_find_gaps(x: Buffer, none: int, least: Buffer) -> None:
    """Sort the bitonic sequence x, of length 8 at least, and note the least odd gap between neighbours.

    `least[i]` is that of the eight gaps that end in x[8 i : 8 i + 8], or `none` if there is none.
    """
    size = len(x)
    run = open_stages(x, size)
    block = min(run, IN_CACHE)
    narrow(x, 0, size, run, block)
    for start in range(0, size, block):
        narrow(x, start, start + block, block, 8)
        find_gaps(x, start, start + block, none, least)


@njit(nogil=True, cache=True)
def find_gaps(x: Buffer, start: int, end: int, none: int, least: Buffer) -> None:
    """Do the last three stages of a merge on x[start:end], and note the gaps."""
    nothing = spread(none, load(x, start))
    # The very first element has no left neighbour; beside itself it has a gap of 0, which is even.
    before = load(x, start - 1) if start else lowest_of_eight(x)
    for i in range(start, end, 8):
        a, b, c, d, e, f, g, h = cleaned_eight(x, i, 1)
        best = least_odd(nothing, a - before)
        best = least_odd(best, b - a)
        best = least_odd(best, c - b)
        best = least_odd(best, d - c)
        best = least_odd(best, e - d)
        best = least_odd(best, f - e)
        best = least_odd(best, g - f)
        best = least_odd(best, h - g)
        store(least, i // 8, best)
        store_eight(x, i, 1, a, b, c, d, e, f, g, h)
        before = h


@njit(nogil=True, cache=True)
def lowest_of_eight(x: Buffer) -> Any:
    """The smallest of x[:8]."""
    best = load(x, 0)
    for i in range(1, 8):
        best = lower(best, load(x, i))
    return best


@njit(nogil=True, cache=True)
def list_sums(items: Buffer, zero: int, x: Buffer) -> None:
    """List in order, into x, the non-negative half of all sums of plus or minus each item, with its 0 at `zero`.

    The whole list mirrors this half. With one more item of magnitude c, the sums are those of the list plus c and
    minus c; the non-negative half of these is |p - c| and p + c for the p of the old half: bitonic as written.
    """
    origin = spread(zero, load(items, 0))
    store(x, 0, origin + magnitude(load(items, 0)))
    size = 1
    for k in range(1, len(items)):
        c = magnitude(load(items, k))
        moved = origin + c
        for i in range(size):
            p = load(x, i)
            store(x, i, origin + magnitude(p - moved))
            store(x, 2 * size - 1 - i, p + c)
        size *= 2
        merge(x, size)
