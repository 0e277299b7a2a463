"""Exact top-density masks with Numba: a radix select on the bits of the scores, on all cores."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Map = Callable[..., Iterable[Any]]

# A key's 32 bits are found from the top: (bits found so far, bits found next) a pass.
PASSES = ((0, 11), (11, 11), (22, 10))
# A thread is worth starting for this many scores.
_CHUNK = 1 << 18

_U = np.uint64
_KEY_BITS = 32
_NAN_KEY, _INFINITY, _MAGNITUDE, _SIGN = _U(0xFFFFFFFF), _U(0x7F800000), _U(0x7FFFFFFF), _U(0x80000000)


def selection(
    scores: Sequence[Sequence[Tensor]], masks: Sequence[Sequence[Tensor]], signed: bool
) -> Callable[[Sequence[int]], None]:
    """Prepare a refresh: a function that brings the masks up to date with the scores as they are when it is called.

    It is told how many of each group's scores to drop.

    Args:
        scores: contiguous float32 tensors, grouped; a group's scores are ranked together, in this order.
        masks: contiguous bool tensors like the scores, written in place.
        signed: rank by the score and not by its absolute value.
    """
    # NumPy's views follow whatever the optimizer writes.
    bits = [[piece for s in group for piece in _pieces(s.detach().view(torch.int32), np.uint32)] for group in scores]
    kept = [[piece for m in group for piece in _pieces(m, np.bool_)] for group in masks]

    def refresh(dropped: Sequence[int]) -> None:
        threads = min(torch.get_num_threads(), max(map(len, bits), default=0))
        if threads < 2:
            for group in zip(bits, kept, dropped, strict=True):
                _refresh(*group, signed, map)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for group in zip(bits, kept, dropped, strict=True):
                    _refresh(*group, signed, pool.map)

    return refresh


def _pieces(tensor: Tensor, dtype: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    flat = tensor.view(-1).numpy().view(dtype)
    return [flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK)]


def _refresh(bits: list[U32], kept: list[Bools], rank: int, signed: bool, run: Map) -> None:
    """Find the key at place `rank` of the sorted order, bit by bit from the top; then write the masks."""
    if not bits:
        return
    key = 0
    for found, wanted in PASSES:
        histograms = run(partial(_histogram, signed=signed, found=found, wanted=wanted, key=_U(key)), bits)
        counts: I64 = np.sum(list(histograms), axis=0)
        # Where nothing is kept, the place lies behind the last key: the highest digits then drop everything.
        digit = min(int(np.searchsorted(counts.cumsum(), rank, side="right")), len(counts) - 1)
        rank -= int(counts[:digit].sum())
        key = key << wanted | digit
    # `rank` has become the number of scores equal to the key that are dropped: the first ones.
    ties = run(partial(_count_equal, signed=signed, key=_U(key)), bits)
    earlier = accumulate(ties, initial=0)
    list(run(_write, kept, bits, repeat(signed), repeat(_U(key)), (rank - before for before in earlier)))


@njit(inline="always")
def _key(word: np.uint32, signed: bool) -> np.uint64:
    """Map a score's bits to an integer of the same order: both zeros alike, every NaN alike and above the rest."""
    wide = _U(word)
    magnitude = wide & _MAGNITUDE
    if magnitude > _INFINITY:
        return _NAN_KEY
    if not signed:
        return magnitude
    if magnitude == 0:
        return _SIGN
    return _NAN_KEY - wide if wide & _SIGN else wide | _SIGN


@njit(nogil=True, cache=True)
def _histogram(bits: U32, signed: bool, found: int, wanted: int, key: np.uint64) -> I64:
    """Count the next digit of the scores whose keys begin with the digits found."""
    counts = np.zeros(1 << wanted, np.int64)
    above, below = _U(_KEY_BITS - found), _U(_KEY_BITS - found - wanted)
    digits = _U((1 << wanted) - 1)
    for i in range(bits.size):
        candidate = _key(bits[i], signed)
        if candidate >> above == key:
            counts[(candidate >> below) & digits] += 1
    return counts


@njit(nogil=True, cache=True)
def _count_equal(bits: U32, signed: bool, key: np.uint64) -> int:
    count = 0
    for i in range(bits.size):
        count += _key(bits[i], signed) == key
    return count


@njit(nogil=True, cache=True)
def _write(kept: Bools, bits: U32, signed: bool, key: np.uint64, ties_to_drop: int) -> None:
    for i in range(bits.size):
        candidate = _key(bits[i], signed)
        if candidate == key:
            kept[i] = ties_to_drop <= 0
            ties_to_drop -= 1
        else:
            kept[i] = candidate > key
