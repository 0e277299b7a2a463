r"""Lemma 7 and its ReLU version: choose masks so that a product of two random matrices is a given matrix.

Unit $k$ keeps one weight $u_k$ of the blocked matrix, to its own coordinate $j(k)$. Entry $(i, j)$ of the product is
then the sum of $u_k v_{i,k}$ over the units of coordinate $j$ that the free matrix keeps: one subset sum per entry.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from strongticket.construct.assignment import Assigned, Assignment, assign
from strongticket.construct.norms import frobenius_norm, spectral_norm
from strongticket.construct.slots import Signs, grouped, slots_of
from strongticket.construct.source import RandomMatrix
from strongticket.ops.ordered import as_divisor, block_sums
from strongticket.ops.subset_sum import Effort, Status, SubsetSumResult, subset_sum_products
from strongticket.tickets.tensors import RandomTensor

# Rows are solved together up to this many random weights, so that memory does not grow with the matrix.
_SOLVED_AT_ONCE = 1 << 23
# On the CPU, errors are added up over this many weights at a time, which fit in its cache.
_SUMMED_AT_ONCE = 1 << 17


class Miss(NamedTuple):
    """An entry that no subset can reach: its position in the merged matrix, and by how much the closest sum misses."""

    row: int
    column: int
    missed: float


@dataclass(frozen=True, slots=True)
class Pruned:
    r"""Two masked random matrices, compared with the matrix they stand for.

    Args:
        tensors: the blocked and the free matrix with their masks; none where a certificate is only recomputed.
        error: their product minus the target, (free coordinates, block coordinates), float64, on the solver's device.
            For two layers with a ReLU between them it is [E+ E-], (outputs, 2 inputs), and the map is
            $(W + E^+) x^+ - (W + E^-) x^-$; if inputs are never negative, the columns of E- are missing.
        rounding: an upper bound on how far float64 may have moved each entry of `error`.
        unreachable: entries outside the interval of possible sums, by row and column of `error`.
        worst_reached: the largest error of an entry inside it; 0 where a certificate is only recomputed.
        assigned: how the units were assigned, "adaptive" or "equal"; "given" where nothing was chosen.
    """

    tensors: tuple[RandomTensor, ...]
    error: Tensor
    rounding: Tensor
    unreachable: list[Miss]
    worst_reached: float = 0.0
    assigned: str = "given"

    def transposed(self) -> "Pruned":
        """Swap rows and columns, for a target that was met by its transpose."""
        misses = [Miss(miss.column, miss.row, miss.missed) for miss in self.unreachable]
        return replace(self, error=self.error.T, rounding=self.rounding.T, unreachable=misses)

    def with_more_rounding(self, rounding: Tensor) -> "Pruned":
        """Add the target's own rounding, entry by entry."""
        return replace(self, rounding=self.rounding + rounding.detach().to(self.rounding.device))

    def worst_entry(self) -> float:
        """Return the largest error of an entry."""
        return float(self.error.abs().max()) if self.error.numel() else 0.0

    def norm(self) -> float:
        """Bound the spectral norm of the error from above, rounding included."""
        return spectral_norm(self.error) + frobenius_norm(self.rounding)


@dataclass(frozen=True, slots=True)
class PrunedHead:
    """One head: query with key, and value with output."""

    qk: Pruned
    vo: Pruned


