"""What the certificate for samples says about activations, MLPs and heads: against other code, and never beaten."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from strongticket.construct.mlp import ACTIVATIONS, FLATTEST, STEEPEST, through_mlp
from strongticket.construct.norms import largest_singular_values
from strongticket.construct.places import Map, Matrix, Place, map_of, rotated, side_by_side, through_head
from strongticket.construct.product import Pruned

LONG = {
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_new": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3))),
    "quick_gelu": lambda x: x / (1 + mpmath.exp(-mpmath.mpf(1.702) * x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
}


def draw(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def off_by(weight: Tensor, scale: float, seed: int, *, signs: bool) -> Pruned:
    error = draw(len(weight), weight.shape[1] * (1 + signs), seed=seed, scale=scale)
    return Pruned((), error, torch.zeros_like(error), [])


@pytest.mark.parametrize("name", LONG)
def test_activations_round_slope_and_bend_as_said(name: str) -> None:
    """A fine grid where they bend, and numbers of all sizes; torch's own code against numbers of 40 digits."""
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.logspace(-8, 4, 60), -torch.logspace(-8, 4, 60)]).double()
    activation = ACTIVATIONS[name]
    with mpmath.workdps(40):
        long = [LONG[name](mpmath.mpf(float(each))) for each in x]
        off = [abs(mpmath.mpf(float(y)) - z) for y, z in zip(activation.function(x), long, strict=True)]
        assert all(gap <= 16 * 2.0**-53 * abs(float(at)) + 1e-300 for gap, at in zip(off, x, strict=True))
    slopes, more = activation.slopes(x, torch.zeros_like(x))
    assert (slopes - more).min() >= FLATTEST
    assert (slopes + more).max() <= STEEPEST
    if name == "relu":
        return
    with mpmath.workdps(40):
        exact = [mpmath.diff(LONG[name], mpmath.mpf(float(each))) for each in x[::10]]
    assert max(abs(float(s) - float(e)) for s, e in zip(slopes[::10], exact, strict=True)) < 1e-12
    steps = slopes[:4001].diff() / x[:4001].diff()
    assert 0.98 * activation.bend < steps.abs().max() <= activation.bend
    assert steps[[0, -1]].abs().max() < 1e-4  # and nothing comes beyond the grid


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("reach", [1e-6, 0.3])
def test_slopes_in_an_interval(name: str, reach: float) -> None:
    h = torch.linspace(-4, 4, 81).double()
    middle, more = ACTIVATIONS[name].slopes(h, torch.full_like(h, reach))
    for fraction in torch.linspace(-1, 1, 21).double():
        moved = ACTIVATIONS[name].function(h + fraction * reach) - ACTIVATIONS[name].function(h)
        assert ((moved - middle * fraction * reach).abs() <= more * abs(fraction) * reach + 1e-14).all()


def value(x: Tensor, name: str, maps: list[Map], errors: list[Pruned | None]) -> Tensor:
    """Run an MLP, plain or gated, with errors or without."""

    def linear(y: Tensor, map: Map, error: Pruned | None) -> Tensor:
        out = y @ map.weight.matrix + map.bias
        if error is None:
            return out
        both = torch.cat([y.clamp(min=0), y.clamp(max=0)], dim=-1)
        return out + (both if error.error.shape[1] == 2 * y.shape[-1] else y) @ error.error.T

    a = ACTIVATIONS[name].function(linear(x, maps[0], errors[0]))
    if len(maps) == 3:
        a = a * linear(x, maps[1], errors[1])
    return linear(a, maps[-1], errors[-1])


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("distance", [0.0, 1e-4, 0.1, 3.0])
def test_mlps_stay_inside_their_bounds(name: str, gated: bool, signs: bool, distance: float) -> None:
    shapes = [(9, 6), (9, 6), (5, 9)] if gated else [(9, 6), (5, 9)]
    weights = [draw(*shape, seed=i, scale=0.7) for i, shape in enumerate(shapes)]
    errors = [off_by(weight, 1e-3, 10 + i, signs=signs) for i, weight in enumerate(weights)]
    maps = [map_of(w, draw(len(w), seed=20 + i), e) for i, (w, e) in enumerate(zip(weights, errors, strict=True))]
    none: list[Pruned | None] = [None] * len(maps)
    c, off = draw(12, 6, seed=5), torch.full((12,), distance, dtype=torch.float64)
    first, *times, second = maps
    found = through_mlp(Place(c, off, off), ACTIVATIONS[name], first, second, *times)
    source_first, *source_times, source_second = (map.source() for map in maps)
    source = through_mlp(Place(c, off, 0 * off), ACTIVATIONS[name], source_first, source_second, *source_times)
    torch.testing.assert_close(found.centre, value(c, name, maps, none), rtol=0, atol=1e-13)
    torch.testing.assert_close(source.centre, value(c, name, maps, errors), rtol=0, atol=1e-13)
    ratios = []
    for seed in range(40):
        step, gap = (draw(12, 6, seed=100 + 2 * seed + i) for i in range(2))
        t = c + distance * step / step.norm(dim=-1, keepdim=True)
        s = t + distance * gap / gap.norm(dim=-1, keepdim=True)
        moved = (value(t, name, maps, none) - found.centre).norm(dim=-1)
        assert (moved <= found.radius + 1e-13).all()
        assert ((value(t, name, maps, errors) - source.centre).norm(dim=-1) <= source.radius + 1e-13).all()
        assert ((value(s, name, maps, errors) - value(t, name, maps, none)).norm(dim=-1) <= found.error + 1e-13).all()
        ratios.append((moved / found.radius).max().item())
    if distance == 1e-4:  # so close to the sample, the Jacobian says it all
        assert max(ratios) > 0.5


