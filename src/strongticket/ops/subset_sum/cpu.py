"""Subset sums on all cores: problems of one size are split into chunks, and threads take chunks until none is left.

A chunk's items are copied as float64 to a small contiguous array and solved by compiled code that holds no lock, and
the answers are written back. So memory is bounded for any number of rows. Rows are independent and every solver is
deterministic, so the answer is the same with any number of threads.

    up to 32 items   `lockstep`, and `bisection` for the few rows it leaves: the optimum, proved
    more             `surplus`, as good as the optimum over the first 32 items; then `birthday`
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strongticket.ops.array_types import F64, I64, U8, Bools
from strongticket.ops.subset_sum.birthday import levels_for, make_lists, solve_by_birthday
from strongticket.ops.subset_sum.exact import EXACT_ITEMS, exact_workspace, solve_exactly
from strongticket.ops.subset_sum.products import gather_products, scatter_answers
from strongticket.ops.subset_sum.result import Effort, SubsetSumResult, empty_result
from strongticket.ops.subset_sum.surplus import solve_surplus
from strongticket.parallel import numba_threads

MAX_ITEMS: int | None = None  # any number
MEMORY = 192 << 20  # bytes all threads may use together; the contract allows 256 MiB
MOST_ROWS = 16384  # per chunk; enough that handing it to a thread costs little
CHUNK_BYTES = 2 << 20  # of items per chunk, and of intermediate results
BYTES_AN_ITEM = 32
LANES = 16  # rows solved together


def solve(targets: Tensor, items: Tensor, effort: Effort) -> SubsetSumResult:
    """Solve row by row; the tensors are on the CPU and have been checked."""
    rows, n = items.shape
    result = empty_result(items.shape, targets.shape, "cpu")
    mask, error, status = (x.numpy() for x in result)
    all_targets, all_items = targets.numpy(), items.numpy()

    def solve_chunk(start: int, end: int) -> None:
        # By numpy: torch would convert with its own threads, which then spin and take cores from ours.
        w, a = (x[start:end].astype(np.float64, order="C", copy=False) for x in (all_targets, all_items))
        solve_rows(w, a, mask[start:end], error[start:end], status[start:end], effort)

    run_on_all_cores(solve_chunk, rows, n, effort)
    return result


def solve_products(
    targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort
) -> SubsetSumResult:
    """Solve problem (i, j) over the products of block j; the tensors are on the CPU and have been checked."""
    result = empty_result(v.shape, targets.shape, "cpu")
    all_masks, all_errors, all_statuses = (x.numpy() for x in result)
    all_targets, first, second = (x.numpy() for x in (targets, u, v))
    counts = sizes.numpy()
    starts = counts.cumsum() - counts

    def solve_blocks(blocks: I64, n: int) -> None:
        def solve_chunk(start: int, end: int) -> None:
            w, a = np.empty(end - start), np.empty((end - start, n))
            mask, error, status = np.empty(a.shape, np.bool_), np.empty_like(w), np.empty(len(w), np.uint8)
            gather_products(start, all_targets, first, second, blocks, starts, divisor, w, a)
            solve_rows(w, a, mask, error, status, effort)
            scatter_answers(start, blocks, starts, mask, error, status, all_masks, all_errors, all_statuses)

        run_on_all_cores(solve_chunk, len(v) * len(blocks), n, effort)

    for n in set(counts.tolist()):
        solve_blocks(np.flatnonzero(counts == n), n)
    return result


def solve_rows(w: F64, a: F64, mask: Bools, error: F64, status: U8, effort: Effort) -> None:
    """Solve a chunk with the method for its number of items."""
    n = a.shape[1]
    if n <= EXACT_ITEMS:
        solve_exactly(w, a, mask, error, status, exact_workspace(n))
    else:
        starts = solve_surplus(w, a, mask, error, status)
        solve_by_birthday(w, a, starts, mask, error, effort)


def run_on_all_cores(solve_chunk: Callable[[int, int], None], rows: int, n: int, effort: Effort) -> None:
    """Call `solve_chunk(start, end)` until all rows are done, from as many threads as numba is set to use."""
    threads = choose_threads(n, effort)
    size = rows_a_chunk(rows, n, threads)
    starts = deque(range(0, rows, size))

    def take_chunks() -> None:
        try:
            while True:
                try:
                    start = starts.popleft()
                except IndexError:  # none is left
                    return
                solve_chunk(start, min(start + size, rows))
        finally:
            starts.clear()  # so that an error or Ctrl-C in one thread also stops the others

    helpers = min(threads, len(starts)) - 1
    if helpers < 1:
        take_chunks()
        return
    with ThreadPoolExecutor(helpers) as pool:
        # Threads take chunks themselves: a thread that handed them out would have to wake for each.
        others = [pool.submit(take_chunks) for _ in range(helpers)]
        take_chunks()
        for other in others:
            other.result()


def choose_threads(n: int, effort: Effort) -> int:
    """Return numba's number of threads, or fewer if their memory for this number of items would be too much."""
    stages: list[tuple[NDArray[Any], ...]] = [exact_workspace(min(n, EXACT_ITEMS))]
    stages += [make_lists(level) for level in levels_for(n, effort)]
    memory = max(CHUNK_BYTES, BYTES_AN_ITEM * n) + max(sum(x.nbytes for x in arrays) for arrays in stages)
    return max(1, min(numba_threads(), MEMORY // memory))


def rows_a_chunk(rows: int, n: int, threads: int) -> int:
    """Return the rows per chunk: about the same work for any n, some for every thread, never many bytes."""
    size = min(MOST_ROWS, max(64, (1 << 22) >> min(n, EXACT_ITEMS) // 2), CHUNK_BYTES // (BYTES_AN_ITEM * max(n, 1)))
    share = -(-rows // (threads * LANES)) * LANES
    return max(1, min(size, share))
