"""Philox weights on CUDA, bit for bit as on the CPU: `philox.cu`, compiled at run time."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from strongticket.ops import nvrtc
from strongticket.ops.philox.reference import Stream, normal_table

_THREADS = 256
_SHARED_BYTES = {"normal": normal_table().nbytes, "packed-sign": 16 * _THREADS}
# Enough blocks to fill any current device; each loops over the rest of the range.
_MOST_BLOCKS = 132 * 8


def fill(out: Tensor, start: int, stream: Stream, distribution: str, scale: float) -> None:
    """Write elements `start` to `start + out.numel()` of a stream into `out`, a contiguous float32 CUDA tensor."""
    if not out.numel():
        return
    counters = out.numel() // (128 if distribution == "packed-sign" else 4) + 2
    kernel = nvrtc.kernel(source(), f"fill_{distribution.replace('-', '_')}", ("--fmad=false",), device=out.device)
    kernel.launch(
        min(-(-counters // _THREADS), _MOST_BLOCKS),
        _THREADS,
        out,
        ctypes.c_uint64(start),
        ctypes.c_uint64(out.numel()),
        *(ctypes.c_uint32(word) for word in stream),
        ctypes.c_double(scale),
        _table_on(out.device),
        shared_bytes=_SHARED_BYTES.get(distribution, 0),
    )


def source() -> str:
    """Return the source of the kernels, and of streams and their words for other kernels."""
    return nvrtc.source(__file__, "philox.cu")


@cache
def _table_on(device: torch.device) -> Tensor:
    return torch.tensor(normal_table(), device=device)
