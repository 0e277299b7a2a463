r"""How far apart source and target are on the path of given samples: the recursion of `docs/theory.md`, section 10.

All lengths and norms are upper bounds, rounded up; vectors are rows, so a matrix (d_in, d_out) maps x to x M.
"""

import math
from collections.abc import Mapping, Sequence
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
        return Place(centre, up(self.radius + other.radius + rounding), up(self.error + other.error))


class Matrix:
    """A matrix and a bound on the rounding error of each entry."""

    def __init__(self, matrix: Tensor, rounding: Tensor) -> None:
        self.matrix, self.rounding = matrix.detach().double().cpu(), rounding.detach().double().cpu()

    @cached_property
    def slack(self) -> float:
        """How far away the true matrix can be."""
        return frobenius_norm(self.rounding)

    @cached_property
    def norm(self) -> float:
        """Bound how many times longer it makes a vector."""
        return spectral_norm(self.matrix) + self.slack

    @cached_property
    def blur(self) -> float:
        """How far x M and x M y can be from what float64 computes in any order, for x and y of norm 1."""
        return self.slack + (sum(self.matrix.shape) + 2) * UNIT_ROUNDOFF * frobenius_norm(self.matrix)

    def lengths(self, rows: Tensor) -> Tensor:
        """Bound |x M| for each row x."""
        return up(row_norms(rows @ self.matrix) + row_norms(rows) * self.blur)

    def columns(self, some: slice) -> "Matrix":
        """Return the map to some of its outputs."""
        return Matrix(self.matrix[:, some], self.rounding[:, some])

    def keys(self, d: int) -> "Matrix":
        """Return its first d rows, without that of a bias, transposed for the other side of a score."""
        return Matrix(self.matrix[:d].T, self.rounding[:d].T)


class _Rounding(Matrix):
    """The difference between a matrix and what float64 computes with it."""

    def __init__(self, of: Matrix) -> None:
        super().__init__(torch.zeros_like(of.matrix), of.rounding)
        self.blur = of.blur


