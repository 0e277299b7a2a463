r"""Lemma 7 and its ReLU twin: choose masks so that a product of two random matrices is a given matrix.

With blocks, unit $k$ keeps one weight $u_k$, to its own coordinate $j(k)$. Entry $(i, j)$ of the product is then the
sum of the $u_k v_{i,k}$ over the units of block $j$ that the free matrix keeps: one subset sum an entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from strongticket.construct.source import RandomMatrix, owners_of
from strongticket.ops.ordered import as_divisor, block_sums
from strongticket.ops.subset_sum import Effort, Status, SubsetSumResult, subset_sum_products
from strongticket.tickets.tensors import RandomTensor

# Rows are solved together up to so many random weights, so that memory does not grow with the matrix.
_SOLVED_AT_ONCE = 1 << 23
# Errors are added up over so many weights at a time on the CPU, which stay in its cache.
_SUMMED_AT_ONCE = 1 << 17
# The Gram matrix is squared so often to bound its norm on a GPU; the bound is then at most d^(2^-15) too large, which
# is 1.0002 for d = 384.
_SQUARINGS = 13


class Miss(NamedTuple):
    """An entry that no subset can reach: its place in the merged matrix, and by how much the closest one misses."""

    row: int
    column: int
    missed: float


@dataclass(frozen=True, slots=True)
class Pruned:
    r"""Two masked random matrices beside the matrix they stand for.

    Args:
        tensors: the blocked and the free matrix with their masks; none where a certificate is only recomputed.
        error: what they give minus the target, (free coordinates, block coordinates), float64, where it was solved.
            For two layers with a ReLU between them it is [E+ E-], (outputs, 2 inputs), and the map is
            $(W + E^+) x^+ - (W + E^-) x^-$; inputs that are never negative have no E-, and its columns are missing.
        rounding: how far float64 may have moved each entry of `error`, an upper bound.
        unreachable: entries outside the interval of possible sums, by row and column of `error`.
        worst_reached: the largest error of an entry inside it; 0 where a certificate is only recomputed.
    """

    tensors: tuple[RandomTensor, ...]
    error: Tensor
    rounding: Tensor
    unreachable: list[Miss]
    worst_reached: float = 0.0

    def transposed(self) -> "Pruned":
        """Turn rows and columns around, for a target that was met by its transpose."""
        misses = [Miss(miss.column, miss.row, miss.missed) for miss in self.unreachable]
        return replace(self, error=self.error.T, rounding=self.rounding.T, unreachable=misses)

    def with_more_rounding(self, rounding: Tensor) -> "Pruned":
        """Add what the target itself may be off, entry by entry."""
        return replace(self, rounding=self.rounding + rounding.detach().to(self.rounding.device))

    def worst_entry(self) -> float:
        """Give the largest error of an entry."""
        return float(self.error.abs().max()) if self.error.numel() else 0.0

    def norm(self) -> float:
        """Bound the spectral norm of the error from above, rounding included."""
        return spectral_norm(self.error) + float(torch.linalg.matrix_norm(self.rounding))


@dataclass(frozen=True, slots=True)
class PrunedHead:
    """One head: query with key, and value with output."""

    qk: Pruned
    vo: Pruned


def prune_product(
    target: Tensor,
    blocked: RandomMatrix,
    free: RandomMatrix,
    sizes: tuple[int, ...],
    *,
    seed: int,
    divisor: float = 1.0,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Pruned:
    r"""Mask two random matrices so that $F B^\top / c$ comes closest to the target, entry by entry.

    Args:
        target: (free coordinates, block coordinates), float64.
        blocked: the matrix B whose units keep one coordinate each.
        free: the matrix F whose mask is searched.
        sizes: units of each block coordinate.
        seed: of the random weights.
        divisor: $c$.
        effort: of the subset sums.
        device: where they are solved.
    """
    u = blocked.draw_own(sizes, seed, device)
    v = free.draw(seed, device)[:, : len(u)].contiguous()
    solved = _solve(target, u, v, sizes, divisor, effort)
    tensors = (blocked.with_blocks(sizes), free.with_bits(_widened(solved.mask, free.units)))
    return _pruned(tensors, solved.error, solved.rounding, solved.status)


def prune_relu(
    target: Tensor,
    blocked: RandomMatrix,
    free: RandomMatrix,
    sizes: tuple[int, ...],
    *,
    seed: int,
    nonnegative_inputs: bool = False,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Pruned:
    r"""Mask two random layers so that $F\,\mathrm{ReLU}(B^\top x)$ comes closest to the target's $W x$.

    A unit with $u > 0$ carries $u x_j^+$, one with $u < 0$ carries $-u x_j^-$. Both kinds must sum to $w$: with
    $x = x^+ - x^-$, the first give $w x^+$ and the second $-w x^-$. So each entry is two subset sums.

    Args:
        target: W, (outputs, inputs), float64.
        blocked: the first layer.
        free: the second layer.
        sizes: units of each input.
        seed: of the random weights.
        nonnegative_inputs: x comes out of a ReLU itself; units with $u < 0$ are then silent and kept out.
        effort: of the subset sums.
        device: where they are solved.
    """
    u = blocked.draw_own(sizes, seed, device)
    v = free.draw(seed, device)
    halves = _Halves(u, sizes, nonnegative_inputs)
    order = halves.order
    doubled = target.repeat_interleave(halves.count, dim=1)
    solved = _solve(doubled, u[order], v[:, order], halves.sizes, 1.0, effort)
    mask = torch.zeros(v.shape, dtype=torch.bool, device=v.device)
    mask[:, order] = solved.mask
    error, rounding, status = (halves.apart(x) for x in (solved.error, solved.rounding, solved.status))
    return _pruned((blocked.with_blocks(sizes), free.with_bits(mask)), error, rounding, status)


def spectral_norm(matrix: Tensor) -> float:
    """Bound the largest singular value from above: what LAPACK gives, and a margin far above its error.

    On a GPU, where singular values take long, the bound is that of `_norms_by_squaring`.
    """
    return spectral_norms([matrix])[0]


def spectral_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Bound the largest singular values of several matrices; those of one shape and device are done together."""
    if (
        len({(x.shape, x.device) for x in matrices}) == 1
        and matrices[0].device.type == "cuda"
        and _is_wide(matrices[0])
    ):
        return _norms_by_squaring(torch.stack([x.double() for x in matrices]))
    return [_one_norm(x.double()) for x in matrices]


