"""The run-time compiler: finding its libraries, its cache, its errors; on a GPU, a launch."""

import ctypes
from pathlib import Path

import pytest
import torch

from strongticket.ops import nvrtc

SCALE = """
extern "C" __global__ void scale(const float *in, float *out, long long count, float factor) {
    extern __shared__ float staged[];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) { staged[threadIdx.x] = in[i]; out[i] = staged[threadIdx.x] * factor; }
}
"""
ARCHITECTURE = ("--gpu-architecture=sm_90",)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return tmp_path / "strongticket" / "nvrtc"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts what reaches the compiler, without needing one."""
    seen: list[str] = []

    def compile_(source: str, options: tuple[str, ...]) -> bytes:
        seen.append(source)
        return f"{source} {options}".encode()

    monkeypatch.setattr(nvrtc, "_compile", compile_)
    monkeypatch.setattr(nvrtc, "_nvrtc_version", lambda: (13, 0))
    return seen


def test_cubin_is_compiled_once_per_source_and_options(cache: Path, compilations: list[str]) -> None:
    first = nvrtc.cubin("a", ("-DN=1",))
    assert nvrtc.cubin("a", ("-DN=1",)) == first
    assert nvrtc.cubin("a", ("-DN=2",)) != first
    assert nvrtc.cubin("b", ("-DN=1",)) != first
    assert compilations == ["a", "a", "b"]
    assert len(list(cache.iterdir())) == 3


def test_another_compiler_version_compiles_again(
    cache: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvrtc.cubin("a", ())
    monkeypatch.setattr(nvrtc, "_nvrtc_version", lambda: (13, 1))
    nvrtc.cubin("a", ())
    assert compilations == ["a", "a"]


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-1], lambda b: b[:40] + b"\x00" + b[41:]])
def test_a_damaged_cache_entry_is_made_again(cache: Path, compilations: list[str], damage) -> None:
    image = nvrtc.cubin("a" * 50, ())
    (entry,) = cache.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert nvrtc.cubin("a" * 50, ()) == image
    assert len(compilations) == 2
    assert nvrtc.cubin("a" * 50, ()) == image
    assert len(compilations) == 2


def test_a_cache_that_cannot_be_written_only_costs_time(cache: Path, compilations: list[str]) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("a file where the folder should be")
    assert nvrtc.cubin("a", ()) == nvrtc.cubin("a", ())
    assert compilations == ["a", "a"]


def test_nvrtc_is_looked_for_in_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (tmp_path / "lib64").mkdir()
    library = tmp_path / "lib64" / "libnvrtc.so.13"
    library.touch()
    candidates = list(nvrtc._nvrtc_candidates(13))
    assert candidates[0] == "libnvrtc.so.13"
    assert str(library) in candidates
    assert str(library) not in list(nvrtc._nvrtc_candidates(12))


def test_a_cpu_device_is_refused() -> None:
    with pytest.raises(ValueError, match="run on a CUDA device; got cpu"):
        nvrtc.kernel(SCALE, "scale", device="cpu")


def test_cuda_asked_for_and_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(nvrtc.CudaError, match="torch finds no CUDA device here"):
        nvrtc.kernel(SCALE, "scale", device="cuda")


def test_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(nvrtc.CudaError, match="CUDA build of torch"):
        nvrtc._nvrtc.__wrapped__()


@pytest.mark.parametrize(("size", "expected"), [(7, (7, 1, 1)), ((7, 2), (7, 2, 1)), ((7, 2, 3), (7, 2, 3))])
def test_sizes_have_three_dimensions(size: int | tuple[int, ...], expected: tuple[int, int, int]) -> None:
    assert nvrtc._three(size) == expected


@pytest.fixture
def compiler() -> None:
    """Skips where NVRTC cannot be loaded; it compiles without a GPU."""
    try:
        nvrtc._nvrtc()
    except nvrtc.CudaError as error:
        pytest.skip(f"no NVRTC here: {error}")


@pytest.mark.usefixtures("compiler")
def test_a_source_compiles(cache: Path) -> None:
    assert nvrtc.cubin(SCALE, ARCHITECTURE)[:4] == b"\x7fELF"


@pytest.mark.usefixtures("compiler")
def test_an_error_in_the_source_shows_the_log(cache: Path) -> None:
    with pytest.raises(nvrtc.CudaError, match="undefined_name"):
        nvrtc.cubin(SCALE.replace("in[i]", "undefined_name"), ARCHITECTURE)


@pytest.fixture
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; torch sees none")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.gpu
@pytest.mark.parametrize("threads", [32, 1024])
@pytest.mark.parametrize("shared_bytes", [4096, 100 * 1024])
def test_launch(gpu: torch.device, threads: int, shared_bytes: int) -> None:
    x = torch.randn(10_007, device=gpu)
    y = torch.full_like(x, torch.nan)
    kernel = nvrtc.kernel(SCALE, "scale", device=gpu)
    blocks = -(-x.numel() // threads)
    kernel.launch(blocks, threads, x, y, ctypes.c_int64(x.numel()), ctypes.c_float(3.0), shared_bytes=shared_bytes)
    torch.testing.assert_close(y, 3 * x, rtol=0, atol=0)
    assert nvrtc.kernel(SCALE, "scale", device=gpu) is kernel


@pytest.mark.gpu
def test_arguments_without_a_width_are_refused(gpu: torch.device) -> None:
    x = torch.zeros(1, device=gpu)
    kernel = nvrtc.kernel(SCALE, "scale", device=gpu)
    with pytest.raises(TypeError, match="argument 2 is a int"):
        kernel.launch(1, 32, x, x, 1, ctypes.c_float(1))
    with pytest.raises(ValueError, match="argument 0 is on cpu"):
        kernel.launch(1, 32, x.cpu(), x, ctypes.c_int64(1), ctypes.c_float(1))


@pytest.mark.gpu
def test_an_unknown_kernel_and_a_bad_launch_are_errors(gpu: torch.device) -> None:
    with pytest.raises(nvrtc.CudaError, match="cuModuleGetFunction failed"):
        nvrtc.kernel(SCALE, "absent", device=gpu)
    x = torch.zeros(1, device=gpu)
    with pytest.raises(nvrtc.CudaError, match="cuLaunchKernel failed"):
        nvrtc.kernel(SCALE, "scale", device=gpu).launch(1, 4096, x, x, ctypes.c_int64(1), ctypes.c_float(1))