@dataclass(frozen=True, slots=True)
class Map:
    """A linear map with its bias.

    Args:
        weight: (d_in, d_out).
        bias: (d_out,).
        error: the source's error on it, or None if the source has the map itself. With twice as many rows it is
            [E+ E-] for [x+, -x-], where inputs of both signs pass a ReLU.
        added: `weight` plus this is the map, which is then the source's own.
    """

    weight: Matrix
    bias: Tensor
    error: Matrix | None = None
    added: Matrix | None = None

    @property
    def added_norm(self) -> float:
        """Bound the norm of what is added."""
        return self.added.norm if self.added is not None else 0.0

    @property
    def norm(self) -> float:
        """Bound how many times larger it makes a distance."""
        return self.weight.norm + self.added_norm

    def source(self) -> "Map":
        """Return the source's own map."""
        return Map(self.weight, self.bias, added=self.error)

    def columns(self, some: slice) -> "Map":
        """Return the map to some of its outputs."""
        error, added = (None if of is None else of.columns(some) for of in (self.error, self.added))
        return Map(self.weight.columns(some), self.bias[some], error, added)

    def at(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs as float64 computes them, and how far away the true ones can be."""
        out, blur = c @ self.weight.matrix, self.weight.blur
        if self.added is not None:
            out, blur = out + _signed(c, self.added) @ self.added.matrix, blur + self.added.blur
        terms = sum(self.weight.matrix.shape) * UNIT_ROUNDOFF
        rounding = row_norms(c) * blur + terms * row_norms(self.bias)
        if self.added is not None:
            rounding = rounding + UNIT_ROUNDOFF * row_norms(out)
        return out + self.bias, rounding

    def own_error(self, c: Tensor, off: Tensor) -> Tensor:
        """Bound the source's error on all inputs within `off` of c."""
        if self.error is None:
            return torch.zeros_like(off)
        return self.error.lengths(_signed(c, self.error)) + off * self.error.norm


def _signed(c: Tensor, matrix: Matrix) -> Tensor:
    both = len(matrix.matrix) == 2 * c.shape[-1]
    return torch.cat([c.clamp(min=0), c.clamp(max=0)], dim=-1) if both else c


def through_linear(place: Place, map: Map) -> Place:
    """Follow the samples through a linear map."""
    centre, rounding = map.at(place.centre)
    own = map.own_error(place.centre, place.radius + place.error)
    return Place(centre, up(place.radius * map.norm + rounding), up(place.error * map.norm + own))


def through_network(place: Place, network: FeedForward, layers: Mapping[str, Pruned]) -> Place:
    """Follow the samples through a ReLU network, or through a linear map."""
    for i, (weight, bias, pruned) in enumerate(zip(network.weights, network.biases, layers.values(), strict=True)):
        if i:
            place = replace(place, centre=place.centre.relu())
        place = through_linear(place, map_of(weight, bias, pruned))
    return place


def map_of(weight: Tensor, bias: Tensor | None, pruned: Pruned | None) -> Map:
    """Take a linear map (d_out, d_in) and the source's error on it."""
    matrix = weight.detach().double().cpu().T
    added = bias.detach().double().cpu() if bias is not None else torch.zeros_like(matrix[0])
    error = None if pruned is None else Matrix(pruned.error.T, pruned.rounding.T)
    return Map(Matrix(matrix, torch.zeros_like(matrix)), added, error)


def through_norm(place: Place, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool) -> Place:
    r"""Follow the samples through a LayerNorm (`centred`) or an RMSNorm, which is the same in both networks.

    $y / \sqrt{\|y\|^2 / d + \epsilon}$ has slope at most $1 / \sqrt{\|y\|^2 / d + \epsilon}$ and length at most
    $\sqrt d$.
    """
    c, d = place.centre, place.centre.shape[-1]
    weight = weight.detach().double().cpu()
    added = bias.detach().double().cpu() if bias is not None else torch.zeros_like(weight)
    y = c - c.mean(dim=-1, keepdim=True) if centred else c
    size = up(weight.abs().max())
    # Centring is a projection: it enlarges no distance, and rounds like a sum of d numbers.
    radius = place.radius + (d + 3) * UNIT_ROUNDOFF * row_norms(c)

    def moved(distance: Tensor, off: Tensor) -> Tensor:
        # This bound is from below, so the lengths get a margin and are not rounded up.
        shortest = (y.norm(dim=-1) * (1 - d * 2.0**-50) - off * _STRETCH).clamp(min=0)
        slope = 1 / (shortest.square() / d * (1 - 2.0**-50) + eps * (1 - 2.0**-50)).sqrt()
        return up(size * torch.minimum(distance * slope, torch.full_like(distance, 2 * math.sqrt(d))))

    square = y.square().mean(dim=-1, keepdim=True)
    # Overflown, it would turn long vectors into zeros.
    square = square.masked_fill(square.isinf(), math.nan)
    centre = y / (square + eps).sqrt() * weight + added
    rounding = (d + 16) * UNIT_ROUNDOFF * (size * math.sqrt(d) + row_norms(added))
    return Place(centre, up(moved(radius, radius) + rounding), moved(place.error, radius + place.error))


def through_attention(
    place: Place,
    merged: MergedAttention,
    heads: Mapping[str, Pruned],
    attends: Tensor | None,
    memory: Place | None = None,
    added: Tensor | None = None,
) -> Place:
    """Follow the samples through an attention, head by head.

    Args:
        place: the inputs, which make queries.
        merged: the target's heads.
        heads: the source's errors on them.
        attends: whether token i attends to token j, (..., T, T); None for all.
        memory: what keys and values are made of, if it is not the inputs.
        added: what both networks add to the scores, (H, T, T).
    """
    memory = place if memory is None else memory
    c, keys = place.centre, memory.centre
    n_heads, d, d_out = merged.vo.shape
    q = c if merged.qk.shape[1] == d else torch.cat([c, torch.ones_like(c[..., :1])], dim=-1)
    bias = torch.zeros(d_out).double() if merged.output_bias is None else merged.output_bias.detach().double().cpu()
    bias_error = frobenius_norm(merged.bias_rounding)
    centre = bias.expand(*c.shape[:-1], d_out)
    radius = torch.zeros_like(place.radius) + bias_error + (n_heads + 2) * UNIT_ROUNDOFF * row_norms(bias)
    error = torch.zeros_like(place.error) + bias_error
    exact, radii = (torch.zeros_like(place.radius), torch.zeros_like(memory.radius)), (place.radius, memory.radius)
    for j in range(n_heads):
        qk, vo = Matrix(merged.qk[j], merged.qk_rounding[j]), Matrix(merged.vo[j], merged.vo_rounding[j])
        qk_error, vo_error = (Matrix(p.error, p.rounding) for p in (heads[f"head.{j}.qk"], heads[f"head.{j}.vo"]))
        scores, values = q @ qk.matrix @ keys.mT, keys @ vo.matrix
        weights, roundings = _softmax(scores, attends, None if added is None else added[j], n_heads)
        outputs = weights @ values
        softmax = (roundings * row_norms(values).amax(dim=-1))[..., None]
        head = _Head(q, keys, qk, vo, values, outputs, weights * (1 + roundings[..., None, None]))
        drift, moved = _moves(head, exact, radii, exact[0], _Rounding(qk), _Rounding(vo))
        _, apart = _moves(head, radii, (place.error, memory.error), drift, qk_error, vo_error)
        centre, radius, error = centre + outputs, up(radius + moved + softmax), up(error + apart)
    return Place(centre, radius, error)


def through_head(
    query: Place, key: Place, value: Place, scale: float, attends: Tensor | None, added: Tensor | None = None
) -> Place:
    """Follow the samples through the softmax of one head, from its queries, keys and values to its outputs."""
    q, k, v = query.centre, key.centre, value.centre
    weights, roundings = _softmax(q @ k.mT * scale, attends, added, 1)
    outputs = weights @ v
    above = weights * (1 + roundings[..., None, None])
    # As in `_moves`, keys are measured from their mean.
    short, size = row_norms(k - k.mean(dim=-2, keepdim=True)), abs(scale)
    blur = (2 * q.shape[-1] + 8) * UNIT_ROUNDOFF * _outer(row_norms(q), row_norms(k) + short)
    exact, sure = torch.zeros_like(query.radius), torch.zeros_like(value.radius)
    drifts = up(size * (_outer(query.radius, short) + _outer(row_norms(q) + query.radius, key.radius) + blur))
    drift, moved = _mean_moves(above, v, outputs, drifts, exact, sure, value.radius)
    longest = row_norms(q) + query.radius + query.error
    moves = up(size * (_outer(query.error, short + key.radius) + _outer(longest, key.error)))
    _, apart = _mean_moves(above, v, outputs, moves, drift, value.radius, value.error)
    rounding = (roundings * row_norms(v).amax(dim=-1))[..., None]
    return Place(outputs, up(moved + rounding), apart)


def rotated(place: Place, cos: Tensor, sin: Tensor) -> Place:
    """Rotate the first half of each vector against the second, by angles that depend on the token."""
    first, second = place.centre.chunk(2, dim=-1)
    centre = place.centre * cos + torch.cat([-second, first], dim=-1) * sin
    # Tables of rounded numbers do not quite preserve lengths.
    size = up((cos.square() + sin.square()).max().sqrt())
    rounding = 4 * UNIT_ROUNDOFF * size * row_norms(place.centre)
    return Place(centre, up(size * place.radius + rounding), up(size * place.error))


def side_by_side(places: Sequence[Place]) -> Place:
    """Concatenate vectors."""
    radius, error = (torch.stack([getattr(p, name) for p in places], dim=-1) for name in ("radius", "error"))
    return Place(torch.cat([p.centre for p in places], dim=-1), row_norms(radius), row_norms(error))


def _softmax(scores: Tensor, attends: Tensor | None, added: Tensor | None, n_heads: int) -> tuple[Tensor, Tensor]:
    """Return a head's weights, and what they round."""
    added_up = scores if added is None else scores + added
    weights = attention_weights(added_up.unsqueeze(-3), attends).squeeze(-3)  # masks expect an axis of heads
    roundings = _softmax_roundings(added_up, n_heads)
    # A sum rounds once more; a softmax turns that into a share of each weight.
    return weights, roundings if added is None else roundings + UNIT_ROUNDOFF * added_up.abs().amax(dim=(-2, -1))


def _softmax_roundings(scores: Tensor, n_heads: int) -> Tensor:
    """Bound what a softmax and a mean over T tokens round, with exp accurate to eight units in the last place."""
    return (2 * scores.abs().amax(dim=(-2, -1)) + 2 * scores.shape[-1] + n_heads + 32) * UNIT_ROUNDOFF


class _Head(NamedTuple):
    """A head of the target on the samples, as float64 computes it."""

    q: Tensor  # (..., T, d or d + 1), with a 1 appended for the query bias
    c: Tensor  # (..., T, d): what keys and values are made of
    qk: Matrix
    vo: Matrix
    values: Tensor  # (..., T, d_out)
    outputs: Tensor  # (..., T, d_out)
    weights: Tensor  # (..., T, T), rounded upward


def _moves(
    head: _Head,
    radii: tuple[Tensor, Tensor],
    errors: tuple[Tensor, Tensor],
    drift: Tensor,
    qk_error: Matrix,
    vo_error: Matrix,
) -> tuple[Tensor, Tensor]:
    """Bound how far scores and outputs move if inputs are off by `errors` and matrices by their own errors.

    They start within `radii` of the samples, where every score is within `drift` of the samples' score. Both are given
    for what makes queries, and for what makes keys and values.
    """
    q, c, qk, vo, *_ = head
    d, (query_radius, radius), (query_error, error) = c.shape[-1], radii, errors
    keys, keys_error, query_off, off = qk.keys(d), qk_error.keys(d), query_radius + query_error, radius + error
    # Scores move by the error of queries, of keys, and of the matrix itself. A softmax ignores what all scores of a
    # query have in common, so keys may be measured from any point; measured from their mean they are short.
    k = c - c.mean(dim=-2, keepdim=True)
    query_side = qk.lengths(q) + query_off * keys.norm
    key_side = keys.lengths(k) + radius * keys.norm
    own = (q @ qk_error.matrix @ k.mT).abs() + _outer(row_norms(q), row_norms(c) + row_norms(k)) * qk_error.blur
    own += _outer(query_off, keys_error.lengths(k)) + _outer(qk_error.lengths(q) + query_off * keys_error.norm, off)
    scores = up(_outer(query_error, key_side) + _outer(query_side, error) + own)
    # Outputs move with the weights, by the diameter or the variance of the values, and then with the values.
    spread = radius * vo.norm + row_norms(c) * vo.blur
    values = error * vo.norm + vo_error.lengths(c) + off * vo_error.norm
    return _mean_moves(head.weights, head.values, head.outputs, scores, drift, spread, values)


def _mean_moves(
    weights: Tensor, values: Tensor, outputs: Tensor, scores: Tensor, drift: Tensor, spread: Tensor, carried: Tensor
) -> tuple[Tensor, Tensor]:
    """Bound how far scores (the most) and a head's outputs move: the lemma of section 10.

    Args:
        weights: those on the samples, rounded upward.
        values: on the samples.
        outputs: their weighted means.
        scores: how far each score moves.
        drift: how far each query's scores can be from the samples' before they move.
        spread: the same for each token's values.
        carried: how far each token's values move.
    """
    most = scores.amax(dim=-1)
    # No weight between the target's and the source's exceeds these; where exp overflows, none exceeds 1.
    above = weights * up(torch.exp(2 * (drift + most)))[..., None]
    above = up(above.nan_to_num(nan=1.0).clamp(max=1.0))
    diameter = _distances(values, values).amax(dim=(-2, -1)) + 2 * spread.amax(dim=-1)
    around = _distances(outputs, values) + spread[..., None, :]
    by_variance = row_norms(above.sqrt() * scores) * row_norms(above.sqrt() * around)
    moved = torch.minimum(torch.tanh(most / 2) * diameter[..., None], by_variance)
    each = carried[..., None, :]
    mean = (above * each).sum(dim=-1) * (1 + each.shape[-1] * UNIT_ROUNDOFF)
    return most, up(moved + torch.minimum(each.amax(dim=-1), mean))


def _distances(points: Tensor, others: Tensor) -> Tensor:
    """Bound all distances, (..., T, d) twice -> (..., T, T); any underflow from scaling is far below their rounding."""
    size = others.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=_TINY)
    distances = torch.cdist(points / size, others / size, compute_mode="donot_use_mm_for_euclid_dist")
    return up(distances * size * (1 + points.shape[-1] * UNIT_ROUNDOFF))


def _outer(queries: Tensor, keys: Tensor) -> Tensor:
    return queries[..., :, None] * keys[..., None, :]


def up(x: Tensor) -> Tensor:
    """Round up what sums and products of nonnegative numbers give."""
    return x * _STRETCH + _TINY
