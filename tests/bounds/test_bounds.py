"""The paper's lemmas and theorems, asked both ways; the command that prints them."""

import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from strongticket import bounds
from strongticket.bounds import Bound, Stack, Variant
from strongticket.bounds.perturbation import largest
from strongticket.bounds.upward import Up, up_digits, up_sqrt
from strongticket.cli.bound import bound_app

VARIANTS = get_args(Variant)
DIMENSIONS = st.integers(1, 300)
FEW = st.integers(1, 12)
NORMS = st.floats(1e-3, 1e3)
TOLERANCES = st.floats(1e-12, 0.999)
CONSTANTS = st.floats(0.5, 50)


@st.composite
def theorems(draw: st.DrawFn) -> Callable[[Variant], Bound | Stack]:
    """One statement with random numbers in it, waiting for its variant."""
    d, d_out, H, L, B = (draw(s) for s in (DIMENSIONS, DIMENSIONS, FEW, FEW, FEW))
    alpha, C = draw(NORMS), draw(CONSTANTS | st.none())
    dims = draw(st.lists(DIMENSIONS, min_size=2, max_size=5))
    common = {"d_model": d, "input_norm": alpha, "constant": C}
    return draw(
        st.sampled_from(
            [
                lambda variant: bounds.linear_bound(d_model=d, d_out=d_out, constant=C),
                lambda variant: bounds.relu_bound(**common, d_out=d_out, variant=variant),
                lambda variant: bounds.feedforward_bound(dims, input_norm=alpha, constant=C, variant=variant),
                lambda variant: bounds.attention_bound(**common, d_out=d_out, n_heads=H, variant=variant),
                lambda variant: bounds.block_bound(**common, n_heads=H, layers=L, variant=variant),
                lambda variant: bounds.transformer_bound(**common, n_heads=H, layers=L, blocks=B, variant=variant),
            ]
        )
    )


def as_stack(bound: Bound | Stack) -> Stack:
    return bound if isinstance(bound, Stack) else Stack(statement=bound.statement, parts=(bound,))


def all_lines(stack: Stack, *widths: list[dict[str, int]]) -> Iterator[tuple[int, ...]]:
    """The same width out of each of the given lists, one after the other."""
    for part, *own in zip(stack.parts, *widths, strict=True):
        for line in part.requirements:
            yield tuple(each[line.name] for each in own)


@pytest.mark.parametrize("variant", VARIANTS)
@given(theorem=theorems(), tol=TOLERANCES)
def test_widths_and_error_are_inverse(
    variant: Variant, theorem: Callable[[Variant], Bound | Stack], tol: float
) -> None:
    stack = as_stack(theorem(variant))
    widths = stack.widths(tol)
    error = stack.error(widths)
    assert error <= tol
    # The same widths come back from the error they promise, and one item less would promise more.
    again = stack.widths(error) if error < 1 else widths
    for n, back in all_lines(stack, widths, again):
        assert back <= n
    for i, part in enumerate(stack.parts):
        for line in part.requirements:
            fewer = [dict(own) for own in widths]
            fewer[i][line.name] -= line.blocks
            assert widths[i][line.name] % line.blocks == 0
            assert fewer[i][line.name] == 0 or stack.error(fewer) > tol


@pytest.mark.parametrize("variant", VARIANTS)
@given(theorem=theorems(), tol=TOLERANCES, ratio=st.floats(0.01, 1))
def test_a_smaller_error_never_needs_less_width(
    variant: Variant, theorem: Callable[[Variant], Bound | Stack], tol: float, ratio: float
) -> None:
    stack = as_stack(theorem(variant))
    smaller = stack.widths(tol * ratio)
    assert all(n <= more for n, more in all_lines(stack, stack.widths(tol), smaller))
    assert stack.error(smaller) <= tol * ratio
    assert stack.failure(smaller) <= stack.failure(stack.widths(tol))


