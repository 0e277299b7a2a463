"""CUDA C++ compiled at run time by NVRTC and launched on torch's current stream.

A user needs torch and a driver, nothing else: libnvrtc comes with torch's CUDA wheels, libcuda with the driver, and
both are reached through ctypes. Compiled code is kept in the process and, as a cubin, in the user's cache directory.

    scale = nvrtc.kernel(SOURCE, "scale", ("--fmad=false",), device=x.device)
    scale.launch(blocks, 256, x, ctypes.c_int64(x.numel()), ctypes.c_float(2.0))
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strongticket.errors import StrongTicketError
from strongticket.files import atomic_write

# Dynamic shared memory that a kernel may use without asking the driver.
DEFAULT_SHARED_BYTES = 48 * 1024

_MAX_DYNAMIC_SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaError(StrongTicketError):
    """CUDA or NVRTC is absent, refused a source, or failed a launch."""


def kernel(source: str, name: str, options: tuple[str, ...] = (), *, device: torch.device | str | int) -> "Kernel":
    """Compile `source` for `device`, unless it is cached, and return its `extern "C"` kernel `name`.

    Args:
        source: CUDA C++ without includes: only NVRTC's built-ins are guaranteed.
        name: a `__global__` function declared `extern "C"`.
        options: NVRTC options such as `"--fmad=false"` or `"-DN=16"`; the architecture is added here.
        device: the CUDA device that will run it.

    Raises:
        CudaError: no CUDA, no NVRTC, a source that does not compile (the message holds NVRTC's log), or no such kernel.
    """
    return _load(source, options, _device_index(device)).kernel(name)


@functools.cache
def source(beside: str, *files: str) -> str:
    """Read and join CUDA sources that lie beside a Python file."""
    return "".join(Path(beside).with_name(file).read_text(encoding="utf-8") for file in files)


class Kernel:
    """One compiled `__global__` function on one device."""

    def __init__(self, function: ctypes.c_void_p, name: str, module: "_Module") -> None:
        self._function, self._name, self._module = function, name, module
        self._shared_limit = DEFAULT_SHARED_BYTES

    def launch(
        self, grid: int | tuple[int, ...], block: int | tuple[int, ...], *args: Any, shared_bytes: int = 0
    ) -> None:
        """Queue the kernel on torch's current stream of its device.

        Args:
            grid: blocks, up to three dimensions.
            block: threads per block, up to three dimensions.
            args: contiguous or strided tensors of this device (passed as their data pointer) and ctypes scalars.
            shared_bytes: dynamic shared memory per block; more than 48 KB is requested from the driver here.
        """
        values = [self._argument(position, arg) for position, arg in enumerate(args)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = torch.cuda.current_stream(self._module.device).cuda_stream
        with self._module.context:
            self._allow_shared(shared_bytes)
            sizes = (ctypes.c_uint(size) for size in (*_three(grid), *_three(block), shared_bytes))
            _driver().call("cuLaunchKernel", self._function, *sizes, ctypes.c_void_p(stream), pointers, None)

    def resident_blocks(self, block: int, shared_bytes: int = 0) -> int:
        """Return how many such blocks the device runs at once: the grid of a kernel that loops over its work."""
        blocks = ctypes.c_int()
        with self._module.context:
            self._allow_shared(shared_bytes)
            occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            _driver().call(occupancy, ctypes.byref(blocks), self._function, block, ctypes.c_size_t(shared_bytes))
        return blocks.value * torch.cuda.get_device_properties(self._module.device).multi_processor_count

    def _allow_shared(self, shared_bytes: int) -> None:
        if shared_bytes > self._shared_limit:
            _driver().call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED_SIZE, shared_bytes)
            self._shared_limit = shared_bytes

    def _argument(self, position: int, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            if arg.device != torch.device("cuda", self._module.device):
                raise ValueError(
                    f"kernel {self._name} runs on cuda:{self._module.device}; argument {position} is on {arg.device}."
                )
            return ctypes.c_void_p(arg.data_ptr())
        if isinstance(arg, ctypes._SimpleCData):
            return arg
        # A plain int could mean 4 or 8 bytes, and a wrong guess corrupts every argument after it.
        raise TypeError(
            f"kernel {self._name} takes tensors and ctypes scalars; argument {position} is a {type(arg).__name__}. "
            "Wrap it, for example in ctypes.c_int(...)."
        )


def _three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return x, y, z


# --- Modules: compiled sources, loaded once per device -------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _load(source: str, options: tuple[str, ...], device: int) -> "_Module":
    major, minor = torch.cuda.get_device_capability(device)
    return _Module(cubin(source, (*options, f"--gpu-architecture=sm_{major}{minor}")), device)


class _Module:
    def __init__(self, image: bytes, device: int) -> None:
        self.device = device
        self.context = _Context(device)
        self._handle = ctypes.c_void_p()
        self._kernels: dict[str, Kernel] = {}
        with self.context:
            _driver().call("cuModuleLoadData", ctypes.byref(self._handle), image)

    def kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            function = ctypes.c_void_p()
            with self.context:
                _driver().call("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
            self._kernels[name] = Kernel(function, name, self)
        return self._kernels[name]


class _Context:
    """The device's primary context, which is torch's own, made current for the calls inside a `with`.

    torch makes it current lazily and per thread, so a thread that has not touched the GPU yet would have none.
    """

    def __init__(self, device: int) -> None:
        self._handle = ctypes.c_void_p()
        _driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(self._handle), ctypes.c_int(device))

    def __enter__(self) -> None:
        _driver().call("cuCtxPushCurrent_v2", self._handle)

    def __exit__(self, *_: object) -> None:
        _driver().call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


# --- Compilation, with a cache on disk -----------------------------------------------------------------------------


def cubin(source: str, options: tuple[str, ...]) -> bytes:
    """Return machine code for `source`, from the disk cache if possible; `options` name the architecture."""
    key = hashlib.sha256(repr((source, options, _nvrtc_version())).encode()).hexdigest()
    entry = _cache_directory() / f"{key}.cubin"
    image = _read_entry(entry)
    if image is None:
        image = _compile(source, options)
        _write_entry(entry, image)
    return image


def _cache_directory() -> Path:
    variable, below = ("LOCALAPPDATA", "AppData/Local") if sys.platform == "win32" else ("XDG_CACHE_HOME", ".cache")
    try:
        base = Path(os.environ.get(variable) or Path.home() / below)
    except RuntimeError:  # a user without a home: nothing is cached
        base = Path(os.devnull)
    return base / "strongticket" / "nvrtc"


_DIGEST_BYTES = hashlib.sha256().digest_size


def _read_entry(entry: Path) -> bytes | None:
    """Return the cubin in `entry`, or None if it is missing or damaged: both mean compiling."""
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    digest, image = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return image if hashlib.sha256(image).digest() == digest else None


def _write_entry(entry: Path, image: bytes) -> None:
    # A read-only home costs a compilation in every process, but is not an error.
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(entry, durable=False) as file:
            file.write(hashlib.sha256(image).digest() + image)


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    nvrtc.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            nvrtc.call("nvrtcCompileProgram", program, len(options), arguments)
        except CudaError as error:
            raise CudaError(f"{error}\n{_text(program, 'nvrtcGetProgramLog')}") from None
        return _output(program, "nvrtcGetCUBIN")
    finally:
        nvrtc.call("nvrtcDestroyProgram", ctypes.byref(program))


def _output(program: ctypes.c_void_p, getter: str) -> bytes:
    size = ctypes.c_size_t()
    _nvrtc().call(f"{getter}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _nvrtc().call(getter, program, buffer)
    return buffer.raw


def _text(program: ctypes.c_void_p, getter: str) -> str:
    return _output(program, getter).rstrip(b"\0").decode(errors="replace").strip()


# --- The two libraries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Library:
    """A C library whose functions return 0 or an error code."""

    handle: Any
    describe: Any  # error code -> text

    def call(self, function: str, *args: Any) -> None:
        code = getattr(self.handle, function)(*args)
        if code != 0:
            raise CudaError(f"{function} failed: {self.describe(self.handle, code)} (error {code}).")


@functools.cache
def _driver() -> _Library:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = _Library(ctypes.CDLL(name), _describe_driver_error)
    except OSError as error:
        raise CudaError(f"CUDA kernels need an NVIDIA driver; {name} could not be loaded ({error}).") from None
    library.call("cuInit", 0)
    return library


def _describe_driver_error(handle: Any, code: int) -> str:
    text = ctypes.c_char_p()
    handle.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


@functools.cache
def _nvrtc() -> _Library:
    """NVRTC of torch's own CUDA version."""
    if torch.version.cuda is None:
        raise CudaError("CUDA kernels need a CUDA build of torch; this one has none. Install it, or use device='cpu'.")
    tried = []
    for candidate in _nvrtc_candidates(int(torch.version.cuda.split(".")[0])):
        try:
            return _Library(ctypes.CDLL(candidate), _describe_nvrtc_error)
        except OSError:
            tried.append(candidate)
    raise CudaError(
        f"CUDA kernels need NVRTC, which comes with torch's CUDA wheels; none of {', '.join(tried)} could be loaded. "
        "Reinstall torch, or set CUDA_HOME to a CUDA toolkit."
    )


def _nvrtc_candidates(major: int) -> Iterator[str]:
    """Names and paths to try, likeliest first: a library torch has loaded already, the wheels' folders, a toolkit."""
    windows = sys.platform == "win32"
    name = f"nvrtc64_{major}0_0.dll" if windows else f"libnvrtc.so.{major}"
    yield name  # found if already in the process, or where the system looks
    folders = [Path(torch.__file__).parent / "lib"]
    if (wheels := importlib.util.find_spec("nvidia")) is not None:
        # CUDA 12 wheels have a folder per library, those of CUDA 13 one for all.
        for root in map(Path, wheels.submodule_search_locations or ()):
            folders += [root / package / part for package in ("cuda_nvrtc", f"cu{major}") for part in ("lib", "bin")]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            folders += [Path(toolkit) / part for part in ("lib64", "lib", "bin")]
    yield from (str(folder / name) for folder in folders if (folder / name).exists())


def _describe_nvrtc_error(handle: Any, code: int) -> str:
    handle.nvrtcGetErrorString.restype = ctypes.c_char_p
    text: bytes = handle.nvrtcGetErrorString(code)
    return text.decode()


@functools.cache
def _nvrtc_version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _device_index(device: torch.device | str | int) -> int:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        raise ValueError(f"CUDA kernels run on a CUDA device; got {device}.")
    if not torch.cuda.is_available():
        raise CudaError("CUDA was asked for, but torch finds no CUDA device here. Use device='cpu'.")
    return torch.cuda.current_device() if device.index is None else device.index
