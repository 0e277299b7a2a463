"""Exact top-density masks with Numba.

The threshold is near the last one if scores have changed little. Otherwise a sample brackets it between two values, and
the number of scores between them narrows the bracket. All scores outside are settled by that; the few inside are
ranked. If the sample misleads, nothing counts as outside.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import carray, njit  # type: ignore[attr-defined]
from torch import Tensor

from strongticket.ops.compiled import kernel
from strongticket.ops.philox.cpu import TILE, words_of_tile
from strongticket.ops.philox.reference import Stream
from strongticket.ops.supermask.reference import Soft
from strongticket.ops.team import pointer

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Keys = tuple[np.uint32, np.uint32]
Map = Callable[..., Iterable[Any]]

# Size of the evenly spaced sample that estimates the threshold.
_SAMPLE = 1024
# With more scores than this between two keys, narrow them again.
_MANY = 1024
# Scores that justify starting a thread.
_CHUNK = 1 << 18
# Marks summed together; at most 127, as their sum is a byte.
_BLOCK = 64

_U = np.uint32
_TWOS = np.uint64(0x0202020202020202)
_NAN_KEY, _INFINITY, _MAGNITUDE, _SIGN = _U(0xFFFFFFFF), _U(0x7F800000), _U(0x7FFFFFFF), _U(0x80000000)


def selection(
    scores: Sequence[Sequence[Tensor]], masks: Sequence[Sequence[Tensor]], signed: bool
) -> Callable[[Sequence[int]], None]:
    """Prepare a refresh: a function that updates the masks from the current scores.

    Its argument is how many of each group's scores to drop.

    Args:
        scores: contiguous float32 tensors, grouped; a group's scores are ranked together, in this order.
        masks: contiguous bool tensors like the scores, written in place.
        signed: rank by the score, not by its absolute value.
    """
    # NumPy views see what the optimizer writes.
    bits = [[piece for s in group for piece in _pieces(s, np.uint32)] for group in scores]
    kept = [[piece for m in group for piece in _pieces(m, np.uint8)] for group in masks]
    guesses: list[Keys | None] = [None] * len(bits)

    def refresh(dropped: Sequence[int]) -> None:
        threads = min(torch.get_num_threads(), max(map(len, bits), default=0))
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            run = pool.map if pool else map
            guesses[:] = [_refresh(*group, signed, run) for group in zip(bits, kept, dropped, guesses, strict=True)]

    return refresh


def product(weight: Tensor, factors: Tensor) -> Tensor:
    """Multiply a weight by bytes; torch would first convert them to floats."""
    out = torch.empty_like(weight)
    _product(weight.data_ptr(), factors.data_ptr(), out.data_ptr(), weight.numel())
    return out


def signed_product(weight: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
    """Multiply a weight by the signs of its scores and by a mask."""
    out = torch.empty_like(weight)
    _signed_product(weight.data_ptr(), scores.data_ptr(), mask.data_ptr(), out.data_ptr(), weight.numel())
    return out


def score_gradient(gradient: Tensor, source: Tensor, scores: Tensor, soft: Soft) -> Tensor:
    """Return the gradient of the scores, without torch's large intermediate results."""
    given, size = (gradient.data_ptr(), source.data_ptr()), source.numel()
    if soft in ("score", "magnitude"):
        out = torch.empty_like(scores)
        _score_gradient(*given, scores.data_ptr(), soft == "score", out.data_ptr(), size)
        return out
    # The derivative of tanh(s) is 4 p (1 - p) with p = sigmoid(2 s), which torch computes ten times as fast as tanh.
    p, factor = (scores.detach().sigmoid(), 1.0) if soft == "sigmoid" else ((2 * scores.detach()).sigmoid_(), 4.0)
    _sigmoid_gradient(*given, factor, p.data_ptr(), size)
    return p


def draw_mask(mask: Tensor, chances: Tensor, stream: Stream) -> None:
    """Draw the uniform numbers of a stream and compare them in one pass, never storing them."""
    _draw_mask(mask.data_ptr(), chances.data_ptr(), mask.numel(), *map(np.uint64, stream))


def mean_magnitude(weight: Tensor, mask: Tensor) -> float:
    """Return the mean magnitude of kept weights, added up in float64; 0 if there are none."""
    return float(_mean_magnitude(weight.data_ptr(), mask.data_ptr(), weight.numel()))


