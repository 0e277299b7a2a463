"""Sums in a fixed order, with the same bits on every CPU and GPU and with any number of threads.

BLAS and `torch.sum` add in an order that depends on the machine, and fuse multiplications with additions where it can.
Masks, biases and the errors of entries are computed from sums, and must not depend on that. Here each step is one IEEE
operation per element, which rounds alike everywhere.
"""

import torch
from torch import Tensor


def ordered_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (..., rows, n) by (..., columns, n) transposed: (..., rows, columns), the n terms added in order.

    Example:
        >>> ordered_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
        [[11.0, 17.0]]
    """
    total = left.new_zeros(*left.shape[:-1], right.shape[-2])
    for k in range(left.shape[-1]):
        # Not addcmul_, which is fused on some machines.
        total += left[..., :, k, None] * right[..., None, :, k]
    return total


def block_sums(items: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Add up (rows, units) over consecutive blocks of units, in order: (rows, blocks).

    Example:
        >>> block_sums(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), (1, 3)).tolist()
        [[1.0, 9.0]]
    """
    sums = items.new_zeros(len(items), len(sizes))
    if sizes and len(set(sizes)) == 1 and sizes[0]:
        for item in items.view(-1, len(sizes), sizes[0]).unbind(dim=2):
            sums += item
        return sums
    counts = torch.tensor(sizes, dtype=torch.int64, device=items.device)
    if items.device.type == "cpu":
        # One column after another; a GPU would take them in any order.
        return sums.index_add_(1, torch.arange(len(sizes), device="cpu").repeat_interleave(counts), items)
    return _one_of_each_block_at_a_time(sums, items, counts)


def _one_of_each_block_at_a_time(sums: Tensor, items: Tensor, counts: Tensor) -> Tensor:
    first = counts.cumsum(0) - counts
    for k in range(int(counts.max()) if counts.numel() else 0):
        blocks = (counts > k).nonzero().squeeze(1)
        sums[:, blocks] += items[:, first[blocks] + k]
    return sums


def sparse_product(left: Tensor, right: Tensor, divisor: float = 1.0) -> Tensor:
    """Multiply (rows, units) by (units, columns), each term divided by `divisor`: (rows, columns).

    The terms of a column are added in the order of its units. Only units with a nonzero weight in `right` are used, so
    the work is that of the kept weights.

    Example:
        >>> sparse_product(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 5.0], [6.0, 0.0]])).tolist()
        [[22.0, 10.0]]
    """
    kept = right != 0
    counts, units = kept.sum(dim=0), kept.logical_not().byte().argsort(dim=0, stable=True)  # kept ones first, in order
    c = as_divisor(divisor, left)
    total = left.new_zeros(len(left), right.shape[1])
    for k in range(int(counts.max()) if counts.numel() else 0):
        columns = (counts > k).nonzero().squeeze(1)
        unit = units[k, columns]
        total[:, columns] += left[:, unit] * right[unit, columns] / c
    return total


def as_divisor(number: float, like: Tensor) -> Tensor:
    """Return a number as a tensor like another: a GPU divides by a plain number by multiplying with its inverse."""
    return torch.tensor(number, dtype=like.dtype, device=like.device)