@given(theorem=theorems(), tol=TOLERANCES)
def test_tight_widths_are_never_above_the_papers(theorem: Callable[[Variant], Bound | Stack], tol: float) -> None:
    paper, tight = as_stack(theorem("paper")), as_stack(theorem("tight"))
    widths = paper.widths(tol)
    assert all(n <= more for n, more in all_lines(paper, tight.widths(tol), widths))
    # Where the two agree they reach one number by different steps, so its last digits may differ.
    assert tight.error(widths) <= paper.error(widths) * (1 + 1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@given(theorem=theorems(), tol=TOLERANCES)
def test_failure_is_at_most_the_error(
    variant: Variant, theorem: Callable[[Variant], Bound | Stack], tol: float
) -> None:
    """Every theorem says "with probability at least 1 - eps": the union bound over all heads and blocks gives that."""
    stack = as_stack(theorem(variant))
    assert stack.failure(stack.widths(tol)) <= tol * (1 + 1e-9)


# So many items in a sum that a scale which is off by a millionth shows.
FINE = 2e6


def width(items: float, blocks: int) -> int:
    return math.ceil(items) * blocks


def test_lemma_2_widths() -> None:
    widths = bounds.relu_bound(d_model=8, d_out=3, constant=FINE).widths(0.01)
    assert widths == {"hidden_width": width(FINE * math.log(2 * 8 * 3 / 0.01), 8)}


def test_lemma_2_counts_short_inputs_as_of_norm_one() -> None:
    short, one, long = (
        bounds.relu_bound(d_model=8, d_out=3, input_norm=alpha, constant=FINE).widths(0.01) for alpha in (0.1, 1, 3)
    )
    assert short == one
    assert long == {"hidden_width": width(FINE * math.log(2 * 8 * 3 * 3 / 0.01), 8)}


def test_a_statement_without_inputs_assumes_norm_one() -> None:
    assert Bound(statement="Lemma 7", requirements=()).input_norm == 1.0


def test_lemma_7_widths() -> None:
    widths = bounds.linear_bound(d_model=8, d_out=3, constant=FINE).widths(0.01)
    assert widths == {"hidden_width": width(FINE * math.log(8 * 3 / 0.01), 8)}


def test_theorem_9_widths() -> None:
    H, alpha, d1, d2, eps = 3, 5.0, 8, 4, 0.01
    bound = bounds.attention_bound(d_model=d1, d_out=d2, n_heads=H, input_norm=alpha, constant=FINE)
    assert bound.widths(eps) == {
        "key_width": width(FINE * math.log(8 * H * alpha**3 * d1**1.5 / eps), d1),
        "value_width": width(FINE * math.log(2 * H * alpha * d1 * math.sqrt(d2) / eps), d1),
    }
    assert bound.notes == ()


@given(d1=DIMENSIONS, d2=DIMENSIONS, H=FEW, alpha=NORMS, tol=TOLERANCES)
def test_theorem_9_fails_with_at_most_five_eighths_of_eps(d1: int, d2: int, H: int, alpha: float, tol: float) -> None:
    bound = bounds.attention_bound(d_model=d1, d_out=d2, n_heads=H, input_norm=alpha)
    assert bound.failure(bound.widths(tol)) <= 5 / 8 * tol * (1 + 1e-9)


def test_theorem_9_raises_alpha_and_says_so() -> None:
    bound = bounds.attention_bound(d_model=4, d_out=9, input_norm=1.0)
    assert bound.input_norm == 3.0
    assert bound.notes == ("computed for input norm 3, the least that Theorem 9 covers, not 1.",)
    assert bounds.attention_bound(d_model=4, d_out=9, variant="tight").notes == ()
    key, _ = bounds.attention_bound(d_model=9, d_out=9, n_heads=2, input_norm=1.0).requirements
    assert key.log_scale == pytest.approx(math.log(8 * 2 * 9**3)), "what the paper's abstract leaves out"


def test_theorem_10_widths() -> None:
    L, alpha, tol = 2, 3.0, 0.01
    eps = 2 * math.log1p(tol) / alpha
    stack = bounds.feedforward_bound([8, 5, 2], input_norm=alpha, constant=FINE)
    assert stack.widths(tol) == [
        {"hidden_width": width(FINE * math.log(4 * L * d * e / eps), d)} for d, e in pairwise([8, 5, 2])
    ]


def test_widths_of_billions_of_items_are_found_at_once() -> None:
    """Counting up to them, from any other number than nearly theirs, would take hours."""
    for variant in VARIANTS:
        stack = bounds.feedforward_bound([8, 5, 2], input_norm=3.0, constant=1e11, variant=variant)
        assert stack.widths(0.01)[0]["hidden_width"] > 8 * 1e11


def test_theorem_11_widths() -> None:
    d, H, L, alpha, eps = 4, 3, 2, 5.0, 0.01
    n_mha = width(FINE * math.log(32 * alpha**3 * H * d**1.5 / eps), d)
    n_fc = width(FINE * math.log(24 * alpha * L * H * d**2.5 / eps), d)
    bound = bounds.block_bound(d_model=d, n_heads=H, layers=L, input_norm=alpha, constant=FINE)
    assert bound.widths(eps) == {"key_width": n_mha, "value_width": n_mha, "hidden_width": n_fc}


def test_theorem_14_widths() -> None:
    d, H, L, B, alpha, eps = 4, 3, 2, 3, 5.0, 0.01
    beta = [alpha * (4 * H * math.sqrt(d)) ** b for b in range(B)]
    expected = []
    for b in range(B):
        # As printed in the paper: 2^(B-1), 2^(B-1), 2^(B-2), ..., 2 in front of the product.
        share = 2 ** (B - max(b, 1)) * math.prod(16 * H * math.sqrt(d) * beta[j] ** 2 for j in range(b + 1, B))
        norm = beta[0] if b == 0 else 2 * beta[b]
        n_mha = width(FINE * math.log(32 * norm**3 * H * d**1.5 * share / eps), d)
        n_fc = width(FINE * math.log(24 * norm * L * H * d**2.5 * share / eps), d)
        expected.append({"key_width": n_mha, "value_width": n_mha, "hidden_width": n_fc})
    stack = bounds.transformer_bound(d_model=d, n_heads=H, layers=L, blocks=B, input_norm=alpha, constant=FINE)
    assert stack.widths(eps) == expected


def test_tight_widths() -> None:
    d, d_out, H, L, eps = 4, 6, 3, 2, 0.01

    def items(scale: float) -> int:
        return math.ceil(FINE * math.log(scale / eps))

    relu = bounds.relu_bound(d_model=d, d_out=d_out, input_norm=50.0, constant=FINE, variant="tight")
    assert relu.widths(eps) == {"hidden_width": d * items(50 * math.sqrt(d * d_out))}
    layers = bounds.feedforward_bound([d, d_out, d], input_norm=50.0, constant=FINE, variant="tight")
    assert layers.widths(eps)[1] == {"hidden_width": d_out * items(L * 51 * math.sqrt(d * d_out))}
    for alpha, key, value in ((0.1, 2 * H * d * d, 2 * H * d * d_out), (9.0, 2 * H * 9**3 * d, 2 * H * 9 * 24**0.5)):
        settings = {"d_model": d, "n_heads": H, "input_norm": alpha, "constant": FINE, "variant": "tight"}
        bound = bounds.attention_bound(**settings, d_out=d_out)
        assert bound.widths(eps) == {"key_width": d * items(key), "value_width": d * items(value)}
        hidden = L * max((2 * alpha * (1 + H) + 1.5) * d, 4 * d * d)
        assert bounds.block_bound(**settings, layers=L).widths(eps)["hidden_width"] == d * items(hidden)
        first, second = bounds.transformer_bound(**settings, layers=L, blocks=2).widths(eps)
        a = alpha * (2 + 2 * H)
        assert first["hidden_width"] == d * items(hidden * 4 * (1 + H + H * a * (2 * a + 1 / 8)))
        hidden = L * max((2 * (a + 1 / 8) * (1 + H) + 1.5) * d, 4 * d * d)
        assert second["hidden_width"] == d * items(2 * hidden)


@pytest.mark.parametrize("variant", VARIANTS)
def test_failure_counts_every_subset_sum(variant: Variant) -> None:
    d, d_out, H, L, B, C, items = 3, 5, 4, 2, 3, 2.0, 40

    def sums(bound: Bound | Stack) -> float:
        stack = as_stack(bound)
        widths = [{line.name: items * line.blocks for line in part.requirements} for part in stack.parts]
        return stack.failure(widths) / math.exp(-items / C)

    settings = {"d_model": d, "constant": C, "variant": variant}
    assert sums(bounds.linear_bound(d_model=d, d_out=d_out, constant=C)) == pytest.approx(d * d_out)
    # A ReLU passes either sign, so each entry is met twice.
    assert sums(bounds.relu_bound(**settings, d_out=d_out)) == pytest.approx(2 * d * d_out)
    layers = bounds.feedforward_bound([d, d_out, 2], constant=C, variant=variant)
    assert sums(layers) == pytest.approx(2 * (d * d_out + d_out * 2))
    attention = bounds.attention_bound(**settings, d_out=d_out, n_heads=H)
    assert sums(attention) == pytest.approx(H * d * d + H * d * d_out)
    block = 2 * H * d * d + 2 * L * d * d
    assert sums(bounds.block_bound(**settings, n_heads=H, layers=L)) == pytest.approx(block)
    assert sums(bounds.transformer_bound(**settings, n_heads=H, layers=L, blocks=B)) == pytest.approx(B * block)


def test_a_stack_speaks_of_its_first_part() -> None:
    """Whose inputs are those of the whole."""
    first, second = bounds.attention_bound(d_model=9, d_out=9), bounds.attention_bound(d_model=4, d_out=4, constant=2.0)
    stack = Stack(statement="both", parts=(first, second))
    assert (stack.notes, stack.input_norm, stack.constants) == (first.notes, 3.0, first.constants)


def test_what_is_left_out_is_one() -> None:
    """One head, one layer, inputs of norm 1."""
    heads, layers, alpha = {"n_heads": 1}, {"layers": 1}, {"input_norm": 1.0}
    for statement, sizes, defaults in (
        (bounds.relu_bound, {"d_model": 1, "d_out": 1}, alpha),
        (bounds.attention_bound, {"d_model": 1, "d_out": 1}, heads | alpha),
        (bounds.block_bound, {"d_model": 1}, heads | layers | alpha),
        (bounds.transformer_bound, {"d_model": 1, "blocks": 2}, heads | layers | alpha),
    ):
        for variant in VARIANTS:
            assert statement(**sizes, variant=variant) == statement(**sizes, **defaults, variant=variant)
    assert bounds.feedforward_bound([2, 1], variant="tight") == bounds.feedforward_bound(
        [2, 1], **alpha, variant="tight"
    )


@pytest.mark.parametrize("variant", VARIANTS)
@given(d=st.integers(1, 40), H=FEW, L=FEW, B=st.integers(1, 4), alpha=NORMS, tol=TOLERANCES)
def test_theorem_14_follows_from_the_certificate(
    variant: Variant, d: int, H: int, L: int, B: int, alpha: float, tol: float
) -> None:
    """If every sum of every block misses by the e its width stands for, the certificate is within tol.

    So the paper's widths stand although steps of its proof do not, and so do the tight ones.
    """
    stack = bounds.transformer_bound(d_model=d, n_heads=H, layers=L, blocks=B, input_norm=alpha, variant=variant)
    blocks = []
    for part, widths in zip(stack.parts, stack.widths(tol), strict=True):
        key, value, hidden = (line.miss(widths[line.name]) for line in part.requirements)
        head = bounds.HeadNorms(qk_norm=1.0, vo_norm=1.0, qk_error=d * key, vo_error=d * value)
        layer = bounds.LinearNorms(norm=1.0, error=d * hidden)
        attention = bounds.AttentionNorms(heads=(head,) * H)
        blocks.append(bounds.BlockNorms(attention=attention, feedforward=(layer,) * L))
    inputs = bounds.Envelope(stack.input_norm)
    assert bounds.propagate_transformer(inputs, blocks, variant=variant, d_model=d)[-1].error <= tol * (1 + 1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_theorem_14_of_one_block_is_theorem_11(variant: Variant) -> None:
    settings = {"d_model": 6, "n_heads": 2, "layers": 3, "input_norm": 7.0, "variant": variant}
    assert bounds.transformer_bound(**settings, blocks=1).widths(0.1) == [bounds.block_bound(**settings).widths(0.1)]


def test_theorem_14_of_a_deep_transformer_stays_finite() -> None:
    """Its scale is about 10^9000, far outside float64."""
    stack = bounds.transformer_bound(d_model=768, n_heads=12, blocks=48, input_norm=30.0)
    widths = stack.widths(1e-3)
    assert 768 * 14 * 9000 < widths[0]["hidden_width"] < 768 * 14.6 * 25000
    assert stack.error(widths) <= 1e-3


@pytest.mark.parametrize(("positive", "constant"), [(0.5, 7.0), (0.25, 14.6)])
def test_no_smaller_constant_can_be_right(positive: float, constant: float) -> None:
    """The default C is, to two digits, what the sums that cannot reach 1 leave possible (docs/theory.md, section 6)."""
    steps = 4096
    grid = np.arange(1, steps + 1) / steps
    # |u v| has the distribution x - x log x. Items are rounded up, so each sum is more likely to reach 1 than it is.
    mass = np.concatenate(([1 - positive], positive * np.diff(grid - grid * np.log(grid), prepend=0.0)))
    below = np.eye(1, steps + 1)[0]
    floors = []
    for n in range(1, 33):
        below = np.convolve(below, mass)[: steps + 1]
        unreached = np.cumsum(below)[:-1]  # at [i]: the chance of a sum of at most i / steps < 1 - e, at least
        e = 1 - grid
        floors.append(n / math.log(1 / e[unreached > e].max()))
    assert constant - 0.05 < max(floors) < constant + 0.05


@pytest.mark.parametrize("variant", VARIANTS)
@given(tol=st.floats(1e-12, 10), alpha=NORMS, d=DIMENSIONS)
def test_lemma_8_and_its_inverse(variant: Variant, tol: float, alpha: float, d: int) -> None:
    s = bounds.largest_score_error(tol, input_norm=alpha, d_model=d, variant=variant)
    if math.isinf(s):
        assert variant == "tight"
        assert tol >= 2 * alpha
        return
    assert bounds.softmax_error(s, input_norm=alpha, d_model=d, variant=variant) <= tol
    assert bounds.softmax_error(s * (1 + 1e-9) + 1e-9, input_norm=alpha, d_model=d, variant=variant) > tol * (1 - 1e-6)


@given(s=st.floats(1e-12, 0.5), alpha=NORMS, d=DIMENSIONS)
def test_lemma_5_is_above_lemma_8_and_ends_at_a_half(s: float, alpha: float, d: int) -> None:
    by_lemma_5 = bounds.small_softmax_error(s, input_norm=alpha, d_model=d)
    assert by_lemma_5 >= bounds.softmax_error(s, input_norm=alpha, d_model=d, variant="paper")
    with pytest.raises(ValueError, match=r"Lemma 5 needs a score error of at most 1/2; got 0\.6"):
        bounds.small_softmax_error(0.6, input_norm=alpha, d_model=d)


@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_with_wider_hidden_layers(variant: Variant) -> None:
    """d -> 4d -> d: what `feedforward_bound` asks of its layers at the share of the error that a block gives them."""
    d, alpha, tol = 6, 9.0, 0.01
    same = {"d_model": d, "n_heads": 2, "layers": 2, "input_norm": alpha, "variant": variant, "constant": FINE}
    plain, wide = (bounds.block_bound(**same, hidden=hidden) for hidden in (None, 4 * d))
    assert bounds.block_bound(**same, hidden=d) == plain
    lines = {line.name: line for line in wide.requirements}
    assert lines["hidden_width"].blocks == 4 * d
    assert lines["hidden_width"].sums == 2 * (d * 4 * d + 4 * d * d)
    assert lines["key_width"] == plain.requirements[0]
    if variant == "paper":
        # Theorem 10 at eps' = eps / 6 alpha H sqrt(d), as in Theorem 11's proof.
        share = tol / (6 * alpha * 2 * math.sqrt(d))
        scale = 4 * 2 * (4 * d * d) / share
        assert lines["hidden_width"].log_scale == pytest.approx(math.log(scale * tol))
    stack = bounds.transformer_bound(**same, hidden=4 * d, blocks=1)
    assert stack.widths(tol) == [wide.widths(tol)]


@pytest.mark.parametrize("share", [1e-9, 0.1, 0.5, 0.95, 1 - 1e-6, 1 - 1e-12, 1 - 1e-15, math.nextafter(1, 0)])
def test_lemma_8_up_to_the_most_that_weights_can_move(share: float) -> None:
    """Weights move by less than 2 in 1-norm, whatever the scores do; close to that, rounded arguments say little."""
    alpha = 1.5
    s = bounds.largest_score_error(2 * alpha * share, input_norm=alpha, d_model=3)
    assert s == pytest.approx(2 * math.atanh(share), rel=1e-9 if share < 0.99 else 0.1)
    assert bounds.softmax_error(s, input_norm=alpha, d_model=3) <= 2 * alpha * share
    assert bounds.largest_score_error(2 * alpha, input_norm=alpha, d_model=3) == math.inf


def test_lemma_8_is_searched_for_only_where_its_inverse_is_steep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes a thousand evaluations."""
    monkeypatch.setattr("strongticket.bounds.perturbation.largest", pytest.fail)
    for share in (1e-9, 0.1, 0.5, 0.9):
        bounds.largest_score_error(2 * share, input_norm=1.0, d_model=3)
        bounds.largest_score_error(2 * share, input_norm=1.0, d_model=3, variant="paper")


def test_the_largest_argument_is_found_to_the_last_bit() -> None:
    assert largest(lambda x: x, 0.3) == 0.3
    assert largest(lambda x: x / 8, 0.3) == 8 * 0.3
    assert largest(lambda x: 8 * x, 0.3) == 0.3 / 8


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=30)
@given(tol=st.floats(1e-12, 10), alpha=NORMS, d=DIMENSIONS, H=FEW)
def test_lemmas_12_and_13_and_their_inverses(variant: Variant, tol: float, alpha: float, d: int, H: int) -> None:
    settings = {"d_model": d, "n_heads": H, "input_norm": alpha, "variant": variant}
    for forward, inverse in (
        (bounds.attention_drift, bounds.largest_attention_input_error),
        (bounds.block_drift, bounds.largest_block_input_error),
    ):
        delta = inverse(tol, **settings)
        assert forward(delta, **settings) <= tol
        assert forward(math.nextafter(delta, math.inf), **settings) > tol


def test_lemma_13_has_the_factor_of_its_proof() -> None:
    delta, d, H, alpha = 0.01, 4, 3, 2.0
    settings = {"d_model": d, "n_heads": H, "input_norm": alpha}
    paper = 2 * H * 2 * (alpha * math.expm1(4 * alpha * delta) + delta) + 2 * delta
    tight = 2 * H * (2 * alpha * math.tanh(alpha * delta) + delta) + 2 * delta
    assert bounds.block_drift(delta, **settings, variant="paper") == pytest.approx(paper)
    assert bounds.block_drift(delta, **settings, variant="tight") == pytest.approx(tight)


@given(s=st.floats(1e-300, 800), alpha=NORMS, d=DIMENSIONS, H=FEW)
def test_tight_lemmas_are_never_above_the_papers(s: float, alpha: float, d: int, H: int) -> None:
    def both(lemma: Callable[..., float], **numbers: float) -> tuple[float, ...]:
        return tuple(lemma(s, **numbers, variant=variant) for variant in VARIANTS)

    paper, tight = both(bounds.softmax_error, input_norm=alpha, d_model=d)
    assert 2 * math.sqrt(d) * tight <= paper * (1 + 1e-12)
    for lemma in (bounds.attention_drift, bounds.block_drift):
        paper, tight = both(lemma, input_norm=alpha, d_model=d, n_heads=H)
        assert tight <= paper


@given(s=st.floats(1e-300, 0.5), alpha=NORMS, d=DIMENSIONS)
def test_lemma_5_is_what_lemma_8_gives_for_small_errors(s: float, alpha: float, d: int) -> None:
    paper = bounds.softmax_error(s, input_norm=alpha, d_model=d, variant="paper")
    assert paper <= 4 * math.sqrt(d) * alpha * s * (1 + 1e-12)


@given(data=st.data(), T=st.integers(1, 12), s=st.floats(0, 20))
def test_softmax_shift_holds(data: st.DataObject, T: int, s: float) -> None:
    numbers = st.floats(-30, 30)
    scores = torch.tensor(data.draw(st.lists(numbers, min_size=T, max_size=T)), dtype=torch.float64)
    moves = torch.tensor(data.draw(st.lists(st.floats(-1, 1), min_size=T, max_size=T)), dtype=torch.float64) * s
    moved = (scores.softmax(0) - (scores + moves).softmax(0)).abs().sum()
    assert moved <= bounds.softmax_shift(s) + 1e-13


@pytest.mark.parametrize("s", [1e-6, 0.1, 1.0, 5.0, 30.0])
def test_softmax_shift_is_attained(s: float) -> None:
    """Mass 1 / (e^s + 1) on a score that rises by s, the rest on one that falls by s."""
    scores, moves = torch.tensor([[-s, 0.0], [s, -s]], dtype=torch.float64)
    moved = (scores.softmax(0) - (scores + moves).softmax(0)).abs().sum().item()
    assert moved == pytest.approx(bounds.softmax_shift(s), rel=1e-9)


def test_softmax_shift_survives_ascent() -> None:
    """Scores and moves climb as far as they can, from random starts, and end at the bound."""
    torch.manual_seed(0)
    s = 0.7
    scores, moves = (torch.randn(64, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.Adam([scores, moves], lr=0.2)
    for _ in range(120):
        moved = (scores.softmax(1) - (scores + s * moves.tanh()).softmax(1)).abs().sum(1)
        assert (moved <= bounds.softmax_shift(s)).all()
        optimizer.zero_grad()
        (-moved.sum()).backward()
        optimizer.step()
    assert moved.max() > 0.99 * bounds.softmax_shift(s)


@pytest.mark.parametrize(
    ("s", "expected"), [(0.0, 0.0), (5e-324, 5e-324), (1e300, 2.0), (math.inf, 2.0)], ids=["0", "tiny", "big", "inf"]
)
def test_softmax_shift_at_the_ends(s: float, expected: float) -> None:
    assert bounds.softmax_shift(s) == expected


def test_softmax_shift_is_rounded_up() -> None:
    mpmath = pytest.importorskip("mpmath", reason="mpmath gives the exact tanh to compare with")
    for s in np.geomspace(1e-12, 60, 2000).tolist():
        exact = 2 * mpmath.tanh(mpmath.mpf(s) / 2)
        assert exact <= bounds.softmax_shift(s) <= exact * (1 + mpmath.mpf(2) ** -48)


@given(x=st.floats(0, 1e150), y=st.floats(0, 1e150))
def test_sums_products_and_roots_are_rounded_up_by_at_most_two_steps(x: float, y: float) -> None:
    def two_steps_up(exact: Fraction) -> Fraction:
        return Fraction(math.nextafter(math.nextafter(float(exact), math.inf), math.inf))

    added, multiplied = Fraction(x) + Fraction(y), Fraction(x) * Fraction(y)
    assert added <= Fraction((Up(x) + y).value) <= two_steps_up(added)
    assert multiplied <= Fraction((y * Up(x)).value) <= two_steps_up(multiplied)
    assert Fraction(x) <= Fraction(up_sqrt(x).value) ** 2
    # Nothing is added to what is exact, and what is not known does not matter where it is not used.
    assert Up(x) + 0.0 == 0.0 + Up(x) == Up(x)
    assert Up(math.inf) * 0.0 == Up(0.0) * math.inf == Up(0.0)


@given(x=st.floats(0, 1e300), digits=st.integers(1, 12))
def test_digits_are_rounded_up(x: float, digits: int) -> None:
    rounded = up_digits(x, digits)
    assert x <= rounded <= x * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15) + 5e-324
    assert float(f"{rounded:.{digits - 1}e}") == rounded == up_digits(rounded, digits)


def test_an_error_beyond_float64_is_infinite() -> None:
    bound = bounds.feedforward_bound([1, 1], input_norm=1e4)
    assert bound.error([{"hidden_width": 21}]) == math.inf
    assert bound.error([{"hidden_width": 210}]) < 0.1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: bounds.softmax_shift(-1.0), "score_error must be a norm, 0 or more; got -1.0"),
        (lambda: bounds.softmax_shift(math.nan), "score_error must be a norm, 0 or more; got nan"),
        (lambda: bounds.linear_bound(d_model=0, d_out=1), "d_model must be at least 1; got 0"),
        (lambda: bounds.linear_bound(d_model=1, d_out=1, constant=0.0), "constant must be positive and finite; got 0"),
        (lambda: bounds.attention_bound(d_model=1, d_out=1, input_norm=-1.0), "input_norm must be positive"),
        (lambda: bounds.attention_bound(d_model=1, d_out=1, variant="loose"), "variant must be one of paper, tight"),
        (lambda: bounds.attention_bound(d_model=1, d_out=1).widths(1.0), r"Theorem 9 needs tol in \(0, 1\); got 1.0"),
        (lambda: bounds.attention_bound(d_model=1, d_out=1).error({"key_width": 1}), "needs key_width, value_width"),
        (lambda: bounds.feedforward_bound([3]), r"dims must contain at least an input and an output size; got \[3\]"),
        (lambda: bounds.feedforward_bound([3, 3]).error([]), "Theorem 10 needs widths for 1 parts; got 0"),
    ],
)
def test_bad_arguments_are_named(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


SOME: dict[str, Any] = {"d_model": 2, "d_out": 2, "n_heads": 2, "layers": 2, "blocks": 2, "input_norm": 3.0}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("function", "names", "norms"),
    [
        (bounds.linear_bound, "d_model d_out constant", ""),
        (bounds.relu_bound, "d_model d_out input_norm constant", ""),
        (partial(bounds.feedforward_bound, [2, 2]), "input_norm constant", ""),
        (bounds.attention_bound, "d_model d_out n_heads input_norm constant", ""),
        (bounds.block_bound, "d_model n_heads layers input_norm constant", ""),
        (bounds.transformer_bound, "d_model n_heads layers blocks input_norm constant", ""),
        (bounds.softmax_error, "d_model", "score_error input_norm"),
        (bounds.largest_score_error, "tol d_model input_norm", ""),
        (bounds.attention_drift, "d_model n_heads", "input_error input_norm"),
        (bounds.block_drift, "d_model n_heads", "input_error input_norm"),
        (bounds.largest_attention_input_error, "tol d_model n_heads input_norm", ""),
        (bounds.largest_block_input_error, "tol d_model n_heads input_norm", ""),
    ],
)
def test_every_argument_is_checked(function: Callable[..., Any], names: str, norms: str, variant: Variant) -> None:
    """Sizes and what must be positive refuse 0; a norm may be 0, and neither may be less."""
    right = {name: SOME.get(name, 0.1) for name in (*names.split(), *norms.split())}
    if function is not bounds.linear_bound:
        right["variant"] = variant
        with pytest.raises(ValueError, match="variant must be one of paper, tight; got 'loose'"):
            function(**{**right, "variant": "loose"})
    function(**right)
    for name in names.split():
        with pytest.raises(ValueError, match=f"^{name} must be (at least 1|positive and finite); got 0"):
            function(**{**right, name: 0})
    for name in norms.split():
        assert function(**{**right, name: 0.0}) == 0 or name == "input_norm"
        with pytest.raises(ValueError, match=f"^{name} must be a norm, 0 or more; got -1"):
            function(**{**right, name: -1.0})


COMMANDS = {
    "linear": ["--d-model", "4", "--d-out", "3"],
    "feedforward": ["--d-model", "4", "--layers", "2", "--input-norm", "3"],
    "attention": ["--d-model", "4", "--n-heads", "2", "--input-norm", "3"],
    "block": ["--d-model", "4", "--n-heads", "2", "--input-norm", "3"],
    "transformer": ["--d-model", "4", "--n-heads", "2", "--blocks", "2", "--input-norm", "3"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_answers_both_ways(command: str) -> None:
    asked = CliRunner().invoke(bound_app, [command, *COMMANDS[command], "--tol", "0.01", "--json"])
    assert asked.exit_code == 0
    answer = json.loads(asked.stdout)
    options = []
    for name in answer["widths"][0]:
        numbers = ",".join(str(own[name]) for own in answer["widths"])
        options += ["--" + name.replace("_", "-"), numbers]
    back = CliRunner().invoke(bound_app, [command, *COMMANDS[command], *options, "--json"])
    assert back.exit_code == 0
    assert json.loads(back.stdout)["error"] == answer["error"] <= 0.01


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_has_an_example(command: str) -> None:
    done = CliRunner().invoke(bound_app, [command, "-h"])
    assert done.exit_code == 0
    assert f"Example: strongticket bound {command}" in done.stdout


def test_command_says_what_it_assumed() -> None:
    done = CliRunner().invoke(bound_app, ["attention", "--d-model", "64", "--n-heads", "4", "--tol", "0.01"])
    assert done.exit_code == 0
    assert "key_width                9,216   144 items per sum" in done.stdout
    assert "computed for input norm 8, the least that Theorem 9 covers, not 1." in done.stdout
    # 4 heads, 64 x 64 sums in each for queries and keys, and as many for values and outputs.
    assert "over the draw of the random weights: exp(-items / C), added up over all 32,768 subset sums." in done.stdout
    assert "the constant C is assumed: 7 for key_width, 7 for value_width. Its true value is not known" in done.stdout


def test_command_refuses_widths_that_promise_nothing() -> None:
    widths = ["--key-width", "64", "--value-width", "400"]
    done = CliRunner().invoke(bound_app, ["attention", "--d-model", "4", *widths, "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"] is None
    assert "guarantees nothing for widths this small: key_width=64 (at least 176)." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --tol to get widths, or --key-width and --value-width to get the error; got neither."),
        (["--tol", "0.1", "--key-width", "8"], "got both --tol and --key-width."),
        (["--key-width", "8"], "--value-width is missing"),
        (["--key-width", "8,8", "--value-width", "8"], "--key-width must be one number, or 1 of them; got 2."),
        (["--key-width", "x", "--value-width", "8"], "--key-width must be whole numbers separated by commas; got 'x'."),
        (["--tol", "1.5"], "Theorem 9 needs tol in (0, 1); got 1.5."),
        (["--tol", "0.1", "--d-out", "0"], "d_out must be at least 1; got 0."),
        (["--tol", "0.1", "--constant", "-1"], "constant must be positive and finite; got -1.0."),
    ],
)
def test_command_names_bad_usage(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(bound_app, ["attention", "--d-model", "4", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
