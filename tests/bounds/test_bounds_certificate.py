"""The certificate against networks that try to break it: random ones, and inputs that climb towards the bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strongticket.bounds import (
    AttentionNorms,
    BlockNorms,
    Envelope,
    HeadNorms,
    LinearNorms,
    Variant,
    attention_drift,
    attention_error,
    block_drift,
    propagate_attention,
    propagate_block,
    propagate_feedforward,
    propagate_transformer,
)

VARIANTS = get_args(Variant)
SEEDS = range(4)
ROUNDING = 1e-12  # float64 evaluation of networks whose values stay below 1e3


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def norm(matrix: Tensor) -> float:
    return torch.linalg.norm(matrix, ord=2).item() * (1 + 1e-13)


@dataclass
class Head:
    """Merged matrices; the last row of `qk` belongs to the 1 in [x; 1]."""

    qk: Tensor  # (d + 1, d)
    vo: Tensor  # (d, d_out)


@dataclass
class Linear:
    """What meets the positive and the negative parts of an input; a target has the same matrix twice."""

    positive: Tensor  # (out, in)
    negative: Tensor
    bias: Tensor  # (out,)


@dataclass
class Network:
    heads: list[Head]
    bias: Tensor  # (d_out,)
    layers: list[Linear]


def attend(network: Network, X: Tensor, mask: Tensor) -> Tensor:
    """X (..., T, d), mask (T, T) bool; every row attends to something."""
    queries = torch.cat([X, torch.ones_like(X[..., :1])], dim=-1)
    out = network.bias
    for head in network.heads:
        scores = (queries @ head.qk @ X.transpose(-1, -2)).masked_fill(~mask, -math.inf)
        out = out + scores.softmax(-1) @ X @ head.vo
    return out


def feed_forward(network: Network, X: Tensor) -> Tensor:
    for number, layer in enumerate(network.layers):
        X = X.relu() if number else X
        X = X.clamp(min=0) @ layer.positive.T + X.clamp(max=0) @ layer.negative.T + layer.bias
    return X


def run_block(network: Network, X: Tensor, mask: Tensor) -> Tensor:
    Z = X + attend(network, X, mask)
    return Z + feed_forward(network, Z)


def random_target(d: int, d_out: int, n_heads: int, n_layers: int) -> Network:
    heads = [Head(normal(d + 1, d) / d, normal(d, d_out) / d) for _ in range(n_heads)]
    layers = []
    for _ in range(n_layers):
        W = normal(d_out, d_out) / math.sqrt(d_out)
        layers.append(Linear(W, W, 0.3 * normal(d_out)))
    return Network(heads, 0.3 * normal(d_out), layers)


def perturbed(target: Network, size: float) -> Network:
    def near(W: Tensor) -> Tensor:
        return W + size * normal(*W.shape)

    return Network(
        [Head(near(head.qk), near(head.vo)) for head in target.heads],
        near(target.bias),
        [Linear(near(layer.positive), near(layer.negative), near(layer.bias)) for layer in target.layers],
    )


def norms_of(target: Network, source: Network) -> BlockNorms:
    heads = [
        HeadNorms(
            qk_norm=norm(t.qk[:-1]),
            qk_error=norm((t.qk - s.qk)[:-1]),
            query_bias_norm=norm(t.qk[-1:]),
            query_bias_error=norm((t.qk - s.qk)[-1:]),
            vo_norm=norm(t.vo),
            vo_error=norm(t.vo - s.vo),
        )
        for t, s in zip(target.heads, source.heads, strict=True)
    ]
    layers = []
    for number, (t, s) in enumerate(zip(target.layers, source.layers, strict=True)):
        positive, negative = s.positive - t.positive, s.negative - t.negative
        # Behind a ReLU nothing is negative.
        error = norm(positive) if number else norm(torch.cat([positive, negative], dim=1))
        bias = {"bias_norm": norm(t.bias[None]), "bias_error": norm((t.bias - s.bias)[None])}
        layers.append(LinearNorms(norm=norm(t.positive), error=error, **bias))
    bias = {"bias_norm": norm(target.bias[None]), "bias_error": norm((target.bias - source.bias)[None])}
    return BlockNorms(attention=AttentionNorms(heads=tuple(heads), **bias), feedforward=tuple(layers))


def random_mask(T: int) -> Tensor:
    return (torch.rand(T, T) < 0.6) | torch.eye(T, dtype=torch.bool)


def into_ball(X: Tensor, radius: float) -> Tensor:
    return X * (radius / X.norm(dim=-1, keepdim=True).clamp(min=radius))


def climb(distance: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], a: float, delta: float) -> float:
    """Find the largest distance gradient ascent reaches, over inputs of norm a and moves of norm delta."""
    X, move = (normal(16, *shape).requires_grad_() for _ in range(2))
    optimizer = torch.optim.Adam([X, move], lr=0.2)
    largest = 0.0
    for _ in range(40):
        inputs = into_ball(X * a, a)
        reached = distance(inputs, inputs + into_ball(move * delta, delta) if delta else inputs)
        largest = max(largest, reached.max().item())
        optimizer.zero_grad()
        (-reached.sum()).backward()
        optimizer.step()
    return largest


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "input_norm"), [(1e-3, 1.0), (0.05, 2.0), (0.5, 4.0)])
def test_theorem_9_certificate_is_never_broken(seed: int, size: float, input_norm: float) -> None:
    torch.manual_seed(seed)
    d, d_out, H, T = 3 + seed, 2 + seed, 1 + seed % 3, 5
    target = random_target(d, d_out, H, 0)
    source = perturbed(target, size)
    source.bias = target.bias
    mask = random_mask(T)

    def distance(X: Tensor, _: Tensor) -> Tensor:
        return (attend(target, X, mask) - attend(source, X, mask)).norm(dim=-1).amax(-1)

    reached = climb(distance, (T, d), input_norm, 0.0)
    heads = norms_of(target, source).attention.heads
    tight, paper = (attention_error(input_norm, heads, variant=variant, d_model=d) for variant in ("tight", "paper"))
    assert reached <= tight + ROUNDING
    assert tight <= paper
    # A bound that were a hundred times too large would pass everything else here.
    assert tight < 100 * reached


def test_certificate_of_one_head_is_nearly_attained() -> None:
    """Two opposite tokens, errors along one direction: nothing is lost but the alignment of s with the worst mass."""
    e, alpha = 0.01, 2.0
    target = Network([Head(torch.zeros(3, 2).double(), torch.eye(2).double())], torch.zeros(2).double(), [])
    qk, vo = torch.zeros(3, 2).double(), torch.eye(2).double()
    qk[0, 0] = e
    vo[0, 0] += e
    source = Network([Head(qk, vo)], target.bias, [])
    X = torch.tensor([[alpha, 0.0], [-alpha, 0.0]], dtype=torch.float64)
    mask = torch.ones(2, 2, dtype=torch.bool)
    reached = (attend(target, X, mask) - attend(source, X, mask)).norm(dim=-1).max().item()
    head = HeadNorms(qk_error=e, vo_norm=1.0, vo_error=0.0)
    assert reached == pytest.approx(attention_error(alpha, [head]), rel=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_12_attention_on_inputs_that_are_off(seed: int) -> None:
    torch.manual_seed(seed)
    d, T, a, delta = 4, 4, 1.5, 0.05
    target = random_target(d, 3, 2, 0)
    source = perturbed(target, 0.02)
    mask = random_mask(T)

    def distance(X: Tensor, X_off: Tensor) -> Tensor:
        return (attend(target, X, mask) - attend(source, X_off, mask)).norm(dim=-1).amax(-1)

    norms = norms_of(target, source).attention
    tight, paper = (propagate_attention(Envelope(a, delta), norms, variant=v, d_model=d) for v in ("tight", "paper"))
    assert climb(distance, (T, d), a, delta) <= tight.error + ROUNDING
    assert tight.error <= paper.error
    assert climb(lambda X, _: attend(target, X, mask).norm(dim=-1).amax(-1), (T, d), a, 0.0) <= tight.norm + ROUNDING


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_lemmas_12_and_13_hold_for_targets_of_norm_one(seed: int) -> None:
    torch.manual_seed(seed)
    d, T, H, alpha, delta = 3, 4, 2, 2.0, 0.1
    target = random_target(d, d, H, 2)
    for head in target.heads:
        head.qk[-1] = 0
        head.qk /= norm(head.qk)
        head.vo /= norm(head.vo)
    for layer in target.layers:
        layer.positive = layer.negative = layer.positive / norm(layer.positive)
    mask = random_mask(T)

    def moved(network: Callable[[Network, Tensor, Tensor], Tensor]) -> float:
        def distance(X: Tensor, X_off: Tensor) -> Tensor:
            # Going to the nearest point of a ball brings no two points farther apart.
            X_off = into_ball(X_off, alpha)
            return (network(target, X, mask) - network(target, X_off, mask)).norm(dim=-1).amax(-1)

        return climb(distance, (T, d), alpha, delta)

    for network, drift in ((attend, attention_drift), (run_block, block_drift)):
        reached, bound = moved(network), drift(delta, d_model=d, n_heads=H, input_norm=alpha)
        assert reached <= bound + ROUNDING
        assert bound < 20 * reached


@pytest.mark.parametrize("n_layers", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_10_certificate_is_never_broken(seed: int, n_layers: int) -> None:
    torch.manual_seed(seed)
    d, a, delta = 4, 2.0, 0.1 * (seed % 2)
    target = random_target(d, d, 0, n_layers)
    source = perturbed(target, 0.03)
    bound = propagate_feedforward(Envelope(a, delta), norms_of(target, source).feedforward)

    def distance(X: Tensor, X_off: Tensor) -> Tensor:
        return (feed_forward(target, X) - feed_forward(source, X_off)).norm(dim=-1)

    reached = climb(distance, (d,), a, delta)
    assert reached <= bound.error + ROUNDING
    assert bound.error < 100 * reached
    assert climb(lambda X, _: feed_forward(target, X).norm(dim=-1), (d,), a, 0.0) <= bound.norm + ROUNDING


def test_theorem_10_a_priori_form_follows_from_the_recursion() -> None:
    """L layers of norm 1 with errors eta: alpha ((1 + eta)^L - 1), which the paper bounds by an exponential."""
    alpha, eps, L = 3.0, 0.2, 5
    layers = [LinearNorms(norm=1.0, error=eps / (2 * L))] * L
    error = propagate_feedforward(Envelope(alpha), layers).error
    assert error == pytest.approx(alpha * ((1 + eps / (2 * L)) ** L - 1))
    assert error <= math.expm1(alpha * eps / 2)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_theorems_11_and_14_certificates_are_never_broken(seed: int, depth: int) -> None:
    torch.manual_seed(seed)
    d, T, a = 3, 4, 1.0
    targets = [random_target(d, d, 1 + seed % 2, 1 + seed % 3) for _ in range(depth)]
    sources = [perturbed(target, 1e-4) for target in targets]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    blocks = [norms_of(target, source) for target, source in zip(targets, sources, strict=True)]
    tight, paper = (propagate_transformer(Envelope(a), blocks, variant=v, d_model=d) for v in ("tight", "paper"))
    assert tight[0] == propagate_block(Envelope(a), blocks[0])

    def distance(X: Tensor, _: Tensor) -> Tensor:
        Y = X
        for target, source in zip(targets, sources, strict=True):
            X, Y = run_block(target, X, mask), run_block(source, Y, mask)
        return (X - Y).norm(dim=-1).amax(-1)

    assert climb(distance, (T, d), a, 0.0) <= tight[-1].error + ROUNDING
    assert tight[-1].error <= paper[-1].error


def test_biases_of_key_query_and_value_merge_exactly() -> None:
    """A key bias drops out, a query bias is a row of W_QK, a value bias is part of the output bias."""
    torch.manual_seed(0)
    d, d_k, d_out, T = 4, 3, 2, 5
    W_Q, W_K, W_V = (normal(d, d_k) for _ in range(3))
    b_Q, b_K, b_V, W_O, b_O = normal(d_k), normal(d_k), normal(d_k), normal(d_k, d_out), normal(d_out)
    X, mask = normal(T, d), random_mask(T)
    scores = (X @ W_Q + b_Q) @ (X @ W_K + b_K).T / math.sqrt(d_k)
    expected = scores.masked_fill(~mask, -math.inf).softmax(-1) @ (X @ W_V + b_V) @ W_O + b_O
    head = Head(torch.cat([W_Q, b_Q[None]]) @ W_K.T / math.sqrt(d_k), W_V @ W_O)
    merged = Network([head], b_O + b_V @ W_O, [])
    torch.testing.assert_close(attend(merged, X, mask), expected, rtol=0, atol=1e-12)


NUMBERS = st.floats(0, 1e308) | st.just(math.inf)
HEADS = st.builds(
    HeadNorms,
    qk_error=NUMBERS,
    vo_error=NUMBERS,
    vo_norm=NUMBERS,
    qk_norm=NUMBERS,
    query_bias_error=NUMBERS,
    query_bias_norm=NUMBERS,
)
LAYERS = st.builds(LinearNorms, norm=NUMBERS, error=NUMBERS, bias_norm=NUMBERS, bias_error=NUMBERS)
BLOCKS = st.builds(
    BlockNorms,
    attention=st.builds(
        AttentionNorms, heads=st.lists(HEADS, max_size=3).map(tuple), bias_norm=NUMBERS, bias_error=NUMBERS
    ),
    feedforward=st.lists(LAYERS, max_size=3).map(tuple),
)


@given(inputs=st.builds(Envelope, NUMBERS, NUMBERS), block=BLOCKS, variant=st.sampled_from(VARIANTS))
def test_overflow_is_infinity_and_never_nan(inputs: Envelope, block: BlockNorms, variant: Variant) -> None:
    outputs = propagate_block(inputs, block, variant=variant, d_model=7)
    assert outputs.norm >= inputs.norm
    assert outputs.error >= inputs.error


@given(
    norms=st.tuples(*[st.floats(0, 10)] * 8),
    larger=st.tuples(*[st.floats(1, 3)] * 8),
    variant=st.sampled_from(VARIANTS),
)
def test_certificate_grows_with_every_norm(
    norms: tuple[float, ...], larger: tuple[float, ...], variant: Variant
) -> None:
    def error(a: float, delta: float, qk: float, E: float, w: float, e: float, vo: float, E_vo: float) -> float:
        head = HeadNorms(qk_norm=qk, qk_error=E, query_bias_norm=w, query_bias_error=e, vo_norm=vo, vo_error=E_vo)
        block = BlockNorms(attention=AttentionNorms(heads=(head,)), feedforward=(LinearNorms(norm=vo, error=E_vo),))
        return propagate_block(Envelope(a, delta), block, variant=variant, d_model=3).error

    assert error(*norms) <= error(*(x * factor for x, factor in zip(norms, larger, strict=True)))


def test_certificate_is_rounded_up() -> None:
    mpmath = pytest.importorskip("mpmath", reason="mpmath evaluates the formula without rounding to compare with")
    torch.manual_seed(0)
    with mpmath.workdps(60):
        for _ in range(300):
            a, delta, qk, E, w, e, vo, E_vo = (mpmath.mpf(x) for x in torch.rand(8, dtype=torch.float64).tolist())
            s = delta * ((2 * a + delta) * qk + w) + (a + delta) * ((a + delta) * E + e)
            exact = 5 * (2 * a * mpmath.tanh(s / 2) * vo + delta * vo + (a + delta) * E_vo)
            head = HeadNorms(
                qk_norm=float(qk),
                qk_error=float(E),
                query_bias_norm=float(w),
                query_bias_error=float(e),
                vo_norm=float(vo),
                vo_error=float(E_vo),
            )
            bound = propagate_attention(Envelope(float(a), float(delta)), AttentionNorms(heads=(head,) * 5)).error
            assert exact <= bound <= exact * (1 + mpmath.mpf("1e-13"))


def test_a_perfect_source_has_error_zero() -> None:
    head = HeadNorms(qk_error=0.0, vo_error=0.0, vo_norm=2.0)
    assert attention_error(3.0, [head, head]) == 0.0


def test_an_unknown_score_norm_is_safe() -> None:
    """Left out, ||W_QK|| counts as unbounded: weights may then move by all they can, 2 in 1-norm."""
    attention = AttentionNorms(heads=(HeadNorms(qk_error=0.0, vo_error=0.0, vo_norm=1.0),))
    assert propagate_attention(Envelope(1.0, 0.5), attention).error == pytest.approx(2.5)
    assert propagate_attention(Envelope(1.0), attention).error == 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: HeadNorms(qk_error=-1.0, vo_error=0.0, vo_norm=0.0), "qk_error must be a norm, 0 or more; got -1.0"),
        (lambda: Envelope(math.nan), "norm must be a norm, 0 or more; got nan"),
        (lambda: LinearNorms(norm=1.0, error=math.nan), "error must be a norm, 0 or more; got nan"),
        (
            lambda: attention_error(1.0, [HeadNorms(qk_error=0.1, vo_error=0.0, vo_norm=0.0)], variant="paper"),
            'variant "paper" needs d_model; got none',
        ),
        (
            lambda: attention_error(
                1.0, [HeadNorms(qk_error=0.1, vo_error=0.0, vo_norm=0.0)], variant="paper", d_model=0
            ),
            "d_model must be at least 1; got 0",
        ),
    ],
)
def test_bad_norms_are_named(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()
