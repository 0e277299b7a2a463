"""Independent pieces of work, one head or one linear map each: small to send and small to store."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.plan import Product
from strongticket.construct.product import Miss, Pruned
from strongticket.construct.source import RandomMatrix, owners_in
from strongticket.models.attention import UNIT_ROUNDOFF
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.random_maps import multiplied_size, multiply_out
from strongticket.tickets.mask import PackedMask
from strongticket.tickets.symbols import Bits
from strongticket.tickets.tensors import RandomTensor
from strongticket.tickets.ticket import Ticket

Numbers = NDArray[np.float32]
# From the matrices of a piece and their pruned products, by name, to the norms that its part's certificate needs.
Norms = Callable[[Mapping[str, Tensor], Mapping[str, Pruned]], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What is kept of a solved piece."""

    name: str  # the piece's name
    bits: dict[str, Bits]  # packed masks, by tensor name
    owners: dict[str, NDArray[np.int32]]  # each unit's coordinate in a blocked matrix, by tensor name
    assigned: dict[str, str]  # how the units of each product were assigned
    norms: dict[str, float]  # of the target and of the errors, for the certificate
    worst_entry: float  # the largest error of an entry of a merged matrix
    worst_reached: float  # the largest error among entries that a subset can reach
    n_unreachable: int  # the number of other entries
    unreachable: list[tuple[str, Miss]]  # the worst of them, with their matrix


