r"""How far apart source and target are on the path of given samples: the recursion of `docs/theory.md`, section 10.

All lengths and norms are upper bounds, rounded up; vectors are rows, so a matrix (d_in, d_out) maps x to x M.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from strongticket.construct.norms import frobenius_norm, row_norms, spectral_norm
from strongticket.construct.product import Pruned
from strongticket.models.attention import UNIT_ROUNDOFF, MergedAttention, attention_weights
from strongticket.models.transformer import FeedForward

# More than a thousand roundings to nearest, or the library's tanh, can take from sums and products of nonnegative
# numbers; and more than can be lost below the smallest float64.
_STRETCH, _TINY = 1 + 2.0**-42, 1e-300


@dataclass(frozen=True, slots=True)
class Place:
    """What is known about one place in both networks, per token."""

    centre: Tensor  # (..., T, d): the target's vectors on the samples, as float64 computes them
    radius: Tensor  # (..., T): how far the target's true vectors can be from the centre, for all inputs in the ball
    error: Tensor  # (..., T): how far the source's vectors can be from the target's on the same input

    def plus(self, other: "Place") -> "Place":
        """Add a residual."""
        centre = self.centre + other.centre
        rounding = UNIT_ROUNDOFF * row_norms(centre)
        return Place(centre, _up(self.radius + other.radius + rounding), _up(self.error + other.error))


class _Matrix:
    """A matrix and a bound on the rounding error of each entry."""

    def __init__(self, matrix: Tensor, rounding: Tensor) -> None:
        self.matrix, self.rounding = matrix.detach().double().cpu(), rounding.detach().double().cpu()

    @cached_property
    def slack(self) -> float:
        """How far away the true matrix can be."""
        return frobenius_norm(self.rounding)

    @cached_property
    def norm(self) -> float:
        return spectral_norm(self.matrix) + self.slack

    @cached_property
    def blur(self) -> float:
        """How far x M and x M y can be from what float64 computes in any order, for x and y of norm 1."""
        return self.slack + (sum(self.matrix.shape) + 2) * UNIT_ROUNDOFF * frobenius_norm(self.matrix)

    def lengths(self, rows: Tensor) -> Tensor:
        """Bound |x M| for each row x."""
        return _up(row_norms(rows @ self.matrix) + row_norms(rows) * self.blur)

    def keys(self, d: int) -> "_Matrix":
        """Return its first d rows, without that of a bias, transposed for the other side of a score."""
        return _Matrix(self.matrix[:d].T, self.rounding[:d].T)


class _Rounding(_Matrix):
    """The difference between a matrix and what float64 computes with it."""

    def __init__(self, of: _Matrix) -> None:
        super().__init__(torch.zeros_like(of.matrix), of.rounding)
        self.blur = of.blur


def through_network(place: Place, network: FeedForward, layers: Mapping[str, Pruned]) -> Place:
    """Follow the samples through a ReLU network, or through a linear map."""
    for i, (weight, bias, pruned) in enumerate(zip(network.weights, network.biases, layers.values(), strict=True)):
        if i:
            place = replace(place, centre=place.centre.relu())
        c, matrix = place.centre, weight.detach().double().cpu().T
        target, error = _Matrix(matrix, torch.zeros_like(matrix)), _Matrix(pruned.error.T, pruned.rounding.T)
        # Where inputs of both signs pass a ReLU, the error is [E+ E-] for [x+, -x-].
        both = len(error.matrix) == 2 * len(matrix)
        own = error.lengths(torch.cat([c.clamp(min=0), c.clamp(max=0)], dim=-1) if both else c)
        added = bias.detach().double().cpu() if bias is not None else torch.zeros_like(matrix[0])
        rounding = row_norms(c) * target.blur + sum(matrix.shape) * UNIT_ROUNDOFF * row_norms(added)
        place = Place(
            c @ matrix + added,
            _up(place.radius * target.norm + rounding),
            _up(place.error * target.norm + own + (place.radius + place.error) * error.norm),
        )
    return place


def through_norm(place: Place, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Place:
    r"""Follow the samples through a LayerNorm (`centred`) or an RMSNorm, which is the same in both networks.

    $y / \sqrt{\|y\|^2 / d + \epsilon}$ has slope at most $1 / \sqrt{\|y\|^2 / d + \epsilon}$ and length at most
    $\sqrt d$.
    """
    c, d = place.centre, place.centre.shape[-1]
    weight = weight.detach().double().cpu()
    added = bias.detach().double().cpu() if bias is not None else torch.zeros_like(weight)
    y = c - c.mean(dim=-1, keepdim=True) if centred else c
    size = _up(weight.abs().max())
    # Centring is a projection: it enlarges no distance, and rounds like a sum of d numbers.
    radius = place.radius + (d + 3) * UNIT_ROUNDOFF * row_norms(c)

    def moved(distance: Tensor, off: Tensor) -> Tensor:
        # This bound is from below, so the lengths get a margin and are not rounded up.
        shortest = (y.norm(dim=-1) * (1 - d * 2.0**-50) - off * _STRETCH).clamp(min=0)
        slope = 1 / (shortest.square() / d * (1 - 2.0**-50) + eps * (1 - 2.0**-50)).sqrt()
        return _up(size * torch.minimum(distance * slope, torch.full_like(distance, 2 * math.sqrt(d))))

    centre = y / (y.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + added
    rounding = (d + 16) * UNIT_ROUNDOFF * (size * math.sqrt(d) + row_norms(added))
    return Place(centre, _up(moved(radius, radius) + rounding), moved(place.error, radius + place.error))


def through_attention(
    place: Place, merged: MergedAttention, heads: Mapping[str, Pruned], attends: Tensor | None
) -> Place:
    """Follow the samples through an attention, head by head."""
    c = place.centre
    n_heads, d, d_out = merged.vo.shape
    q = c if merged.qk.shape[1] == d else torch.cat([c, torch.ones_like(c[..., :1])], dim=-1)
    bias = torch.zeros(d_out).double() if merged.output_bias is None else merged.output_bias.detach().double().cpu()
    bias_error = frobenius_norm(merged.bias_rounding)
    centre = bias.expand(*c.shape[:-1], d_out)
    radius = torch.zeros_like(place.radius) + bias_error + (n_heads + 2) * UNIT_ROUNDOFF * row_norms(bias)
    error = torch.zeros_like(place.error) + bias_error
    exact = torch.zeros_like(place.radius)
    for j in range(n_heads):
        qk, vo = _Matrix(merged.qk[j], merged.qk_rounding[j]), _Matrix(merged.vo[j], merged.vo_rounding[j])
        qk_error, vo_error = (_Matrix(p.error, p.rounding) for p in (heads[f"head.{j}.qk"], heads[f"head.{j}.vo"]))
        scores, values = q @ qk.matrix @ c.mT, c @ vo.matrix
        weights = attention_weights(scores.unsqueeze(-3), attends).squeeze(-3)  # masks expect an axis of heads
        outputs = weights @ values
        # The rounding of a softmax and a mean over T tokens, with exp accurate to eight units in the last place.
        roundings = (2 * scores.abs().amax(dim=(-2, -1)) + 2 * scores.shape[-1] + n_heads + 32) * UNIT_ROUNDOFF
        softmax = (roundings * row_norms(values).amax(dim=-1))[..., None]
        head = _Head(q, c, qk, vo, values, outputs, weights * (1 + roundings[..., None, None]))
        drift, moved = _moves(head, exact, place.radius, exact, _Rounding(qk), _Rounding(vo))
        _, apart = _moves(head, place.radius, place.error, drift, qk_error, vo_error)
        centre, radius, error = centre + outputs, _up(radius + moved + softmax), _up(error + apart)
    return Place(centre, radius, error)


class _Head(NamedTuple):
    """A head of the target on the samples, as float64 computes it."""

    q: Tensor  # (..., T, d or d + 1), with a 1 appended for the query bias
    c: Tensor  # (..., T, d)
    qk: _Matrix
    vo: _Matrix
    values: Tensor  # (..., T, d_out)
    outputs: Tensor  # (..., T, d_out)
    weights: Tensor  # (..., T, T), rounded upward


def _moves(
    head: _Head, radius: Tensor, error: Tensor, drift: Tensor, qk_error: _Matrix, vo_error: _Matrix
) -> tuple[Tensor, Tensor]:
    """Bound how far scores and outputs move if inputs are off by `error` and matrices by their own errors.

    They start within `radius` of the samples, where every score is within `drift` of the samples' score.
    """
    q, c, qk, vo, *_ = head
    d = c.shape[-1]
    keys, keys_error, off = qk.keys(d), qk_error.keys(d), radius + error
    # Scores move by the error of queries, of keys, and of the matrix itself. A softmax ignores what all scores of a
    # query have in common, so keys may be measured from any point; measured from their mean they are short.
    k = c - c.mean(dim=-2, keepdim=True)
    query_side = qk.lengths(q) + off * keys.norm
    key_side = keys.lengths(k) + radius * keys.norm
    own = (q @ qk_error.matrix @ k.mT).abs() + _outer(row_norms(q), row_norms(c) + row_norms(k)) * qk_error.blur
    own += _outer(off, keys_error.lengths(k)) + _outer(qk_error.lengths(q) + off * keys_error.norm, off)
    scores = _up(_outer(error, key_side) + _outer(query_side, error) + own)
    most = scores.amax(dim=-1)
    # No weight between the target's and the source's exceeds these; where exp overflows, none exceeds 1.
    above = head.weights * _up(torch.exp(2 * (drift + most)))[..., None]
    above = _up(above.nan_to_num(nan=1.0).clamp(max=1.0))
    # Outputs move with the weights, by the diameter or the variance of the values, and then with the values.
    spread = radius * vo.norm + row_norms(c) * vo.blur
    diameter = _distances(head.values, head.values).amax(dim=(-2, -1)) + 2 * spread.amax(dim=-1)
    around = _distances(head.outputs, head.values) + spread[..., None, :]
    by_variance = row_norms(above.sqrt() * scores) * row_norms(above.sqrt() * around)
    moved = torch.minimum(torch.tanh(most / 2) * diameter[..., None], by_variance)
    values = (error * vo.norm + vo_error.lengths(c) + off * vo_error.norm)[..., None, :]
    mean = (above * values).sum(dim=-1) * (1 + values.shape[-1] * UNIT_ROUNDOFF)
    return most, _up(moved + torch.minimum(values.amax(dim=-1), mean))


def _distances(points: Tensor, others: Tensor) -> Tensor:
    """Bound all distances, (..., T, d) twice -> (..., T, T); any underflow from scaling is far below their rounding."""
    size = others.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=_TINY)
    distances = torch.cdist(points / size, others / size, compute_mode="donot_use_mm_for_euclid_dist")
    return _up(distances * size * (1 + points.shape[-1] * UNIT_ROUNDOFF))


def _outer(queries: Tensor, keys: Tensor) -> Tensor:
    return queries[..., :, None] * keys[..., None, :]


def _up(x: Tensor) -> Tensor:
    return x * _STRETCH + _TINY
