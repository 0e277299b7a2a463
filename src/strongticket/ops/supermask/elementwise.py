"""Masked weights, their gradients, and what rules do to scores, in one pass over the numbers each.

Arguments that end in `_at` are addresses.
"""

import math
from functools import partial

import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from torch import Tensor

from strongticket.ops.addresses import floats, octets, pointer
from strongticket.ops.compiled import kernel
from strongticket.ops.philox.cpu import TILE, Key, words_of_tile
from strongticket.ops.philox.cpu import key_of as key_of
from strongticket.ops.supermask.reference import Soft


def score_gradient(
    gradient: Tensor,
    source: Tensor,
    scores: Tensor,
    soft: Soft,
    sigmoids: Tensor | None,
    sharpness: float,
    places: Tensor | None,
) -> Tensor:
    """Return the gradient of the scores, without torch's large intermediate results."""
    out, signed = torch.empty_like(scores), soft == "score"
    given, rest = (gradient.data_ptr(), source.data_ptr()), (out.data_ptr(), out.numel())
    if places is not None:
        _gradient_at_places(*given, scores.data_ptr(), places.data_ptr(), signed, *rest)
    elif sigmoids is not None:
        _sigmoid_gradient(*given, sigmoids.data_ptr(), sharpness, *rest)
    elif soft == "tanh":
        _tanh_gradient(*given, scores.data_ptr(), *rest)
    else:
        _score_gradient(*given, scores.data_ptr(), signed, *rest)
    return out


@kernel
def product(weight_at: int, factors_at: int, scale: float, out_at: int, size: int) -> None:
    """Multiply a weight by a number and by bytes; torch would first convert them to floats."""
    weight, out = floats(weight_at, size), floats(out_at, size)
    factors, times = octets(factors_at, size), np.float32(scale)
    for i in range(size):
        out[i] = times * weight[i] * np.float32(factors[i])


@kernel
def signed_product(weight_at: int, scores_at: int, mask_at: int, out_at: int, size: int) -> None:
    """Multiply a weight by the signs of its scores and by a mask."""
    weight, scores = floats(weight_at, size), floats(scores_at, size)
    mask, out = octets(mask_at, size), floats(out_at, size)
    for i in range(size):
        sign = np.float32(scores[i] > 0) - np.float32(scores[i] < 0)
        out[i] = sign * weight[i] * np.float32(mask[i])


@kernel
def _score_gradient(gradient_at: int, source_at: int, scores_at: int, signed: bool, out_at: int, size: int) -> None:
    gradient, source = floats(gradient_at, size), floats(source_at, size)
    scores, out = floats(scores_at, size), floats(out_at, size)
    for i in range(size):
        sign = np.float32(1) if signed else np.float32(scores[i] > 0) - np.float32(scores[i] < 0)
        out[i] = gradient[i] * source[i] * sign


@kernel
def _gradient_at_places(
    gradient_at: int, source_at: int, scores_at: int, places_at: int, signed: bool, out_at: int, size: int
) -> None:
    scores, out = floats(scores_at, size), floats(out_at, size)
    places = carray(pointer(places_at), size, np.int64)
    whole = places[size - 1] + 1 if size else 0
    gradient, source = floats(gradient_at, whole), floats(source_at, whole)
    for i in range(size):
        at = places[i]
        sign = np.float32(1) if signed else np.float32(scores[i] > 0) - np.float32(scores[i] < 0)
        out[i] = gradient[at] * source[at] * sign


@kernel
def at_least_half(scores_at: int, out_at: int, size: int) -> None:
    """Compare scores with 0.5; torch needs seven times as long."""
    scores, out = floats(scores_at, size), octets(out_at, size)
    for i in range(size):
        out[i] = scores[i] >= np.float32(0.5)


@kernel
def clamp_kept(scores_at: int, mask_at: int, size: int) -> None:
    """Clamp kept scores to [0, 1], and set the others to -1."""
    scores, mask = floats(scores_at, size), octets(mask_at, size)
    for i in range(size):
        s, kept = scores[i], np.float32(mask[i])
        s = np.float32(0) if s < 0 else s  # NaN stays
        s = np.float32(1) if s > 1 else s
        scores[i] = s * kept + (kept - np.float32(1))