class Factors(NamedTuple):
    """A matrix as the model has it: `left`, or left times right transposed, which is multiplied out where it is used.

    Products of two float32 numbers are exact in float64, so only the additions round, and the scale.
    """

    left: Numbers  # (rows, n)
    right: Numbers | None = None  # (columns, n)
    bias: Numbers | None = None  # one more row of `left`, (n,)
    scale: float | None = None

    def matrix(self, device: str) -> Tensor:
        """Multiply it out, in float64."""
        left, right = self._factors(device)
        product = left if right is None else ordered_product(left, right)
        return product if self.scale is None else product * self.scale

    def rounding(self, device: str) -> Tensor:
        """Bound the rounding of `matrix`: a sum of n exact products rounds n times, and the scale once."""
        left, right = self._factors(device)
        if right is None:
            return left.new_zeros(())
        scale, roundings = (1.0, 1) if self.scale is None else (abs(self.scale), 2)
        return (left.shape[1] + roundings) * UNIT_ROUNDOFF * (left.abs() @ right.abs().T * scale)

    def _factors(self, device: str) -> tuple[Tensor, Tensor | None]:
        left = self.left if self.bias is None else np.concatenate([self.left, self.bias[None]])
        right = None if self.right is None else torch.tensor(self.right, device=device).double()
        return torch.tensor(left, device=device).double(), right


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of work, as sent to a process or machine: matrices, each to become a product of random ones."""

    name: str  # the prefix of its tensors' names
    products: Mapping[str, Product]  # of random matrices, in ticket order
    factors: Mapping[str, Factors]  # the matrices that they stand for
    norms: Norms  # importable by name
    items: int  # per subset sum
    seed: int  # of the random weights
    assignment: Assignment  # how hidden units are assigned
    device: str  # where it is solved

    def targets(self) -> dict[str, Tensor]:
        """Return the matrices that the products stand for, in float64."""
        return {name: factors.matrix(self.device) for name, factors in self.factors.items()}

    def matrices(self) -> list[RandomMatrix]:
        """Return its random matrices in ticket order."""
        return [matrix for product in self.products.values() for matrix in product.matrices()]

    @property
    def sums(self) -> int:
        """The number of subset sums: one for every `items` weights of a matrix whose mask is searched for."""
        return sum(math.prod(product.free.shape) for product in self.products.values()) // self.items

    def tensors(self, solved: Solved) -> Iterator[RandomTensor]:
        """Make its tensors from the solution."""
        for matrix in self.matrices():
            if matrix.name in solved.bits:
                mask = PackedMask(matrix.shape, solved.bits[matrix.name], copy=False)
                yield RandomTensor(name=matrix.name, mask=mask, distribution="uniform", scale=matrix.scale)
            else:
                yield matrix.with_owners(torch.from_numpy(solved.owners[matrix.name]).long())

    def merged(self, name: str, ticket: Ticket | None, device: torch.device | str) -> Tensor:
        """Return a matrix that a ticket stands for, or without a ticket the model's own."""
        if ticket is None:
            return self.factors[name].matrix(str(device))
        return multiply_out(ticket, self.products[name], device)

    def solve(self) -> Solved:
        """Find the masks, in any process or on any machine."""
        targets, pruned = self.targets(), {}
        for name, product in self.products.items():
            found = product.prune(targets[name], seed=self.seed, assignment=self.assignment, device=self.device)
            pruned[name] = found.with_more_rounding(self.factors[name].rounding(self.device))
        return self._solved(targets, pruned)

    def examine(self, ticket: Ticket) -> Solved:
        """Compute the norms of the errors from a ticket's masks; unreachable entries are not searched for again."""
        targets, pruned = self.targets(), {}
        for name, product in self.products.items():
            # With a ReLU between them there is one product for each sign of the inputs.
            error = multiply_out(ticket, product, self.device) - targets[name].repeat(1, 1 + product.relu)
            # No rounding is added: the certificate includes it, and adding it twice would fail valid tickets.
            pruned[name] = Pruned((), error, torch.zeros_like(error), [])
        return self._solved(targets, pruned)

    def errors(self, ticket: Ticket) -> dict[str, Pruned]:
        """Compare a ticket's products with the matrices they stand for, with a bound on the rounding of each entry."""
        found = {}
        for name, product in self.products.items():
            target = self.factors[name].matrix(self.device).repeat(1, 1 + product.relu)
            error = multiply_out(ticket, product, self.device) - target
            # A subtraction rounds once, and so does adding the error to the target again.
            size = multiplied_size(ticket, product, self.device) + 2 * target.abs() + 2 * error.abs()
            pruned = Pruned((), error, size * UNIT_ROUNDOFF, [])
            found[name] = pruned.with_more_rounding(self.factors[name].rounding(self.device))
        return found

    def sample(self, side: int, items: int) -> "Piece":
        """Return a piece of the same kind for square matrices of this side, with random numbers, to be timed."""
        weight = np.random.default_rng(0).normal(0, 0.05, (side, side)).astype(np.float32)

        def small(matrix: RandomMatrix, each: int) -> RandomMatrix:
            return replace(matrix, coordinates=side, units=each * side)

        products = {}
        for name, product in self.products.items():
            each = product.blocked.units // product.blocked.coordinates * items // self.items
            products[name] = replace(product, blocked=small(product.blocked, each), free=small(product.free, each))
        return replace(
            self, name="sample", items=items, products=products, factors=dict.fromkeys(products, Factors(weight))
        )

    def _solved(self, targets: Mapping[str, Tensor], pruned: Mapping[str, Pruned]) -> Solved:
        missed = [(f"{self.name}.{of}", miss) for of, product in pruned.items() for miss in product.unreachable]
        masks = {tensor.name: tensor.mask for product in pruned.values() for tensor in product.tensors}
        blocked = [product.blocked for product in self.products.values()]
        owners = {matrix.name: owners_in(masks[matrix.name], matrix.unit_axis) for matrix in blocked if masks}
        return Solved(
            name=self.name,
            bits={name: mask.bits for name, mask in masks.items() if isinstance(mask, PackedMask)},
            owners={name: each.int().numpy() for name, each in owners.items() if each is not None},
            assigned={f"{self.name}.{of}": product.assigned for of, product in pruned.items()},
            norms=self.norms(targets, pruned),
            worst_entry=max(product.worst_entry() for product in pruned.values()),
            worst_reached=max(product.worst_reached for product in pruned.values()),
            n_unreachable=len(missed),
            unreachable=certify.worst_missed(missed),
        )