def test_the_slope_of_an_mlp_is_that_of_its_jacobian() -> None:
    weights = [draw(40, 8, seed=1), draw(8, 40, seed=2)]
    maps = [map_of(w, draw(len(w), seed=3), None) for w in weights]
    c, tiny = draw(7, 8, seed=4), torch.full((7,), 1e-7, dtype=torch.float64)
    slope = through_mlp(Place(c, tiny, 0 * tiny), ACTIVATIONS["gelu"], *maps).radius / 1e-7
    run = lambda x: value(x, "gelu", maps, [None, None])  # noqa: E731
    true = torch.stack([torch.linalg.matrix_norm(torch.autograd.functional.jacobian(run, x), 2) for x in c])
    torch.testing.assert_close(slope, true, rtol=1e-3, atol=0)
    assert (slope >= true * (1 - 1e-12)).all()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_radius_covers_what_an_mlp_rounds(gated: bool, scale: float) -> None:
    """At a sample alone, in both networks, against longer floats; and that is tiny."""
    shapes = [(40, 16), (40, 16), (12, 40)] if gated else [(40, 16), (12, 40)]
    weights = [draw(*shape, seed=i, scale=0.7) for i, shape in enumerate(shapes)]
    errors = [off_by(weight, 1e-2, 10 + i, signs=True) for i, weight in enumerate(weights)]
    maps = [map_of(w, draw(len(w), seed=20 + i), e) for i, (w, e) in enumerate(zip(weights, errors, strict=True))]
    c, zero = draw(20, 16, seed=5, scale=scale), torch.zeros(20).double()
    for source in (False, True):

        def linear(y: np.ndarray, i: int, source: bool = source) -> np.ndarray:
            out = y @ weights[i].numpy().astype(np.longdouble).T + maps[i].bias.numpy()
            both = np.concatenate([np.maximum(y, 0), np.minimum(y, 0)], axis=1)
            return out + both @ errors[i].error.numpy().astype(np.longdouble).T if source else out

        h = linear(c.numpy().astype(np.longdouble), 0)
        inner = h / (1 + np.exp(-h)) * (linear(c.numpy().astype(np.longdouble), 1) if gated else 1)
        truth = linear(inner, len(maps) - 1)
        first, *times, second = (map.source() for map in maps) if source else maps
        found = through_mlp(Place(c, zero, zero), ACTIVATIONS["silu"], first, second, *times)
        off = np.linalg.norm((found.centre.numpy() - truth).astype(float), axis=1)
        assert (off > 0).any()
        assert (off <= found.radius.numpy()).all()
        assert (found.radius <= 2e-10 * scale**2).all()


@pytest.mark.parametrize("shape", [(5, 1, 4), (3, 7, 4), (4, 20, 20)])
def test_singular_values_of_a_batch(shape: tuple[int, int, int]) -> None:
    matrices = draw(*shape, seed=0) * torch.logspace(-90, 90, shape[0], dtype=torch.float64)[:, None, None]
    matrices[0] = 0
    exact, found = torch.linalg.matrix_norm(matrices, 2), largest_singular_values(matrices)
    assert (found >= exact).all()
    torch.testing.assert_close(found[1:], exact[1:], rtol=1e-5, atol=0)
    assert found[0] < 1e-300
    matrices[1, 0, 0] = math.nan
    assert largest_singular_values(matrices).isinf().all()


