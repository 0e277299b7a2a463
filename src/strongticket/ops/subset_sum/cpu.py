"""Subset sums on all cores: rows are cut into chunks, and threads take chunks until none is left.

A chunk's rows are brought together as float64 in a contiguous array, solved by compiled code that holds no lock, and
written back. Chunks are small, so memory stays bounded at any number of rows; rows are independent and every
solver is deterministic, so the answer is the same with any number of threads.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from strongticket.ops.subset_sum.bisection import solve_by_bisection
from strongticket.ops.subset_sum.result import Effort, Status, SubsetSumResult
from strongticket.ops.subset_sum.rows import UNREACHABLE, error_of, settle_if_unreachable, write_bits
from strongticket.ops.subset_sum.surplus import solve_surplus

MAX_ITEMS: int | None = None  # any number
EXACT_ITEMS = 32  # up to here the answer is proved
CHUNK_ELEMENTS = 1 << 16  # items brought together at a time and thread

OPTIMAL, NEAR = int(Status.OPTIMAL), int(Status.NEAR)


def solve(targets: Tensor, items: Tensor, effort: Effort) -> SubsetSumResult:
    """Solve row by row; the tensors are on the CPU and have been checked."""
    rows, n = items.shape
    result = _empty_result(items.shape, targets.shape)
    mask, error, status = (x.numpy() for x in result)

    def solve_chunk(chunk: slice) -> None:
        w, a = (x[chunk].double().contiguous().numpy() for x in (targets, items))
        solve_rows(w, a, mask[chunk], error[chunk], status[chunk])

    _run_on_all_cores(solve_chunk, _chunks(rows, n))
    return result


def solve_products(
    targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort
) -> SubsetSumResult:
    """Solve problem (i, j) over the products of block j; the tensors are on the CPU and have been checked."""
    result = _empty_result(v.shape, targets.shape)
    starts = (sizes.cumsum(0) - sizes).tolist()
    for j, (start, n) in enumerate(zip(starts, sizes.tolist(), strict=True)):
        items = u[start : start + n].double() * v[:, start : start + n].double()
        solved = solve(targets[:, j], items / divisor, effort)
        result.mask[:, start : start + n] = solved.mask
        result.error[:, j] = solved.error
        result.status[:, j] = solved.status
    return result


@njit(nogil=True, cache=True)
def solve_rows(
    w: NDArray[np.float64],
    a: NDArray[np.float64],
    mask: NDArray[np.bool_],
    error: NDArray[np.float64],
    status: NDArray[np.uint8],
) -> None:
    """Solve the rows of one chunk one after the other."""
    rows, n = a.shape
    for row in range(rows):
        if settle_if_unreachable(w[row], a[row], mask[row]):
            status[row] = UNREACHABLE
        elif n <= EXACT_ITEMS:
            write_bits(solve_by_bisection(w[row], a[row]), mask[row])
            status[row] = OPTIMAL
        else:
            solve_surplus(w[row], a[row], mask[row])
            status[row] = NEAR
        error[row] = error_of(w[row], a[row], mask[row])


def _empty_result(mask_shape: torch.Size, shape: torch.Size) -> SubsetSumResult:
    mask = torch.empty(mask_shape, dtype=torch.bool)
    return SubsetSumResult(mask, torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.uint8))


def _chunks(rows: int, n: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // max(n, 1))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _run_on_all_cores(task: Callable[[slice], None], chunks: Iterable[slice]) -> None:
    chunks = list(chunks)
    threads = min(numba.get_num_threads(), len(chunks))
    if threads <= 1:
        for chunk in chunks:
            task(chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        # Reading the results lets an error in a thread come up here.
        for _ in pool.map(task, chunks):
            pass
