"""What a certificate counts: leaving out a bias, a rounding or a part must show as an error above the certified one."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.bounds import HeadNorms, attention_error
from strongticket.bounds.certificate import AttentionNorms, BlockNorms, Envelope, LinearNorms, propagate_transformer
from strongticket.construct import certify, recertify
from strongticket.construct.product import Miss, Pruned, PrunedHead
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from tests.construct.test_construct import draw, random_attention


def seen_error(ticket: st.Ticket, target: nn.Module, inputs: Tensor) -> float:
    """Give the largest error on some inputs."""
    network = ticket.build("merged", dtype=torch.float64)
    return (network(inputs) - target(inputs)).norm(dim=-1).max().item()


def scalar(number: float) -> Tensor:
    return torch.tensor([number], dtype=torch.float64)


@pytest.mark.parametrize("bias", [0.0, 50.0, -5000.0])
def test_a_bias_counts_for_the_layers_behind_it(bias: float) -> None:
    """Networks of one number: nothing is lost in norms, so the certificate is nearly attained."""
    network = FeedForward([draw(1, 1, seed=0), draw(1, 1, seed=1)], [scalar(abs(bias)), scalar(0.3)])
    ticket = st.construct_feedforward(network, hidden_width=10, input_norm=2.0)
    seen = seen_error(ticket, network, torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None])
    assert seen <= ticket.certificate.error < 3 * seen

    one = torch.ones(1, 1, 1, dtype=torch.float64)
    block = Block(Attention(0 * one, 0 * one, 0.3 * one, one, scalar(bias)), FeedForward([draw(1, 1, seed=2)]))
    ticket = st.construct_transformer(Transformer([block]), key_width=8, value_width=8, hidden_width=10, input_norm=2.0)
    seen = seen_error(ticket, Transformer([block]), torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None, None])
    assert seen <= ticket.certificate.error < 3 * seen
    (described,) = ticket.certificate.details["blocks"]
    assert described["norm"] == pytest.approx(
        (2 + 2 * 0.3 + abs(bias)) * (1 + described["layers"][0]["norm"]), rel=1e-5
    )


def test_no_bias_adds_nothing_to_the_norms() -> None:
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    block = Block(Attention(one, one, 0.5 * one, one), FeedForward([0.25 * one[0]] * 2))
    ticket = st.construct_transformer(Transformer([block]), key_width=8, value_width=8, hidden_width=8, input_norm=2.0)
    (described,) = ticket.certificate.details["blocks"]
    assert described["norm"] == pytest.approx((2 + 2 * 0.5) * (1 + 0.25**2), rel=1e-5)


def test_the_papers_form_counts_the_width_of_the_model() -> None:
    target = random_transformer(2, 3, key_width=3, generator=torch.Generator().manual_seed(0))
    ticket = st.construct_transformer(target, key_width=48, value_width=48, hidden_width=48, input_norm=1.5)
    norms = []
    for block in ticket.certificate.details["blocks"]:
        heads = tuple(HeadNorms(**head, query_bias_norm=0.0) for head in block["heads"])
        layers = tuple(LinearNorms(norm=layer["norm"], error=layer["error_norm"]) for layer in block["layers"])
        norms.append(BlockNorms(attention=AttentionNorms(heads=heads), feedforward=layers))
    *_, last = propagate_transformer(Envelope(1.5), norms, variant="paper", d_model=3)
    assert ticket.certificate.details["paper_error"] == pytest.approx(last.error, rel=1e-3)


def pruned(error: list[list[float]], rounding: float) -> Pruned:
    errors = torch.tensor(error, dtype=torch.float64)
    return Pruned((), errors, torch.full_like(errors, rounding), [])


def test_the_norms_of_a_head() -> None:
    """Diagonal matrices, whose norms are their largest entries; the row of the query bias counts apart."""
    qk = torch.tensor([[3.0, 0.0], [0.0, -7.0], [3.0, 4.0]], dtype=torch.float64)
    vo = torch.tensor([[2.0, 0.0, 0.0], [0.0, 5.0, 0.0]], dtype=torch.float64)
    head = PrunedHead(
        pruned([[0.1, 0.0], [0.0, -0.2], [0.6, 0.8]], 1e-3), pruned([[0.0, 0.3, 0.0], [0.4, 0.0, 0.0]], 1e-2)
    )
    norms = certify.head_norms(qk, vo, head)
    assert (norms.qk_norm, norms.query_bias_norm, norms.vo_norm) == pytest.approx((7, 5, 5))
    # All entries of a block may be off by their rounding at once.
    assert norms.qk_error == pytest.approx(0.2 + 1e-3 * math.sqrt(4))
    assert norms.query_bias_error == pytest.approx(1.0 + 1e-3 * math.sqrt(2))
    assert norms.vo_error == pytest.approx(0.4 + 1e-2 * math.sqrt(6))
    without = certify.head_norms(qk[:2], vo, replace(head, qk=pruned([[0.1, 0.0], [0.0, -0.2]], 0.0)))
    assert (without.query_bias_norm, without.query_bias_error) == (0, 0)


def test_the_papers_error_stands_beside_with_the_models_width() -> None:
    """Of two heads from 3 numbers to 4: its form of the lemma has the root of 3 in it."""
    target = random_attention(2, 3, 4, bias=False, seed=0)
    certificate = st.construct_attention(target, key_width=24, value_width=24, input_norm=1.0).certificate
    heads = [HeadNorms(**head) for head in certificate.details["heads"]]
    for stored, variant in ((certificate.error, "tight"), (certificate.details["paper_error"], "paper")):
        # The norms in the details are rounded up to six digits.
        assert stored == pytest.approx(attention_error(1.0, heads, variant=variant, d_model=3), rel=1e-4)


def test_only_the_worst_unreachable_entries_are_listed() -> None:
    count = certify.LISTED + 5
    missed = [("b" if i % 2 else "a", Miss(i, i + 1, float(i // 4))) for i in range(count)]
    told = certify.describe_unreachable(missed)
    assert (told["count"], len(told["worst"])) == (count, certify.LISTED) == (10_005, 10_000)
    distances = [entry["missed"] for entry in told["worst"]]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] == count // 4
    # Those that miss as much stand in the order of matrices, rows and columns.
    alike = [(entry["matrix"], entry["row"], entry["column"]) for entry in told["worst"] if entry["missed"] == 7.0]
    assert alike == [("a", 28, 29), ("a", 30, 31), ("b", 29, 30), ("b", 31, 32)]
    assert certify.describe_unreachable(missed[:2], count=7)["count"] == 7


@pytest.mark.parametrize("input_norm", [0, -1.0, math.inf, math.nan, 10**400])
def test_a_norm_is_positive_and_finite(input_norm: float) -> None:
    with pytest.raises(ValueError, match="input_norm must be a positive finite number"):
        st.construct_linear(torch.eye(2), hidden_width=8, input_norm=input_norm)


def test_samples_whose_norm_overflows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"samples must have a largest norm that is positive and finite; got inf"):
        st.construct_linear(torch.eye(2), hidden_width=8, samples=torch.full((1, 2), 1.7e308, dtype=torch.float64))


def test_a_certificate_is_for_no_less_than_the_longest_sample() -> None:
    """In exact arithmetic; rounding down in float32, in a long sum or in a root would leave the sample out."""
    cases = [(0, 20_000, 1.0), *((seed, 5, 1.0) for seed in range(50)), (0, 5, 1e-158), (0, 5, 5e-320), (0, 5, 1e200)]
    for seed, width, scale in cases:
        samples = draw(7, width, seed=seed).float().double() * scale
        norm = certify.input_norm_of(None, samples, width=width, default=1.0)
        longest = max(sum(Fraction(x) ** 2 for x in row) for row in samples.tolist())
        assert longest <= Fraction(norm) ** 2
        # Among the smallest numbers a step is large.
        assert Fraction(norm) ** 2 <= longest * (1 + Fraction(8, 10**12)) or scale < 1e-300


@pytest.mark.parametrize("scale", [1e-170, 1e-310, 1e150])
def test_a_certificate_holds_where_squares_leave_float64(scale: float) -> None:
    """Once the norm of the smallest errors came out as 0, and so did the certificate."""
    target, alpha = torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=torch.float64) * scale, min(1 / scale, 1e307)
    ticket = st.construct_linear(target, hidden_width=16, input_norm=alpha)
    first, second = (ticket.materialize()[name].tolist() for name in ("first", "second"))
    product = [
        [sum(Fraction(v) * Fraction(u[j]) for v, u in zip(row, first, strict=True)) for j in range(2)] for row in second
    ]
    error = [
        [entry - Fraction(w) for entry, w in zip(*rows, strict=True)]
        for rows in zip(product, target.tolist(), strict=True)
    ]
    # The norm of a matrix is at least that of each row.
    largest = max(sum(entry**2 for entry in row) for row in error) * Fraction(alpha) ** 2
    assert 0 < largest <= Fraction(ticket.certificate.error) ** 2


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (draw(3, 40, seed=0), draw(40, 2, seed=1)),
        (draw(3, 40, seed=0).abs(), draw(40, 2, seed=1).abs()),
        (draw(3, 40, seed=0), draw(40, 2, seed=1) * (torch.arange(40) % 8 == 0)[:, None]),
        (draw(2, 40, seed=2) + 100, (draw(40, 3, seed=3) + 100) * torch.tensor([1.0, -1.0]).repeat(20)[:, None]),
        # One term, a little above a power of two, where rounding costs most.
        (3 + draw(40, 1, seed=4).abs() / 8, 1 + draw(1, 40, seed=5).abs() / 8),
        # One large term, and many that are lost beside it one by one.
        (torch.ones(1, 200).double(), torch.tensor([[1.0]] + [[2.0**-53]] * 199, dtype=torch.float64)),
    ],
)
@pytest.mark.parametrize(("divisor", "share"), [(1.0, 1), (3.0, 1), (3.0, -1.001)])
def test_rounding_of_a_recomputed_product_is_bounded(left: Tensor, right: Tensor, divisor: float, share: float) -> None:
    """The target is what float64 makes of the product, or nearly its opposite; fractions have no rounding."""
    left, right = left.float(), right.float()
    target = share * (left.double() @ right.double()) / divisor
    found = recertify._product(left, right, target, divisor)
    for i, row in enumerate(left.tolist()):
        for j, column in enumerate(right.T.tolist()):
            product = sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) / Fraction(divisor)
            off = abs(product - Fraction(target[i, j].item()) - Fraction(found.error[i, j].item()))
            assert off <= Fraction(found.rounding[i, j].item())
    # A bound that were a thousand times too large would pass everything else here.
    terms = ((left != 0).double() @ (right != 0).double()).max()
    size = left.abs().double() @ right.abs().double() / divisor + target.abs()
    assert (found.rounding <= 1.5 * (terms + 3) * 2.0**-53 * size).all()
