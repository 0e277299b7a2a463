"""The gradient of a look-up against a plain sum: the kernel's source compiled for the CPU, and on a GPU if present."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cuda_emulator import emulated
from torch import Tensor

from strongticket.ops.embedding import cuda, embedding, summed_by_token

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(
    params=[pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":
        # Small pieces, so that few rows reach every branch.
        monkeypatch.setattr(cuda, "PIECE", 4)
        monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
    found: str = request.param
    return found


def summed(tokens: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return torch.zeros(vocabulary, rows.shape[1], dtype=torch.float64).index_add_(0, tokens, rows.double())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    vocabulary=st.integers(1, 9),
    count=st.integers(0, 40),
    columns=st.integers(1, 5),
    skew=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 99),
)
def test_rows_of_a_token_are_added_up(
    device: str, vocabulary: int, count: int, columns: int, skew: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = (vocabulary * torch.rand(count, generator=generator) ** (1 + skew)).long()
    rows = torch.randint(-99, 99, (count, columns), generator=generator).float()  # sums of integers are exact
    actual = summed_by_token(tokens.to(device), rows.to(device), vocabulary)
    assert torch.equal(actual.cpu().double(), summed(tokens, rows, vocabulary))


@pytest.mark.gpu
@needs_gpu
def test_the_gradient_is_right_and_the_same_each_time() -> None:
    tokens = (1000 * torch.rand(4, 512) ** 8).long()
    table, gradient = torch.randn(1000, 96), torch.randn(4, 512, 96)
    placed = table.cuda().requires_grad_()
    found = [torch.autograd.grad(embedding(tokens.cuda(), placed), placed, gradient.cuda())[0] for _ in range(3)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    exact = summed(tokens.flatten(), gradient.flatten(0, 1), 1000)
    torch.testing.assert_close(found[0].cpu().double(), exact, rtol=1e-5, atol=1e-4)
