"""Lemmas 2, 4/7, Theorems 3, 6, 10: what is built computes the target to the certified error, whatever the input."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.construct.source import RandomMatrix
from strongticket.models.attention import Attention, MergedAttention, causal_mask
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from strongticket.tickets.ticket import Ticket

# float64 evaluations of a few thousand terms of size about 1; the certificate speaks of real arithmetic.
ROUNDING = 1e-12


def draw(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * (2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1)


def on_sphere(*shape: int, norm: float, seed: int) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return norm * x / x.norm(dim=-1, keepdim=True)


def random_attention(H: int, d: int, d_out: int, *, bias: bool, seed: int) -> Attention:
    n, m = 3, 5
    return Attention(
        draw(H, d + bias, n, seed=seed, scale=0.8),
        draw(H, d, n, seed=seed + 1, scale=0.8),
        draw(H, d, m, seed=seed + 2, scale=0.5),
        draw(H, m, d_out, seed=seed + 3, scale=0.5),
        draw(d_out, seed=seed + 4) if bias else None,
    )


def worst_error(distance: Callable[[Tensor], Tensor], inputs: Tensor, norm: float, steps: int = 40) -> float:
    """Climb the error by gradient ascent on inputs inside the ball of the given norm; give the largest seen."""
    x = inputs.clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.1 * norm)
    largest = 0.0
    for _ in range(steps):
        error = distance(x)
        largest = max(largest, error.max().item())
        optimizer.zero_grad()
        (-error.logsumexp(0)).backward()
        optimizer.step()
        with torch.no_grad():
            x *= (norm / x.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    return largest


def assert_faithful(ticket: Ticket, target: nn.Module, inputs: Tensor, *extra: Tensor) -> None:
    """Literal and merged form agree to rounding; both stay within the certificate, also after gradient ascent."""
    assert ticket.certificate is not None
    literal, merged = (ticket.build(form, dtype=torch.float64) for form in ("literal", "merged"))
    torch.testing.assert_close(literal(inputs, *extra), merged(inputs, *extra), rtol=0, atol=ROUNDING)

    def distance(x: Tensor) -> Tensor:
        return (merged(x, *extra) - target(x, *extra)).norm(dim=-1).flatten()

    assert distance(inputs).max() <= ticket.certificate.error + ROUNDING
    climbed = worst_error(distance, inputs, ticket.certificate.input_norm)
    assert climbed >= distance(inputs).max() - ROUNDING
    assert climbed <= ticket.certificate.error + ROUNDING
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket


@pytest.mark.parametrize("init", ["theory", "printed", "xavier"])
@pytest.mark.parametrize("blocks", ["input", "smaller"])
@pytest.mark.parametrize(("d_in", "d_out"), [(3, 2), (2, 3), (1, 1)])
def test_lemma_7_linear(init: str, blocks: str, d_in: int, d_out: int) -> None:
    target = nn.Linear(d_in, d_out, bias=False, dtype=torch.float64)
    target.weight.data = draw(d_out, d_in, seed=0, scale=0.3)
    ticket = st.construct_linear(target.weight, hidden_width=66, init=init, blocks=blocks, input_norm=2.0)
    assert_faithful(ticket, target, on_sphere(50, d_in, norm=2.0, seed=1))
    if init == "theory":
        assert ticket.certificate.error < 0.05
    sides = {"first": (66, d_in), "second": (d_out, 66)}
    assert {name: tensor.shape for name, tensor in ticket.tensors.items()} == sides
    on_output = blocks == "smaller" and d_out < d_in
    assert ticket.tensors["second" if on_output else "first"].mask.kind in ("owners", "blocks")


def test_blocks_on_the_smaller_side_leave_more_items() -> None:
    target = draw(1, 4, seed=0, scale=0.3)
    usual, smaller = (st.construct_linear(target, hidden_width=24, blocks=b) for b in ("input", "smaller"))
    assert smaller.certificate.error < usual.certificate.error / 10


@pytest.mark.parametrize("bias", [True, False])
def test_lemma_2_single_layer(bias: bool) -> None:
    target = FeedForward([draw(3, 2, seed=0, scale=0.3)], [draw(3, seed=1)] if bias else None)
    ticket = st.construct_feedforward(target, hidden_width=48, input_norm=1.5)
    assert_faithful(ticket, target, on_sphere(60, 2, norm=1.5, seed=2))
    assert ticket.certificate.error < 0.05
    assert ticket.strong
    literal = ticket.build(dtype=torch.float64)
    assert [tuple(w.shape) for w in literal.weights] == [(48, 2), (3, 48)]


def test_theorem_10_three_layers_by_six() -> None:
    weights = [draw(4, 3, seed=0, scale=0.4), draw(5, 4, seed=1, scale=0.4), draw(2, 5, seed=2, scale=0.4)]
    target = FeedForward(weights, [draw(4, seed=3, scale=0.2), None, draw(2, seed=4)])
    ticket = st.construct_feedforward(target, hidden_width=(72, 80, 100), input_norm=1.0)
    assert_faithful(ticket, target, on_sphere(60, 3, norm=1.0, seed=5))
    assert len(ticket.build().weights) == 6
    assert ticket.certificate.error < 0.1


def test_feedforward_takes_torch_layers_and_matrices() -> None:
    layer = nn.Linear(2, 3, dtype=torch.float64)
    from_layer = st.construct_feedforward(layer, hidden_width=24)
    from_network = st.construct_feedforward(FeedForward([layer.weight], [layer.bias]), hidden_width=24)
    assert from_layer.identity == from_network.identity
    from_matrix = st.construct_feedforward(layer.weight, hidden_width=24)
    assert not from_matrix.dense
    with pytest.raises(
        ValueError, match=r"needs a torch.nn.Sequential of Linear and ReLU, .* FeedForward; got Identity"
    ):
        st.construct_feedforward(nn.Identity(), hidden_width=24)  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("init", ["theory", "printed", "xavier"])
@pytest.mark.parametrize(("H", "d", "d_out"), [(1, 2, 1), (2, 3, 3), (3, 2, 4)])
def test_theorem_3_attention(bias: bool, init: str, H: int, d: int, d_out: int) -> None:
    target = random_attention(H, d, d_out, bias=bias, seed=H)
    ticket = st.construct_attention(target, key_width=16 * d, value_width=12 * d, init=init, input_norm=1.0)
    inputs = on_sphere(20, 5, d, norm=1.0, seed=7)
    assert_faithful(ticket, target, inputs)
    assert_faithful(ticket, target, inputs, causal_mask(5))
    literal = ticket.build()
    assert literal.query.shape == (H, d + bias, 16 * d)
    assert literal.output.shape == (H, 12 * d, d_out)
    scale = {"theory": (16 * d) ** 0.25, "printed": (16 * d) ** -0.25, "xavier": math.sqrt(6 / (17 * d))}[init]
    assert ticket.tensors["head.0.query"].scale == pytest.approx(scale, rel=1e-7)
    if init == "theory" and not ticket.certificate.details["unreachable"]["count"]:
        assert ticket.certificate.error < 0.05 * H


def test_theorem_3_more_width_less_error() -> None:
    target = random_attention(1, 2, 2, bias=False, seed=3)
    errors = [
        st.construct_attention(target, key_width=n, value_width=n, input_norm=1.0).certificate.error
        for n in (16, 32, 48, 64)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6


def test_tight_certificate_is_below_the_papers() -> None:
    target = random_attention(2, 4, 4, bias=False, seed=0)
    certificate = st.construct_attention(target, key_width=64, value_width=64, input_norm=2.0).certificate
    assert certificate.error < certificate.details["paper_error"] / 2


@pytest.mark.parametrize("bias", [True, False])
def test_theorem_3_takes_torch_attention(bias: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(4, 2, bias=bias, batch_first=True, dtype=torch.float64)
    if bias:
        nn.init.normal_(module.in_proj_bias)
    ticket = st.construct_attention(module, key_width=64, value_width=64, samples=on_sphere(9, 4, norm=1.0, seed=0))
    assert ticket.certificate.input_norm == pytest.approx(1.0)
    x = on_sphere(6, 5, 4, norm=1.0, seed=1)
    difference = ticket.build("merged", dtype=torch.float64)(x) - module(x, x, x)[0]
    assert difference.norm(dim=-1).max() <= ticket.certificate.error + ROUNDING


def test_float32_network_stays_close_to_the_float64_one() -> None:
    target = random_attention(2, 4, 4, bias=True, seed=0)
    ticket = st.construct_attention(target, key_width=64, value_width=64, input_norm=1.0)
    x = on_sphere(6, 5, 4, norm=1.0, seed=1)
    exact, rounded = ticket.build(dtype=torch.float64)(x), ticket.build(dtype=torch.float32)(x.float())
    torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=1e-5)


def small_constructions() -> dict[str, Callable[..., Ticket]]:
    """Each construction of a map from 2 numbers to 2, with 40 items an entry."""
    matrix, attention = draw(2, 2, seed=0, scale=0.3), random_attention(1, 2, 2, bias=False, seed=0)
    transformer = Transformer([Block(attention, FeedForward([matrix]))])
    wide = {"key_width": 128, "value_width": 128}
    return {
        "linear": partial(st.construct_linear, matrix, hidden_width=128),
        "feedforward": partial(st.construct_feedforward, matrix, hidden_width=256),
        "attention": partial(st.construct_attention, attention, **wide),
        "transformer": partial(st.construct_transformer, transformer, **wide, hidden_width=256),
    }


@pytest.mark.parametrize("name", ["linear", "feedforward", "attention", "transformer"])
def test_high_effort_comes_closer_with_many_items(name: str) -> None:
    construct = small_constructions()[name]
    assert construct(effort="high").certificate.error < construct().certificate.error / 10


@pytest.mark.parametrize(
    ("name", "default"),
    [("linear", 1.0), ("feedforward", 1.0), ("attention", math.sqrt(2)), ("transformer", math.sqrt(2))],
)
def test_certificates_are_for_the_longest_sample_or_the_papers_norm(name: str, default: float) -> None:
    construct = small_constructions()[name]
    assert construct().certificate.input_norm == default
    samples = torch.cat([on_sphere(9, 2, norm=length, seed=0) for length in (3.0, 5.0, 0.1)])
    assert construct(samples=samples).certificate.input_norm == pytest.approx(5.0)
    with pytest.raises(ValueError, match="pass input_norm or samples, not both"):
        construct(samples=samples, input_norm=1.0)
    with pytest.raises(ValueError, match=r"samples must be \(\.\.\., 2\) with at least one input"):
        construct(samples=samples.T)


@pytest.mark.parametrize("n_blocks", [1, 2, 3])
def test_theorem_6_transformer(n_blocks: int) -> None:
    target = random_transformer(n_blocks, 2, key_width=4, generator=torch.Generator().manual_seed(n_blocks))
    ticket = st.construct_transformer(target, key_width=48, value_width=48, hidden_width=96, input_norm=1.0)
    inputs = on_sphere(20, 4, 2, norm=1.0, seed=3)
    assert_faithful(ticket, target, inputs, causal_mask(4))
    errors = [block["error"] for block in ticket.certificate.details["blocks"]]
    assert errors == sorted(errors)
    assert errors[-1] == ticket.certificate.error


def test_theorem_6_with_biases_heads_and_deep_networks() -> None:
    blocks = [
        Block(
            random_attention(2, 3, 3, bias=True, seed=10 * b),
            FeedForward(
                [draw(4, 3, seed=b, scale=0.4), draw(3, 4, seed=b + 5, scale=0.4)], [draw(4, seed=b + 7), None]
            ),
        )
        for b in range(2)
    ]
    target = Transformer(blocks)
    ticket = st.construct_transformer(
        target, key_width=(48, 60), value_width=48, hidden_width=(96, 120), input_norm=1.0
    )
    assert_faithful(ticket, target, on_sphere(8, 4, 3, norm=1.0, seed=3))
    assert sorted(ticket.dense) == [
        "block.0.attention.output_bias",
        "block.0.feedforward.layer.0.bias",
        "block.1.attention.output_bias",
        "block.1.feedforward.layer.0.bias",
    ]


def test_unreachable_entries_are_named_by_head_row_and_column() -> None:
    target = random_attention(2, 2, 2, bias=False, seed=0).merged()
    target.vo.data[1, 0, 1] = 40.0
    ticket = st.construct_attention(target, key_width=32, value_width=32, input_norm=1.0)
    unreachable = ticket.certificate.details["unreachable"]
    assert unreachable["count"] >= 1
    worst = unreachable["worst"][0]
    assert (worst["matrix"], worst["row"], worst["column"]) == ("head.1.vo", 0, 1)
    assert 30 < worst["missed"] < 40
    assert_faithful(ticket, target, on_sphere(9, 3, 2, norm=1.0, seed=0))


def test_rounding_of_the_merged_target_is_certified() -> None:
    """Three products of about 1e18 cancel to -282.5; float64 merges them to something else."""
    v = [-632494405.6232848, -842698044.4590378, -5368239127.714194]
    o = [923800414.9561183, 914964446.3485491, -252473355.19436654]
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(v, o, strict=True))
    zero = torch.zeros(1, 1, 3, dtype=torch.float64)
    target = Attention(
        zero, zero, torch.tensor([[v]], dtype=torch.float64), torch.tensor(o, dtype=torch.float64).view(1, 3, 1)
    )
    ticket = st.construct_attention(target, key_width=24, value_width=24, input_norm=1.0)
    found = Fraction(ticket.build("merged", dtype=torch.float64).vo.item())
    assert abs(found - exact) <= Fraction(ticket.certificate.error)


def test_what_is_no_block_is_refused() -> None:
    target = random_transformer(1, 2, key_width=4, generator=torch.Generator().manual_seed(0))
    target.blocks.append(nn.Identity())
    with pytest.raises(ValueError, match="block 1 is a Identity"):
        st.construct_transformer(target, key_width=8, value_width=8, hidden_width=8)
    narrow = Transformer([Block(random_attention(1, 2, 1, bias=False, seed=0), FeedForward([torch.ones(2, 2)]))])
    with pytest.raises(ValueError, match=r"a block must keep its width.* the attention maps 2 to 1"):
        st.construct_transformer(narrow, key_width=8, value_width=8, hidden_width=8)
    with pytest.raises(ValueError, match="needs a Transformer with blocks"):
        st.construct_transformer(Transformer([]), key_width=8, value_width=8, hidden_width=8)


def test_merged_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"merged attention needs qk .* got \(1, 7, 4\), \(1, 4, 4\) and None"):
        MergedAttention(torch.rand(1, 7, 4), torch.rand(1, 4, 4))
    with pytest.raises(ValueError, match=r"a layer needs a weight \(out, in\) and a bias"):
        FeedForward([torch.ones(2, 2)], [torch.ones(5)])


def test_without_widths_every_entry_gets_twenty_items() -> None:
    wide, tall = torch.randn(3, 5, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    assert st.construct_linear(tall) == st.construct_linear(tall, hidden_width=60)
    assert st.construct_linear(wide, blocks="smaller").architecture["hidden_width"] == 60
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    assert st.construct_feedforward(network).architecture["hidden_widths"] == [80, 60]
    assert st.construct_feedforward(network, assignment="equal").architecture["hidden_widths"] == [80, 120]
    attention = nn.MultiheadAttention(2, 1)
    assert st.construct_attention(attention) == st.construct_attention(attention, key_width=40, value_width=40)
    target = random_transformer(2, 1, key_width=2, generator=torch.Generator().manual_seed(0))
    block, *_ = st.construct_transformer(target).architecture["blocks"]
    sizes = block["feedforward"]["sizes"]
    assert block["attention"]["key_width"] == block["attention"]["value_width"] == 20 * sizes[0]
    assert block["feedforward"]["hidden_widths"] == [20 * max(2 * sizes[0], math.lcm(*sizes[:-1]))] * (len(sizes) - 1)


def test_same_seed_same_identity() -> None:
    target = random_attention(1, 2, 2, bias=True, seed=0)
    first, again, other = (
        st.construct_attention(target, key_width=32, value_width=32, seed=seed).identity for seed in (5, 5, 6)
    )
    assert first == again != other


def test_whole_numbers_may_come_from_numpy_or_torch() -> None:
    attention, network = random_attention(1, 2, 2, bias=False, seed=0), FeedForward([draw(2, 2, seed=1, scale=0.3)] * 2)
    transformer = Transformer([Block(attention, network)])

    def constructed(seed: Any, n: Any, many: Any) -> list[Ticket]:
        widths = {"key_width": n, "value_width": n}
        return [
            st.construct_linear(draw(2, 2, seed=2), hidden_width=n, seed=seed),
            st.construct_feedforward(network, hidden_width=n, seed=seed),
            st.construct_feedforward(network, hidden_width=many, seed=seed),
            st.construct_attention(attention, **widths, seed=seed),
            st.construct_transformer(transformer, **widths, hidden_width=n, seed=seed),
        ]

    expected = constructed(3, 16, [16, 24])
    assert constructed(np.int64(3), np.int64(16), np.array([16, 24])) == expected
    assert constructed(np.uint64(3), torch.tensor(16), torch.tensor([16, 24])) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t: st.construct_attention(t, key_width=33, value_width=32),
            r"key_width must be a multiple of 2.*Use 32 or 34",
        ),
        (
            lambda t: st.construct_attention(t, key_width=32, value_width=1),
            r"value_width must be at least 2.*for example 32",
        ),
        (
            lambda t: st.construct_attention(t, key_width=32, value_width=32, input_norm=0),
            "input_norm must be a positive finite number",
        ),
        (
            lambda t: st.construct_attention(t, key_width=32, value_width=32, init="normal"),
            "init must be one of theory",
        ),
        (
            lambda t: st.construct_attention(t, key_width=32, value_width=32, blocks="left"),
            "blocks must be one of input",
        ),
        (
            lambda t: st.construct_attention(nn.Identity(), key_width=2, value_width=2),
            "needs a torch.nn.MultiheadAttention.*got Identity",
        ),
        (
            lambda t: st.construct_linear(torch.tensor([[1.0, math.nan]]), hidden_width=4),
            r"target must be finite; entry \(0, 1\) is nan",
        ),
        (
            lambda t: st.construct_linear(torch.ones(3), hidden_width=4),
            r"needs a matrix \(d_out, d_in\); got shape \(3,\)",
        ),
        (
            lambda t: st.construct_feedforward(torch.ones(2, 2), hidden_width=(4, 4)),
            "must be one number, or 1 of them; got 2",
        ),
        (lambda t: st.construct_feedforward(torch.ones(2, 2), hidden_width=4.0), "hidden_width must be a whole number"),
        (lambda t: st.construct_linear(torch.ones(2, 2), hidden_width=4, seed=1.0), "seed must be a whole number"),
        (
            lambda t: st.construct_linear(torch.ones(2, 2, dtype=torch.cfloat), hidden_width=8),
            r"target must be a float tensor; got torch.complex64",
        ),
        (
            lambda t: st.construct_linear(torch.ones(2, 2, device="meta"), hidden_width=8),
            "target is on meta, where tensors have shapes but no numbers",
        ),
        (
            lambda t: st.construct_linear(torch.eye(2).to_sparse(), hidden_width=8),
            r"target must have all entries stored; got torch.sparse_coo. Convert with .to_dense\(\)",
        ),
        (
            lambda t: st.construct_feedforward(nn.Linear(2, 2, device="meta"), hidden_width=8),
            "the weight of layer 0 is on meta",
        ),
        (
            lambda t: st.construct_attention(nn.MultiheadAttention(2, 1, device="meta"), key_width=8, value_width=8),
            "the target's in_proj_weight is on meta",
        ),
        (
            lambda t: st.construct_attention(t.to("meta"), key_width=8, value_width=8),
            "the target's W_QK is on meta",
        ),
        (
            lambda t: st.construct_linear(torch.ones(3, 0), hidden_width=8),
            r"target has no entries: its shape is \(3, 0\)",
        ),
        (
            lambda t: st.construct_attention(t, key_width=-4, value_width=8),
            "key_width must be a whole number of at least 1",
        ),
        (lambda t: st.construct_attention(t, key_width=16.0, value_width=8), "key_width must be a whole number"),
        (
            lambda t: st.construct_attention(t, key_width=8, value_width=8, input_norm="1"),
            "must be a positive finite number",
        ),
        (
            lambda t: st.construct_attention(t, key_width=8, value_width=8, samples=torch.rand(3, 7)),
            r"samples must be \(\.\.\., 2\) with at least one input; got \(3, 7\)",
        ),
        (
            lambda t: st.construct_attention(t, key_width=8, value_width=8, samples=torch.tensor([[1.0, math.nan]])),
            r"samples must be finite; entry \(0, 1\) is nan",
        ),
        (
            lambda t: st.construct_attention(t, key_width=8, value_width=8, samples=torch.zeros(3, 2)),
            r"samples must have a largest norm that is positive and finite; got 0\.0",
        ),
        (
            lambda t: st.construct_attention(t, key_width=8, value_width=8, samples=torch.ones(3, 2, device="meta")),
            "samples is on meta",
        ),
        (
            lambda t: st.construct_feedforward(
                FeedForward([torch.ones(1, 1)], [torch.tensor([math.nan])]), hidden_width=8
            ),
            r"the bias of layer 0 must be finite; entry \(0,\) is nan",
        ),
    ],
)
def test_bad_input_is_told_what_to_do(call: Callable[[Attention], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(random_attention(1, 2, 2, bias=False, seed=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_with_its_sign_yet_to_be_turned_is_a_target_like_any_other(dtype: torch.dtype) -> None:
    matrix = draw(2, 2, seed=0, scale=0.3).to(dtype)
    view = torch.complex(matrix, -matrix).conj().imag
    assert view.is_neg()
    assert st.construct_linear(view, hidden_width=16) == st.construct_linear(matrix, hidden_width=16)
    assert st.construct_feedforward(view, hidden_width=16) == st.construct_feedforward(matrix, hidden_width=16)


def test_torchs_default_device_does_not_matter() -> None:
    """Where a caller's default is a GPU, all is made on the CPU as ever; meta, with no numbers, shows it anywhere."""
    attention, network = random_attention(2, 2, 2, bias=True, seed=0), FeedForward([draw(2, 2, seed=1, scale=0.3)] * 2)
    transformer, widths = Transformer([Block(attention, network)]), {"key_width": 16, "value_width": 16}

    def constructed() -> list[Ticket]:
        return [
            st.construct_linear(network.weights[0], hidden_width=16),
            st.construct_linear(network.weights[0][:1], hidden_width=16, blocks="smaller"),
            st.construct_feedforward(network, hidden_width=16),
            st.construct_attention(attention, **widths),
            st.construct_attention(attention.merged(), **widths),
            st.construct_transformer(transformer, **widths, hidden_width=16),
        ]

    expected = constructed()
    with torch.device("meta"):
        assert constructed() == expected
        weights = [dict(ticket.materialize()) for ticket in expected]
        assert [Ticket.from_bytes(ticket.to_bytes()) for ticket in expected] == expected
    for ticket, by_name in zip(expected, weights, strict=True):
        assert all(by_name[name].equal(weight) for name, weight in ticket.materialize().items())


