"""The kernel against the reference: its source compiled for the CPU, and on a GPU if present."""

import pytest
import torch
from tests.cuda_emulator import emulated

from strongticket.ops.attention import cuda, reference

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(
    params=[pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # Two warps: 8 tokens at a time, up to 32 per round.
    monkeypatch.setattr(cuda, "THREADS", 64)
    monkeypatch.setattr(cuda, "IN_FLIGHT", 64)
    if request.param == "cpu":
        monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
    found: str = request.param
    return found


@pytest.mark.parametrize(("heads", "width"), [(1, 4), (3, 20), (2, 64), (1, 132)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_one_token_attends_to_those_before_it(device: str, heads: int, width: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(width)
    for place in (0, 1, 3, 4, 7, 8, 15, 16, 39):
        past, qkv = (torch.randn(*shape, heads, width, generator=generator) for shape in ((40, 2), (3,)))
        qkv[0] *= scale  # with 30, nearly all weight is on one token
        past[place:] = torch.nan  # not read
        kept = past.clone().to(device)
        mixed = cuda.attend(qkv.to(device), kept, torch.tensor([place], device=device))
        expected = reference.attend(qkv, past, place)
        torch.testing.assert_close(mixed.double().cpu(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(kept.cpu(), past, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("key", [-torch.inf, -3.4e38, 3.4e38])
def test_scores_of_any_size_have_their_weight(device: str, key: float) -> None:
    past, qkv = torch.zeros(20, 2, 1, 4), torch.zeros(3, 1, 4)
    qkv[0, 0, 0], past[:17, 0, 0, 0] = 1.0, key  # of all tokens but the last two
    past[:, 1] = torch.arange(20.0)[:, None, None]
    qkv[2] = 18.0
    expected = reference.attend(qkv, past.clone(), 18)
    mixed = cuda.attend(qkv.to(device), past.to(device), torch.tensor([18], device=device))
    torch.testing.assert_close(mixed.double().cpu(), expected, rtol=1e-6, atol=0)
