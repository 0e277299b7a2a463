"""Products with bit planes on CUDA: `planes.cu`, compiled at run time."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strongticket.ops import nvrtc
from strongticket.ops.philox.cuda import source as philox_source
from strongticket.ops.planes.planes import STEP, Planes

FEW = 16  # vectors that the bits are multiplied with as they are, two at a time; for more they are unpacked
WARPS = 32  # a block
SHARED_BYTES = 160 << 10  # for the pieces of x
UNPACKED = 1 << 26  # weights that lie unpacked at a time


def multiply(planes: Planes, x: Tensor, scale: float) -> Tensor:
    """Give scale * W x; x is (vectors, columns)."""
    y = torch.zeros(len(x), planes.rows, device=x.device)
    if not y.numel() or not planes.columns:
        return y
    if len(x) > FEW:
        return _multiply_unpacked(planes, x, scale, y)
    groups, width = planes.words.shape[:2]
    teams = min(WARPS, -(-groups // _processors(x.device)))
    slices = max(1, min(WARPS // teams, 32 * width // STEP))
    blocks = min(_processors(x.device), -(-groups // teams))
    kernel = _kernel(planes, "multiply")
    for start in range(0, len(x), 2):
        vectors = min(2, len(x) - start)
        step_bytes = 3 * vectors * 256
        most, all_steps = SHARED_BYTES // step_bytes, 32 * width // STEP
        for first in range(0, all_steps, most):
            steps = min(most, all_steps - first)
            numbers = [ctypes.c_uint32(n) for n in (first, steps, teams, slices)]
            kernel.launch(
                blocks,
                32 * teams * slices,
                *_matrix(planes),
                x[start:],
                y[start:],
                ctypes.c_uint32(vectors),
                ctypes.c_float(scale),
                *numbers,
                shared_bytes=steps * step_bytes + teams * slices * (512 + 1024) + 16,
            )
    return y


def _multiply_unpacked(planes: Planes, x: Tensor, scale: float, y: Tensor) -> Tensor:
    finite = torch.where(x.isfinite(), x, 0.0)
    rows = max(1, UNPACKED // planes.columns)
    for start in range(0, planes.rows, rows):
        indices = torch.arange(start, min(start + rows, planes.rows), device=x.device)
        y[:, start : start + rows] = finite @ look_up(planes, indices, scale).T
    _kernel(planes, "add_unfinite").launch(len(x), 256, *_matrix(planes), x, y, ctypes.c_float(scale), shared_bytes=16)
    return y


def look_up(planes: Planes, indices: Tensor, scale: float) -> Tensor:
    """Give rows of W, times a scale."""
    rows = torch.empty(len(indices), planes.columns, device=indices.device)
    if rows.numel():
        words = len(indices) * -(-planes.columns // 32)
        count, factor = ctypes.c_uint32(len(indices)), ctypes.c_float(scale)
        blocks = min(-(-words // 256), 8 * _processors(rows.device))
        _kernel(planes, "look_up").launch(blocks, 256, *_matrix(planes), indices, count, rows, factor)
    return rows


def _matrix(planes: Planes) -> list[Any]:
    assert planes.words.is_contiguous()
    sizes = planes.rows, planes.columns, planes.words.shape[1], *(planes.signs or (0, 0, 0, 0))
    return [planes.words, *map(ctypes.c_uint32, sizes)]


def _kernel(planes: Planes, name: str) -> nvrtc.Kernel:
    options = ("--fmad=false", f"-DDIGITS={planes.digits}", f"-DDRAWN={int(planes.signs is not None)}")
    return nvrtc.kernel(_source(), name, options, device=planes.device)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _source() -> str:
    return philox_source() + Path(__file__).with_name("planes.cu").read_text(encoding="utf-8")
