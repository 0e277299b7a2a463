"""The GPU kernels against the reference: on a CPU through the emulator, on a GPU where there is one."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from subset_sum_problems import problems, random_problems
from tests.cuda_emulator import emulated
from torch import Tensor

from strongticket.ops.subset_sum import Status, SubsetSumResult, cpu, cuda, reference
from strongticket.ops.subset_sum.result import empty_result

ONE_OF_EACH_PATH = [0, 3, 8, 11, 12, 16, 17, 20, 26]
PROPERTY_SIZES = [5, 11, 12, 16]


class Backend(NamedTuple):
    """Where the kernels run, and a count of the problems they left to the CPU."""

    device: torch.device
    left_open: list[int]

    def solve(self, targets: Tensor, items: Tensor) -> SubsetSumResult:
        return _on_cpu(cuda.solve(targets.to(self.device), items.to(self.device), "default"))

    def solve_products(
        self, targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float = 1.0
    ) -> SubsetSumResult:
        moved = (x.to(self.device) for x in (targets, u, v, sizes))
        return _on_cpu(cuda.solve_products(*moved, divisor, "default"))


def _on_cpu(result: SubsetSumResult) -> SubsetSumResult:
    return SubsetSumResult(*(x.cpu() for x in result))


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    if request.param == "emulator":
        if emulated.COMPILER is None:
            pytest.skip("the CUDA emulator needs g++; none found")
        monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
        device = torch.device("cpu")
    else:
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device; torch sees none")
        device = torch.device("cuda", torch.cuda.current_device())
    left_open: list[int] = []
    solve_on_cpu = cuda._solve_on_cpu

    def counted(targets: Tensor, *rest: object) -> None:
        left_open.append(len(targets))
        solve_on_cpu(targets, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cuda, "_solve_on_cpu", counted)
    # What a kernel does not write must not look right by chance.
    monkeypatch.setattr(cuda, "empty_result", lambda *args: _poisoned(empty_result(*args)))
    return Backend(device, left_open)


def _poisoned(result: SubsetSumResult) -> SubsetSumResult:
    result.mask.view(torch.uint8).fill_(1)
    result.error.fill_(torch.nan)
    result.status.fill_(77)
    return result


def assert_same(actual: SubsetSumResult, expected: SubsetSumResult) -> None:
    assert actual.status.tolist() == expected.status.tolist()
    assert actual.mask.tolist() == expected.mask.tolist()
    torch.testing.assert_close(actual.error, expected.error, rtol=0, atol=0)


@pytest.mark.parametrize("n", ONE_OF_EACH_PATH)
def test_random_problems(backend: Backend, n: int) -> None:
    targets, items = random_problems(24, n, seed=n)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert not backend.left_open


@pytest.mark.slow
@pytest.mark.parametrize("n", range(33))
def test_random_problems_of_every_size(backend: Backend, n: int) -> None:
    targets, items = random_problems(200 if n < 22 else 20 if n < 29 else 4, n, seed=n)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert sum(backend.left_open) <= 1


@pytest.mark.parametrize("n", PROPERTY_SIZES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hard_problems(backend: Backend, n: int, data: st.DataObject) -> None:
    targets, items = data.draw(problems(min_items=n, max_items=n))
    assert_same(backend.solve(targets, items), reference.subset_sum(targets, items))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target_dtype", [torch.float32, torch.float64])
def test_types_and_strides(backend: Backend, dtype: torch.dtype, target_dtype: torch.dtype) -> None:
    targets, items = random_problems(40, 13, seed=5)
    targets, items = targets.to(target_dtype)[::2], items.to(dtype).T.contiguous().T[::2]
    expected = cpu.solve(targets.double(), items.double().contiguous(), "default")
    assert_same(backend.solve(targets, items), expected)


def test_rows_that_share_their_items(backend: Backend) -> None:
    """As `subset_sum` hands them over: a view, with every row in the same place."""
    targets, items = random_problems(40, 13, seed=6)
    shared = items[0].expand(40, 13)
    assert_same(backend.solve(targets, shared), cpu.solve(targets, shared.contiguous(), "default"))


@pytest.mark.parametrize("divisor", [1.0, 3.0])
def test_products_of_unequal_blocks(backend: Backend, divisor: float) -> None:
    sizes = torch.tensor([13, 0, 5, 13, 16, 1])
    u, v = torch.rand(48) * 2 - 1, torch.rand(7, 48) * 2 - 1
    targets = (torch.rand(7, 6) - 0.5) / divisor
    expected = cpu.solve_products(targets, u, v, sizes, divisor, "default")
    assert_same(backend.solve_products(targets, u, v, sizes, divisor), expected)


def test_products_with_ties(backend: Backend) -> None:
    sizes = torch.tensor([13, 3, 13])
    u, v = torch.ones(29), torch.rand(3, 29).mul(4).round() / 4
    targets = torch.tensor([[2.1, 0.3, 1.0]]).expand(3, 3)
    assert_same(backend.solve_products(targets, u, v, sizes), cpu.solve_products(targets, u, v, sizes, 1.0, "default"))
    assert backend.left_open  # so the way through the CPU was taken


@pytest.mark.parametrize("n", [0, 5, 16])
def test_no_rows(backend: Backend, n: int) -> None:
    result = backend.solve(torch.empty(0), torch.empty(0, n))
    assert [x.shape for x in result] == [(0, n), (0,), (0,)]


def test_targets_at_and_beyond_the_ends(backend: Backend) -> None:
    _, items = random_problems(12, 14, seed=3)
    low, high = reference.reach(items)
    out = torch.full_like(low, torch.inf)
    targets = torch.cat([low, high, torch.nextafter(low, -out), torch.nextafter(high, out), low - 1e300, high + 1])
    items = items.repeat(6, 1)
    expected = reference.subset_sum(targets, items)
    assert (expected.status == Status.UNREACHABLE).sum() == 48
    assert_same(backend.solve(targets, items), expected)


def test_a_cramped_sieve_leaves_problems_to_the_cpu(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    cramped = replace(cuda.sieve_for(16), wanted_capacity=4, low_capacity=4, found_capacity=2)
    monkeypatch.setattr(cuda, "sieve_for", lambda n: cramped)
    targets, items = random_problems(40, 16, seed=2)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert 0 < sum(backend.left_open) < 40


@pytest.mark.parametrize("expected", [0.05, 40.0])
def test_a_bad_guess_of_the_reach_costs_time_only(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, expected: float
) -> None:
    guess = replace(cuda.sieve_for(16), expected=expected)
    monkeypatch.setattr(cuda, "sieve_for", lambda n: guess)
    targets, items = random_problems(40, 16, seed=4)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert not backend.left_open


def test_a_target_beside_more_subsets_than_there_is_room_for(backend: Backend) -> None:
    # Seven tiny items make a cloud of 128 subsets around each sum of the others; the targets miss a cloud by little.
    _, items = random_problems(24, 14, seed=8)
    items[:, ::2] *= 1e-3
    targets = items[:, 1::4].sum(dim=1) + torch.linspace(0.002, 0.02, 24, dtype=torch.float64)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert not backend.left_open


@pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
def test_gpus_without_warp_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(source: str, name: str, options: tuple[str, ...], *, device: torch.device) -> emulated.EmulatedKernel:
        return emulated.kernel(source, name, (*options, "-D__CUDA_ARCH__=750"), device=device)

    monkeypatch.setattr(cuda.nvrtc, "kernel", older)
    for n in (8, 14):
        targets, items = random_problems(24, n, seed=9)
        assert_same(cuda.solve(targets, items, "default"), cpu.solve(targets, items, "default"))


@pytest.mark.parametrize(
    "cut",
    [
        {"low": 8, "most_high": 5},  # eight passes over the wanted sums
        {"log_threads": 6, "teams": 1},  # a team of two warps
        {"log_batch": 1},
        {"log_low_bits": 10, "log_wanted_bits": 8},  # bitmaps so small that most sums survive by mistake
    ],
    ids=str,
)
def test_other_cuts(backend: Backend, monkeypatch: pytest.MonkeyPatch, cut: dict[str, int]) -> None:
    sieve = replace(cuda.sieve_for(16), **cut)
    monkeypatch.setattr(cuda, "sieve_for", lambda n: sieve)
    targets, items = random_problems(40, 16, seed=6)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))


def test_open_problems_in_several_chunks(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "STATUS_CHUNK", 7)
    monkeypatch.setattr(cuda, "OPEN_CHUNK", 2)
    items = torch.ones(20, 13, dtype=torch.float64) * 0.1
    items[::3] = random_problems(7, 13)[1]
    targets = torch.full((20,), 0.35, dtype=torch.float64)
    assert_same(backend.solve(targets, items), cpu.solve(targets, items, "default"))
    assert sum(backend.left_open) == 13
