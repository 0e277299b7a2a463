"""Products with bit planes on all cores.

The subset sums of every four entries of x are stored in tables, and a row's bits select among them (`lookup.py`): one
addition per four weights. A product is divided into parts, by rows or by vectors, and threads take parts until none is
left. This does not affect the order in which a row is summed, so the result is the same with any number of threads.
"""

from typing import Any

import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from torch import Tensor

from strongticket.ops.addresses import floats
from strongticket.ops.array_types import F32, I32, I64, U32, U64, Records
from strongticket.ops.compiled import kernel, part
from strongticket.ops.philox.cpu import Key, encrypt
from strongticket.ops.philox.cpu import fill as fill_signs
from strongticket.ops.planes.lookup import add_chosen_of_one, add_chosen_of_two
from strongticket.ops.planes.planes import LANES, Planes
from strongticket.ops.team import compiled_once, run, take, threads_for

TABLE_BYTES = 1 << 20  # of the tables of the vectors that a thread multiplies together
BLOCK_BYTES = 128 << 10  # of planes that are multiplied by all these vectors before the next: they stay in the cache
LEAST_WORK = 1 << 18  # weights times vectors that justify another thread: 6 microseconds
SHARES = 4  # parts per thread, since some threads may be slower


# A product as compiled code sees it; arrays are addresses.
TASK = np.dtype(
    [
        *((name, "i8") for name in ("next", "vectors", "columns", "rows", "x", "y")),
        *((name, "i8") for name in ("words", "groups", "width", "planes", "digits", "drawn")),
        *((name, "i8") for name in ("vectors_per_part", "groups_per_part")),
        ("key", "u8", 4),
        ("scale", "f4"),
    ],
    align=True,
)


def multiply(planes: Planes, x: Tensor, scale: float) -> Tensor:
    """Return scale * W x; x is (vectors, columns)."""
    y = torch.empty(len(x), planes.rows)
    task = task_of(planes, x.numpy(), scale, y.numpy())
    groups, width = planes.words.shape[:2]
    threads = threads_for(groups * LANES * planes.columns * len(x), LEAST_WORK)
    parts = SHARES * threads if threads > 1 else 1
    # Each part needs tables of its vectors, so few vectors are not divided, but rows.
    by_vectors = len(x) >= 2 * parts
    most = max(2, TABLE_BYTES // max(1, 512 * width))
    task["vectors_per_part"] = min(most, -(-len(x) // parts)) if by_vectors else most
    task["groups_per_part"] = max(1, groups if by_vectors else -(-groups // parts))
    run(_take_parts(), task.ctypes.data, threads)
    return y


def task_of(planes: Planes, x: F32, scale: float, y: F32) -> Records:
    """Return the task scale * W x, (1,); its arrays must be kept.

    Args:
        planes: W, (rows, columns), on the CPU.
        x: (vectors, columns), contiguous.
        scale: a factor on the result.
        y: (vectors, rows), where the product is stored, contiguous.
    """
    words = planes.words.numpy()
    groups, width, count, _ = words.shape
    task = np.zeros(1, TASK)
    task["vectors"], task["columns"], task["rows"] = len(x), planes.columns, planes.rows
    task["x"], task["y"], task["words"] = x.ctypes.data, y.ctypes.data, words.ctypes.data
    task["groups"], task["width"], task["planes"], task["digits"] = groups, width, count, planes.digits
    task["drawn"], task["key"], task["scale"] = planes.signs is not None, planes.signs or 0, scale
    return task


def look_up(planes: Planes, indices: Tensor, scale: float) -> Tensor:
    """Return rows of W, times a scale."""
    rows = np.empty((len(indices), planes.columns), np.float32)
    _unpack_rows(planes.words.numpy(), planes.digits, indices.numpy(), np.float32(scale), rows)
    if planes.signs is not None:
        signs = np.empty(planes.columns, np.float32)
        for row, place in zip(rows, indices.tolist(), strict=True):
            fill_signs(signs, place * planes.columns, planes.signs, "packed-sign", 1.0)
            row *= signs
    return torch.from_numpy(rows)


@kernel
def _unpack_rows(words: I32, digits: int, places: I64, scale: np.float32, rows: F32) -> None:
    """Write some rows; signs that are not stored are left out."""
    for row, place in zip(rows, places):  # noqa: B905, numba has no strict
        group, lane = place // LANES, place % LANES
        for word in range(words.shape[1]):
            planes = words[group, word, :, lane]
            for bit in range(min(32, len(row) - 32 * word)):
                number = 0
                for digit in range(digits):
                    number |= ((planes[digit] >> bit) & 1) << digit
                if len(planes) > digits and (planes[digits] >> bit) & 1:
                    number = -number
                row[32 * word + bit] = scale * np.float32(number)


@part
def multiply_groups(task: Any, first: int, last: int, tables: F32, y: F32) -> None:
    """Multiply some groups of rows by some vectors."""
    width, digits = task.width, task.digits
    lane_bytes = 4 * LANES
    step = task.planes * lane_bytes
    signs, sign_step = task.words + digits * lane_bytes, step
    block = max(1, BLOCK_BYTES // max(1, width * step))
    drawn = np.empty((min(block, last - first) if task.drawn else 0, width, LANES), np.uint32)
    sums, total = np.empty((2, LANES), np.float32), np.empty((2, LANES), np.float32)
    for begin in range(first, last, block):
        end = min(begin + block, last)
        if task.drawn:
            key = task.key[0], task.key[1], task.key[2], task.key[3]
            _draw_signs(begin * LANES, task.columns, key, drawn[: end - begin])
            sign_step = lane_bytes
            signs = drawn.ctypes.data - begin * width * sign_step
        for vector in range(0, len(y), 2):
            two = min(2, len(y) - vector)
            for group in range(begin, end):
                total[:] = np.float32(0)
                for digit in range(digits):
                    at = task.words + group * width * step + digit * lane_bytes
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
                    for i in range(min(LANES, task.rows - row)):
                        y[vector + v, row + i] = task.scale * total[v, i]


@part
def fill_tables(x: F32, tables: F32) -> None:
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


@part
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


@part
def _encrypt_all(counters: U64, key: Key, words: U32) -> None:
    for j in range(counters.size):
        c0, c1, c2, c3 = encrypt(counters[j], key)
        words[0, j], words[1, j] = np.uint32(c0), np.uint32(c1)
        words[2, j], words[3, j] = np.uint32(c2), np.uint32(c3)


@compiled_once
def _take_parts(place: Any) -> None:
    """Compute parts of a task until none is left, in one of its threads."""
    task = carray(place, 1, TASK)[0]
    x = floats(task.x, (task.vectors, task.columns))
    y = floats(task.y, (task.vectors, task.rows))
    by_groups = -(-task.groups // task.groups_per_part)
    parts = -(-task.vectors // task.vectors_per_part) * by_groups
    tables = np.empty((min(task.vectors, task.vectors_per_part), 8 * task.width, 16), np.float32)
    filled = -1
    while True:
        part = take(place)  # counted in the first field
        if part >= parts:
            return
        start, first = part // by_groups * task.vectors_per_part, part % by_groups * task.groups_per_part
        end = min(start + task.vectors_per_part, task.vectors)
        if start != filled:
            fill_tables(x[start:end], tables)
            filled = start
        multiply_groups(task, first, min(first + task.groups_per_part, task.groups), tables, y[start:end])
