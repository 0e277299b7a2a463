"""Subset sums, many at a time: checks and dispatch. `reference.py` defines them; `cpu.py` and `cuda.py` are fast."""

from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from strongticket.ops.arrays import Array, as_tensor
from strongticket.ops.subset_sum import checks
from strongticket.ops.subset_sum.result import Effort as Effort
from strongticket.ops.subset_sum.result import Status as Status
from strongticket.ops.subset_sum.result import SubsetSumResult as SubsetSumResult


def subset_sum(
    targets: Array,
    items: Array,
    *,
    tol: float | None = None,
    strict: bool = False,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> SubsetSumResult:
    r"""Pick, for each target, the subset of its items whose sum comes closest.

    Solves $\min_{m \in \{0,1\}^n} |w - \sum_k m_k a_k|$ for every row (paper, Lemma 7). Sums are taken in float64 in
    item order; among equally good masks the smallest one wins, read as an integer with item 0 as its lowest bit.
    Up to 32 items the answer is proved optimal. Beyond, on the CPU only, it is at least as good as the optimum over the
    first 32 items. Appending items to a row never increases its error, and neither does more effort.

    Any number of rows may go into one call, and any number of threads may call at once; each call uses as many threads
    as numba is set to, and less than 256 MiB besides its tensors. On the CPU, calls also work in a forked process;
    a fork waits for kernels that other threads are compiling.

    Args:
        targets: $w$, shape (rows,): a tensor, an array or a list, float32 or float64. One number is the target of
            every row of items.
        items: $a$, shape (rows, n), likewise; rows are independent problems. Shape (n,) serves every target.
        tol: $\varepsilon$. With `strict`, a row whose error exceeds it is an error.
        strict: raise `InfeasibleError` if a row misses `tol`; otherwise see `error` and `status`.
        effort: "high" spends milliseconds per row to come closer with 40 items or more.
        device: where to compute and return the result; by default where the tensors are.

    Returns:
        `mask` (rows, n) bool, `error` (rows,) float64 and `status` (rows,), see `Status`. For one target and one row
            of items, without the axis of rows.

    Example:
        >>> subset_sum(torch.tensor([0.5]), torch.tensor([[0.3, 0.2, -0.9]])).mask.tolist()
        [[True, True, False]]
        >>> subset_sum(0.5, [0.25, 0.3, -0.9])
        SubsetSumResult(mask=[1, 1, 0], error=0.05, status=OPTIMAL)
        >>> subset_sum([0.5, 9.0], [0.5, 0.25, -0.75])  # the same items for both
        SubsetSumResult(mask=[[1, 0, 0], [1, 1, 0]], error=[0, 8.25], status=[OPTIMAL, UNREACHABLE])
    """
    checks.check_options(tol, strict, effort)
    targets, items = _as_tensors(targets=(targets, torch.float64), items=(items, torch.float64))
    checks.check_problems(targets, items)
    place = torch.device(device) if device is not None else items.device
    kernel = _kernel(place, n := items.shape[-1])
    targets, items = (_plain(x, place) for x in (targets, items))
    shape = targets.shape or items.shape[:-1]  # (rows,), or () where neither has rows
    rows = shape.numel()
    # Views: a kernel copies only the rows it is about to solve.
    result: SubsetSumResult = kernel.solve(
        targets.expand(shape).view(rows), items.expand(*shape, n).view(rows, n), effort
    )
    if strict and tol is not None:
        checks.check_reached(result, tol, str(n))
    return SubsetSumResult(result.mask.view(*shape, n), result.error.view(shape), result.status.view(shape))


def subset_sum_products(
    targets: Array,
    u: Array,
    v: Array,
    sizes: Array,
    *,
    divisor: float = 1.0,
    tol: float | None = None,
    strict: bool = False,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> SubsetSumResult:
    r"""Solve a matrix of subset sums over products, without ever storing the products.

    The hidden units are grouped in consecutive blocks of the given sizes. Entry $(i, j)$ of `targets` is met with the
    items $u_k v_{i,k} / c$ for the units $k$ of block $j$ (paper, Lemma 7): products and the quotient in float64.

    Args:
        targets: $w$, shape (outputs, blocks), float32 or float64: a tensor, an array or a list.
        u: first-layer weights, shape (units,), float32, to which a list is rounded.
        v: second-layer weights, shape (outputs, units), likewise.
        sizes: units per block, shape (blocks,), whole numbers that sum to units. They may differ, and may be 0.
        divisor: $c$; 1.0 divides nothing.
        tol: as in `subset_sum`.
        strict: as in `subset_sum`.
        effort: as in `subset_sum`.
        device: as in `subset_sum`.

    Returns:
        `mask` (outputs, units) bool, `error` (outputs, blocks) float64 and `status` (outputs, blocks).

    Example:
        >>> u, v = [1.0, 0.5, -1.0], [[0.25, 0.5, 0.5]]
        >>> subset_sum_products([[0.5, -0.5]], u, v, sizes=[2, 1]).mask.tolist()
        [[True, True, True]]
    """
    checks.check_options(tol, strict, effort)
    targets, u, v, sizes = _as_tensors(
        targets=(targets, torch.float64), u=(u, torch.float32), v=(v, torch.float32), sizes=(sizes, torch.int64)
    )
    checks.check_products(targets, u, v, sizes, divisor)
    place = torch.device(device) if device is not None else v.device
    smallest, largest = checks.extremes(sizes)
    kernel = _kernel(place, largest)
    targets, u, v, sizes = (_plain(x, place) for x in (targets, u, v, sizes))
    result: SubsetSumResult = kernel.solve_products(targets, u, v, sizes, float(divisor), effort)
    if strict and tol is not None:
        checks.check_reached(result, tol, f"{smallest} to {largest}" if largest else "0")
    return result


def _as_tensors(**given: tuple[Array, torch.dtype]) -> tuple[Tensor, ...]:
    """Convert all to tensors; arrays and lists go to the device of the tensors among them."""
    place = next((value.device for value, _ in given.values() if isinstance(value, Tensor)), None)
    return tuple(as_tensor(name, value, dtype, place) for name, (value, dtype) in given.items())


def _plain(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the plain numbers on `device`: without gradient or pending negation, as in `z.conj().imag`."""
    return tensor.detach().resolve_neg().to(device)


def _kernel(device: torch.device, n: int) -> ModuleType:
    """Return the module for `device`, imported on first use: numba and the GPU tool chain are slow to load."""
    checks.check_device(device)
    kernel = import_module(f"{__name__}.{device.type}")
    checks.check_size(n, kernel.MAX_ITEMS, device)
    return kernel
