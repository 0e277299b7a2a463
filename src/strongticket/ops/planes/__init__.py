"""Products with a matrix of small whole numbers that stays in bit planes: checks and dispatch.

A product with -1, 0 or +1 is an addition under a mask, so weights need not be unpacked. `reference.py` defines the
result, `cpu.py` and `cuda.py` make it fast.
"""

import math
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from strongticket.ops.planes.planes import LANES as LANES
from strongticket.ops.planes.planes import MOST_LEVELS as MOST_LEVELS
from strongticket.ops.planes.planes import Planes as Planes
from strongticket.ops.planes.planes import pack as pack
from strongticket.ops.planes.planes import stack as stack


def multiply(planes: Planes, x: Tensor, scale: float = 1.0) -> Tensor:
    """Multiply vectors by the matrix: scale * W x, without a gradient.

    Dropped weights are skipped: a 0 in W adds nothing, even where x is infinite or NaN. Any number of threads gives the
    same bits. On CUDA no call waits, so that calls can be captured in a graph.

    Args:
        planes: W, (rows, columns).
        x: (..., columns), float32, on the planes' device.
        scale: a factor on the result.

    Returns:
        (..., rows), float32.

    Example:
        >>> planes = pack(torch.tensor([[1, 0, -1], [1, 1, 0]], dtype=torch.int8))
        >>> multiply(planes, torch.tensor([1.0, 2.0, 3.0]), scale=0.5).tolist()
        [-1.0, 1.5]
    """
    if x.dtype != torch.float32 or not x.dim() or x.shape[-1] != planes.columns:
        raise ValueError(f"x must be float32 (..., {planes.columns}); got {x.dtype} {tuple(x.shape)}.")
    _check_device(planes, x, "x")
    vectors = x.detach().resolve_neg().reshape(math.prod(x.shape[:-1]), planes.columns).contiguous()
    product: Tensor = _kernel(planes.device.type).multiply(planes, vectors, float(scale))
    return product.view(*x.shape[:-1], planes.rows)


def unpack(planes: Planes) -> Tensor:
    """Return the matrix as int8, (rows, columns), with its signs."""
    return look_up(planes, torch.arange(planes.rows, device=planes.device)).to(torch.int8)


def look_up(planes: Planes, indices: Tensor, scale: float = 1.0) -> Tensor:
    """Unpack some rows of the matrix, times a scale.

    Args:
        planes: W, (rows, columns).
        indices: (...), int32 or int64, from 0 to rows - 1, on the planes' device. On CUDA others are clamped to
            this range, since checking would mean waiting.
        scale: a factor on the result.

    Returns:
        (..., columns), float32.

    Example:
        >>> planes = pack(torch.tensor([[1, 0, -1], [1, 1, 0]], dtype=torch.int8))
        >>> look_up(planes, torch.tensor([1, 0]), scale=0.5).tolist()
        [[0.5, 0.5, 0.0], [0.5, 0.0, -0.5]]
    """
    if indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"indices must be int32 or int64; got {indices.dtype}.")
    _check_device(planes, indices, "indices")
    flat = indices.reshape(-1).to(torch.int64)
    if flat.device.type == "cpu" and len(flat):
        least, most = (int(end) for end in flat.aminmax())
        if least < 0 or most >= planes.rows:
            raise ValueError(f"indices must be from 0 to {planes.rows - 1}; got {least} to {most}.")
    rows: Tensor = _kernel(planes.device.type).look_up(planes, flat, float(scale))
    return rows.view(*indices.shape, planes.columns)


def _check_device(planes: Planes, tensor: Tensor, name: str) -> None:
    if tensor.device != planes.device:
        raise ValueError(f"{name} must be on the planes' device, {planes.device}; got {tensor.device}.")


@cache
def _kernel(device: str) -> ModuleType:
    """Return the module for a device type, imported on first use: numba and CUDA are slow to load."""
    if device not in ("cpu", "cuda"):
        raise ValueError(f"planes can be multiplied on cpu or cuda; got {device}.")
    return import_module(f"{__name__}.{device}")
