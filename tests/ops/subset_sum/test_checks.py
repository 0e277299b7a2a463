import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strongticket.errors import InfeasibleError
from strongticket.ops.subset_sum import Status, subset_sum, subset_sum_products

W, A = torch.tensor([0.5, 0.25]), torch.tensor([[0.3, 0.2, -0.9], [0.1, 0.2, 0.3]])


def with_entry(tensor: Tensor, place: tuple[int, ...], value: float) -> Tensor:
    changed = tensor.clone()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("targets", "items", "message"),
    [
        (torch.zeros(3), torch.zeros(2, 4), r"items \(rows, n\), .*; got targets \(3,\) and items \(2, 4\)"),
        (torch.zeros(2, 1), A, r"got targets \(2, 1\)"),
        (W.int(), A, "needs targets in float32 or float64; got int32. Convert with"),
        (W, A.to(torch.complex64), "needs items in float32 or float64; got complex64"),
        (W, A.half(), "got float16"),
        (with_entry(W, (1,), float("nan")), A, "targets must be finite numbers; got nan at row 1. Remove"),
        (W, with_entry(A, (1, 2), float("inf")), "items must be finite numbers; got inf at row 1, column 2"),
        (W, with_entry(A, (0, 1), -float("inf")), "got -inf at row 0, column 1"),
        (W, A.to("meta"), "needs its tensors on one device; got targets on cpu, items on meta"),
        (W.to("meta"), A.to("meta"), "subset_sum needs values; got targets on meta"),
        (W, A.to_sparse(), r"needs items with all entries stored; got torch.sparse_coo. Convert with .to_dense\(\)"),
    ],
)
def test_bad_problems(targets: Tensor, items: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subset_sum(targets, items)


@pytest.mark.parametrize("at_once", [1, 4, 7, 1000])
def test_first_bad_entry_is_found_far_down(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strongticket.ops.subset_sum.checks.SEARCH_ELEMENTS", at_once)
    items = torch.zeros(50, 3)
    items[41, 2] = items[33, 1] = float("nan")
    with pytest.raises(ValueError, match="got nan at row 33, column 1"):
        subset_sum(torch.zeros(50), items)


def test_the_last_of_a_million_rows_is_found_at_once() -> None:
    targets = torch.zeros(1_000_000)
    targets[-1] = float("inf")
    before = time.process_time()
    with pytest.raises(ValueError, match="got inf at row 999999"):
        subset_sum(targets, torch.zeros(1_000_000, 1))
    # It takes hundredths; row by row it would be ten seconds.
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "low"}, "effort must be 'default' or 'high'; got 'low'"),
        ({"tol": -1.0}, "tol must be a finite number, 0 or more; got -1.0"),
        ({"tol": float("nan")}, "got nan"),
        ({"strict": True}, "strict=True needs a tol"),
        ({"device": "meta"}, "runs on cpu and cuda; got device 'meta'. Pass device='cpu'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subset_sum(W, A, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_asked_for_and_absent() -> None:
    with pytest.raises(ValueError, match=r"finds no CUDA device here. Pass device='cpu'"):
        subset_sum(W, A, device="cuda")


@pytest.mark.parametrize("limit", [2, 3])
def test_no_more_items_than_the_kernel_takes(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strongticket.ops.subset_sum.cpu.MAX_ITEMS", limit)
    if limit == A.shape[1]:
        subset_sum(W, A)
        return
    with pytest.raises(ValueError, match="subset_sum on cpu takes up to 2 items; got n=3"):
        subset_sum(W, A)


def test_strict_counts_the_rows_that_miss() -> None:
    with pytest.raises(InfeasibleError, match=r"1 of 2 targets .* tol=0.01 using n=3 items; worst error 5.0e-02"):
        subset_sum(W, A, tol=0.01, strict=True)
    assert subset_sum(W, A, tol=0.06, strict=True).status.tolist() == [Status.OPTIMAL] * 2
    assert subset_sum(W, A, tol=0.01).error.max() > 0.01


U, V, SIZES = torch.tensor([0.5, -0.25, 0.75]), torch.ones(2, 3), torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": torch.zeros(2, 3)}, r"got targets \(2, 3\), u \(3,\), v \(2, 3\), sizes \(2,\) that sum to 3"),
        ({"sizes": torch.tensor([1, 1])}, "that sum to 2"),
        ({"v": torch.ones(3)}, r"v \(3,\)"),
        ({"u": torch.tensor(1.0)}, r"u \(\)"),
        ({"sizes": torch.tensor([4, -1])}, r"sizes must be 0 to 2\^40; got -1 to 4"),
        ({"sizes": torch.tensor([2**40 + 1])}, r"sizes must be 0 to 2\^40; got 1099511627777 to 1099511627777"),
        ({"sizes": torch.tensor([2**40])}, "that sum to 1099511627776"),
        ({"sizes": torch.tensor([1.0, 2.0])}, "sizes as an int64 tensor"),
        ({"sizes": [1.5, 1.5]}, "sizes must be .* a list of whole numbers, .*; got .1.5, 1.5"),
        ({"u": U.double().numpy()}, "needs u in float32; got float64"),
        ({"v": "ones"}, "v must be a tensor, an array or a list of numbers, .*; got 'ones'"),
        ({"sizes": SIZES.to("meta")}, "subset_sum_products needs values; got sizes on meta"),
        ({"u": U.double()}, "needs u in float32; got float64. Convert with"),
        ({"v": with_entry(V, (1, 2), float("nan"))}, "v must be finite numbers; got nan at row 1, column 2"),
        ({"divisor": 0.0}, "divisor must be a finite number and not 0"),
        ({"divisor": 1e-308, "v": V * 1e3}, "overflow. Use a larger one"),
        ({"divisor": 1e-308, "u": torch.tensor([0.0, -1e3, 0.0])}, "overflow. Use a larger one"),
    ],
)
def test_bad_products(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"targets": torch.zeros(2, 2), "u": U, "v": V, "sizes": SIZES} | change
    with pytest.raises(ValueError, match=message):
        subset_sum_products(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "low"}, "effort must be"),
        ({"tol": float("inf")}, "tol must be a finite number"),
        ({"strict": True}, "strict=True needs a tol"),
        ({"divisor": 1e-308, "v": V * -1e3}, "overflow. Use a larger one"),
    ],
)
def test_bad_options_of_products(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subset_sum_products(torch.zeros(2, 2), **{"u": U, "v": V, "sizes": SIZES} | options)


def test_a_tolerance_without_strict_refuses_nothing() -> None:
    assert subset_sum_products(torch.full((2, 2), 9.0), U, V, SIZES, tol=0.0).error.min() > 1


def test_the_divisor_may_come_from_numpy() -> None:
    targets = torch.tensor([[0.5, 0.5], [9.0, 0.5]])
    expected = subset_sum_products(targets, U, V, SIZES, divisor=3.0)
    for divisor in (np.float32(3), np.int64(3)):
        for x, y in zip(subset_sum_products(targets, U, V, SIZES, divisor=divisor), expected, strict=True):
            assert x.equal(y)


def test_strict_products_name_the_range_of_sizes() -> None:
    with pytest.raises(InfeasibleError, match=r"1 of 4 targets .* using n=1 to 2 items"):
        subset_sum_products(torch.tensor([[0.5, 0.5], [9.0, 0.5]]), U, V, SIZES, tol=0.1, strict=True)
