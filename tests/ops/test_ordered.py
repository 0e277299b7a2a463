"""Sums in one order, against loops in Python, whose floats have no order but the written one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from strongticket.ops import ordered
from strongticket.ops.ordered import block_sums, ordered_product, sparse_product

# Products of these are not exact in float64, so that fusing a multiplication with an addition would show.
DTYPES = st.sampled_from([torch.float32, torch.float64])


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) - 1


def added(terms: list[float], dtype: torch.dtype) -> float:
    total = torch.zeros((), dtype=dtype)
    for term in terms:
        total = total + torch.tensor(term, dtype=dtype)
    return total.item()


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), n=st.integers(0, 40), seed=st.integers(0, 99), dtype=DTYPES)
@settings(max_examples=40)
def test_products_are_added_in_order(rows: int, columns: int, n: int, seed: int, dtype: torch.dtype) -> None:
    left, right = draw(2, rows, n, seed=seed, dtype=dtype), draw(2, columns, n, seed=seed + 1, dtype=dtype)
    got = ordered_product(left, right)
    assert got.shape == (2, rows, columns)
    for b in range(2):
        for i in range(rows):
            for j in range(columns):
                assert got[b, i, j].item() == added((left[b, i] * right[b, j]).tolist(), dtype)


@given(sizes=st.lists(st.integers(0, 9), max_size=5).map(tuple), rows=st.integers(0, 3), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_blocks_are_added_in_order(sizes: tuple[int, ...], rows: int, seed: int) -> None:
    items = draw(rows, sum(sizes), seed=seed)
    got = block_sums(items, sizes)
    assert got.shape == (rows, len(sizes))
    for i in range(rows):
        blocks = items[i].split(list(sizes))
        assert got[i].tolist() == [added(block.tolist(), torch.float64) for block in blocks]
    counts = torch.tensor(sizes, dtype=torch.int64)
    on_gpu = ordered._one_of_each_block_at_a_time(torch.zeros_like(got), items, counts)
    assert torch.equal(on_gpu, got)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_equal_blocks_are_those_of_any_sizes(size: int) -> None:
    items = draw(5, 3 * size + 1, seed=size)
    expected = block_sums(items, (size, size, size, 1))[:, :3]
    assert torch.equal(block_sums(items[:, :-1], (size,) * 3), expected)


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(0, 20), st.integers(1, 4)),
    density=st.sampled_from([0.0, 0.2, 1.0]),
    divisor=st.sampled_from([1.0, 3.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_kept_terms_are_added_in_order(sizes: tuple[int, int, int], density: float, divisor: float, seed: int) -> None:
    rows, units, columns = sizes
    left = draw(rows, units, seed=seed)
    right = draw(units, columns, seed=seed + 1) * (draw(units, columns, seed=seed + 2) < 2 * density - 1)
    got = sparse_product(left, right, divisor)
    for i in range(rows):
        for j in range(columns):
            terms = [left[i, k].item() * right[k, j].item() / divisor for k in range(units) if right[k, j]]
            assert got[i, j].item() == added(terms, torch.float64)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("sizes", [(16,) * 9, (3, 0, 17, 1), (40, 2, 33)])
def test_a_gpu_adds_alike(sizes: tuple[int, ...]) -> None:
    items, left = draw(5, sum(sizes), seed=1), draw(4, 64, seed=2)
    assert torch.equal(block_sums(items.cuda(), sizes).cpu(), block_sums(items, sizes))
    assert torch.equal(ordered_product(left.cuda(), left.cuda()).cpu(), ordered_product(left, left))
    assert torch.equal(sparse_product(left.cuda(), left.T.cuda(), 3.0).cpu(), sparse_product(left, left.T, 3.0))
