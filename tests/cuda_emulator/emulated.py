"""Kernels compiled by g++ against `emulator.h`, with the face of `strongticket.ops.nvrtc`."""

import atexit
import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("emulator.h")


class EmulatedKernel:
    """Runs on the CPU when launched, on CPU tensors, and is done when `launch` returns."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._function = getattr(library, f"emulated_{name}")

    def resident_blocks(self, block: int, shared_bytes: int = 0) -> int:
        """A small device: every block goes through several problems."""
        return 3

    def launch(self, grid: int, block: int, *args: Any, shared_bytes: int = 0) -> None:
        values = [ctypes.c_void_p(arg.data_ptr()) if isinstance(arg, Tensor) else arg for arg in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._function(ctypes.c_uint(grid), ctypes.c_uint(block), ctypes.c_size_t(shared_bytes), pointers)


def kernel(source: str, name: str, options: tuple[str, ...] = (), *, device: torch.device) -> EmulatedKernel:
    """What `nvrtc.kernel` gives, for `device` the CPU."""
    return EmulatedKernel(_library(source, options), name)


@functools.cache
def _library(source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    names = re.findall(r"__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(", source)
    program = "\n".join([f'#include "{HEADER}"', source, *(f"EMULATED({name})" for name in names)])
    stem = _folder() / hashlib.sha256(repr((program, options)).encode()).hexdigest()
    stem.with_suffix(".cpp").write_text(program, encoding="utf-8")
    # Like NVRTC's --fmad=false: nothing may be fused.
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-Wno-unknown-pragmas", "-w"]
    defines = [option for option in options if option.startswith("-D")]
    command = [COMPILER or "g++", *flags, *defines, "-o", stem.with_suffix(".so"), stem.with_suffix(".cpp")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(stem.with_suffix(".so")))


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="cuda-emulator-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