def test_the_norm_of_the_inputs_may_come_from_numpy() -> None:
    matrix = draw(2, 2, seed=0, scale=0.3)
    expected = st.construct_linear(matrix, hidden_width=16, input_norm=2.0)
    assert st.construct_linear(matrix, hidden_width=16, input_norm=np.float32(2)) == expected


def test_the_norm_of_the_inputs_is_checked_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_own(*arguments: object) -> Tensor:
        raise AssertionError("work was begun")

    monkeypatch.setattr(RandomMatrix, "draw", draw_own)
    attention, matrix = random_attention(1, 2, 2, bias=False, seed=0), torch.ones(2, 2)
    transformer, widths = Transformer([Block(attention, FeedForward([matrix]))]), {"key_width": 8, "value_width": 8}
    message = "input_norm must be a positive finite number; got -1"
    with pytest.raises(ValueError, match=message):
        st.construct_linear(matrix, hidden_width=8, input_norm=-1)
    with pytest.raises(ValueError, match=message):
        st.construct_feedforward(matrix, hidden_width=8, input_norm=-1)
    with pytest.raises(ValueError, match=message):
        st.construct_attention(attention, **widths, input_norm=-1)
    with pytest.raises(ValueError, match=message):
        st.construct_transformer(transformer, **widths, hidden_width=8, input_norm=-1)