def _is_wide(matrix: Tensor) -> bool:
    return min(matrix.shape) > 1


def _one_norm(matrix: Tensor) -> float:
    if not _is_wide(matrix):
        return float(torch.linalg.vector_norm(matrix)) * _margin(matrix)
    if matrix.device.type == "cuda":
        return _norms_by_squaring(matrix[None])[0]
    return float(torch.linalg.matrix_norm(matrix, ord=2)) * _margin(matrix)


def _margin(matrix: Tensor) -> float:
    """Stretch a norm by more than a sum of as many squares, or LAPACK on a matrix of that size, can have lost."""
    return 1 + 1e-12 + 16 * sum(matrix.shape) * 2.0**-53


def _norms_by_squaring(matrices: Tensor) -> list[float]:
    r"""Bound the largest singular values of a batch by a Schatten norm, with matrix products alone.

    $\|A\| \le (\mathrm{tr}\, (A^\top A)^{2p})^{1/4p} \le d^{1/4p} \|A\|$ with d the smaller side of A, here
    for $p = 2^{13}$.
    """
    rows, columns = matrices.shape[1:]
    gram = matrices.mT @ matrices if rows >= columns else matrices @ matrices.mT
    # log ||A||^2 is the sum of 2^-k log s_k, where s_k is what the matrix is divided by before its k-th squaring.
    sizes = []
    for _ in range(_SQUARINGS + 1):
        size = torch.linalg.matrix_norm(gram, keepdim=True)
        sizes.append(size.flatten())
        gram = gram / size
        gram = gram @ gram
    weights = 0.5 ** torch.arange(1, len(sizes) + 1, dtype=torch.float64, device=gram.device)
    # A zero matrix makes 0 / 0. Products of d terms round by d 2^-53 each; the margin is thousands of times that.
    bounds = (torch.stack(sizes).log() * weights[:, None]).sum(dim=0).exp() * (1 + 1e-9)
    return torch.where(sizes[0] == 0, 0.0, bounds).tolist()


class _Halves:
    """The units of each block, those with u > 0 first: two groups a block, or one where inputs are never negative."""

    def __init__(self, u: Tensor, sizes: tuple[int, ...], nonnegative_inputs: bool) -> None:
        self.count = 1 if nonnegative_inputs else 2
        half = 2 * owners_of(sizes).to(u.device) + (u < 0)
        used = (u > 0).nonzero().squeeze(1) if nonnegative_inputs else torch.arange(len(u), device=u.device)
        self.order = used[torch.argsort(half[used], stable=True)]
        groups = half[self.order] // (3 - self.count)
        self.sizes = tuple(torch.bincount(groups, minlength=self.count * len(sizes)).tolist())

    def apart(self, x: Tensor) -> Tensor:
        """Turn columns 2 j and 2 j + 1 into columns j and inputs + j."""
        return x.view(len(x), -1, self.count).mT.reshape(x.shape)


