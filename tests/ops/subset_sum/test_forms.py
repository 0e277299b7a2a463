"""The forms targets and items may come in, and what a result looks like when it is printed."""

from typing import Any

import numpy as np
import pytest
import torch

from strongticket.ops.subset_sum import Status, SubsetSumResult, subset_sum, subset_sum_products

ITEMS = [[0.5, 0.25, -0.75], [1.0, -1.0, 0.125]]
TARGETS = [0.75, 9.0]


def test_lists_and_arrays_give_what_tensors_give() -> None:
    expected = subset_sum(torch.tensor(TARGETS, dtype=torch.float64), torch.tensor(ITEMS, dtype=torch.float64))
    assert expected.mask.tolist() == [[True, True, False], [True, False, True]]
    for targets, items in ((TARGETS, ITEMS), (np.array(TARGETS), np.array(ITEMS)), (torch.tensor(TARGETS), ITEMS)):
        for found, wanted in zip(subset_sum(targets, items), expected, strict=True):
            assert torch.equal(found, wanted)
            assert found.dtype == wanted.dtype


def test_one_row_has_no_axis_of_rows() -> None:
    found = subset_sum(0.75, ITEMS[0])
    assert (found.mask.shape, found.error.shape, found.status.shape) == ((3,), (), ())
    assert found.mask.tolist() == [True, True, False]
    assert subset_sum([0.75], [ITEMS[0]]).mask.shape == (1, 3)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_items_serve_all_targets_and_a_target_all_items(kind: torch.dtype) -> None:
    items = torch.tensor(ITEMS, dtype=kind)
    shared = subset_sum([0.75, 9.0, -1.0], items[0])
    repeated = subset_sum([0.75, 9.0, -1.0], items[0].repeat(3, 1))
    aimed = subset_sum(0.75, items)
    for one, other in ((shared, repeated), (aimed, subset_sum([0.75, 0.75], items))):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_many_targets_share_items_without_copies_of_them() -> None:
    """50 items go beyond what is solved exactly, 40,000 rows beyond one chunk."""
    items = torch.linspace(-1, 1, 9, dtype=torch.float64)
    targets = torch.linspace(-2, 2, 40_000, dtype=torch.float64)
    assert torch.equal(subset_sum(targets, items).error, subset_sum(targets, items.repeat(40_000, 1)).error)
    few = targets[::10_000]
    wide = torch.linspace(-1, 1, 50, dtype=torch.float64)
    assert torch.equal(subset_sum(few, wide).error, subset_sum(few, wide.repeat(4, 1)).error)


@pytest.mark.parametrize(
    ("targets", "items", "message"),
    [
        ([0.5, 0.5, 0.5], ITEMS, r"or items \(n,\) for all targets; got targets \(3,\) and items \(2, 3\)"),
        ([0.5], ITEMS, r"got targets \(1,\) and items \(2, 3\)"),
        ([[0.5], [0.5]], ITEMS, r"got targets \(2, 1\) and items \(2, 3\)"),
        (0.5, 0.5, r"got targets \(\) and items \(\)"),
        (0.5, [ITEMS], r"items \(1, 2, 3\)"),
        (float("nan"), ITEMS[0], "targets must be finite numbers; got nan"),
        (0.5, [0.5, float("inf")], "items must be finite numbers; got inf at row 1"),
        (0.5, [[1, 2], [3]], r"items must be a tensor, .* in rows of one length; got \[\[1, 2\], \[3\]\]"),
        (0.5, np.ones(3, np.float16), "needs items in float32 or float64; got float16"),
    ],
)
def test_bad_forms(targets: Any, items: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        subset_sum(targets, items)
    assert "\n" not in str(refused.value)


def test_products_of_lists() -> None:
    lists: tuple[Any, ...] = ([[0.5, -0.5]], [1.0, 0.5, -1.0], [[0.25, 0.5, 0.5]], [2, 1])
    expected = subset_sum_products(*(torch.tensor(x) for x in lists))
    arrays = (*(np.array(x, np.float32) for x in lists[:3]), np.array(lists[3], np.int32))
    for found in (subset_sum_products(*lists), subset_sum_products(*arrays)):
        assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_few_answers_are_printed_in_full_with_status_by_name() -> None:
    assert repr(subset_sum(0.75, ITEMS[0])) == "SubsetSumResult(mask=[1, 1, 0], error=0, status=OPTIMAL)"
    assert repr(subset_sum(TARGETS, ITEMS)) == (
        "SubsetSumResult(mask=[[1, 1, 0], [1, 0, 1]], error=[0, 7.875], status=[OPTIMAL, UNREACHABLE])"
    )


def test_many_answers_are_counted() -> None:
    mask, error = torch.zeros(4096, 16, dtype=torch.bool), torch.linspace(0, 0.5, 4096)
    status = torch.zeros(4096, dtype=torch.uint8)
    status[:6], status[6] = Status.UNREACHABLE, Status.NEAR
    assert repr(SubsetSumResult(mask, error, status)) == (
        "SubsetSumResult(mask=(4096, 16), error=(4096,) of 0 to 0.5, status=4,089 OPTIMAL + 1 NEAR + 6 UNREACHABLE)"
    )
    nothing = subset_sum(torch.zeros(0), torch.zeros(0, 5))
    assert repr(nothing) == "SubsetSumResult(mask=(0, 5), error=(0,) of none, status=none)"
