"""More than 32 items: close, not proved, and never worse than with fewer items or less effort."""

import itertools
from collections.abc import Sequence
from typing import get_args

import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subset_sum_problems import problems
from torch import Tensor

from strongticket.ops.subset_sum import Effort, Status, reference, subset_sum, subset_sum_products


def random_products(rows: int, n: int) -> tuple[Tensor, Tensor]:
    """Products of two U[-1, 1] in full float64: with float32 weights errors of exactly 0 are common at these sizes."""
    generator = torch.Generator().manual_seed(n)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64) * 2 - 1

    return uniform(rows), uniform(rows, n) * uniform(rows, n)


@pytest.mark.parametrize("n", [33, 40, 64, 100, 257])
def test_default_median(n: int) -> None:
    assert subset_sum(*random_products(64, n)).error.median() <= (1e-9 if n < 48 else 1e-10)


@pytest.mark.parametrize(("n", "median"), [(64, 1e-14), (128, 1e-15), (300, 1e-15)])
def test_high_median(n: int, median: float) -> None:
    assert subset_sum(*random_products(40, n), effort="high").error.median() <= median


def assert_more_is_never_worse(targets: Tensor, items: Tensor, numbers: Sequence[int]) -> None:
    """Rows cut off after each of the numbers of items, ascending: no error grows, nor is high worse than default."""
    best = {}
    for effort in get_args(Effort):
        errors = [subset_sum(targets, items[:, :n], effort=effort).error for n in numbers]
        for fewer, more in itertools.pairwise(errors):
            assert (more <= fewer).all()
        best[effort] = torch.stack(errors)
    assert (best["high"] <= best["default"]).all()


@pytest.mark.parametrize("size", [1.0, 5.0, 12.0])
def test_more_items_and_more_effort_are_never_worse(size: float) -> None:
    # Larger targets come within reach only after 32 items: at about 40 and 96 of them.
    targets, items = random_products(8, 130)
    edges = [31, 32, 33, 39, 40, 41, 47, 48, 49, 63, 64, 65, 95, 96, 97, 111, 112, 113, 130]
    assert_more_is_never_worse(size * targets.sign() + 0.1 * targets, items, edges)


@settings(max_examples=25)
@given(problem=problems(min_items=30, max_items=70, max_rows=3), numbers=st.lists(st.integers(24, 70), max_size=4))
def test_any_numbers_are_never_worse_with_more(problem: tuple[Tensor, Tensor], numbers: list[int]) -> None:
    targets, items = problem
    n = items.shape[1]
    assert_more_is_never_worse(targets, items, [*sorted(k for k in numbers if k < n), n])


@pytest.mark.parametrize("n", [33, 47, 64])
def test_first_32_items_are_solved_exactly(n: int) -> None:
    targets, items = random_products(16, n)
    exact = subset_sum(targets, items[:, :32])
    reached = exact.status == Status.OPTIMAL
    assert reached.any()
    near = subset_sum(targets, items)
    assert (near.error <= exact.error)[reached].all()
    if n < 48:  # where nothing else is tried
        assert near.error[reached].equal(exact.error[reached])


def test_a_target_that_comes_into_reach_late_is_met_closely() -> None:
    targets, items = random_products(40, 150)
    targets = 12.0 * targets.sign()
    for n in (120, 150):
        result = subset_sum(targets, items[:, :n])
        reached = result.status == Status.NEAR
        assert reached.sum() >= 20
        assert result.error[reached].median() <= 1e-8


@pytest.mark.parametrize("effort", ["default", "high"])
@settings(max_examples=25)
@given(problem=problems(min_items=33, max_items=70, max_rows=3))
def test_any_numbers_get_an_honest_answer(effort: Effort, problem: tuple[Tensor, Tensor]) -> None:
    targets, items = problem
    result = subset_sum(targets, items, effort=effort)
    assert result.error.equal(reference.error_of(targets, items, result.mask))
    low, high = reference.reach(items)
    outside = (targets < low) | (targets > high)
    assert result.status.tolist() == [Status.UNREACHABLE if out else Status.NEAR for out in outside]
    ends = torch.where((targets < low)[:, None], items < 0, items > 0)
    assert result.mask[outside].equal(ends[outside])


@pytest.mark.parametrize("effort", ["default", "high"])
def test_number_of_threads_does_not_matter(effort: Effort) -> None:
    problem = random_products(40, 50)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    alone = subset_sum(*problem, effort=effort)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    together = subset_sum(*problem, effort=effort)
    numba.set_num_threads(before)
    assert all(x.equal(y) for x, y in zip(alone, together, strict=True))


def test_products_with_large_and_small_blocks() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([40, 3, 50])
    u, v = torch.rand(93, generator=generator) - 0.5, torch.rand(5, 93, generator=generator) - 0.5
    targets = torch.rand(5, 3, generator=generator) - 0.5
    result = subset_sum_products(targets, u, v, sizes)
    items = u.double() * v.double()
    for j, (start, end) in enumerate([(0, 40), (40, 43), (43, 93)]):
        alone = subset_sum(targets[:, j], items[:, start:end])
        assert result.mask[:, start:end].equal(alone.mask)
        assert result.error[:, j].equal(alone.error)
        assert result.status[:, j].equal(alone.status)
