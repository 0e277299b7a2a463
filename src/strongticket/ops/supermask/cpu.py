"""Exact top-density masks with Numba.

A sample of the scores says between which two values the threshold lies. One pass settles all scores outside; the few
inside are ranked. Should the sample mislead, the pass is made again with nothing outside.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Map = Callable[..., Iterable[Any]]

# So many scores, evenly taken, tell about where the threshold lies.
_SAMPLE = 4096
# A thread is worth starting for this many scores.
_CHUNK = 1 << 18

_U = np.uint32
_EIGHT_TWOS = np.uint64(0x0202020202020202)
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
    bits = [[piece for s in group for piece in _pieces(s, np.uint32)] for group in scores]
    kept = [[piece for m in group for piece in _pieces(m, np.uint8)] for group in masks]

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


def masked_weight(weight: Tensor, mask: Tensor) -> Tensor:
    """Multiply a weight by its mask; torch would first make the mask a tensor of floats."""
    product = torch.empty_like(weight)
    _keep(_flat(weight), _flat(mask), _flat(product))
    return product


def score_gradient(gradient: Tensor, weight: Tensor, scores: Tensor, signed: bool) -> Tensor:
    """Give the gradient of the scores, without the large intermediate results that torch would make."""
    out = torch.empty_like(scores)
    _score_gradient(_flat(gradient), _flat(weight), _flat(scores), signed, _flat(out))
    return out


def _flat(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.detach().view(-1).numpy()


def _pieces(tensor: Tensor, dtype: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    flat = _flat(tensor).view(dtype)
    return [flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK)]


def _refresh(bits: list[U32], kept: list[U8], rank: int, signed: bool, run: Map) -> None:
    """Drop the scores below place `rank` of the sorted order."""
    total = sum(map(len, bits))
    if rank == total:  # nothing is kept
        for piece in kept:
            piece[:] = 0
        return
    for low, high in (_bracket(bits, rank, total, signed), (_U(0), _NAN_KEY)):
        settled = list(run(_settle, kept, bits, repeat(signed), repeat(low), repeat(high)))
        place = rank - sum(below for below, _, _ in settled)
        near = np.concatenate([keys for _, keys, _ in settled])
        if 0 <= place < len(near):
            break
    threshold = np.partition(near, place)[place]
    chosen = near > threshold
    ties = np.flatnonzero(near == threshold)
    # Of equal scores the first are dropped.
    chosen[ties[place - np.count_nonzero(near < threshold) :]] = True
    for piece, (_, keys, places) in zip(kept, settled, strict=True):
        piece[places], chosen = chosen[: len(keys)], chosen[len(keys) :]


def _bracket(bits: list[U32], rank: int, total: int, signed: bool) -> tuple[np.uint32, np.uint32]:
    """Guess two keys that the one at place `rank` lies between; a sample of all scores gives the key itself."""
    stride = max(1, total // _SAMPLE)
    sample = np.sort(np.concatenate([_keys(np.ascontiguousarray(piece[::stride]), signed) for piece in bits]))
    share = rank / total
    place, spread = share * len(sample), 3 * math.sqrt(share * (1 - share) * len(sample)) + 1 if stride > 1 else 0.0
    first, last = round(place - spread), round(place + spread)
    return sample[first] if first > 0 else _U(0), sample[last] if last < len(sample) else _NAN_KEY


@njit(inline="always")
def _key(word: np.uint32, signed: bool) -> np.uint32:
    """Map a score's bits to an integer of the same order: both zeros alike, every NaN alike and above the rest."""
    magnitude = word & _MAGNITUDE
    # Without a branch, so that many scores are mapped at once.
    negative = signed and word > _SIGN
    key = _U(~word) if negative else _U(magnitude | _SIGN)
    return _NAN_KEY if magnitude > _INFINITY else key


@njit(nogil=True, cache=True)
def _keys(bits: U32, signed: bool) -> U32:
    keys = np.empty_like(bits)
    for i in range(bits.size):
        keys[i] = _key(bits[i], signed)
    return keys


@njit(nogil=True, cache=True)
def _settle(marks: U8, bits: U32, signed: bool, low: np.uint32, high: np.uint32) -> tuple[np.int32, U32, I32]:
    """Write the mask, but for the scores between the two keys: count those below, give keys and places of the others.

    Those are marked with a 2, so that they are found eight scores at a time.
    """
    below, near = np.int32(0), np.int32(0)
    for i in range(bits.size):
        key = _key(bits[i], signed)
        is_near = (key >= low) & (key <= high)
        marks[i] = np.uint8(key > high) | np.uint8(is_near) << np.uint8(1)
        below += np.int32(key < low)
        near += np.int32(is_near)
    keys, places, found = np.empty(near, np.uint32), np.empty(near, np.int32), 0
    words = marks[: marks.size // 8 * 8].view(np.uint64)
    for word in range(words.size + 1):
        if word == words.size or words[word] & _EIGHT_TWOS:
            for i in range(8 * word, min(8 * word + 8, bits.size)):
                if marks[i] & 2:
                    keys[found], places[found] = _key(bits[i], signed), i
                    found += 1
    return below, keys, places


@njit(nogil=True, cache=True)
def _keep(weight: F32, mask: Bools, product: F32) -> None:
    for i in range(weight.size):
        product[i] = weight[i] if mask[i] else np.float32(0)


@njit(nogil=True, cache=True)
def _score_gradient(gradient: F32, weight: F32, scores: F32, signed: bool, out: F32) -> None:
    for i in range(weight.size):
        sign = np.float32(1) if signed else np.float32(scores[i] > 0) - np.float32(scores[i] < 0)
        out[i] = gradient[i] * weight[i] * sign
