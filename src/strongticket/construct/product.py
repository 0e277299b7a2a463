r"""Lemma 7 and its ReLU twin: choose masks so that a product of two random matrices is a given matrix.

With blocks, unit $k$ keeps one weight $u_k$, to its own coordinate $j(k)$. Entry $(i, j)$ of the product is then the
sum of the $u_k v_{i,k}$ over the units of block $j$ that the free matrix keeps: one subset sum an entry.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from strongticket.construct.source import RandomMatrix
from strongticket.ops.subset_sum import Effort, Status, subset_sum_products
from strongticket.ticket import RandomTensor


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
        error: what they give minus the target, (free coordinates, block coordinates), float64 on the CPU. For two
            layers with a ReLU between them it is [E+ E-], (outputs, 2 inputs), and the map is
            $(W + E^+) x^+ - (W + E^-) x^-$; inputs that are never negative have no E-, and its columns are missing.
        rounding: how far float64 may have moved each entry of `error`, an upper bound.
        unreachable: entries outside the interval of possible sums, by row and column of `error`.
    """

    tensors: tuple[RandomTensor, ...]
    error: Tensor
    rounding: Tensor
    unreachable: list[Miss]

    def transposed(self) -> "Pruned":
        """Turn rows and columns around, for a target that was met by its transpose."""
        misses = [Miss(miss.column, miss.row, miss.missed) for miss in self.unreachable]
        return Pruned(self.tensors, self.error.T, self.rounding.T, misses)

    def with_more_rounding(self, rounding: Tensor) -> "Pruned":
        """Add what the target itself may be off, entry by entry."""
        return Pruned(self.tensors, self.error, self.rounding + rounding.detach().cpu(), self.unreachable)

    def norm(self) -> float:
        """Bound the spectral norm of the error from above, rounding included."""
        return spectral_norm(self.error) + float(torch.linalg.matrix_norm(self.rounding))


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
    u, owners = _own_weights(blocked.draw(seed, device), sizes)
    v = free.draw(seed, device)[:, : len(u)].contiguous()
    solved = _solve(target, u, v, owners, torch.tensor(sizes), divisor, effort, device)
    tensors = (blocked.with_blocks(sizes), free.with_bits(_widened(solved.mask, free.units)))
    return Pruned(tensors, solved.error, solved.rounding, _misses(solved.error, solved.status))


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
    u, owners = _own_weights(blocked.draw(seed, device), sizes)
    v = free.draw(seed, device)
    # Within each block the units with u > 0 come first; halves are numbered 2 j and 2 j + 1.
    half = 2 * owners + (u < 0).to(owners.dtype)
    used = (u > 0).nonzero().squeeze(1) if nonnegative_inputs else torch.arange(len(u), device=u.device)
    order = used[torch.argsort(half[used], stable=True)]
    step = 2 if nonnegative_inputs else 1
    groups = half[order] // step
    n_groups = 2 * len(sizes) // step
    counts = torch.bincount(groups, minlength=n_groups)
    doubled = target.repeat_interleave(n_groups // len(sizes), dim=1)
    solved = _solve(doubled, u[order], v[:, order].contiguous(), groups, counts, 1.0, effort, device)
    mask = torch.zeros(v.shape, dtype=torch.bool, device=v.device)
    mask[:, order] = solved.mask
    # Columns 2 j and 2 j + 1 become columns j and inputs + j.
    columns = torch.arange(n_groups) if nonnegative_inputs else torch.arange(n_groups).view(-1, 2).T.reshape(-1)
    error, rounding, status = (x[:, columns] for x in (solved.error, solved.rounding, solved.status))
    return Pruned((blocked.with_blocks(sizes), free.with_bits(mask)), error, rounding, _misses(error, status))


def spectral_norm(matrix: Tensor) -> float:
    """Bound the largest singular value from above: what LAPACK gives, and a margin a thousand times its error."""
    if not matrix.numel():
        return 0.0
    return float(torch.linalg.matrix_norm(matrix.double(), ord=2)) * (1 + 1e-12)


class _Solved(NamedTuple):
    mask: Tensor
    error: Tensor
    rounding: Tensor
    status: Tensor


def _own_weights(weights: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Give each unit's one weight u_k and its coordinate j(k), for the units that have one."""
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(weights.device)
    return weights[owners, torch.arange(len(owners), device=weights.device)], owners


def _solve(
    target: Tensor,
    u: Tensor,
    v: Tensor,
    owners: Tensor,
    sizes: Tensor,
    divisor: float,
    effort: Effort,
    device: torch.device | str | None,
) -> _Solved:
    """Solve all entries; the error comes back signed and in float64, as product minus target."""
    found = subset_sum_products(
        target.to(v.device), u, v, sizes.to(v.device), divisor=divisor, effort=effort, device=device
    )
    items = u.double() * v.double() / divisor * found.mask  # (free, units)

    def sums(x: Tensor) -> Tensor:
        return torch.zeros(target.shape, dtype=torch.float64, device=v.device).index_add_(1, owners, x).cpu()

    error = sums(items) - target.cpu()
    # n additions in any order, a quotient a term and one subtraction: each rounds by at most 2^-53 of what it touches.
    steps = int(sizes.max()) + 3 if len(sizes) else 0
    rounding = steps * 2.0**-53 * 1.01 * (sums(items.abs()) + target.cpu().abs())
    return _Solved(found.mask, error, rounding, found.status.cpu())


def _misses(error: Tensor, status: Tensor) -> list[Miss]:
    places = (status == Status.UNREACHABLE).nonzero().tolist()
    return [Miss(row, column, abs(error[row, column].item())) for row, column in places]


def _widened(mask: Tensor, units: int) -> Tensor:
    """Add the units that have no block, which keep nothing."""
    return torch.nn.functional.pad(mask, (0, units - mask.shape[1]))
