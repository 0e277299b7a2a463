"""The checks of the public functions: what we got, what we need, what to do."""

import math
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.checks import as_real
from strongticket.errors import InfeasibleError
from strongticket.ops.subset_sum.result import Effort, SubsetSumResult

FLOATS = (torch.float32, torch.float64)
LARGEST_SIZE = 2**40  # of a block
SEARCH_ELEMENTS = 1 << 22  # elements searched at a time for the first bad entry


def check_problems(targets: Tensor, items: Tensor) -> None:
    """Refuse what `subset_sum` cannot take."""
    _check_tensors("subset_sum", targets=targets, items=items)
    both = targets.dim() == 1 and items.dim() == 2
    if targets.dim() > 1 or items.dim() not in (1, 2) or (both and len(targets) != len(items)):
        raise ValueError(
            f"subset_sum needs targets (rows,) and items (rows, n), or one target, or items (n,) for all targets; "
            f"got targets {_shape(targets)} and items {_shape(items)}."
        )
    _check_floats("subset_sum", FLOATS, targets=targets, items=items)


def check_products(targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float) -> None:
    """Refuse what `subset_sum_products` cannot take."""
    name = "subset_sum_products"
    _check_tensors(name, targets=targets, u=u, v=v)
    _check_sizes(sizes)
    outputs, units = len(v) if v.dim() else 0, int(_fetched(sizes).sum())
    shapes = (outputs, len(sizes)), (units,), (outputs, units)
    if v.dim() != 2 or (_shape(targets), _shape(u), _shape(v)) != shapes:
        raise ValueError(
            f"{name} needs targets (outputs, blocks), u (units,), v (outputs, units) and sizes (blocks,) that sum to "
            f"units; got targets {_shape(targets)}, u {_shape(u)}, v {_shape(v)}, "
            f"sizes {_shape(sizes)} that sum to {units}."
        )
    _check_floats(name, FLOATS, targets=targets)
    _check_floats(name, (torch.float32,), u=u, v=v)
    _check_divisor(u, v, divisor)


def check_options(tol: float | None, strict: bool, effort: str) -> None:
    """Refuse an invalid tolerance or effort."""
    if effort not in get_args(Effort):
        raise ValueError(f"effort must be 'default' or 'high'; got {effort!r}.")
    if tol is not None and not (tol >= 0 and math.isfinite(tol)):
        raise ValueError(f"tol must be a finite number, 0 or more; got {tol}.")
    if strict and tol is None:
        raise ValueError("strict=True needs a tol; got tol=None. Pass tol, or leave strict off.")


def check_device(device: torch.device) -> None:
    """Refuse a device without a kernel, or one that does not exist."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"subset_sum runs on cpu and cuda; got device {device.type!r}. Pass device='cpu'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for, but torch finds no CUDA device here. Pass device='cpu'.")


def check_size(n: int, limit: int | None, device: torch.device) -> None:
    """Refuse more items than the device's kernel takes (None: any number)."""
    if limit is not None and n > limit:
        raise ValueError(f"subset_sum on {device.type} takes up to {limit} items; got n={n}. Pass device='cpu'.")


def check_reached(result: SubsetSumResult, tol: float, n: str) -> None:
    """Raise if a row misses `tol`; `n` describes the number of items."""
    error = _fetched(result.error)
    missed = int((error > tol).sum())
    if missed:
        raise InfeasibleError(
            f"{missed} of {error.size} targets were not reached within tol={tol:g} using n={n} items; "
            f"worst error {error.max():.1e}.\n"
            f"    Use more items per target, or leave strict off to get the closest subsets."
        )


def _check_tensors(name: str, **tensors: Tensor) -> None:
    devices = {key: str(tensor.device) for key, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        got = ", ".join(f"{key} on {device}" for key, device in devices.items())
        raise ValueError(f"{name} needs its tensors on one device; got {got}. Move them with .to(device).")
    for key, tensor in tensors.items():
        _check_storage(name, key, tensor)


def _check_storage(name: str, key: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise ValueError(f"{name} needs values; got {key} on meta, which has only shapes. Use another device.")
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} needs {key} with all entries stored; got {tensor.layout}. Convert with .to_dense().")


def _check_floats(name: str, allowed: tuple[torch.dtype, ...], **tensors: Tensor) -> None:
    for key, tensor in tensors.items():
        if tensor.dtype not in allowed:
            need = " or ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
            got = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{name} needs {key} in {need}; got {got}. Convert with .to(torch.{need.split()[0]}).")
        _check_finite(key, tensor)


def _check_finite(key: str, tensor: Tensor) -> None:
    tensor = tensor if tensor.dim() else tensor[None]
    # If the sum is finite, so are the entries: one pass, no temporary. It may overflow where the extremes do not, in
    # which NaN and infinity both show up.
    if not tensor.numel() or math.isfinite(_sum(tensor)) or math.isfinite(_largest(tensor)):
        return
    rows = max(1, SEARCH_ELEMENTS * len(tensor) // tensor.numel())
    start, bad = 0, torch.empty(0, 1)
    while not len(bad):
        bad = (~tensor[start : start + rows].isfinite()).nonzero()
        start += rows
    index = bad[0].tolist()
    index[0] += start - rows
    value = tensor[tuple(index)].item()
    place = f"row {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")
    raise ValueError(f"{key} must be finite numbers; got {value} at {place}. Remove or replace such entries.")


# On the CPU all this is done by numpy. Torch's threads would keep spinning for a while, on cores the solver is about to
# use; and in a forked process they do not exist, so that torch would wait for them forever.


def _fetched(tensor: Tensor) -> NDArray[Any]:
    """Return the numbers as an array; those on the CPU are not copied."""
    return tensor.numpy(force=True)


def extremes(sizes: Tensor) -> tuple[int, int]:
    """Return the smallest and the largest block; 0 if there are none."""
    numbers = _fetched(sizes)
    return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)


def _sum(tensor: Tensor) -> float:
    if tensor.device.type != "cpu":
        return float(tensor.sum())
    with np.errstate(all="ignore"):
        return float(_fetched(tensor).sum())


def _largest(tensor: Tensor) -> float:
    """Return the largest magnitude; NaN if there is one, since both extremes are then NaN."""
    numbers = _fetched(tensor) if tensor.device.type == "cpu" else tensor.detach()
    return max(abs(float(numbers.min())), abs(float(numbers.max())))


def _check_sizes(sizes: Tensor) -> None:
    if not isinstance(sizes, Tensor) or sizes.dtype != torch.int64 or sizes.dim() != 1:
        got = f"{sizes.dtype} {_shape(sizes)}" if isinstance(sizes, Tensor) else type(sizes).__name__
        raise ValueError(f"subset_sum_products needs sizes as an int64 tensor (blocks,); got {got}.")
    _check_storage("subset_sum_products", "sizes", sizes)
    # The upper limit keeps their sum from wrapping around.
    low, high = extremes(sizes)
    if not 0 <= low <= high <= LARGEST_SIZE:
        raise ValueError(f"sizes must be 0 to 2^40; got {low} to {high}.")


def _check_divisor(u: Tensor, v: Tensor, divisor: float) -> None:
    number = as_real(divisor)
    if not math.isfinite(number) or number == 0:
        raise ValueError(f"divisor must be a finite number and not 0; got {divisor!r:.40}.")
    if u.numel() and v.numel():
        largest = _largest(u) * _largest(v)
        # The result could not be checked with a quotient that overflows.
        if not math.isfinite(largest / number):
            raise ValueError(f"divisor {divisor} makes products of up to {largest:.1e} overflow. Use a larger one.")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
