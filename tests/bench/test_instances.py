import numpy as np
import torch

from strongticket.bench import instances
from strongticket.ops.subset_sum import Status, reference

PINNED_TARGET = [-0.4191759608268125]
PINNED_ITEMS = [[0.13849921869333823, -0.15585625249230442]]


def test_errors_and_reach_are_those_of_the_reference() -> None:
    problems = instances.draw(300, 5, seed=3)
    targets, items = problems.to("cpu")
    result = reference.subset_sum(targets, items)
    # A wrong mask too, so that the sum is tested apart from the search.
    for mask in (result.mask, ~result.mask):
        np.testing.assert_array_equal(
            problems.errors(mask.numpy()), reference.error_of(targets, items, mask).numpy(), strict=True
        )
    outside = result.status == Status.UNREACHABLE
    np.testing.assert_array_equal(problems.unreachable(), outside.numpy())
    assert 0 < outside.sum() < 300


def test_problems_are_pinned_by_seed_and_size() -> None:
    first, again = instances.draw(10, 4, seed=1), instances.draw(10, 4, seed=1)
    np.testing.assert_array_equal(first.items, again.items)
    np.testing.assert_array_equal(first.targets, again.targets)
    assert not np.array_equal(first.items, instances.draw(10, 4, seed=2).items)
    # A change of these numbers makes old and new result rows incomparable.
    assert instances.draw(1, 2).targets.tolist() == PINNED_TARGET
    assert instances.draw(1, 2).items.tolist() == PINNED_ITEMS


def test_ranges() -> None:
    problems = instances.draw(2000, 3, low=-0.464, high=0.541)
    assert -0.464 <= problems.targets.min() < -0.45
    assert 0.53 < problems.targets.max() <= 0.541
    assert torch.from_numpy(problems.items).abs().max() <= 1
    # The product of two U[-1, 1] numbers has variance 1/9.
    assert abs(problems.items.var() - 1 / 9) < 0.01
