import itertools

import pytest
import torch
from hypothesis import given, settings
from subset_sum_problems import problems, random_problems
from torch import Tensor

from strongticket.ops.subset_sum import Status, reference

thorough = settings(max_examples=150)


def best_by_definition(w: float, a: list[float]) -> tuple[float, int]:
    """The definition read aloud, in Python floats: the least (error, mask)."""

    def error(mask: int) -> float:
        total = 0.0
        for k, item in enumerate(a):
            if mask >> k & 1:
                total += item
        return abs(w - total)

    return min((error(mask), mask) for mask in range(2 ** len(a)))


@thorough
@given(problems(max_items=7))
def test_brute_force_is_the_definition(problem: tuple[Tensor, Tensor]) -> None:
    targets, items = problem
    found = reference.brute_force(targets, items)
    for w, a, mask in zip(targets.tolist(), items.tolist(), found.tolist(), strict=True):
        assert mask == best_by_definition(w, a)[1]


@thorough
@given(problems(max_items=11))
def test_meet_in_the_middle_is_brute_force(problem: tuple[Tensor, Tensor]) -> None:
    assert reference.meet_in_the_middle(*problem).equal(reference.brute_force(*problem))


def test_meet_in_the_middle_is_brute_force_at_18_items() -> None:
    problem = random_problems(10, 18)
    assert reference.meet_in_the_middle(*problem).equal(reference.brute_force(*problem))


def test_order_of_addition_decides() -> None:
    # 1e16 + 1 + 1 loses both ones, 1 + 1 + 1e16 does not.
    targets = torch.tensor([1e16 + 2], dtype=torch.float64)
    items = torch.tensor([[1e16, 1, 1], [1, 1, 1e16]], dtype=torch.float64)
    assert reference.subset_sum(targets, items[:1]).error.tolist() == [2.0]
    assert reference.subset_sum(targets, items[1:]).error.tolist() == [0.0]


def test_smallest_mask_wins_and_zeros_are_never_chosen() -> None:
    items = torch.tensor([[0.0, 0.5, 0.5, 0.0, 1.0]])
    assert reference.subset_sum(torch.tensor([1.0]), items).mask.tolist() == [[False, True, True, False, False]]
    assert reference.subset_sum(torch.tensor([0.5]), items).mask.tolist() == [[False, True, False, False, False]]


@pytest.mark.parametrize(
    ("target", "chosen", "error"), [(5.0, [True, False, True], 2.0), (-9.0, [False, True, False], 7.0)]
)
def test_unreachable_target_gets_the_nearer_end(target: float, chosen: list[bool], error: float) -> None:
    result = reference.subset_sum(torch.tensor([target]), torch.tensor([[1.0, -2.0, 2.0]]))
    assert (result.mask.tolist(), result.error.tolist()) == ([chosen], [error])
    assert result.status.tolist() == [Status.UNREACHABLE]


def test_products_are_the_plain_form_on_each_block() -> None:
    u, v = torch.tensor([0.5, -0.25, 0.75]), torch.tensor([[1.0, 0.5, 0.25], [0.3, -0.2, 0.9]])
    targets, sizes = torch.tensor([[0.2, 0.1, 0.0], [-0.1, 0.3, 0.0]]), torch.tensor([1, 2, 0])
    result = reference.subset_sum_products(targets, u, v, sizes, divisor=3.0)
    blocks = {0: [0], 1: [1, 2], 2: []}
    for i, (j, units) in itertools.product(range(2), blocks.items()):
        items = u[units].double() * v[i, units].double() / 3.0
        alone = reference.subset_sum(targets[i, j : j + 1], items[None])
        assert result.mask[i, units].tolist() == alone.mask[0].tolist()
        assert (result.error[i, j], result.status[i, j]) == (alone.error[0], alone.status[0])
