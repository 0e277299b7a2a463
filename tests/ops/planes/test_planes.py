"""Bit planes against their meaning: what is packed comes back, and products are those of the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planes_cases import assert_product, matrices
from torch import Tensor

from strongticket.ops.philox.reference import Stream
from strongticket.ops.planes import Planes, cpu, look_up, multiply, pack, reference, unpack
from strongticket.ops.rng import stream_of


@given(case=matrices())
def test_what_is_packed_comes_back(case: tuple[Planes, Tensor]) -> None:
    planes, matrix = case
    assert torch.equal(reference.unpack(planes), matrix)
    assert torch.equal(unpack(planes), matrix)
    assert planes.levels == max(1, int(matrix.abs().max())) if matrix.numel() else 1


@given(case=matrices(), data=st.data())
def test_products_are_within_the_bound_of_float32_sums(case: tuple[Planes, Tensor], data: st.DataObject) -> None:
    planes, matrix = case
    vectors = data.draw(st.sampled_from([(), (0,), (1,), (2, 3), (9,), (40,)]))
    x = torch.randn(*vectors, planes.columns, generator=torch.Generator().manual_seed(planes.rows))
    scale = data.draw(st.sampled_from([1.0, -0.37]))
    expected = reference.multiply(planes, x, scale)
    torch.testing.assert_close(expected, scale * x.double() @ matrix.double().T, rtol=1e-12, atol=1e-12)
    assert_product(multiply(planes, x, scale), planes, x, scale)


@given(case=matrices(), data=st.data())
def test_rows_are_looked_up(case: tuple[Planes, Tensor], data: st.DataObject) -> None:
    planes, matrix = case
    count = data.draw(st.integers(0, 20)) if planes.rows else 0
    indices = torch.randint(
        0, max(1, planes.rows), (count, 1), dtype=data.draw(st.sampled_from([torch.int32, torch.int64]))
    )
    assert torch.equal(look_up(planes, indices, 0.5), 0.5 * matrix[indices].float())


@pytest.mark.parametrize("vectors", [1, 5, 40])
def test_a_dropped_weight_is_skipped_and_a_kept_one_passes_on_what_is_not_finite(vectors: int) -> None:
    planes = pack(torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, -1], [1, 0, 1], [1, 1, 0]], dtype=torch.int8))
    x = torch.tensor([np.inf, np.nan, 1.0]).expand(vectors, 3)
    expected = torch.tensor([np.inf, np.nan, -1.0, np.inf, np.nan]).expand(vectors, 5)
    for product in (multiply(planes, x), reference.multiply(planes, x).float()):
        torch.testing.assert_close(product, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("signs", [None, stream_of(7, "w")])
def test_any_number_of_threads_and_vectors_gives_the_same_bits(
    signs: Stream | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "LEAST_WORK", 1)
    codes = torch.randint(0, 3, (1003, 300), dtype=torch.int8)
    planes, x, products = pack(codes, signs), torch.randn(5, 300), []
    torch_threads = torch.get_num_threads()
    for threads in (1, 2, 7):
        monkeypatch.setattr(cpu, "threads_for", lambda work, least, threads=threads: threads)
        products += [multiply(planes, x), torch.stack([multiply(planes, vector) for vector in x])]
    assert torch.get_num_threads() == torch_threads
    assert all(torch.equal(product, products[0]) for product in products)


def test_what_does_not_fit_is_refused_in_a_line() -> None:
    planes = pack(torch.ones(2, 3, dtype=torch.int8))
    refusals = {
        "codes must be int8": lambda: pack(torch.ones(2, 3)),
        r"codes must be int8 \(rows, columns\)": lambda: pack(torch.ones(3, dtype=torch.int8)),
        "from -15 to 15; got 0 to 16": lambda: pack(torch.tensor([[0, 16]], dtype=torch.int8)),
        "Omit signs": lambda: pack(torch.tensor([[-1]], dtype=torch.int8), stream_of(0, "w")),
        r"x must be float32 \(..., 3\); got torch.float64": lambda: multiply(planes, torch.ones(3).double()),
        r"got torch.float32 \(2, 4\)": lambda: multiply(planes, torch.ones(2, 4)),
        "x must be on the planes' device, cpu; got meta": lambda: multiply(planes, torch.ones(3, device="meta")),
        "indices must be int32 or int64": lambda: look_up(planes, torch.ones(1)),
        "indices must be from 0 to 1; got -1 to 2": lambda: look_up(planes, torch.tensor([-1, 2])),
        "on cpu or cuda; got meta": lambda: multiply(planes.to("meta"), torch.ones(3, device="meta")),
    }
    for message, call in refusals.items():
        with pytest.raises(ValueError, match=message):
            call()
