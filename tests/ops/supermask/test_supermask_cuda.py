"""The CUDA kernels against the reference: their source compiled for the CPU, and on a GPU where there is one."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from supermask_scores import densities, hard_scores, scores
from tests.cuda_emulator import emulated
from torch import Tensor

from strongticket.ops.supermask import Refresh, Supermask, cuda, reference, top_mask, top_masks

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
thorough = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SIZES = (1, 127, 128, 129, 640, 1000)


@dataclass
class Backend:
    """Where the kernels run, and the tensors with them."""

    device: str

    def top_masks(self, tensors: list[Tensor], density: float, signed: bool) -> list[Tensor]:
        return self.grouped([tensors], density, signed)[0]

    def grouped(self, groups: list[list[Tensor]], density: float, signed: bool) -> list[list[Tensor]]:
        """Each group ranked by itself, all in one refresh; masks begin as garbage."""
        placed = [[t.to(self.device) for t in group] for group in groups]
        masks = [[torch.full_like(t, 0xAB, dtype=torch.uint8).view(torch.bool) for t in group] for group in placed]
        dropped = [reference.dropped_count(sum(t.numel() for t in group), density) for group in groups]
        refresh = cuda.selection(placed, masks, signed)
        refresh([0] * len(groups))
        refresh(dropped)
        refresh(dropped)  # what the ones before left behind must not matter
        return [[mask.cpu() for mask in group] for group in masks]


@pytest.fixture(params=[pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    # Chunks of 128 scores, so that small tensors have several.
    monkeypatch.setattr(cuda, "THREADS", 32)
    monkeypatch.setattr(cuda, "LOADS", 1)
    if request.param == "cpu":
        monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
    elif not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    yield Backend(request.param)
    cuda._resident_blocks.cache_clear()


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        # As bytes: a mask byte of 2 would be true and still wrong.
        assert torch.equal(a.view(torch.uint8), e.view(torch.uint8))


@thorough
@given(s=scores(700), density=densities, signed=st.booleans())
def test_one_tensor(backend: Backend, s: Tensor, density: float, signed: bool) -> None:
    assert_equal(backend.top_masks([s], density, signed), [reference.top_mask(s, density, signed=signed)])


@pytest.mark.parametrize("signed", [False, True])
def test_every_cut_through_zeros_denormals_infinities_and_nans(backend: Backend, signed: bool) -> None:
    s = hard_scores()
    for kept in range(1, len(s) + 1):
        density = kept / len(s)
        assert_equal(backend.top_masks([s], density, signed), [reference.top_mask(s, density, signed=signed)])


@thorough
@given(tensors=st.lists(scores(300), min_size=1, max_size=4), density=densities, signed=st.booleans())
def test_several_ranked_together(backend: Backend, tensors: list[Tensor], density: float, signed: bool) -> None:
    assert_equal(backend.top_masks(tensors, density, signed), reference.top_masks(tensors, density, signed=signed))


@thorough
@given(groups=st.lists(st.lists(scores(200), min_size=1, max_size=3), min_size=1, max_size=4), density=densities)
def test_several_groups(backend: Backend, groups: list[list[Tensor]], density: float) -> None:
    for actual, group in zip(backend.grouped(groups, density, False), groups, strict=True):
        assert_equal(actual, reference.top_masks(group, density))


@pytest.mark.parametrize("distinct", [1, 3, 1000])
@pytest.mark.parametrize("size", SIZES)
def test_the_cut_falls_anywhere(backend: Backend, size: int, distinct: int) -> None:
    s = torch.randint(distinct, (size,), generator=torch.Generator().manual_seed(size)).float()
    for density in (1.0, 0.9, 0.5, 128 / size if size > 128 else 0.4, 0.1, 1e-9):
        assert_equal(backend.top_masks([s], density, False), [reference.top_mask(s, density)])


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_tensors_that_wide_loads_cannot_read(backend: Backend, offset: int) -> None:
    s = torch.randn(500, generator=torch.Generator().manual_seed(0)).mul(3).round()
    shifted = torch.empty(500 + offset, device=backend.device)[offset:]
    shifted.copy_(s)
    assert_equal(backend.top_masks([shifted], 0.3, False), [reference.top_mask(s, 0.3)])


# --- On a GPU only ---------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnGpu:
    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("kind", ["normal", "few", "one", "bits"])
    def test_large_tensors(self, kind: str, signed: bool) -> None:
        generator = torch.Generator("cuda").manual_seed(0)
        sizes = (3_000_001, 8192, 1, 0, 1_234_567)

        def draw(n: int) -> Tensor:
            if kind == "bits":
                bits = torch.randint(-(2**31), 2**31, (n,), generator=generator, device="cuda")
                return bits.int().view(torch.float32)
            s = torch.randn(n, generator=generator, device="cuda")
            return {"normal": s, "few": s.mul(2).round(), "one": torch.full_like(s, -0.5)}[kind]

        tensors = [draw(n) for n in sizes]
        on_cpu = [t.cpu() for t in tensors]
        for density in (0.3, 0.999):
            expected = reference.top_masks(on_cpu, density, signed=signed)
            assert_equal([m.cpu() for m in top_masks(tensors, density, signed=signed)], expected)
            for t, c in zip(tensors, on_cpu, strict=True):
                expected_alone = reference.top_mask(c, density, signed=signed)
                assert_equal([top_mask(t, density, signed=signed).cpu()], [expected_alone])

    def test_refresh_never_waits_for_the_gpu(self) -> None:
        supermasks = [Supermask(torch.randn(1000, 77, device="cuda"), 0.3) for _ in range(5)]
        refresh = Refresh(supermasks)
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.no_grad():
                for m in supermasks:
                    m.scores.mul_(1.5).sub_(0.2)
            refresh()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for m in supermasks:
            assert_equal([m.mask.cpu()], [reference.top_mask(m.scores.cpu(), 0.3)])

    def test_refresh_can_be_captured_in_a_graph(self) -> None:
        supermask = Supermask(torch.randn(100_000, device="cuda"), 0.3)
        refresh, graph = Refresh([supermask]), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            refresh()
        with torch.no_grad():
            supermask.scores.normal_()
        graph.replay()
        assert_equal([supermask.mask.cpu()], [reference.top_mask(supermask.scores.cpu(), 0.3)])
