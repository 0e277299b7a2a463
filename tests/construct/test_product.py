"""Lemma 7 and the ReLU sign split, entry by entry."""

import math
from contextvars import copy_context
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from strongticket.construct import norms, product
from strongticket.construct.certify import input_norm_of
from strongticket.construct.norms import spectral_norm
from strongticket.construct.product import prune_product
from strongticket.construct.slots import Signs
from strongticket.construct.source import RandomMatrix, owners_of
from strongticket.ops.subset_sum import subset_sum_products
from strongticket.tickets.tensors import RandomTensor
from strongticket.tickets.ticket import Ticket


def masked(seed: int, tensor: RandomTensor) -> torch.Tensor:
    return Ticket(seed=seed, tensors=[tensor]).materialize()[tensor.name].double()


def owners(sizes: tuple[int, ...], units: int) -> torch.Tensor:
    """Consecutive units for each coordinate; those left over have none."""
    return torch.nn.functional.pad(owners_of(sizes), (0, units - sum(sizes)), value=-1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, tuple[int, ...], int, int, int]:
    """A target (free, blocks), block sizes that differ, spare units, and both layouts."""
    free, blocks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    sizes = tuple(draw(st.lists(st.integers(0, 9), min_size=blocks, max_size=blocks)))
    target = torch.rand(free, blocks, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 2 - 1
    return target.double(), sizes, draw(st.integers(0, 3)), draw(st.sampled_from([0, 1])), draw(st.integers(0, 2**32))


@given(case=cases(), divisor=st.sampled_from([1.0, 3.0]))
@settings(max_examples=60)
def test_lemma_7_product_has_the_reported_error(case: tuple, divisor: float) -> None:
    target, sizes, spare, axis, seed = case
    units = sum(sizes) + spare
    blocked = RandomMatrix(name="b", coordinates=len(sizes), units=units, unit_axis=axis, scale=1.5)
    free = RandomMatrix(name="f", coordinates=len(target), units=units, unit_axis=1 - axis, scale=0.5)
    pruned = prune_product(target, blocked, free, assignment=owners(sizes, units), seed=seed, divisor=divisor)
    b, f = (masked(seed, tensor) for tensor in pruned.tensors)
    b, f = b.T if axis == 0 else b, f if axis == 0 else f.T  # (coordinates, units)
    error = f @ b.T / divisor - target
    torch.testing.assert_close(pruned.error, error, rtol=0, atol=1e-14)
    assert (pruned.error - error).abs().le(2 * pruned.rounding + 1e-300).all()
    assert pruned.norm() >= torch.linalg.matrix_norm(error, ord=2).item()


@given(case=cases(), nonnegative=st.booleans())
@settings(max_examples=60)
def test_lemma_2_signs_are_met_apart(case: tuple, nonnegative: bool) -> None:
    """On x >= 0 the two layers act as W + E+, on x <= 0 as W + E-."""
    target, sizes, spare, axis, seed = case
    inputs = len(sizes)
    units = sum(sizes) + spare
    blocked = RandomMatrix(name="b", coordinates=inputs, units=units, unit_axis=axis, scale=1.0)
    free = RandomMatrix(name="f", coordinates=len(target), units=units, unit_axis=1 - axis, scale=1.0)
    signs = Signs.POSITIVE if nonnegative else Signs.OWN
    pruned = prune_product(target, blocked, free, assignment=owners(sizes, units), seed=seed, signs=signs)
    b, f = (masked(seed, tensor) for tensor in pruned.tensors)
    first, second = (b if axis == 0 else b.T), (f if axis == 0 else f.T)  # (units, inputs) and (outputs, units)
    eye = torch.eye(inputs, dtype=torch.float64)
    positive = (second @ torch.relu(first @ eye)) - target
    torch.testing.assert_close(pruned.error[:, :inputs], positive, rtol=0, atol=1e-14)
    if nonnegative:
        assert pruned.error.shape[1] == inputs
        assert not (second != 0)[:, (first < 0).any(dim=1)].any(), "silent units are kept out"
    else:
        negative = -(second @ torch.relu(first @ -eye)) - target
        torch.testing.assert_close(pruned.error[:, inputs:], negative, rtol=0, atol=1e-14)


def test_unreachable_entries_are_listed_with_what_they_miss() -> None:
    matrix = {"coordinates": 1, "units": 4, "scale": 1.0}
    pruned = prune_product(
        torch.tensor([[50.0]], dtype=torch.float64),
        RandomMatrix(name="b", unit_axis=0, **matrix),
        RandomMatrix(name="f", unit_axis=1, **matrix),
        seed=0,
    )
    (miss,) = pruned.unreachable
    assert (miss.row, miss.column) == (0, 0)
    assert miss.missed == pytest.approx(-pruned.error.item())
    assert miss.missed > 46


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch, axis: int) -> None:
    """However little is solved and added up at a time, the answer is the same."""
    blocked = RandomMatrix(name="b", coordinates=5, units=64, unit_axis=axis, scale=1.0)
    free = RandomMatrix(name="f", coordinates=7, units=64, unit_axis=1 - axis, scale=1.0)
    target = torch.rand(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for signs in Signs:
        how = {"assignment": owners((12, 12, 12, 12, 12), 64), "signs": signs, "seed": 3}
        whole = prune_product(target, blocked, free, **how)
        with monkeypatch.context() as patch:
            patch.setattr(product, "_SOLVED_AT_ONCE", 130)
            patch.setattr(product, "_SUMMED_AT_ONCE", 60)
            pieces = prune_product(target, blocked, free, **how)
        assert pieces.tensors == whole.tensors
        assert torch.equal(pieces.error, whole.error)
        assert torch.equal(pieces.rounding, whole.rounding)


def test_own_weights_are_those_of_the_matrix() -> None:
    for axis, sizes in ((0, (3, 0, 2)), (1, (3, 0, 2)), (1, (0, 0, 0))):
        matrix = RandomMatrix(name="b", coordinates=3, units=7, unit_axis=axis, scale=1.5)
        weights = matrix.draw(9, None)
        of = owners(sizes, 7)
        expected = [weights[j, k].item() if j >= 0 else 0.0 for k, j in enumerate(of.tolist())]
        assert matrix.draw_own(of, 9, None).tolist() == expected
        turned = of.flip(0)
        expected = [weights[j, k].item() if j >= 0 else 0.0 for k, j in enumerate(turned.tolist())]
        assert matrix.draw_own(turned, 9, None).tolist() == expected


def test_sums_too_large_for_a_gpu_are_solved_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([3, 9, 0, 7, 12])
    u, v = (2 * torch.rand(*shape, generator=generator) - 1 for shape in ((31,), (4, 31)))
    target = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    expected = subset_sum_products(target, u, v, sizes, divisor=3.0)
    apart = product._large_ones_on_cpu(target, u, v, sizes, 3.0, "default", most=8)
    assert all(torch.equal(a, b) for a, b in zip(apart, expected, strict=True))


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), exponent=st.integers(-80, 80), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_norm_by_cholesky_is_a_close_upper_bound(rows: int, columns: int, exponent: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = 2.0**exponent * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    exact = torch.linalg.matrix_norm(matrix, ord=2).item()
    bound, of_zero, twice = norms._norms_by_cholesky(torch.stack([matrix, 0 * matrix, 2 * matrix]))
    assert exact <= bound <= exact * (1 + 1e-6)
    assert of_zero == spectral_norm(0 * matrix) == 0.0
    assert twice == pytest.approx(2 * bound, rel=1e-9)
    assert exact <= spectral_norm(matrix) <= exact * (1 + 1e-11)


@pytest.mark.parametrize(
    ("spectrum", "closeness"),
    [
        (torch.ones(400), 1e-6),  # nothing but the largest
        (torch.linspace(0.99999, 1.0, 400), 2e-5),  # all close to it, which the estimate cannot tell apart
        (0.5 ** torch.arange(400.0), 1e-6),
        ((torch.arange(400) < 3).float(), 1e-6),  # of low rank
    ],
)
def test_norms_of_large_matrices_are_close_upper_bounds(spectrum: Tensor, closeness: float) -> None:
    """Of matrices whose singular values are known."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.linalg.qr(torch.randn(rows, 400, generator=generator, dtype=torch.float64)).Q for rows in (400, 420)
    )
    exact = float(spectrum.max())
    # The factors are orthogonal to a few units in the last place.
    assert exact * (1 - 1e-13) <= spectral_norm(left * spectrum @ right.T) <= exact * (1 + closeness)


@pytest.mark.parametrize("columns", [385, 500, 1000])
def test_norms_are_close_where_few_directions_are_different(columns: int) -> None:
    """The identity and matrices of rank one: rounding leaves the direction that is there already."""
    ones = torch.ones(columns + 1, columns, dtype=torch.float64)
    for matrix, exact in ((torch.eye(columns), 1.0), (ones, math.sqrt(columns * (columns + 1)))):
        assert exact * (1 - 1e-13) <= spectral_norm(matrix) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("columns", [1, 3, 7, 8])
def test_half_of_a_gram_matrix_gives_the_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = torch.randn(2, 9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(norms, "_COLUMNS", columns)
    torch.testing.assert_close(norms._gram(matrices), matrices.mT @ matrices, rtol=0, atol=1e-14)


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    spread=st.integers(0, 60),
    widest=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_norms_of_groups_of_columns_are_upper_bounds(
    rows: int, columns: int, spread: int, widest: int, seed: int
) -> None:
    """In each of a batch; columns are of sizes that differ by up to 2^60, and some are 0."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (
        2.0 ** -(spread * torch.rand(3, 1, columns, generator=generator))
        * torch.tensor([0.0, 1.0, 1.0, 1.0])[torch.randint(4, (3, 1, columns), generator=generator)]
    )
    matrices = sizes * torch.randn(3, rows, columns, generator=generator, dtype=torch.float64)
    bounds, groups = norms_in_groups(matrices, widest), math.ceil(min(rows, columns) / widest)
    for exact, bound in zip(torch.linalg.matrix_norm(matrices, ord=2).tolist(), bounds, strict=True):
        assert exact * (1 - 1e-14) <= bound <= exact * math.sqrt(groups) * (1 + 1e-6)