@pytest.mark.parametrize("distance", [0.0, 1e-3, 0.3])
def test_heads_stay_inside_their_bounds(distance: float) -> None:
    q, k, v = (draw(5, 6, 4, seed=i, scale=1.5) for i in range(3))
    off = torch.full((5, 6), distance, dtype=torch.float64)
    mask = torch.ones(6, 6).bool().tril()
    found = through_head(*(Place(x, off, off / 2) for x in (q, k, v)), 0.5, mask)

    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * 0.5).masked_fill(~mask, -math.inf).softmax(dim=-1) @ v

    torch.testing.assert_close(found.centre, head(q, k, v), rtol=0, atol=1e-14)
    ratios = []
    for seed in range(60):
        steps = [draw(5, 6, 4, seed=100 + 10 * seed + i) for i in range(6)]
        steps = [distance * step / step.norm(dim=-1, keepdim=True) for step in steps]
        t = [x + step for x, step in zip((q, k, v), steps[:3], strict=True)]
        s = [x + step / 2 for x, step in zip(t, steps[3:], strict=True)]
        moved, apart = (head(*t) - found.centre).norm(dim=-1), (head(*s) - head(*t)).norm(dim=-1)
        assert (moved <= found.radius + 1e-14).all()
        assert (apart <= found.error + 1e-14).all()
        ratios.append((moved / found.radius).max().item())
    assert max(ratios) > 0.1 or not distance


def test_the_radius_covers_what_a_head_rounds() -> None:
    q, k, v = (draw(9, 16, seed=i, scale=3.0) for i in range(3))
    zero = torch.zeros(9).double()
    found = through_head(*(Place(x, zero, zero) for x in (q, k, v)), 0.25, None)
    Q, K, V = (x.numpy().astype(np.longdouble) for x in (q, k, v))
    shares = np.exp(Q @ K.T / 4 - (Q @ K.T / 4).max(axis=1, keepdims=True))
    truth = shares / shares.sum(axis=1, keepdims=True) @ V
    off = np.linalg.norm((found.centre.numpy() - truth).astype(float), axis=1)
    assert (off > 0).any()
    assert (off <= found.radius.numpy()).all()
    assert (found.radius <= 1e-9).all()


def test_rotations_and_vectors_side_by_side() -> None:
    angles = draw(6, 3, seed=1)
    cos, sin = (torch.cat([f(angles)] * 2, dim=-1).float().double() for f in (torch.cos, torch.sin))
    x, off = draw(2, 6, 6, seed=2), torch.full((2, 6), 0.1, dtype=torch.float64)
    place = rotated(Place(x, off, 2 * off), cos, sin)
    torch.testing.assert_close(place.centre.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(place.radius, off, rtol=1e-6, atol=0)
    torch.testing.assert_close(place.error, 2 * off, rtol=1e-6, atol=0)
    joined = side_by_side([place, place, place])
    torch.testing.assert_close(joined.radius, place.radius * math.sqrt(3), rtol=1e-9, atol=0)
    assert joined.centre.shape == (2, 6, 18)


def test_a_part_of_a_map_is_the_map_to_some_outputs() -> None:
    weight = draw(6, 4, seed=1)
    map = map_of(weight, draw(6, seed=2), off_by(weight, 0.1, 3, signs=True))
    some, c = slice(2, 5), draw(3, 4, seed=4)
    for whole, part in ((map, map.columns(some)), (map.source(), map.source().columns(some))):
        torch.testing.assert_close(part.at(c)[0], whole.at(c)[0][:, some], rtol=1e-12, atol=1e-12)
        assert part.norm <= whole.norm
    assert isinstance(map.columns(some).error, Matrix)


def test_nothing_is_rounded_to_float32_on_the_way() -> None:
    h = draw(3, 5, seed=1)
    assert all(x.dtype == torch.float64 for a in ACTIVATIONS.values() for x in a.slopes(h, h.abs()))
    exact = torch.linalg.matrix_norm(h, 2)
    found = largest_singular_values(h[None])[0]
    assert found.dtype == torch.float64
    assert 0 <= found - exact <= 2e-6 * exact
