"""The loss and its gradient against torch's own: the kernel's source compiled for the CPU, and on a GPU if present."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody reads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cuda_emulator import emulated
from torch import Tensor

from strongticket.ops import cross_entropy
from strongticket.ops.cross_entropy import cuda, linear_cross_entropy, loss_and_gradients

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
thorough = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@pytest.fixture(
    params=[pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "cpu":
        # Two warps and two loads of eight logits, so that small rows reach every branch.
        monkeypatch.setattr(cuda, "THREADS", 64)
        monkeypatch.setattr(cuda, "LOADS", 2)
        monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
    # oneDNN's bfloat16 products crash on virtual machines that list AMX and refuse it.
    with torch.backends.mkldnn.flags(enabled=False):
        yield request.param


def expected(logits: Tensor, targets: Tensor, vocabulary: int, scale: float) -> tuple[Tensor, Tensor]:
    exact = logits.double().requires_grad_()
    losses = F.cross_entropy(exact[:, :vocabulary], targets, reduction="none")
    (gradient,) = torch.autograd.grad(scale * losses.sum(), exact)
    return losses.detach(), gradient


def assert_right(device: str, logits: Tensor, targets: Tensor, vocabulary: int, scale: float = 1.0) -> None:
    losses, gradient = expected(logits, targets, vocabulary, scale)
    placed = logits.to(device, copy=True)
    actual = cuda.cross_entropy_(placed, targets.to(device), vocabulary, scale)
    torch.testing.assert_close(actual.cpu().double(), losses, rtol=1e-5, atol=2e-5 + 1e-6 * logits.abs().max().item())
    # bfloat16 keeps 8 bits; what is left of 1 - p at the target is only as good as p in float32.
    torch.testing.assert_close(placed.cpu().double(), gradient, rtol=2**-7, atol=1e-6 * scale)
    assert not placed[:, vocabulary:].any()


@thorough
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 300).map(lambda loads: 8 * loads),
    padding=st.integers(0, 20),
    spread=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    scale=st.sampled_from([1.0, 2.0**-15, 1 / 3]),
    seed=st.integers(0, 2**32),
)
def test_losses_and_gradients(
    device: str, rows: int, columns: int, padding: int, spread: float, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    vocabulary = max(1, columns - padding)
    # The padding holds what a product left there, larger than any logit.
    logits = (spread * torch.randn(rows, columns, generator=generator)).bfloat16()
    logits[:, vocabulary:] = 2 * spread + 5
    assert_right(device, logits, torch.randint(vocabulary, (rows,), generator=generator), vocabulary, scale)


@pytest.mark.parametrize("target", [0, 1, 511, 512, 1023, 1024, 1599])
def test_every_place_of_the_target_and_of_the_largest_logit(device: str, target: int) -> None:
    logits = torch.zeros(4, 1600, dtype=torch.bfloat16)
    for row, largest in enumerate((target, 0, 777, 1599)):
        logits[row, largest] = 50.0
    assert_right(device, logits, torch.full((4,), target), 1600)


def test_logits_of_minus_infinity_are_impossible_tokens(device: str) -> None:
    logits = torch.full((1, 64), -math.inf, dtype=torch.bfloat16)
    logits[0, 5:7] = 1.0
    losses = cuda.cross_entropy_(logits := logits.to(device), torch.tensor([5], device=device), 64, 1.0)
    assert losses.item() == pytest.approx(math.log(2))
    assert logits[0].nonzero().flatten().tolist() == [5, 6]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_logit_that_is_no_number_shows_in_its_rows_loss_alone(device: str, bad: float) -> None:
    logits = torch.randn(3, 640, generator=torch.Generator().manual_seed(0)).bfloat16()
    logits[1, 300] = bad
    losses = cuda.cross_entropy_(logits.to(device), torch.tensor([1, 2, 3], device=device), 640, 1.0)
    assert losses.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("target", [-1, 40, 47, 2**40])
def test_a_target_that_is_no_token_makes_the_loss_nan_and_touches_nothing_else(device: str, target: int) -> None:
    logits = torch.zeros(3, 48, dtype=torch.bfloat16, device=device)
    losses = cuda.cross_entropy_(logits, torch.tensor([0, target, 0], device=device), 40, 1.0)
    assert losses.isnan().tolist() == [False, True, False]
    assert torch.equal(logits[0], logits[2])


@pytest.mark.parametrize("vocabulary", [40, 37])
def test_the_whole_operation_against_autograd(device: str, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(70, 16, generator=generator), torch.randn(40, 16, generator=generator)
    targets = torch.randint(vocabulary, (70,), generator=generator)
    leaves = [t.bfloat16().float().requires_grad_() for t in (x, weight)]
    loss = F.cross_entropy(F.linear(leaves[0], leaves[1][:vocabulary]), targets)
    gradients = torch.autograd.grad(loss, leaves)
    placed = [t.bfloat16().to(device) for t in (x, weight)]
    actual = loss_and_gradients(*placed, targets.to(device), vocabulary, True, True)
    torch.testing.assert_close(actual[0].cpu(), loss.detach(), rtol=5e-3, atol=0)
    for a, g in zip(actual[1:], gradients, strict=True):
        assert (a.cpu().float() - g).norm() < 0.01 * g.norm()
    assert not actual[2][vocabulary:].any()
    for wanted in ((True, False), (False, True), (False, False)):
        some = loss_and_gradients(*placed, targets.to(device), vocabulary, *wanted)
        assert torch.equal(some[0], actual[0])
        for made, whole, want in zip(some[1:], actual[1:], wanted, strict=True):
            assert torch.equal(made, whole) if want else made.numel() == 0


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_gradients_reach_the_leaves_through_casts_padding_and_a_factor(device: str, compiler: str | None) -> None:
    generator = torch.Generator().manual_seed(2)
    x, weight = torch.randn(48, 16, generator=generator), torch.randn(37, 16, generator=generator)
    targets = torch.randint(37, (48,), generator=generator)

    def loss_of(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        padded = F.pad(weight, (0, 0, 0, 3))
        return 0.25 * cross_entropy._fused(x.bfloat16(), padded.bfloat16(), targets, 37)

    run = loss_of if compiler is None else torch.compile(loss_of, backend=compiler, fullgraph=True)
    leaves = [t.to(device).requires_grad_() for t in (x, weight)]
    gradients = torch.autograd.grad(run(*leaves, targets.to(device)), leaves)
    exact = [t.requires_grad_() for t in (x, weight)]
    for a, g in zip(gradients, torch.autograd.grad(0.25 * F.cross_entropy(x @ weight.T, targets), exact), strict=True):
        assert a.dtype == torch.float32
        assert (a.cpu() - g).norm() < 0.02 * g.norm()


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_only_what_trains_gets_a_gradient(device: str, compiler: str | None) -> None:
    x, weight = torch.randn(8, 16, device=device).bfloat16(), torch.randn(16, 16, device=device).bfloat16()
    targets = torch.zeros(8, dtype=torch.long, device=device)
    run = cross_entropy._fused
    run = run if compiler is None else torch.compile(run, backend=compiler, fullgraph=True)
    both = [t.clone().requires_grad_() for t in (x, weight)]
    run(*both, targets, 13).backward()
    for leaves in ([x.clone().requires_grad_(), weight], [x, weight.clone().requires_grad_()]):
        run(*leaves, targets, 13).backward()
        for leaf, expected in zip(leaves, both, strict=True):
            assert torch.equal(leaf.grad, expected.grad) if leaf.requires_grad else leaf.grad is None
    with torch.no_grad():
        loss = run(*both, targets, 13)
    assert not loss.requires_grad
    assert torch.equal(loss, run(*both, targets, 13))


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, False)])
def test_torch_agrees_that_the_operation_is_well_formed(device: str, wanted: tuple[bool, bool]) -> None:
    x, weight = torch.randn(8, 16, device=device).bfloat16(), torch.randn(16, 16, device=device).bfloat16()
    targets = torch.zeros(8, dtype=torch.long, device=device)
    torch.library.opcheck(loss_and_gradients, (x, weight, targets, 13, *wanted))


def test_a_gradient_on_the_cpu_is_torchs_own() -> None:
    x, weight, targets = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4), torch.randint(9, (6,))
    assert torch.equal(linear_cross_entropy(x, weight, targets), F.cross_entropy(x @ weight.T, targets))


@pytest.mark.parametrize("rows", [1, 4, 8, 11])
@pytest.mark.parametrize("size", [1.0, 300.0])  # exp(300) is no float32
def test_in_slices_the_loss_is_the_same(rows: int, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "SLICE", 4 * 9 + 3)  # four rows of nine logits
    x, weight, targets = size * torch.randn(rows, 4), torch.randn(9, 4), torch.randint(9, (rows,))
    expected = F.cross_entropy(x.double() @ weight.double().T, targets)
    torch.testing.assert_close(linear_cross_entropy(x, weight, targets).double(), expected, rtol=1e-5, atol=1e-6)


def test_in_slices_little_memory_is_used() -> None:
    x, weight = torch.zeros(4000, 2), torch.zeros(50257, 2)  # 804 MB of logits
    targets = torch.zeros(4000, dtype=torch.long)
    with torch.profiler.profile(profile_memory=True) as profile:
        linear_cross_entropy(x, weight, targets)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest <= 4 * cross_entropy.SLICE


@pytest.mark.gpu
@needs_gpu
class TestOnGpu:
    @pytest.mark.parametrize("gradients", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_every_path_gives_the_loss(self, dtype: torch.dtype, gradients: bool) -> None:
        x, weight = torch.randn(512, 64, device="cuda"), torch.randn(50257, 64, device="cuda") / 8
        targets = torch.randint(50257, (512,), device="cuda")
        loss = F.cross_entropy(x.double() @ weight.double().T, targets)
        with torch.set_grad_enabled(gradients), torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            actual = linear_cross_entropy(x, weight, targets)
        torch.testing.assert_close(actual.double(), loss, rtol=1e-5 if dtype == torch.float32 else 5e-3, atol=0)

    def test_large_rows(self) -> None:
        logits = 3 * torch.randn(256, 50304).bfloat16()
        assert_right("cuda", logits, torch.randint(50257, (256,)), 50257, scale=2.0**-15)
