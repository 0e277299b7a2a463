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

from strongticket.ops.addresses import pointer
from strongticket.ops.array_types import I32, I64, U8, U32, Bools
from strongticket.ops.compiled import kernel, part

Keys = tuple[np.uint32, np.uint32]
Map = Callable[..., Iterable[Any]]

# Numbers of a group: addresses of scores, of levels, or the mask if there are none, and of the mask beside levels; how
# many, if they are of one tensor; whether the last refresh settled them. A plan: how many to drop, and two keys.
_GROUP = 5
# Size of the evenly spaced sample that estimates the threshold.
_SAMPLE = 1024
# With more scores than this between two keys, narrow them again.
_MANY = 1024
# Scores that justify starting a thread.
_CHUNK = 1 << 18
# Marks summed together; at most 127, as their sum is a byte.
_BLOCK = 64
# Scores that stay in the nearest cache while several pairs of keys are compared with them; whole blocks.
_STRIP = 4096

_U = np.uint32
_TWOS = np.uint64(0x0202020202020202)
_NAN_KEY, _INFINITY, _MAGNITUDE, _SIGN = _U(0xFFFFFFFF), _U(0x7F800000), _U(0x7FFFFFFF), _U(0x80000000)


def selection(
    scores: Sequence[Sequence[Tensor]],
    masks: Sequence[Sequence[Tensor]],
    signed: bool,
    levels: Sequence[Sequence[Tensor]] | None = None,
    coats: int = 1,
) -> Callable[[Sequence[Sequence[int]]], None]:
    """Prepare a refresh: a function that updates the masks from the current scores.

    Its argument is how many of each group's scores to drop, for each coat.

    Args:
        scores: contiguous float32 tensors, grouped; a group's scores are ranked together, in this order.
        masks: contiguous bool tensors like the scores, written in place: the last coat's.
        signed: rank by the score, not by its absolute value.
        levels: contiguous uint8 tensors like the scores, written in place: how many coats keep each.
        coats: how many masks there are, each dropping more.
    """
    # NumPy views see what the optimizer writes.
    bits = [[piece for s in group for piece in _pieces(s, np.uint32)] for group in scores]
    kept = [[piece for m in group for piece in _pieces(m, np.uint8)] for group in masks]
    counts = [[piece for m in group for piece in _pieces(m, np.uint8)] for group in levels or ()]
    groups = np.zeros((len(bits), _GROUP), np.int64)
    plans = np.ones((len(bits), coats, 3), np.int64)
    plans[:, :, 2] = 0  # below the other key: no guess
    for i, row in enumerate(groups):
        if len(bits[i]) == 1:
            addresses = (bits[i][0], counts[i][0], kept[i][0]) if counts else (bits[i][0], kept[i][0])
            row[: len(addresses)] = [numbers.ctypes.data for numbers in addresses]
            row[3] = bits[i][0].size

    def refresh(dropped: Sequence[Sequence[int]]) -> None:
        plans[:, :, 0] = dropped
        if _settle(groups.ctypes.data, plans.ctypes.data, len(bits), coats, signed) == len(bits):
            return  # nearly every refresh of a search
        threads = min(torch.get_num_threads(), max(map(len, bits), default=0))
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            run = pool.map if pool else map
            for i in (~groups[:, 4].astype(bool)).nonzero()[0]:
                for coat, (rank, low, high) in enumerate(plans[i].tolist()):
                    guess = (_U(low), _U(high)) if low <= high else None
                    plans[i, coat, 1:] = _refresh(bits[i], kept[i], rank, guess, signed, run) or (1, 0)
                    for count, mask in zip(counts[i], kept[i], strict=True) if counts else ():
                        np.add(count, mask, out=count) if coat else np.copyto(count, mask)

    return refresh


def _pieces(tensor: Tensor, dtype: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    flat = tensor.detach().numpy().reshape(-1).view(dtype)
    return [flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK)]