def norms_in_groups(matrices: Tensor, widest: int) -> list[float]:
    def bounds() -> list[float]:
        norms._widest_group.set(widest)
        return norms._norms_by_cholesky(matrices)

    return copy_context().run(bounds)


def test_norms_of_groups_are_close_where_few_entries_or_one_direction_make_them() -> None:
    """Of one direction the sum of squares is exact; large entries are in one group, wherever their columns are."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 60, 1, generator=generator, dtype=torch.float64)
    errors = 1e-3 * torch.randn(60, 60, generator=generator, dtype=torch.float64)
    errors[torch.arange(0, 60, 6), torch.arange(0, 60, 6)] = 1.0
    for matrix in (x @ y.T, (x + 0 * y) @ torch.ones(1, 60, dtype=torch.float64), errors, errors.T):
        exact = torch.linalg.matrix_norm(matrix, ord=2).item()
        (bound,) = norms_in_groups(matrix[None], widest=15)
        assert exact * (1 - 1e-14) <= bound <= 1.01 * exact


def test_wide_matrices_are_divided() -> None:
    """Orthogonal columns of one size are the worst case: sqrt 2 times too large for two groups."""
    wide = torch.eye(2 * 2048 + 1, 2049, dtype=torch.float64)
    with norms.undivided():
        assert spectral_norm(wide) == pytest.approx(1, rel=1e-6)
    assert spectral_norm(wide) == spectral_norm(wide.T) == pytest.approx(math.sqrt(2), rel=1e-6)
    assert spectral_norm(wide[:, :2048]) == pytest.approx(1, rel=1e-6)


def test_norms_of_long_vectors_are_upper_bounds() -> None:
    """Each small square is lost when it is added to 1, and there are very many."""
    small = 1.05e-8
    x = torch.full((1, 200_000), small, dtype=torch.float64)
    x[0, 0] = 1.0
    exact = 1 + 199_999 * Fraction(small) ** 2
    assert exact <= Fraction(spectral_norm(x)) ** 2 <= exact * (1 + Fraction(1, 10**9))
    assert (
        exact <= Fraction(input_norm_of(None, x, width=200_000, default=1.0)) ** 2 <= exact * (1 + Fraction(1, 10**9))
    )