class _Solved(NamedTuple):
    mask: Tensor
    error: Tensor
    rounding: Tensor
    status: Tensor


def _solve(target: Tensor, u: Tensor, v: Tensor, sizes: tuple[int, ...], divisor: float, effort: Effort) -> _Solved:
    """Solve all entries where u and v are; the error comes back signed and in float64, as product minus target."""
    target, units = target.to(v.device), torch.tensor(sizes, dtype=torch.int64, device="cpu")
    rows = max(1, _SOLVED_AT_ONCE // max(len(u), 1))
    parts = []
    for start in range(0, max(len(v), 1), rows):
        w, second = target[start : start + rows], v[start : start + rows]
        found = _subset_sums(w, u, second, units, divisor, effort)
        total, size = _sums(found.mask, u, second, sizes, divisor)
        # n additions, a quotient a term and one subtraction: each rounds by at most 2^-53 of what it touches.
        rounding = (max(sizes, default=0) + 3) * 2.0**-53 * 1.01 * (size + w.abs())
        parts.append(_Solved(found.mask, total - w, rounding, found.status))
    return parts[0] if len(parts) == 1 else _Solved(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _subset_sums(
    target: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort
) -> SubsetSumResult:
    """Solve on the device; what has more items than a GPU kernel takes goes to the CPU, so that masks agree."""
    if v.device.type == "cuda":
        from strongticket.ops.subset_sum.cuda import MAX_ITEMS

        if len(sizes) and int(sizes.max()) > MAX_ITEMS:
            return _large_ones_on_cpu(target, u, v, sizes, divisor, effort, MAX_ITEMS)
    return subset_sum_products(target, u, v, sizes.to(v.device), divisor=divisor, effort=effort)


def _large_ones_on_cpu(
    target: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort, most: int
) -> SubsetSumResult:
    mask = torch.empty(v.shape, dtype=torch.bool, device=v.device)
    error, status = torch.empty_like(target), torch.empty(target.shape, dtype=torch.uint8, device=v.device)
    for chosen, device in ((sizes <= most, v.device), (sizes > most, torch.device("cpu"))):
        blocks = chosen.nonzero().squeeze(1).to(v.device)
        units = torch.repeat_interleave(chosen, sizes).nonzero().squeeze(1).to(v.device)
        problems = (x.to(device) for x in (target[:, blocks], u[units], v[:, units], sizes[chosen]))
        found = subset_sum_products(*problems, divisor=divisor, effort=effort)
        mask[:, units], error[:, blocks], status[:, blocks] = (x.to(v.device) for x in found)
    return SubsetSumResult(mask, error, status)


def _sums(mask: Tensor, u: Tensor, v: Tensor, sizes: tuple[int, ...], divisor: float) -> tuple[Tensor, Tensor]:
    """Add up the chosen items of each entry, and their absolute values."""
    rows = len(v) if v.device.type == "cuda" else max(1, _SUMMED_AT_ONCE // max(len(u), 1))
    own = u.double()
    c = as_divisor(divisor, own)
    total, size = (torch.empty(len(v), len(sizes), dtype=torch.float64, device=v.device) for _ in range(2))
    for start in range(0, len(v), max(rows, 1)):
        some = slice(start, start + rows)
        items = v[some].double().mul_(own).div_(c).mul_(mask[some])
        total[some] = block_sums(items, sizes)
        size[some] = block_sums(items.abs_(), sizes)
    return total, size


def _pruned(tensors: tuple[RandomTensor, ...], error: Tensor, rounding: Tensor, status: Tensor) -> Pruned:
    out_of_reach = status == Status.UNREACHABLE
    places = out_of_reach.nonzero()
    missed = error[tuple(places.T)].abs().tolist()
    misses = [Miss(row, column, miss) for (row, column), miss in zip(places.tolist(), missed, strict=True)]
    reached = error.abs().masked_fill_(out_of_reach, 0.0)
    return Pruned(tensors, error, rounding, misses, float(reached.max()) if reached.numel() else 0.0)


def _widened(mask: Tensor, units: int) -> Tensor:
    """Add the units that have no block, which keep nothing."""
    return torch.nn.functional.pad(mask, (0, units - mask.shape[1]))
