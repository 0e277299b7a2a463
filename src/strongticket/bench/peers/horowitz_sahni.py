"""Horowitz and Sahni's meet-in-the-middle (1974) in plain numba: the honest baseline, one problem after another.

The items are halved, each half's subset sums are listed in order (by merging, never by sorting), and two fingers
walk the lists from opposite ends. This takes 2^(n/2) steps and is what a good programmer writes first.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray


def solve(targets: NDArray[np.float64], items: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Pick the closest subset of each row, on one core.

    Args:
        targets: (rows,).
        items: (rows, n), n at least 2.

    Returns:
        mask (rows, n) bool. Each half is rounded by itself, so a near-tie may go the other way.
    """
    mask = np.empty(items.shape, dtype=np.bool_)
    _solve_rows(np.ascontiguousarray(targets, np.float64), np.ascontiguousarray(items, np.float64), mask)
    return mask


@njit(nogil=True, cache=True)
def _solve_rows(targets: NDArray[np.float64], items: NDArray[np.float64], mask: NDArray[np.bool_]) -> None:
    rows, n = items.shape
    half = n // 2
    left, left_bits = _lists(half)
    right, right_bits = _lists(n - half)
    for row in range(rows):
        a = _list_in_order(items[row, :half], left, left_bits)
        b = _list_in_order(items[row, half:], right, right_bits)
        i, j = _closest(targets[row], left[a], right[b])
        bits = left_bits[a, i] | right_bits[b, j] << half
        for k in range(n):
            mask[row, k] = bits >> k & 1


@njit(nogil=True, cache=True)
def _lists(items: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Allocate the sums and masks of this many items, twice: a merge reads one and writes the other."""
    return np.empty((2, 1 << items)), np.empty((2, 1 << items), np.int64)


@njit(nogil=True, cache=True)
def _list_in_order(a: NDArray[np.float64], sums: NDArray[np.float64], bits: NDArray[np.int64]) -> int:
    """List all subset sums of `a` in ascending order with their masks; return which of the two lists holds them."""
    now = 0
    sums[now, 0], bits[now, 0] = 0.0, 0
    for k in range(len(a)):
        _merge_with_shifted(sums[now], bits[now], 1 << k, a[k], sums[1 - now], bits[1 - now])
        now = 1 - now
    return now


@njit(nogil=True, cache=True)
def _merge_with_shifted(
    sums: NDArray[np.float64],
    bits: NDArray[np.int64],
    size: int,
    item: float,
    out: NDArray[np.float64],
    out_bits: NDArray[np.int64],
) -> None:
    """Merge the list with its copy that has `item` (bit value `size`) added."""
    i, j = 0, 0
    for k in range(2 * size):
        if j == size or (i < size and sums[i] <= sums[j] + item):
            out[k], out_bits[k] = sums[i], bits[i]
            i += 1
        else:
            out[k], out_bits[k] = sums[j] + item, bits[j] | size
            j += 1


@njit(nogil=True, cache=True)
def _closest(w: float, left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[int, int]:
    """Return the positions of the pair whose sum is closest to w."""
    i, j = 0, len(right) - 1
    best, best_i, best_j = np.inf, i, j
    while i < len(left) and j >= 0:
        gap = left[i] + right[j] - w
        if abs(gap) < best:
            best, best_i, best_j = abs(gap), i, j
        if gap < 0.0:
            i += 1
        else:
            j -= 1
    return best_i, best_j
