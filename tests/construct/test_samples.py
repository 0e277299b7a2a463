"""Certificates for given samples: computed by other code, attacked, and refused what they do not speak of."""

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.construct.places import (
    Place,
    _softmax,
    _softmax_roundings,
    through_attention,
    through_head,
    through_network,
    through_norm,
)
from strongticket.construct.product import Pruned
from strongticket.construct.recertify import examine
from strongticket.errors import StrongTicketError
from strongticket.models.attention import Attention, MergedAttention, causal_mask
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from tests.construct.test_construct import draw, random_attention
from tests.construct.test_recertify import KINDS, constructed

THEORY = (Path(__file__).parents[2] / "docs/theory.md").read_text()
STARTS = 20  # of gradient ascent


@cache
def four_blocks() -> tuple[Transformer, st.Ticket, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = random_transformer(4, 4, key_width=4, generator=generator).requires_grad_(False)
    samples = torch.randn(200, 8, 4, generator=generator, dtype=torch.float64)
    widths = {"key_width": 128, "value_width": 128, "hidden_width": 160}
    return target, st.construct_transformer(target, samples=samples, **widths), samples


def seen_errors(ticket: st.Ticket, target: nn.Module, inputs: Tensor) -> Tensor:
    return (ticket.build("merged", dtype=torch.float64)(inputs) - target(inputs)).detach().norm(dim=-1)


def test_four_blocks_are_certified_where_the_certificate_for_all_inputs_says_nothing() -> None:
    target, ticket, samples = four_blocks()
    found = st.certify(ticket, target, samples)
    assert ticket.certificate.error > 6e2
    assert found.error <= 1e-2
    assert found.errors.shape == (200, 8)
    assert (seen_errors(ticket, target, samples) <= found.errors).all()
    assert found.by_block[-1] == found.error == found.errors.max()


def test_the_table_of_the_theory_page() -> None:
    target, ticket, samples = four_blocks()
    source = ticket.build("merged", dtype=torch.float64)
    bounds = (st.certify(ticket, target, samples, radius=radius).by_block for radius in (0.0, 0.01))
    stored = (block["error"] for block in ticket.certificate.details["blocks"])
    ours = theirs = samples
    rows = re.findall(r"^\| (\d) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", THEORY.split("## 10.")[1], re.MULTILINE)
    assert len(rows) == 4
    for row, (b, (*bound, ours_block, theirs_block)) in zip(
        rows, enumerate(zip(stored, *bounds, source.blocks, target.blocks, strict=True)), strict=True
    ):
        ours, theirs = ours_block(ours), theirs_block(theirs)
        seen = (ours - theirs).norm(dim=-1).max().item()
        assert row == (str(b + 1), *(f"{number:.1e}" for number in (*bound, seen)))


def shaken(samples: Tensor, radius: float, seed: int) -> Tensor:
    """Move each input by the whole radius, in a random direction."""
    step = draw(*samples.shape, seed=seed)
    return samples + radius * (1 - 1e-12) * step / step.norm(dim=-1, keepdim=True)


def target_of(name: str) -> Callable[[Tensor], Tensor]:
    """Give the function that a ticket of `constructed` stands for, in float64."""
    tensors = {key: value.double() for key, value in constructed()[name][1].items()}
    if "weight" in tensors:
        return lambda x: x @ tensors["weight"].T + tensors.get("bias", 0)
    if "query" in tensors:
        return Attention(**tensors)
    if "qk" in tensors:
        return MergedAttention(**tensors)
    if "in_proj_weight" in tensors:
        module: nn.Module = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
        call = lambda x: module(x, x, x, need_weights=False)[0]  # noqa: E731
    elif "layers.0.weight" in tensors:
        module = call = FeedForward([draw(3, 2, seed=0), draw(2, 3, seed=1)], [draw(3, seed=2), None])
    elif "0.weight" in tensors:
        module = call = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    else:
        module = call = random_transformer(2, 2, key_width=3, generator=torch.Generator())
    module.load_state_dict(tensors)
    return call


@pytest.mark.parametrize("radius", [0.0, 0.1])
@pytest.mark.parametrize("name", KINDS)
def test_every_family_holds_on_the_ball(name: str, radius: float) -> None:
    ticket, tensors = constructed()[name]
    target, source = target_of(name), ticket.build("literal", dtype=torch.float64)
    width = {"torch": 4, "transformer": 2, "feedforward": 2, "uneven": 2, "sequence": 2}.get(name, 3)
    samples = draw(3, 5, width, seed=11)
    found = st.certify(ticket, tensors, samples, radius=radius)
    seen = torch.stack([(source(x) - target(x)).norm(dim=-1) for x in (shaken(samples, radius, i) for i in range(10))])
    assert (seen <= found.errors).all()
    assert found.radius == radius
    # Not by much: the first seed's errors are within a factor that grows with the radius and the blocks.
    assert found.error <= seen.max() * (30 if radius else 10)


def moved_by(
    p: np.ndarray, scores: list[float], drift: float, diameter: float, around: Sequence[float], own: list[float]
) -> float:
    """Bound how far a mean of values moves: the lemma of section 10, the smaller form of each part."""
    above = [min(1.0, share * math.exp(2 * (drift + max(scores)))) for share in p]
    variances = [sum(a * y * y for a, y in zip(above, what, strict=True)) for what in (scores, around)]
    carried = sum(a * y for a, y in zip(above, own, strict=True))
    return min(math.tanh(max(scores) / 2) * diameter, math.sqrt(math.prod(variances))) + min(max(own), carried)


def test_the_recursion_by_other_code() -> None:
    """One block, two heads, all biases: section 10 of docs/theory.md token by token, without its rounding."""
    r = 0.05
    attention = random_attention(2, 3, 3, bias=True, seed=3)
    network = FeedForward([draw(4, 3, seed=1), draw(3, 4, seed=2)], [draw(4, seed=5), draw(3, seed=6)])
    target = Transformer([Block(attention, network)])
    ticket = st.construct_transformer(target, key_width=24, value_width=24, hidden_width=36)
    samples = draw(5, 3, seed=7)

    weights = {name: value.double().numpy() for name, value in ticket.materialize().items()}
    q, k, v, o = (getattr(attention, part).detach().numpy() for part in ("query", "key", "value", "output"))
    x, tokens, size = samples.numpy(), range(5), lambda m: np.linalg.norm(m, 2)
    length = np.linalg.norm
    c, radius, error = attention.output_bias.detach().numpy() + 0 * x, np.zeros(5), np.zeros(5)
    for j in range(2):
        part = {name: weights[f"block.0.attention.head.{j}.{name}"] for name in ("query", "key", "value", "output")}
        W, V = q[j] @ k[j].T / math.sqrt(3), v[j] @ o[j]
        E = part["query"] @ part["key"].T / math.sqrt(24) - W
        F = part["value"] @ part["output"] - V
        m, values = x.mean(axis=0), x @ V
        query = [np.append(x[i], 1.0) for i in tokens]
        shares = [np.exp([query[i] @ W @ x[n] for n in tokens]) for i in tokens]
        p = [share / share.sum() for share in shares]
        c = c + np.array([p[i] @ values for i in tokens])
        diameter = max(length(values[n] - values[other]) for n in tokens for other in tokens)
        for i in tokens:
            around = [length(values[n] - p[i] @ values) for n in tokens]
            drifts = [r * length(W[:3] @ (x[n] - m)) + (length(query[i] @ W) + r * size(W[:3])) * r for n in tokens]
            radius[i] += moved_by(p[i], drifts, 0.0, diameter, around, [r * size(V)] * 5)
            scores = [
                abs(query[i] @ E @ (x[n] - m))
                + r * length(E[:3] @ (x[n] - m))
                + r * (length(query[i] @ E) + r * size(E[:3]))
                for n in tokens
            ]
            spread = r * size(V)
            own = [length(x[n] @ F) + r * size(F) for n in tokens]
            error[i] += moved_by(p[i], scores, max(drifts), diameter + 2 * spread, np.add(around, spread), own)
    c, radius = c + x, radius + r
    z, z_radius, z_error = c, radius.copy(), error.copy()
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        W, b = weight.detach().numpy(), bias.detach().numpy()
        first, second = (weights[f"block.0.feedforward.layer.{i}.{name}"] for name in ("first", "second"))
        plus, minus = second @ np.maximum(first, 0) - W, second @ np.minimum(first, 0) - W
        z = np.maximum(z, 0) if i else z
        both = plus if i else np.concatenate([plus, minus], axis=1)
        own = [length(plus @ np.maximum(t, 0) + (0 if i else minus @ np.minimum(t, 0))) for t in z]
        z_error = size(W) * z_error + own + (z_radius + z_error) * size(both)
        z, z_radius = z @ W.T + b, size(W) * z_radius

    found = st.certify(ticket, target, samples, radius=r)
    np.testing.assert_allclose(found.errors, error + z_error, rtol=1e-9)
    assert found.output_norm == pytest.approx(length(c + z, axis=1).max())


def test_cross_attention_by_other_code() -> None:
    """One head with a query bias, positions in its scores, and other balls around queries than around keys."""
    W, V = draw(4, 3, seed=0).numpy(), draw(3, 3, seed=1).numpy()
    E, F = draw(4, 3, seed=2, scale=0.01).numpy(), draw(3, 3, seed=3, scale=0.01).numpy()
    x, memory, added = draw(4, 3, seed=4).numpy(), draw(6, 3, seed=5).numpy(), draw(4, 6, seed=6).numpy()
    r_x, d_x, r, d = (draw(n, seed=i, scale=0.01).abs().numpy() for i, n in ((7, 4), (8, 4), (9, 6), (10, 6)))
    pruned = {
        f"head.0.{name}": Pruned((), torch.tensor(error), torch.zeros(error.shape).double(), (), 0.0, "given")
        for name, error in (("qk", E), ("vo", F))
    }
    merged = MergedAttention(torch.tensor(W)[None], torch.tensor(V)[None])
    queries, keys = (Place(*(torch.tensor(part) for part in parts)) for parts in ((x, r_x, d_x), (memory, r, d)))
    found = through_attention(queries, merged, pruned, None, keys, torch.tensor(added)[None])

    size, length, tokens = lambda m: np.linalg.norm(m, 2), np.linalg.norm, range(6)
    k, values = memory - memory.mean(axis=0), memory @ V
    diameter = max(length(one - other) for one in values for other in values)
    for i in range(4):
        q = np.append(x[i], 1.0)
        p = np.exp(q @ W @ memory.T + added[i])
        p = p / p.sum()
        around = [length(values[n] - p @ values) for n in tokens]
        drifts = [r_x[i] * length(W[:3] @ k[n]) + (length(q @ W) + r_x[i] * size(W[:3])) * r[n] for n in tokens]
        radius = moved_by(p, drifts, 0.0, diameter, around, [r[n] * size(V) for n in tokens])
        off = r_x[i] + d_x[i]
        scores = [
            d_x[i] * (length(W[:3] @ k[n]) + r[n] * size(W[:3]))
            + (length(q @ W) + off * size(W[:3])) * d[n]
            + abs(q @ E @ k[n])
            + off * length(E[:3] @ k[n])
            + (length(q @ E) + off * size(E[:3])) * (r[n] + d[n])
            for n in tokens
        ]
        spread = [r[n] * size(V) for n in tokens]
        own = [d[n] * size(V) + length(memory[n] @ F) + (r[n] + d[n]) * size(F) for n in tokens]
        error = moved_by(p, scores, max(drifts), diameter + 2 * max(spread), np.add(around, spread), own)
        np.testing.assert_allclose(found.centre[i], p @ values, rtol=1e-12)
        assert found.radius[i].item() == pytest.approx(radius, rel=1e-9)
        assert found.error[i].item() == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("radius", [0.02, 0.3])
def test_gradient_ascent_inside_the_ball_stays_below(radius: float) -> None:
    target, ticket, samples = four_blocks()
    source = ticket.build("merged", dtype=torch.float64)
    samples = samples[:STARTS]
    found = st.certify(ticket, target, samples, radius=radius)
    step = draw(*samples.shape, seed=1, scale=radius / 2).requires_grad_()
    optimizer, worst = torch.optim.Adam([step], lr=radius / 10), torch.zeros(samples.shape[:-1]).double()
    for _ in range(40):
        x = samples + step
        seen = (source(x) - target(x)).norm(dim=-1)
        worst = worst.maximum(seen.detach())
        optimizer.zero_grad()
        (-seen.log().sum()).backward()
        optimizer.step()
        with torch.no_grad():
            step.mul_((radius / step.norm(dim=-1, keepdim=True)).clamp(max=1))
    assert (worst <= found.errors).all()
    # The ascent is no sham: it finds more than the samples themselves show.
    assert worst.mean() > (1 + radius / 2) * seen_errors(ticket, target, samples).mean()


def test_an_attention_mask_changes_what_is_computed() -> None:
    target, ticket, samples = four_blocks()
    mask = causal_mask(8)
    found = st.certify(ticket, target, samples[:5], attends=mask)
    seen = ticket.build("merged", dtype=torch.float64)(samples[:5], mask) - target(samples[:5], mask)
    assert (seen.norm(dim=-1) <= found.errors).all()
    assert found.output_norm == pytest.approx(target(samples[:5], mask).norm(dim=-1).max().item())
    # A mask of its own for each sample.
    masks = torch.stack([mask, mask.T, torch.ones_like(mask)])
    each = torch.stack(
        [st.certify(ticket, target, x, attends=own).errors for x, own in zip(samples[:3], masks, strict=True)]
    )
    torch.testing.assert_close(st.certify(ticket, target, samples[:3], attends=masks).errors, each, rtol=1e-9, atol=0)
    with pytest.raises(ValueError, match="attends is for attentions and transformers"):
        st.certify(constructed()["layer"][0], constructed()["layer"][1], torch.ones(1, 3), attends=mask)


def long_softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_radius_covers_what_float64_rounds(scale: float) -> None:
    """The target at a sample, in longer floats: within the radius of a ball of radius 0, and that is tiny."""
    attention = random_attention(2, 16, 16, bias=True, seed=0)
    merged = MergedAttention(attention.merged().qk.detach(), attention.merged().vo.detach(), attention.output_bias)
    network = FeedForward([draw(16, 16, seed=8), draw(16, 16, seed=9)], [draw(16, seed=10), None])
    ticket = st.construct_transformer(
        Transformer([Block(merged, network)]), key_width=32, value_width=32, hidden_width=64
    )
    (block,) = examine(ticket, Transformer([Block(merged, network)]).state_dict())
    x = draw(12, 16, seed=1, scale=scale)
    zero = torch.zeros(12).double()
    attended = through_attention(Place(x, zero, zero), *block.attention, None)
    passed = through_network(Place(x, zero, zero), *block.feedforward)

    long = lambda tensor: tensor.detach().numpy().astype(np.longdouble)  # noqa: E731
    X = long(x)
    queries, exact = np.concatenate([X, np.ones((12, 1))], axis=1), long(merged.output_bias)
    for qk, vo in zip(long(merged.qk), long(merged.vo), strict=True):
        exact = exact + long_softmax(queries @ qk @ X.T) @ X @ vo
    first, second = (long(weight) for weight in network.weights)
    hidden = np.maximum(X @ first.T + long(network.biases[0]), 0) @ second.T
    for place, truth in ((attended, exact), (passed, hidden)):
        off = np.linalg.norm((long(place.centre) - truth).astype(float), axis=1)
        assert (off > 0).any()
        assert (off <= place.radius.numpy()).all()
        assert (place.radius <= 1e-11 * scale**3).all()


def test_one_head_of_several_sequences_is_followed_as_each_alone() -> None:
    query, key, value = (
        Place(
            draw(3, 5, 4, seed=seed, scale=3.0), draw(3, 5, seed=seed).abs() / 99, draw(3, 5, seed=seed + 9).abs() / 99
        )
        for seed in range(3)
    )
    together = through_head(query, key, value, 0.5, None)
    for n in range(3):
        one = (Place(place.centre[n], place.radius[n], place.error[n]) for place in (query, key, value))
        alone = through_head(*one, 0.5, None)
        for part in ("centre", "radius", "error"):
            torch.testing.assert_close(getattr(together, part)[n], getattr(alone, part), rtol=1e-12, atol=0)


def test_one_head_holds_where_queries_keys_and_values_move() -> None:
    """Four queries look at six tokens of another sequence, with positions in their scores."""
    centres, added = [draw(n, 3, seed=i) for i, n in enumerate((4, 6, 6))], draw(4, 6, seed=3)
    off = torch.full((6,), 0.02).double()
    query, key, value = (Place(c, off[: len(c)], 2 * off[: len(c)]) for c in centres)
    found = through_head(query, key, value, 0.5, None, added)

    def output(places: Sequence[Tensor]) -> Tensor:
        q, k, v = places
        return (q @ k.mT * 0.5 + added).softmax(dim=-1) @ v

    radius = error = torch.zeros(4).double()
    for seed in range(300):
        target = [shaken(c, 0.02, 3 * seed + i) for i, c in enumerate(centres)]
        source = [shaken(t, 0.04, 1000 + 3 * seed + i) for i, t in enumerate(target)]
        radius = radius.maximum((output(target) - output(centres)).norm(dim=-1))
        error = error.maximum((output(source) - output(target)).norm(dim=-1))
    torch.testing.assert_close(found.centre, output(centres), rtol=0, atol=1e-14)
    for seen, bound in ((radius, found.radius), (error, found.error)):
        assert (seen <= bound).all()
        assert (bound <= 10 * seen).all()


def test_a_softmax_rounds_scores_of_either_sign_alike_and_more_with_more_to_add_up() -> None:
    scores = draw(2, 7, 7, seed=0, scale=1e4).abs()
    assert torch.equal(_softmax_roundings(-scores, 3), _softmax_roundings(scores, 3))
    assert (_softmax_roundings(scores, 3) > 2**-53 * 2 * scores.amax(dim=(1, 2))).all()
    assert (_softmax_roundings(scores, 4) > _softmax_roundings(scores, 3)).all()
    assert (_softmax_roundings(scores, 3) > _softmax_roundings(scores[:, :, :6], 3)).all()
    # Added to what positions say, scores are rounded once more.
    weights, rounding = _softmax(scores, None, torch.tensor(1e4).double(), 3)
    torch.testing.assert_close(weights, scores.softmax(dim=-1), rtol=1e-9, atol=0)
    assert (rounding > _softmax_roundings(scores + 1e4, 3) + 2**-53 * (scores + 1e4).amax(dim=(1, 2))).all()


def test_samples_so_short_that_squares_vanish() -> None:
    matrix = torch.tensor([[1e-170, 2e-170]], dtype=torch.float64)
    ticket = st.construct_linear(matrix, hidden_width=16)
    sample = torch.tensor([[1e160, 3e159]], dtype=torch.float64)
    found = st.certify(ticket, matrix, sample)
    seen = (ticket.build("merged", dtype=torch.float64)(sample) - sample @ matrix.T).abs().item()
    assert 0 < seen <= found.error <= seen * 1.0001


def test_what_cannot_be_certified_is_refused_in_one_line() -> None:
    target, ticket, samples = four_blocks()
    bad = samples[:2].clone()
    bad[1, 3, 0] = math.nan
    refused = [
        (
            {"samples": samples[..., :3]},
            r"samples must be \(\.\.\., 4\) with at least one input; got \(200, 8, 3\)",
        ),
        ({"samples": samples[:0]}, "with at least one input"),
        ({"samples": samples[0, 0]}, r"samples must be sequences \(\.\.\., tokens, 4\); got \(4,\)"),
        ({"samples": bad}, r"samples must be finite; entry \(1, 3, 0\) is nan"),
        ({"radius": -0.1}, "radius must be a finite number of at least 0; got -0.1"),
        ({"radius": math.nan}, "radius must be"),
        ({"radius": 1e308}, "overflows float64"),
        ({"attends": torch.zeros(8, 8).bool()}, "every token must attend to at least one"),
    ]
    for changed, message in refused:
        with pytest.raises(ValueError, match=message):
            st.certify(ticket, target, **({"samples": samples[:2]} | changed))
    with pytest.raises(StrongTicketError, match="the target has none of that name"):
        st.certify(ticket, Transformer([]), samples)


def test_words_for_people() -> None:
    target, ticket, samples = four_blocks()
    told = str(st.certify(ticket, target, samples[:1], radius=0.5))
    assert told.startswith("output error at most ")
    assert " for each of these 8 inputs, each moved by at most 0.5; the target's outputs have norms up to " in told
    assert told.endswith(", so the bound says nothing useful at this radius")
    assert "useful" not in str(st.certify(ticket, target, samples[:1]))
    assert " for this input; the target's" in str(st.certify(ticket, target, samples[:1, :1]))


def test_numbers_for_machines() -> None:
    target, ticket, samples = four_blocks()
    found = st.certify(ticket, target, samples[:1], radius=0.5)
    told = found.as_json()
    assert told == json.loads(json.dumps(told))
    assert (told["inputs"], told["radius"], len(told["by_block"])) == (8, 0.5, 4)
    assert told["error"] == told["by_block"][-1] == found.error
    assert told["output_norm"] == found.output_norm
    assert told["target_sha256"] == found.target_sha256 == ticket.certificate.target_sha256


def test_sequences_are_certified_one_by_one() -> None:
    target, ticket, samples = four_blocks()
    together = st.certify(ticket, target, samples[:6].view(2, 3, 8, 4), radius=0.1).errors
    alone = [st.certify(ticket, target, sequence, radius=0.1).errors for sequence in samples[:6]]
    torch.testing.assert_close(together, torch.stack(alone).view(2, 3, 8), rtol=1e-9, atol=0)


def test_where_all_is_zero() -> None:
    target, ticket, samples = four_blocks()
    found = st.certify(ticket, target, 0 * samples[:1])
    assert found.error < 1e-290
    assert str(found).endswith("the target's outputs have norms up to 0")


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_the_radius_covers_what_a_norm_rounds(size: float) -> None:
    x, weight, bias, eps = draw(50, 7, seed=1), size * draw(7, seed=2), size * draw(7, seed=3), 1e-5
    zero = torch.zeros(50).double()
    place = through_norm(Place(x, zero, zero), weight, bias, eps, centred=True)
    X, W, B = (tensor.numpy().astype(np.longdouble) for tensor in (x, weight, bias))
    Y = X - X.mean(axis=1, keepdims=True)
    truth = Y / np.sqrt((Y * Y).mean(axis=1, keepdims=True) + np.longdouble(eps)) * W + B
    off = np.linalg.norm((place.centre.numpy() - truth).astype(float), axis=1)
    assert (off > 0).any()
    assert (off <= place.radius.numpy()).all()
    assert (place.radius <= 1e-13 * size).all()


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("distance", [0.0, 1e-3, 0.5, 30.0])
def test_norms_are_opened_by_the_length_the_samples_have_there(distance: float, centred: bool) -> None:
    d, eps = 6, 1e-3
    weight, bias, c = draw(d, seed=1), draw(d, seed=2), draw(40, d, seed=3) * torch.logspace(-2, 1, 40)[:, None]
    norm = nn.LayerNorm(d, eps, dtype=torch.float64) if centred else nn.RMSNorm(d, eps, dtype=torch.float64)
    norm.weight.data = weight
    if centred:
        norm.bias.data = bias
    off = torch.full((40,), distance, dtype=torch.float64)
    place = through_norm(Place(c, off, off), weight, bias if centred else None, eps, centred=centred)
    torch.testing.assert_close(place.centre, norm(c).detach(), rtol=0, atol=1e-13)
    cut = Place(*(part.unflatten(0, (5, 8)) for part in (c, off, off)))
    again = through_norm(cut, weight, bias if centred else None, eps, centred=centred)
    assert torch.equal(again.centre.flatten(0, 1), place.centre)
    # By hand: the slope where the vector is shortest, and never more than from one end of the sphere to the other.
    y = c - c.mean(dim=1, keepdim=True) if centred else c
    for found, moved in ((place.radius, distance), (place.error, 2 * distance)):
        slope = ((y.norm(dim=1) - moved).clamp(min=0) ** 2 / d + eps).rsqrt()
        by_hand = weight.abs().max() * (distance * slope).clamp(max=2 * math.sqrt(d))
        torch.testing.assert_close(found, by_hand, rtol=1e-9, atol=1e-11)
        assert (found >= by_hand).all()
    for seed in range(20):
        target = shaken(c, distance, seed)
        source = shaken(target, distance, seed + 100)
        assert ((norm(target) - place.centre).norm(dim=1) <= place.radius).all()
        assert ((norm(source) - norm(target)).norm(dim=1) <= place.error).all()