def prune_product(
    target: Tensor,
    blocked: RandomMatrix,
    free: RandomMatrix,
    *,
    seed: int,
    assignment: Assignment | Tensor = "equal",
    signs: Signs = Signs.EITHER,
    width: str = "hidden_width",
    divisor: float = 1.0,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Pruned:
    r"""Mask two random matrices so that $F B^\top / c$, or $F\,\mathrm{ReLU}(B^\top x)$, comes closest to the target.

    Behind a ReLU, a unit with $u > 0$ carries $u x_j^+$, and one with $u < 0$ carries $-u x_j^-$. Both kinds must sum
    to $w$: with $x = x^+ - x^-$, the first give $w x^+$ and the second $-w x^-$. So each entry is two subset sums, or
    one where x is never negative and units with $u < 0$ are silent.

    Args:
        target: (free coordinates, block coordinates), float64.
        blocked: the matrix B whose units keep one coordinate each.
        free: the matrix F whose mask is searched for.
        seed: seed of the random weights.
        assignment: as in `assign`.
        signs: which of a coordinate's units make a sum.
        width: the name of the argument that sets the number of units.
        divisor: $c$.
        effort: for the subset sums.
        device: where they are solved.
    """
    v = free.draw(seed, device).contiguous()
    ways = assign(
        target,
        blocked,
        free,
        v,
        signs=signs,
        width=width,
        divisor=divisor,
        seed=seed,
        assignment=assignment,
        device=device,
    )
    found = [(way, _solve_slots(target, v, way, signs, divisor, effort)) for way in ways]
    way, solved = found[0] if len(found) == 1 else min(found, key=lambda one: _squares(one[1].error))
    # Columns 2 j and 2 j + 1 become columns j and inputs + j.
    error, rounding, status = (
        x.view(len(x), -1, signs.slots).mT.reshape(x.shape) for x in (solved.error, solved.rounding, solved.status)
    )
    return _pruned((blocked.with_owners(way.owners), free.with_bits(solved.mask)), error, rounding, status, way.how)


def _squares(error: Tensor) -> float:
    """Add up all squares and round once, so that every machine picks the same of two solutions."""
    return math.fsum(error.square().flatten().tolist())


class _Solved(NamedTuple):
    mask: Tensor
    error: Tensor
    rounding: Tensor
    status: Tensor


def _solve_slots(target: Tensor, v: Tensor, way: Assigned, signs: Signs, divisor: float, effort: Effort) -> _Solved:
    """Solve all sums of one assignment on the device of v; the mask is over all units, the rest is by slots.

    The error is signed, in float64: product minus target.
    """
    slot = slots_of(way.owners, way.own, signs)
    order, sizes = grouped(slot, signs.slots * target.shape[1])
    in_order = torch.equal(order, torch.arange(len(slot), device=order.device))
    used = slice(None) if in_order else order
    u, counts = way.own[order], torch.tensor(sizes, dtype=torch.int64, device="cpu")
    shape = (len(v), len(sizes))
    error, rounding = (torch.empty(shape, dtype=torch.float64, device=v.device) for _ in range(2))
    status = torch.empty(shape, dtype=torch.uint8, device=v.device)
    mask = torch.zeros(v.shape, dtype=torch.bool, device=v.device)
    rows = max(1, _SOLVED_AT_ONCE // max(len(u), 1))
    for start in range(0, len(v), rows):
        some = slice(start, start + rows)
        w = target[some].to(v.device).repeat_interleave(signs.slots, dim=1)
        second = v[some, used]
        found = _subset_sums(w, u, second, counts, divisor, effort)
        mask[some, used], status[some] = found.mask, found.status
        total, size = _sums(found.mask, u, second, sizes, divisor)
        error[some] = total - w
        # n additions, one quotient per term and one subtraction: each rounds by at most 2^-53 of its operands.
        rounding[some] = (max(sizes, default=0) + 3) * 2.0**-53 * 1.01 * (size + w.abs())
    return _Solved(mask, error, rounding, status)


def _subset_sums(
    target: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort
) -> SubsetSumResult:
    """Solve on the device; sums with more items than a GPU kernel takes go to the CPU, so that masks agree."""
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


def _pruned(tensors: tuple[RandomTensor, ...], error: Tensor, rounding: Tensor, status: Tensor, how: str) -> Pruned:
    out_of_reach = status == Status.UNREACHABLE
    places = out_of_reach.nonzero()
    missed = error[tuple(places.T)].abs().tolist()
    misses = [Miss(row, column, miss) for (row, column), miss in zip(places.tolist(), missed, strict=True)]
    reached = error.abs().masked_fill_(out_of_reach, 0.0)
    return Pruned(tensors, error, rounding, misses, float(reached.max()) if reached.numel() else 0.0, how)