def _refresh(bits: list[U32], kept: list[U8], rank: int, guess: Keys | None, signed: bool, run: Map) -> Keys | None:
    """Drop the scores below position `rank` in sorted order; guess two keys around the next threshold."""
    total = sum(map(len, bits))
    if rank == total:  # keep nothing
        for piece in kept:
            piece[:] = 0
        return None
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
    here = int(threshold)
    moved = abs(here - sum(map(int, guess)) // 2) if guess else 0
    low, high = _next_guess(int(keys[0]), int(keys[1]), sum(near), total, here, moved)
    return _U(low), _U(high)


@kernel
def _next_guess(low: int, high: int, between: int, total: int, here: int, moved: int) -> tuple[int, int]:
    """Guess two keys around the next threshold, from those around this one and the number of scores between them.

    They enclose a quarter as many scores as are ranked at once, at most a 32nd, or are far enough apart for the
    threshold to move as it did.
    """
    margin = max((high - low) * min(_MANY, total // 8) // (8 * between), 2 * moved) + 1
    return max(0, here - margin), min(int(_NAN_KEY), here + margin)


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


@kernel
def _keys(bits: U32, signed: bool) -> U32:
    keys = np.empty_like(bits)
    for i in range(bits.size):
        keys[i] = _key(bits[i], signed)
    return keys


@kernel
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


@kernel
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


@kernel
def _chosen(keys: U32, place: int) -> tuple[np.uint32, Bools]:
    """Return the key at a position in sorted order, and which are kept; of equal ones the first are dropped."""
    threshold = np.partition(keys, place)[place]
    chosen, dropped = keys > threshold, place - np.sum(keys < threshold)
    for i in range(keys.size):
        if keys[i] == threshold:
            chosen[i] = dropped <= 0
            dropped -= 1
    return threshold, chosen


@part
def _levels(levels: U8, bits: U32, signed: bool, plan: I64, counts: I64, places: I32) -> None:
    """Count for each score the pairs of keys that it is above.

    `counts` gets for each pair how many scores are not below it, above it, and between, whose `places` are collected.
    """
    for start in range(0, levels.size, _STRIP):
        codes, words = levels[start : start + _STRIP], bits[start : start + _STRIP]
        codes[:] = 0
        for coat in range(len(plan)):
            low, high = _U(plan[coat, 1]), _U(plan[coat, 2])
            for i in range(codes.size):
                key = _key(words[i], signed)
                codes[i] += np.uint8(key >= low) + np.uint8(key > high)  # odd between two keys
        for coat in range(len(plan)):
            between, above = np.uint8(2 * coat + 1), np.uint8(2 * coat + 2)
            whole = codes.size // _BLOCK * _BLOCK
            for block in range(0, whole, _BLOCK):
                ones, twos = np.uint8(0), np.uint8(0)
                for i in range(_BLOCK):
                    # Bytes, so that a CPU adds many at once.
                    ones = np.uint8(ones + np.uint8(codes[block + i] >= between))
                    twos = np.uint8(twos + np.uint8(codes[block + i] >= above))
                counts[coat, 0] += ones
                counts[coat, 1] += twos
                if ones != twos:
                    _append(places[coat], counts[coat], codes, between, block, block + _BLOCK, start)
            for i in range(whole, codes.size):
                counts[coat, 0] += codes[i] >= between
                counts[coat, 1] += codes[i] >= above
            _append(places[coat], counts[coat], codes, between, whole, codes.size, start)
        for i in range(codes.size):
            codes[i] = codes[i] >> np.uint8(1)


@njit(inline="always")
def _append(places: I32, counts: I64, codes: U8, code: np.uint8, first: int, stop: int, start: int) -> None:
    for i in range(first, stop):
        if codes[i] == code:
            places[counts[2]] = start + i
            counts[2] += 1


@kernel
def _settle(groups_at: int, plans_at: int, groups: int, coats: int, signed: bool) -> int:
    """Make the masks of groups whose thresholds all lie between their keys; return how many, and guess new keys."""
    rows, settled = carray(pointer(groups_at), (groups, _GROUP), np.int64), 0
    plans = carray(pointer(plans_at), (groups, coats, 3), np.int64)
    for group in range(groups):
        row, plan, size = rows[group], plans[group], rows[group, 3]
        ready, last = size > 0, np.int64(-1)  # not of several pieces
        for coat in range(coats):
            ready = ready and last < plan[coat, 1] <= plan[coat, 2]
            last = plan[coat, 2]
        row[4] = ready
        if not ready:
            continue
        bits, levels = carray(pointer(row[0]), size, np.uint32), carray(pointer(row[1]), size, np.uint8)
        counts, places = np.zeros((coats, 3), np.int64), np.empty((coats, size), np.int32)
        _levels(levels, bits, signed, plan, counts, places)
        for coat in range(coats):
            ready = ready and size - counts[coat, 0] <= plan[coat, 0] < size - counts[coat, 1]
        row[4] = ready
        if not ready:
            continue
        for coat in range(coats):
            rank, low, high = plan[coat]
            near = places[coat, : counts[coat, 2]]
            threshold, chosen = _chosen(_keys(bits[near], signed), rank - (size - counts[coat, 0]))
            for i in range(near.size):
                levels[near[i]] = coat + chosen[i]
            here = int(threshold)
            moved = abs(here - (low + high) // 2)
            plan[coat, 1], plan[coat, 2] = _next_guess(low, high, near.size, size, here, moved)
        if row[2]:
            mask = carray(pointer(row[2]), size, np.uint8)
            for i in range(size):
                mask[i] = levels[i] == coats
        settled += 1
    return settled
