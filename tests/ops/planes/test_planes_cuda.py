"""The CUDA kernels against the reference: their source compiled for the CPU, and on a GPU where there is one."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planes_cases import assert_product, matrices
from tests.cuda_emulator import emulated
from torch import Tensor

from strongticket.ops.planes import Planes, cuda, pack

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


@dataclass
class Backend:
    """Where the kernels run, and the tensors with them."""

    device: str

    def multiply(self, planes: Planes, x: Tensor, scale: float) -> Tensor:
        return cuda.multiply(planes.to(self.device), x.to(self.device), scale).cpu()

    def look_up(self, planes: Planes, indices: Tensor, scale: float) -> Tensor:
        return cuda.look_up(planes.to(self.device), indices.to(self.device), scale).cpu()


@pytest.fixture(params=[pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    # Room for the pieces of a few steps, and few blocks: small matrices take several launches and rounds.
    monkeypatch.setattr(cuda, "SHARED_BYTES", 4 * 3 * 256)
    monkeypatch.setattr(cuda, "WARPS", 4)
    monkeypatch.setattr(cuda, "TOGETHER", 3)
    monkeypatch.setattr(cuda, "FEW", 4)
    monkeypatch.setattr(cuda, "UNPACKED", 5000)
    monkeypatch.setattr(cuda, "_processors", lambda device: 2)
    if request.param == "cpu":
        monkeypatch.setattr(cuda, "nvrtc", SimpleNamespace(kernel=emulated.kernel))
    elif not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return Backend(request.param)


@few
@given(case=matrices(levels=(1, 3)), vectors=st.sampled_from([0, 1, 3, 5]), scale=st.sampled_from([1.0, -0.37]))
def test_products_are_within_the_bound_of_float32_sums(
    backend: Backend, case: tuple[Planes, Tensor], vectors: int, scale: float
) -> None:
    planes, _ = case
    x = torch.randn(vectors, planes.columns, generator=torch.Generator().manual_seed(planes.rows))
    assert_product(backend.multiply(planes, x, scale), planes, x, scale)


@pytest.mark.parametrize("columns", [100, 1500])  # in one launch and in several
@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
@pytest.mark.parametrize("parts", [(), ("bias",), ("factors", "bias", "residual")])
def test_a_product_is_finished_in_its_kernel(
    backend: Backend, columns: int, activation: Literal["gelu", "relu"] | None, parts: tuple[str, ...]
) -> None:
    generator = torch.Generator().manual_seed(columns)
    codes = torch.randint(-1, 2, (70, columns), generator=generator, dtype=torch.int8)
    x, y = torch.randn(2, columns, generator=generator), torch.empty(2, 70)
    sizes = {"factors": (70,), "bias": (70,), "residual": (2, 70)}
    given = {name: torch.randn(sizes[name], generator=generator) for name in parts}
    expected = 0.2 * x.double() @ codes.double().T * given.get("factors", 1.0) + given.get("bias", 0.0)
    if activation:
        expected = F.relu(expected) if activation == "relu" else F.gelu(expected, approximate="tanh")
    expected += given.get("residual", 0.0)
    finish = cuda.Finish(**{name: each.to(backend.device) for name, each in given.items()}, activation=activation)
    y = y.to(backend.device)
    cuda.multiply_few(pack(codes).to(backend.device), x.to(backend.device), 0.2, y, finish)
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@few
@given(case=matrices(levels=(1, 3)), data=st.data())
def test_rows_are_looked_up(backend: Backend, case: tuple[Planes, Tensor], data: st.DataObject) -> None:
    planes, matrix = case
    indices = torch.randint(0, max(1, planes.rows), (data.draw(st.integers(0, 9)) if planes.rows else 0,))
    assert torch.equal(backend.look_up(planes, indices, 0.5), 0.5 * matrix[indices].float())


@pytest.mark.parametrize("vectors", [1, 3, 5])
def test_a_dropped_weight_is_skipped_and_a_kept_one_passes_on_what_is_not_finite(
    backend: Backend, vectors: int
) -> None:
    planes = pack(torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, -1], [1, 0, 1], [1, 1, 0]], dtype=torch.int8))
    x = torch.tensor([torch.inf, torch.nan, 1.0]).repeat(vectors, 1)
    expected = torch.tensor([torch.inf, torch.nan, -1.0, torch.inf, torch.nan]).expand(vectors, 5)
    torch.testing.assert_close(backend.multiply(planes, x, 1.0), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("exponent", [-100, 0, 127])
def test_all_24_bits_of_x_count(backend: Backend, exponent: int) -> None:
    x = torch.tensor([[1 + 2.0**-23, 2 - 2.0**-23, 1 + 2.0**-12]]).double() * 2.0**exponent
    planes = pack(torch.eye(3, dtype=torch.int8))
    assert torch.equal(backend.multiply(planes, x.float(), 1.0), x.float())
