"""Products with bit planes on CUDA: `planes.cu`, compiled at run time."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from strongticket.ops import nvrtc
from strongticket.ops.philox.cuda import source as philox_source
from strongticket.ops.planes.planes import LANES, STEP, Planes

FEW = 64  # most vectors to multiply by the bits directly; for more, they are unpacked first
TOGETHER = 8  # vectors per launch, for one digit: all their sums must be in registers
WARPS = 16  # per block
SHARED_BYTES = 160 << 10  # for the pieces of x
UNPACKED = 1 << 26  # weights unpacked at a time

_ACTIVATIONS = None, "gelu", "relu"  # in the kernel's order


def multiply(planes: Planes, x: Tensor, scale: float) -> Tensor:
    """Return scale * W x; x is (vectors, columns)."""
    if not planes.columns:
        return torch.zeros(len(x), planes.rows, device=x.device)
    y = torch.empty(len(x), planes.rows, device=x.device)
    if not y.numel():
        return y
    if len(x) > FEW:
        return _multiply_unpacked(planes, x, scale, y)
    together = max(1, TOGETHER // planes.digits)
    for start in range(0, len(x), together):
        multiply_few(planes, x[start : start + together], scale, y[start : start + together])
    return y


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of a product: activation(factors * product + bias) + residual.

    Args:
        factors: (rows,).
        bias: (rows,).
        residual: (vectors, rows).
        activation: "gelu", torch's with tanh, or "relu".
    """

    factors: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    activation: Literal["gelu", "relu"] | None = None


AS_IT_IS = Finish()


def multiply_few(planes: Planes, x: Tensor, scale: float, y: Tensor, finish: Finish = AS_IT_IS) -> None:
    """Write scale * W x, finished, to y (vectors, rows), for as many vectors as one launch takes."""
    groups, width = planes.words.shape[:2]
    processors, all_steps, pieces = _processors(x.device), 32 * width // STEP, 3 * len(x)
    # All groups at once if they fit, sharing all warps: one warp each would leave most idle if rows are few.
    teams = min(WARPS, -(-groups // processors))
    slices = min(WARPS // teams, all_steps)
    blocks = min(processors, -(-groups // teams))
    part_bytes = 4 * -(-pieces // 8) * 8 * (LANES + 1)
    warp_bytes = part_bytes + (0 if planes.signs is None else 4 * 8 * LANES)
    kernel, most = _kernel(planes, "multiply", vectors=len(x)), SHARED_BYTES // (256 * pieces)
    for first in range(0, all_steps, most):
        steps = min(most, all_steps - first)
        then = finish if first + steps == all_steps else AS_IT_IS
        ends = (ctypes.c_void_p() if end is None else end for end in (then.factors, then.bias, then.residual))
        kernel.launch(
            blocks,
            32 * teams * slices,
            *_matrix(planes),
            x,
            y,
            ctypes.c_float(scale),
            *map(ctypes.c_uint32, (first, steps, teams, slices)),
            *ends,
            ctypes.c_uint32(_ACTIVATIONS.index(then.activation)),
            shared_bytes=256 * pieces * steps + teams * slices * warp_bytes + 16,
        )


def _multiply_unpacked(planes: Planes, x: Tensor, scale: float, y: Tensor) -> Tensor:
    finite = torch.where(x.isfinite(), x, 0.0)
    rows = max(1, UNPACKED // planes.columns)
    for start in range(0, planes.rows, rows):
        indices = torch.arange(start, min(start + rows, planes.rows), device=x.device)
        y[:, start : start + rows] = finite @ look_up(planes, indices, scale).T
    _kernel(planes, "add_unfinite").launch(len(x), 256, *_matrix(planes), x, y, ctypes.c_float(scale), shared_bytes=16)
    return y


def look_up(planes: Planes, indices: Tensor, scale: float) -> Tensor:
    """Return rows of W, times a scale."""
    rows = torch.empty(len(indices), planes.columns, device=indices.device)
    if rows.numel():
        threads = len(indices) * -(-planes.columns // 4)
        count, factor = ctypes.c_uint32(len(indices)), ctypes.c_float(scale)
        blocks = min(-(-threads // 256), 8 * _processors(rows.device))
        _kernel(planes, "look_up").launch(blocks, 256, *_matrix(planes), indices, count, rows, factor)
    return rows


def _matrix(planes: Planes) -> list[Any]:
    assert planes.words.is_contiguous()
    sizes = planes.rows, planes.columns, planes.words.shape[1], *(planes.signs or (0, 0, 0, 0))
    return [planes.words, *map(ctypes.c_uint32, sizes)]


def _kernel(planes: Planes, name: str, vectors: int = 1) -> nvrtc.Kernel:
    defined = {"DIGITS": planes.digits, "DRAWN": int(planes.signs is not None), "VECTORS": vectors}
    options = "--fmad=false", *(f"-D{key}={value}u" for key, value in defined.items())
    return nvrtc.kernel(_source(), name, options, device=planes.device)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _source() -> str:
    return philox_source() + Path(__file__).with_name("planes.cu").read_text(encoding="utf-8")
