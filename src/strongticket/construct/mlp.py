r"""How far apart source and target are after an MLP on given samples: section 10 of `docs/theory.md`.

At a sample the activations' slopes are known, and in a small ball around it they hardly change. So distances grow by
the MLP's Jacobian there, not by the product of the norms of its maps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from strongticket.construct.norms import frobenius_norm, largest_singular_values, row_norms
from strongticket.construct.places import Map, Matrix, Place, up
from strongticket.models.attention import UNIT_ROUNDOFF

# The slope of each activation is between these.
FLATTEST, STEEPEST = -0.13, 1.13
# More than torch's slopes of activations round.
_SLOPE_ROUNDING = 2.0**-40
# How many numbers Jacobians are computed from at a time.
_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of single numbers, 0 at 0.

    Args:
        function: the activation; float64 computes it within 16 roundings of its argument.
        bend: a bound on its second derivative; infinite for a ReLU.
    """

    function: Callable[[Tensor], Tensor]
    bend: float

    def slopes(self, h: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
        """Return slopes at h, and how much slopes within `reach` of it can differ from them."""
        if math.isinf(self.bend):  # a ReLU: one of both, or anything between
            sure = h.abs() > reach
            return torch.where(sure, (h > 0).to(h), 0.5), 0.5 * (~sure).to(h)
        with torch.enable_grad():
            at = h.detach().requires_grad_()
            (slopes,) = torch.autograd.grad(self.function(at).sum(), at)
        most = torch.maximum(STEEPEST - slopes, slopes - FLATTEST)
        return slopes, torch.minimum(reach * self.bend, most) + _SLOPE_ROUNDING


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _tanh_gelu(x: Tensor) -> Tensor:
    return gelu(x, approximate="tanh")


_GELU, _TANH_GELU, _SILU = Activation(gelu, 0.8), Activation(_tanh_gelu, 0.81), Activation(silu, 0.5)
# By their names in configurations. "gelu_fast" has a constant of ten digits only, so it is another function.
ACTIVATIONS = {
    "relu": Activation(relu, math.inf),
    **dict.fromkeys(("gelu", "gelu_python"), _GELU),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), _TANH_GELU),
    "quick_gelu": Activation(_quick_gelu, 0.86),
    **dict.fromkeys(("silu", "swish"), _SILU),
}


def through_mlp(place: Place, activation: Activation, first: Map, second: Map, times: Map | None = None) -> Place:
    """Follow the samples through two linear maps with an activation between them, or through a gated MLP.

    Args:
        place: the inputs.
        activation: the activation behind `first`.
        first: the first map, or the gate.
        second: the last map.
        times: in a gated MLP, the map whose outputs are multiplied by the activated ones.
    """
    c, off = place.centre, place.radius + place.error
    before = _Before(c, off, first)
    a = activation.function(before.centre)
    slopes, more = activation.slopes(before.centre, before.reach)
    inner, paths = a, [_Path(before, slopes, more)]
    # Within 16 roundings per entry, and one more for the product.
    blur = 16 * UNIT_ROUNDOFF * before.centre.abs()
    if times is not None:
        other = _Before(c, off, times)
        inner, u = a * other.centre, other.centre.abs() + other.reach
        paths = [
            _Path(before, slopes * other.centre, more * u + slopes.abs() * other.reach),
            _Path(other, a, STEEPEST * before.reach + blur),
        ]
        blur = 2 * blur * u
    slope = _slope(paths, second)
    centre, rounding = second.at(inner)
    lost = sum((path.most * path.before.rounding for path in paths), row_norms(blur))
    own = sum((path.most * path.before.own for path in paths), torch.zeros_like(off))
    moved = lost + own + sum((path.most * path.before.map.norm * off for path in paths), torch.zeros_like(off))
    return Place(
        centre,
        up(slope * place.radius + lost * second.norm + rounding),
        up(slope * place.error + own * second.norm + second.own_error(inner, moved)),
    )


class _Before:
    """The outputs of a map before an activation or a product."""

    def __init__(self, c: Tensor, off: Tensor, map: Map) -> None:
        self.map = map
        self.centre, self.rounding = map.at(c)
        self.own = map.own_error(c, off)
        sizes = row_norms(map.weight.matrix.T) + map.weight.slack + map.added_norm
        # How far each of them can be from the centre, in either network.
        self.reach = up(off[..., None] * sizes + (self.rounding + self.own)[..., None])


class _Path:
    """One of the ways from the inputs of an MLP to those of its last map, with its slopes."""

    def __init__(self, before: _Before, slopes: Tensor, more: Tensor) -> None:
        self.before, self.slopes = before, slopes
        self.largest = slopes.abs().amax(dim=-1)
        self.more = more.amax(dim=-1)
        self.most = up((slopes.abs() + more).amax(dim=-1))


def _slope(paths: list[_Path], second: Map) -> Tensor:
    """Bound how many times larger the MLP makes distances around each sample."""
    more = by_norms = torch.zeros_like(paths[0].most)
    for path in paths:
        map = path.before.map
        # In the source, what is added to the target's maps is left out of the Jacobian.
        left_out = map.added_norm * second.weight.norm + map.norm * second.added_norm
        more = more + path.more * map.norm * second.norm + path.largest * left_out
        by_norms = by_norms + path.most * map.norm * second.norm
    # Jacobians take most of the time, and say nothing where slopes can change by more than themselves.
    useful, slope = ~(more >= by_norms), by_norms.clone()
    if useful.any():
        chosen = [(path.before.map.weight, path.slopes[useful]) for path in paths]
        slope[useful] = torch.minimum(by_norms[useful], _jacobian_norms(chosen, second.weight) + more[useful])
    return up(slope)


def _jacobian_norms(paths: list[tuple[Matrix, Tensor]], second: Matrix) -> Tensor:
    """Bound the norm of the sum of W diag(slopes) V over all paths W, for each row of slopes (tokens, units)."""
    step, tokens = max(1, _AT_ONCE // paths[0][0].matrix.numel()), len(paths[0][1])
    found = torch.cat(
        [
            largest_singular_values(
                reduce(torch.add, (weight.matrix * slopes[i : i + step, None] for weight, slopes in paths))
                @ second.matrix
            )
            for i in range(0, tokens, step)
        ]
    )
    for weight, slopes in paths:
        terms = (len(second.matrix) + 8) * UNIT_ROUNDOFF * frobenius_norm(weight.matrix) * frobenius_norm(second.matrix)
        slack = weight.slack * second.norm + weight.norm * second.slack
        found = found + slopes.abs().amax(dim=-1) * (terms + slack)
    return found