def _flat(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.detach().numpy().reshape(-1)


def _pieces(tensor: Tensor, dtype: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    flat = _flat(tensor).view(dtype)
    return [flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK)]


def _refresh(bits: list[U32], kept: list[U8], rank: int, guess: Keys | None, signed: bool, run: Map) -> Keys | None:
    """Drop the scores below position `rank` in sorted order; guess two keys around the next threshold."""
    total = sum(map(len, bits))
    if rank == total:  # keep nothing
        for piece in kept:
            piece[:] = 0
        return None
    if guess and len(bits) == 1:  # nearly every refresh of a search
        between, threshold = _settle(kept[0], bits[0], signed, *guess, rank)
        if between:
            return _next_guess(guess, between, threshold, guess)
    near: list[int] = []  # scores of each piece between two keys

    def place_between(low: np.uint32, high: np.uint32) -> int:
        """Mark the scores between; return the position among them of the score at `rank`, if it is one of them."""
        nonlocal near
        below, near = map(list, zip(*run(_mark, kept, bits, repeat(signed), repeat(low), repeat(high)), strict=True))
        return rank - int(sum(below))

    again = guess if len(bits) > 1 else None
    keys = again or _bracket(bits, rank, total, signed)
    place = place_between(*keys)
    if again and not 0 <= place < sum(near):
        keys = _bracket(bits, rank, total, signed)
        place = place_between(*keys)
    if not 0 <= place < sum(near):
        keys = _U(0), _NAN_KEY
        place = place_between(*keys)
    if sum(near) > _MANY:
        narrow = _narrowed(*keys, place / sum(near))
        inner = place_between(*narrow)
        if 0 <= inner < sum(near):
            keys, place = narrow, inner
        else:
            place = place_between(*keys)
    found = list(run(_marked, kept, bits, repeat(signed), near))
    threshold, chosen = _chosen(np.concatenate([keys for keys, _ in found]), place)
    for piece, (_, places) in zip(kept, found, strict=True):
        piece[places], chosen = chosen[: len(places)], chosen[len(places) :]
    return _next_guess(keys, sum(near), threshold, guess)


def _next_guess(keys: Keys, between: int, threshold: np.uint32, guess: Keys | None) -> Keys:
    """Guess two keys around the next threshold, from those around this one and the number of scores between them.

    They enclose as many scores as are ranked at once, or are far enough apart for the threshold to move as it did.
    """
    low, high, here = int(keys[0]), int(keys[1]), int(threshold)
    moved = abs(here - sum(map(int, guess)) // 2) if guess else 0
    margin = max((high - low) * _MANY // (4 * between), 2 * moved) + 1
    return _U(max(0, here - margin)), _U(min(int(_NAN_KEY), here + margin))


def _narrowed(low: np.uint32, high: np.uint32, share: float) -> Keys:
    """Guess a 16th of the keys between two, around the key with the given share of scores below it."""
    width = int(high) - int(low)
    middle, margin = int(low) + round(share * width), width // 32 + 1
    return _U(max(int(low), middle - margin)), _U(min(int(high), middle + margin))


def _bracket(bits: list[U32], rank: int, total: int, signed: bool) -> Keys:
    """Guess two keys around the one at position `rank`; a sample of all scores gives the key itself."""
    stride = max(1, total // _SAMPLE)
    sample = np.sort(np.concatenate([_keys(np.ascontiguousarray(piece[::stride]), signed) for piece in bits]))
    share = rank / total
    place, spread = share * len(sample), 3 * math.sqrt(share * (1 - share) * len(sample)) + 1 if stride > 1 else 0.0
    first, last = round(place - spread), round(place + spread)
    return sample[first] if first > 0 else _U(0), sample[last] if last < len(sample) else _NAN_KEY


@njit(inline="always")
def _key(word: np.uint32, signed: bool) -> np.uint32:
    """Map a score's bits to an integer of the same order: equal zeros, and equal NaNs above the rest."""
    magnitude = word & _MAGNITUDE
    # Without branches, so that many scores are mapped at once.
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
def _mark(marks: U8, bits: U32, signed: bool, low: np.uint32, high: np.uint32) -> tuple[np.int64, np.int64]:
    """Write 0 for scores below two keys, 1 above and 2 between them; count those below and those between."""
    for i in range(bits.size):
        key = _key(bits[i], signed)
        marks[i] = np.uint8((key >= low) << 1) - np.uint8(key > high)
    between, above, whole = np.int64(0), np.int64(0), marks.size // _BLOCK * _BLOCK
    for start in range(0, whole, _BLOCK):
        ones, twos = np.uint8(0), np.uint8(0)  # bytes, so that a CPU adds many at once
        for i in range(_BLOCK):
            ones = np.uint8(ones + (marks[start + i] & np.uint8(1)))
            twos = np.uint8(twos + (marks[start + i] >> np.uint8(1)))
        between, above = between + twos, above + ones
    for i in range(whole, marks.size):
        between, above = between + (marks[i] == 2), above + (marks[i] == 1)
    return bits.size - between - above, between


@njit(nogil=True, cache=True)
def _marked(marks: U8, bits: U32, signed: bool, count: int) -> tuple[U32, I32]:
    """Return keys and positions of the `count` scores marked with a 2."""
    places, found, whole = np.empty(count, np.int32), 0, marks.size // _BLOCK * _BLOCK
    words = marks[:whole].view(np.uint64)
    for start in range(0, whole, _BLOCK):
        some = np.uint64(0)
        for i in range(_BLOCK // 8):
            some |= words[start // 8 + i]
        if some & _TWOS:
            found = _append_marked(places, found, marks, start, start + _BLOCK)
    _append_marked(places, found, marks, whole, marks.size)
    return _keys(bits[places], signed), places


@njit(inline="always")
def _append_marked(places: I32, found: int, marks: U8, start: int, stop: int) -> int:
    for i in range(start, stop):
        if marks[i] == 2:
            places[found] = i
            found += 1
    return found


@njit(nogil=True, cache=True)
def _chosen(keys: U32, place: int) -> tuple[np.uint32, Bools]:
    """Return the key at a position in sorted order, and which are kept; of equal ones the first are dropped."""
    threshold = np.partition(keys, place)[place]
    chosen, dropped = keys > threshold, place - np.sum(keys < threshold)
    for i in range(keys.size):
        if keys[i] == threshold:
            chosen[i] = dropped <= 0
            dropped -= 1
    return threshold, chosen


@njit(nogil=True, cache=True)
def _settle(kept: U8, bits: U32, signed: bool, low: np.uint32, high: np.uint32, rank: int) -> tuple[int, np.uint32]:
    """Make one tensor's mask by two keys; return how many scores lie between, 0 if the threshold does not."""
    below, between = _mark(kept, bits, signed, low, high)
    if not below <= rank < below + between:
        return 0, low
    keys, places = _marked(kept, bits, signed, int(between))
    threshold, chosen = _chosen(keys, int(rank - below))
    for i in range(places.size):
        kept[places[i]] = chosen[i]
    return int(between), threshold


# Numba needs longer to look into an array than to multiply some thousand numbers: these kernels take addresses.


@kernel
def _product(weight_at: int, factors_at: int, out_at: int, size: int) -> None:
    weight, out = carray(pointer(weight_at), size, np.float32), carray(pointer(out_at), size, np.float32)
    factors = carray(pointer(factors_at), size, np.uint8)
    for i in range(size):
        out[i] = weight[i] * np.float32(factors[i])


@kernel
def _signed_product(weight_at: int, scores_at: int, mask_at: int, out_at: int, size: int) -> None:
    weight, scores = carray(pointer(weight_at), size, np.float32), carray(pointer(scores_at), size, np.float32)
    mask, out = carray(pointer(mask_at), size, np.uint8), carray(pointer(out_at), size, np.float32)
    for i in range(size):
        sign = np.float32(scores[i] > 0) - np.float32(scores[i] < 0)
        out[i] = sign * weight[i] * np.float32(mask[i])


@kernel
def _score_gradient(gradient_at: int, source_at: int, scores_at: int, signed: bool, out_at: int, size: int) -> None:
    gradient, source = carray(pointer(gradient_at), size, np.float32), carray(pointer(source_at), size, np.float32)
    scores, out = carray(pointer(scores_at), size, np.float32), carray(pointer(out_at), size, np.float32)
    if signed:
        for i in range(size):
            out[i] = gradient[i] * source[i]
    else:
        for i in range(size):
            out[i] = gradient[i] * source[i] * (np.float32(scores[i] > 0) - np.float32(scores[i] < 0))


@kernel
def _sigmoid_gradient(gradient_at: int, source_at: int, factor: float, p_at: int, size: int) -> None:
    """Replace probabilities by the gradient of the scores."""
    gradient, source = carray(pointer(gradient_at), size, np.float32), carray(pointer(source_at), size, np.float32)
    p, times = carray(pointer(p_at), size, np.float32), np.float32(factor)
    for i in range(size):
        p[i] = gradient[i] * source[i] * (np.float32(1) - p[i]) * p[i] * times


@kernel
def _draw_mask(
    mask_at: int, chances_at: int, size: int, key0: np.uint64, key1: np.uint64, high0: np.uint64, high1: np.uint64
) -> None:
    mask, chances = carray(pointer(mask_at), size, np.uint8), carray(pointer(chances_at), size, np.float32)
    words, planes = np.empty(TILE, np.uint32), np.empty((4, TILE // 4), np.uint32)
    for start in range(0, size, TILE):
        words_of_tile(words, planes, start // 4, key0, key1, high0, high1)
        kept, p = mask[start : start + TILE], chances[start : start + TILE]  # slices, which vectorise: a third the time
        for i in range(kept.size):
            # The number as `random_weights` rounds it, which a power of two does not change.
            odd = np.int32(np.int32(words[i] >> _U(3) << _U(1)) - np.int32(2**29 - 1))
            kept[i] = np.float32(odd) * np.float32(2.0**-29) < np.float32(2) * p[i] - np.float32(1)


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _mean_magnitude(weight_at: int, mask_at: int, size: int) -> float:
    weight, mask = carray(pointer(weight_at), size, np.float32), carray(pointer(mask_at), size, np.uint8)
    total, count = 0.0, 0
    for i in range(size):
        total += np.float64(abs(weight[i])) * mask[i]
        count += mask[i]
    return total / max(1, count)
