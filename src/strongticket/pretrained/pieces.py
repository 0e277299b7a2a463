"""Independent pieces of work, one head or one linear map each: small to send and small to store."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.attention import head_products
from strongticket.construct.feedforward import relu_product
from strongticket.construct.linear import layer_matrices
from strongticket.construct.norms import spectral_norm
from strongticket.construct.plan import Product
from strongticket.construct.product import Miss, Pruned, PrunedHead
from strongticket.construct.source import Init, RandomMatrix, owners_in
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.random_maps import multiply_out
from strongticket.tickets.mask import PackedMask
from strongticket.tickets.symbols import Bits
from strongticket.tickets.tensors import RandomTensor
from strongticket.tickets.ticket import Ticket

Numbers = NDArray[np.float32]

_INIT: Init = "theory"
_UNIT_ROUNDOFF = 2.0**-53 * 1.01


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of work, as sent to a process or machine: matrices, each to become a product of random ones."""

    name: str  # the prefix of its tensors' names
    items: int  # per subset sum
    seed: int  # of the random weights
    assignment: Assignment  # how hidden units are assigned
    device: str  # where it is solved

    def products(self) -> dict[str, Product]:
        """Describe the products of random matrices, in ticket order."""
        raise NotImplementedError

    def targets(self) -> dict[str, Tensor]:
        """Return the matrices that they stand for, in float64."""
        raise NotImplementedError

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Compute the norms that the certificate needs."""
        raise NotImplementedError

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Find the masks of each product."""
        products, how = self.products(), self.assignment
        return {
            name: products[name].prune(target, seed=self.seed, assignment=how, device=self.device)
            for name, target in targets.items()
        }

    def matrices(self) -> list[RandomMatrix]:
        """Return its random matrices in ticket order."""
        return [matrix for product in self.products().values() for matrix in product.matrices()]

    @property
    def sums(self) -> int:
        """The number of subset sums: one for every `items` weights of a matrix whose mask is searched for."""
        return sum(math.prod(product.free.shape) for product in self.products().values()) // self.items

    def tensors(self, solved: Solved) -> Iterator[RandomTensor]:
        """Make its tensors from the solution."""
        for matrix in self.matrices():
            if matrix.name in solved.bits:
                mask = PackedMask(matrix.shape, solved.bits[matrix.name], copy=False)
                yield RandomTensor(name=matrix.name, mask=mask, distribution="uniform", scale=matrix.scale)
            else:
                yield matrix.with_owners(torch.from_numpy(solved.owners[matrix.name]).long())

    def solve(self) -> Solved:
        """Find the masks, in any process or on any machine."""
        targets = self.targets()
        return self._solved(targets, self.prune(targets))

    def examine(self, ticket: Ticket) -> Solved:
        """Compute the norms of the errors from a ticket's masks; unreachable entries are not searched for again."""
        targets, pruned = self.targets(), {}
        for name, product in self.products().items():
            # With a ReLU between them there is one product for each sign of the inputs.
            error = multiply_out(ticket, product, self.device) - targets[name].repeat(1, 1 + product.relu)
            # No rounding is added: the certificate includes it, and adding it twice would fail valid tickets.
            pruned[name] = Pruned((), error, torch.zeros_like(error), [])
        return self._solved(targets, pruned)

    def _solved(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> Solved:
        missed = [(f"{self.name}.{of}", miss) for of, product in pruned.items() for miss in product.unreachable]
        masks = {tensor.name: tensor.mask for product in pruned.values() for tensor in product.tensors}
        blocked = [product.blocked for product in self.products().values()]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPiece(Piece):
    """One attention head: query and key (d_k, d), value (d_v, d), output (d_out, d_v), as the model has them."""

    query: Numbers
    query_bias: Numbers | None
    key: Numbers
    value: Numbers
    output: Numbers
    scaling: float

    def products(self) -> dict[str, Product]:
        """Describe query with key, and value with output."""
        d = int(self.key.shape[1])
        rows, width = d + (self.query_bias is not None), self.items * d
        qk, vo = head_products(self.name, rows, d, len(self.output), width, width, _INIT)
        return {"qk": qk, "vo": vo}

    def targets(self) -> dict[str, Tensor]:
        r"""Multiply out $[W_Q; b_Q] W_K^\top$, scaled, and $W_V W_O$: (d or d + 1, d) and (d, d_out).

        Products of two float32 numbers are exact in float64, so only the additions round.
        """
        left, right, value, output = self._factors()
        return {"qk": ordered_product(left, right) * self.scaling, "vo": ordered_product(value, output)}

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Prune the head; the rounding of its merged matrices is included."""
        found = Piece.prune(self, targets)
        return {name: found[name].with_more_rounding(rounding) for name, rounding in self._rounding().items()}

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Compute the norms of both merged matrices, of their errors and of the bias row."""
        return asdict(certify.head_norms(targets["qk"], targets["vo"], PrunedHead(**pruned)))

    def _rounding(self) -> dict[str, Tensor]:
        """Bound the rounding of `targets`: a sum of n exact products rounds n times, and the scale once."""
        left, right, value, output = (x.abs() for x in self._factors())
        qk, vo = left @ right.T * abs(self.scaling), value @ output.T
        return {
            "qk": (left.shape[1] + 2) * _UNIT_ROUNDOFF * qk,
            "vo": (value.shape[1] + 1) * _UNIT_ROUNDOFF * vo,
        }

    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query = self.query if self.query_bias is None else np.concatenate([self.query, self.query_bias[:, None]], 1)
        left, right, value, output = (
            torch.tensor(x, device=self.device).double() for x in (query.T, self.key.T, self.value.T, self.output)
        )
        return left, right, value, output


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPiece(Piece):
    """One linear map (out, in), replaced by the product of two random matrices (Lemma 7)."""

    weight: Numbers

    def products(self) -> dict[str, Product]:
        """Describe two random matrices."""
        d_out, d_in = self.weight.shape
        first, second = layer_matrices(f"{self.name}.", d_in, d_out, self.items * d_in, _INIT)
        return {"map": Product(blocked=first, free=second)}

    def targets(self) -> dict[str, Tensor]:
        """Return the map itself."""
        return {"map": torch.tensor(self.weight, device=self.device).double()}

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Compute the norms of the map and of its error."""
        return {"norm": spectral_norm(targets["map"]), "error": pruned["map"].norm()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReluPiece(LinearPiece):
    """One linear map, replaced by two random layers with a ReLU between them (Lemma 2)."""

    def products(self) -> dict[str, Product]:
        """Describe two layers: half of their units carry positive inputs, which leaves about `items` per sum."""
        return {"map": relu_product(self.name, self.weight.shape, 2 * self.items * self.weight.shape[1], _INIT)}
