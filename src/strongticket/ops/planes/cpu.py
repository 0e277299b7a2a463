"""Products with bit planes on all cores.

The subset sums of every four entries of x are stored in tables once, and a row's bits select among them (`lookup.py`):
one addition per four weights. Rows are split into chunks, and threads take chunks until none is left. This does not
affect the order in which a row is summed, so the result is the same with any number of threads.
"""

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from strongticket.ops.philox.cpu import encrypt
from strongticket.ops.philox.cpu import fill as fill_signs
from strongticket.ops.philox.reference import F32, U32, Stream
from strongticket.ops.planes.lookup import add_chosen_of_one, add_chosen_of_two
from strongticket.ops.planes.planes import LANES, Planes
from strongticket.parallel import numba_threads

TABLE_BYTES = 4 << 20  # of the tables of the vectors processed together
BLOCK_BYTES = 128 << 10  # of planes that are multiplied by all vectors before the next ones: they stay in the cache
LEAST_WORK = 1 << 21  # weights times vectors that justify waking a thread: 50 microseconds
SHARES = 4  # chunks per thread, since some threads may be slower

I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]
Key = tuple[np.uint64, ...]


def multiply(planes: Planes, x: Tensor, scale: float) -> Tensor:
    """Return scale * W x; x is (vectors, columns)."""
    y = torch.empty(len(x), planes.rows)
    all_x, all_y, words = x.numpy(), y.numpy(), planes.words.numpy()
    together = max(1, TABLE_BYTES // max(1, 512 * words.shape[1]))
    tables = np.empty((min(len(x), together), 8 * words.shape[1], 16), np.float32)
    matrix = words, planes.digits, planes.columns, _key(planes.signs)
    for start in range(0, len(x), together):
        part = all_x[start : start + together]
        _fill_tables(part, tables)
        _on_all_cores(*matrix, tables, np.float32(scale), all_y[start : start + together])
    return y


class Product:
    """Products with one vector after another, with a setup shared by all.

    Args:
        planes: W, (rows, columns), on the CPU.
        scale: a factor on the result.
        y: (1, rows), where each product is stored.
    """

    def __init__(self, planes: Planes, scale: float, y: F32) -> None:
        words = planes.words.numpy()
        self._matrix = words, planes.digits, planes.columns, _key(planes.signs)
        self._tables = np.empty((1, 8 * words.shape[1], 16), np.float32)
        self._scale, self._y = np.float32(scale), y

    def __call__(self, x: F32) -> None:
        """Multiply x, (1, columns)."""
        _fill_tables(x, self._tables)
        _on_all_cores(*self._matrix, self._tables, self._scale, self._y)


def _on_all_cores(words: I32, digits: int, columns: int, key: Key, tables: F32, scale: np.float32, y: F32) -> None:
    groups = len(words)
    most = groups * LANES * columns * len(y) // LEAST_WORK
    threads = min(numba_threads(), most) if most > 1 else 1
    size = groups if threads == 1 else -(-groups // min(SHARES * threads, most))
    starts = deque(range(0, groups, max(1, size)))

    def take_chunks() -> None:
        try:
            while True:
                try:
                    start = starts.popleft()
                except IndexError:  # none is left
                    return
                _multiply_groups(start, min(start + size, groups), words, digits, columns, key, tables, scale, y)
        finally:
            starts.clear()  # so that an error or Ctrl-C in one thread also stops the others

    others = [_pool().submit(take_chunks) for _ in range(threads - 1)]
    take_chunks()
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Return threads that are kept, since starting them takes longer than a product."""
    return ThreadPoolExecutor(numba_threads())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not inherited


def look_up(planes: Planes, indices: Tensor, scale: float) -> Tensor:
    """Return rows of W, times a scale."""
    places = indices.numpy()
    words = planes.words.numpy()[places // LANES, :, :, places % LANES]  # (indices, width, planes)
    bits = np.unpackbits(words.swapaxes(1, 2).copy().view(np.uint8), axis=2, bitorder="little", count=planes.columns)
    rows = np.zeros((len(places), planes.columns), np.float32)
    for digit in range(planes.digits):
        rows += np.float32(scale * 2**digit) * bits[:, digit]
    if planes.signs is None:
        np.negative(rows, out=rows, where=bits[:, planes.digits].view(np.bool_))
    else:
        signs = np.empty(planes.columns, np.float32)
        for row, place in zip(rows, places.tolist(), strict=True):
            fill_signs(signs, place * planes.columns, planes.signs, "packed-sign", 1.0)
            row *= signs
    return torch.from_numpy(rows)


def _key(signs: Stream | None) -> Key:
    """Return the stream for numba; empty for stored signs."""
    return () if signs is None else tuple(np.uint64(word) for word in signs)


@njit(nogil=True, cache=True)
def _fill_tables(x: F32, tables: F32) -> None:
    """Write the subset sums of every four entries of x: bit c of a sum's index says whether entry c is in it."""
    vectors, columns = x.shape
    zero = np.float32(0)
    four = np.zeros(4, np.float32)
    for vector in range(vectors):
        for place in range(tables.shape[1]):
            for column in range(4):
                four[column] = x[vector, 4 * place + column] if 4 * place + column < columns else zero
            a, b, c, d = four
            for entry in range(16):
                low = (a if entry & 1 else zero) + (b if entry & 2 else zero)
                tables[vector, place, entry] = low + ((c if entry & 4 else zero) + (d if entry & 8 else zero))


@njit(nogil=True, cache=True)
def _multiply_groups(
    first: int,
    last: int,
    words: I32,
    digits: int,
    columns: int,
    key: Key,
    tables: F32,
    scale: np.float32,
    y: F32,
) -> None:
    """Multiply some groups of rows by all vectors."""
    width, planes = words.shape[1:3]
    lane_bytes = 4 * LANES
    step = planes * lane_bytes
    signs, sign_step = words.ctypes.data + digits * lane_bytes, step
    block = max(1, BLOCK_BYTES // max(1, width * step))
    drawn = np.empty((min(block, last - first) if len(key) else 0, width, LANES), np.uint32)
    sums, total = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    for begin in range(first, last, block):
        end = min(begin + block, last)
        if len(key) == 4:
            _draw_signs(begin * LANES, columns, key, drawn[: end - begin])
            sign_step = lane_bytes
            signs = drawn.ctypes.data - begin * width * sign_step
        for vector in range(0, len(y), 2):
            two = min(2, len(y) - vector)
            for group in range(begin, end):
                total[:] = np.float32(0)
                for digit in range(digits):
                    at = words.ctypes.data + group * width * step + digit * lane_bytes
                    signs_at = signs + group * width * sign_step
                    tables_at, table_step = tables[vector].ctypes.data, tables.strides[0]
                    if two == 2:
                        add_chosen_of_two(at, step, signs_at, sign_step, tables_at, table_step, width, sums.ctypes.data)
                    else:
                        add_chosen_of_one(at, step, signs_at, sign_step, tables_at, table_step, width, sums.ctypes.data)
                    for v in range(two):
                        for i in range(LANES):
                            total[v, i] += np.float32(1 << digit) * sums[v, i]
                row = group * LANES
                for v in range(two):
                    for i in range(min(LANES, y.shape[1] - row)):
                        y[vector + v, row + i] = scale * total[v, i]


@njit(nogil=True, cache=True)
def _draw_signs(first_row: int, columns: int, key: Key, drawn: U32) -> None:
    """Draw the signs of whole groups of rows, in the order of the planes' words; arbitrary beyond the last column."""
    groups, width, _ = drawn.shape
    # Rows that start within a counter's 128 signs need one more counter.
    aligned = columns % 128 == 0
    steps = width // 4 + (not aligned)
    counters = np.empty(steps * LANES, np.uint64)
    words = np.empty((4, steps * LANES), np.uint32)
    for group in range(groups):
        start = (first_row + group * LANES) * columns
        for step in range(steps):
            for lane in range(LANES):
                counters[step * LANES + lane] = ((start + lane * columns) >> 7) + step
        _encrypt_all(counters, key, words)
        for word in range(width):
            if aligned:
                for lane in range(LANES):
                    drawn[group, word, lane] = words[word & 3, (word >> 2) * LANES + lane]
                continue
            for lane in range(LANES):
                bit = ((start + lane * columns) & 127) + 32 * word
                at, after = bit >> 5, (bit >> 5) + 1
                low, high = words[at & 3, (at >> 2) * LANES + lane], words[after & 3, (after >> 2) * LANES + lane]
                both = np.uint64(low) | (np.uint64(high) << np.uint64(32))
                drawn[group, word, lane] = np.uint32(both >> np.uint64(bit & 31))


@njit(nogil=True, cache=True)
def _encrypt_all(counters: U64, key: Key, words: U32) -> None:
    key0, key1, high0, high1 = key
    for j in range(counters.size):
        c0, c1, c2, c3 = encrypt(counters[j], key0, key1, high0, high1)
        words[0, j], words[1, j] = np.uint32(c0), np.uint32(c1)
        words[2, j], words[3, j] = np.uint32(c2), np.uint32(c3)