@partial(kernel, fastmath={"contract"})  # as torch adds a multiple, rounding once if the CPU can
def pull_kept(gradient_at: int, scores_at: int, mask_at: int, l2: float, size: int) -> None:
    """Pull kept scores toward 0, and stop the others."""
    gradient, scores = floats(gradient_at, size), floats(scores_at, size)
    mask, times = octets(mask_at, size), np.float32(l2)
    for i in range(size):
        gradient[i] = (gradient[i] + times * scores[i]) * np.float32(mask[i])


@kernel
def add_slopes(gradient_at: int, p_at: int, factor: float, size: int) -> None:
    """Add the slopes of sigmoids times a number."""
    gradient, p = floats(gradient_at, size), floats(p_at, size)
    times = np.float32(factor)
    for i in range(size):
        gradient[i] += (np.float32(1) - p[i]) * (p[i] * times)


@kernel
def _sigmoid_gradient(gradient_at: int, source_at: int, p_at: int, factor: float, out_at: int, size: int) -> None:
    gradient, source = floats(gradient_at, size), floats(source_at, size)
    p, out = floats(p_at, size), floats(out_at, size)
    times = np.float32(factor)
    for i in range(size):
        out[i] = gradient[i] * source[i] * (np.float32(1) - p[i]) * p[i] * times


@partial(kernel, error_model="numpy")  # a check for zero would keep divisions out of vectors
def _tanh_gradient(gradient_at: int, source_at: int, scores_at: int, out_at: int, size: int) -> None:
    """Multiply by the slope of tanh, 4 e / (1 + e)^2 with e = exp(-2 |s|): a power of two and a Taylor polynomial."""
    gradient, source = floats(gradient_at, size), floats(source_at, size)
    scores, out = floats(scores_at, size), floats(out_at, size)
    tile = np.empty(TILE, np.float32)
    patterns = tile.view(np.int32)
    for start in range(0, size, TILE):
        g, v = gradient[start : start + TILE], source[start : start + TILE]
        s, o = scores[start : start + TILE], out[start : start + TILE]
        for i in range(s.size):
            x = np.float32(-2 / math.log(2)) * abs(s[i])
            x = np.float32(-126) if x < np.float32(-126) else x  # where float32 numbers begin; NaN stays
            whole = np.int32((x if x >= np.float32(-126) else np.float32(0)) - np.float32(0.5))
            t = (x - np.float32(whole)) * np.float32(math.log(2))
            e = np.float32(1 / 120) + np.float32(1 / 720) * t
            e = np.float32(1 / 6) + (np.float32(1 / 24) + e * t) * t
            tile[i] = np.float32(1) + (np.float32(1) + (np.float32(1 / 2) + e * t) * t) * t
            patterns[i] += whole << np.int32(23)
        for i in range(s.size):
            e, d = tile[i], np.float32(1) + tile[i]
            o[i] = g[i] * v[i] * (np.float32(4) * e / (d * d))


@kernel
def draw_mask(mask_at: int, chances_at: int, size: int, key: Key) -> None:
    """Draw the uniform numbers of a stream and compare them in one pass, never storing them."""
    mask, chances = octets(mask_at, size), floats(chances_at, size)
    words, planes = np.empty(TILE, np.uint32), np.empty((4, TILE // 4), np.uint32)
    for start in range(0, size, TILE):
        words_of_tile(words, planes, start // 4, key)
        kept, p = mask[start : start + TILE], chances[start : start + TILE]  # slices, which vectorise: a third the time
        for i in range(kept.size):
            # The number as `random_weights` rounds it, which a power of two does not change.
            odd = np.int32(np.int32(words[i] >> np.uint32(3) << np.uint32(1)) - np.int32(2**29 - 1))
            kept[i] = np.float32(odd) * np.float32(2.0**-29) < np.float32(2) * p[i] - np.float32(1)


@partial(kernel, fastmath={"reassoc"})
def mean_magnitude(weight_at: int, mask_at: int, size: int) -> float:
    """Return the mean magnitude of kept weights, added up in float64; 0 if there are none."""
    weight, mask = floats(weight_at, size), octets(mask_at, size)
    total, count = 0.0, 0
    for i in range(size):
        total += np.float64(abs(weight[i])) * mask[i]
        count += mask[i]
    return total / max(1, count)
