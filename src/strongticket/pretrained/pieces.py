"""The independent pieces of work: one head, or one linear map. Small to send, and small to keep."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct import certify
from strongticket.construct.attention import head_matrices, prune_head
from strongticket.construct.balance import balanced_blocks
from strongticket.construct.feedforward import layer_matrices
from strongticket.construct.product import Miss, Pruned, PrunedHead, prune_product, prune_relu, spectral_norm
from strongticket.construct.source import Init, RandomMatrix, equal_blocks
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.random_maps import multiply_out
from strongticket.tickets.mask import Bits, BlockMask, PackedMask
from strongticket.tickets.tensors import RandomTensor
from strongticket.tickets.ticket import Ticket

Numbers = NDArray[np.float32]

_INIT: Init = "theory"
_UNIT_ROUNDOFF = 2.0**-53 * 1.01
# Of two matrices that stand for one, those whose masks are searched.
_SEARCHED = ("query", "output", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What is kept of a solved piece.

    Args:
        name: the piece's.
        bits: packed masks, by the name of their tensor.
        sizes: of the blocks, where they are not equal.
        norms: of the target and of the errors, for the certificate.
        worst_entry: the largest error of an entry of a merged matrix.
        worst_reached: the largest one among the entries that a subset can reach.
        n_unreachable: how many others there are.
        unreachable: the worst of them, with the matrix they are in.
    """

    name: str
    bits: dict[str, Bits]
    sizes: tuple[int, ...] | None
    norms: dict[str, float]
    worst_entry: float
    worst_reached: float
    n_unreachable: int
    unreachable: list[tuple[str, Miss]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of work, as another process or machine gets it: some matrices, each to be a product of random ones.

    Args:
        name: in front of the names of its tensors.
        items: of each subset sum.
        seed: of the random weights.
        device: where it is solved.
    """

    name: str
    items: int
    seed: int
    device: str

    def matrices(self) -> tuple[RandomMatrix, ...]:
        """Describe its random matrices, in the order they have in a ticket."""
        raise NotImplementedError

    def targets(self) -> dict[str, Tensor]:
        """Give the matrices that products of them stand for, in float64."""
        raise NotImplementedError

    def products(self, ticket: Ticket, device: torch.device | str) -> dict[str, Tensor]:
        """Multiply out what a ticket has for each target."""
        raise NotImplementedError

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Find the masks of each product."""
        raise NotImplementedError

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Take the norms that the certificate needs."""
        raise NotImplementedError

    @property
    def sums(self) -> int:
        """How many subset sums it takes: one for every so many weights of a matrix that is searched."""
        searched = (matrix for matrix in self.matrices() if matrix.name.rpartition(".")[2] in _SEARCHED)
        return sum(math.prod(matrix.shape) for matrix in searched) // self.items

    def tensors(self, solved: Solved) -> Iterator[RandomTensor]:
        """Make its tensors from what was found; the ones without bits are blocks."""
        for matrix in self.matrices():
            if matrix.name in solved.bits:
                mask = PackedMask(matrix.shape, solved.bits[matrix.name], copy=False)
                yield RandomTensor(name=matrix.name, mask=mask, distribution="uniform", scale=matrix.scale)
            else:
                yield matrix.with_blocks(solved.sizes or equal_blocks("width", matrix.units, matrix.coordinates))

    def solve(self) -> Solved:
        """Find the masks, wherever the piece was sent."""
        targets = self.targets()
        return self._solved(targets, self.prune(targets))

    def examine(self, ticket: Ticket) -> Solved:
        """Take the norms of the errors from a ticket's masks; unreachable entries are not looked for again."""
        targets, products = self.targets(), self.products(ticket, self.device)
        pruned = {}
        for name, target in targets.items():
            # A ReLU pair has a product for either sign of its inputs.
            error = products[name] - target.repeat(1, products[name].shape[1] // target.shape[1])
            # As it is: the certificate allows for rounding, and to allow for it again would fail good ones.
            pruned[name] = Pruned((), error, torch.zeros_like(error), [])
        return self._solved(targets, pruned)

    def _solved(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> Solved:
        missed = [(f"{self.name}.{of}", miss) for of, product in pruned.items() for miss in product.unreachable]
        masks = {tensor.name: tensor.mask for product in pruned.values() for tensor in product.tensors}
        sizes = [mask.sizes for mask in masks.values() if isinstance(mask, BlockMask)]
        return Solved(
            name=self.name,
            bits={name: mask.bits for name, mask in masks.items() if isinstance(mask, PackedMask)},
            sizes=next((unequal for unequal in sizes if not isinstance(unequal, int)), None),
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

    @property
    def width(self) -> int:
        """Hidden units of the random head."""
        return self.items * int(self.key.shape[1])

    def matrices(self) -> tuple[RandomMatrix, ...]:
        """Describe query, key, value and output."""
        d = self.key.shape[1]
        rows = d + (self.query_bias is not None)
        return head_matrices(self.name, rows, d, len(self.output), self.width, self.width, _INIT)

    def targets(self) -> dict[str, Tensor]:
        r"""Multiply out $[W_Q; b_Q] W_K^\top$, scaled, and $W_V W_O$: (d or d + 1, d) and (d, d_out).

        Products of two float32 numbers are exact in float64, so that only the additions round.
        """
        left, right, value, output = self._factors()
        return {"qk": ordered_product(left, right) * self.scaling, "vo": ordered_product(value, output)}

    def products(self, ticket: Ticket, device: torch.device | str) -> dict[str, Tensor]:
        """Multiply query by key, as scores are divided, and value by output."""
        query, key, value, output = (matrix.name for matrix in self.matrices())
        return {
            "qk": multiply_out(ticket, key, query, device, divisor=math.sqrt(self.width)),
            "vo": multiply_out(ticket, value, output, device, free_unit_axis=0).T,
        }

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Prune the head; what its merged matrices themselves are off counts as rounding."""
        qk, vo = targets["qk"], targets["vo"]
        found = prune_head(qk, vo, self.name, self.width, self.width, seed=self.seed, init=_INIT, device=self.device)
        qk_rounding, vo_rounding = self._rounding()
        return {"qk": found.qk.with_more_rounding(qk_rounding), "vo": found.vo.with_more_rounding(vo_rounding)}

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Take the norms of both merged matrices, of their errors and of the bias row."""
        return asdict(certify.head_norms(targets["qk"], targets["vo"], PrunedHead(**pruned)))

    def _rounding(self) -> tuple[Tensor, Tensor]:
        """Bound what `targets` lost: a sum of n exact products rounds n times, and the scale once."""
        left, right, value, output = (x.abs() for x in self._factors())
        qk, vo = left @ right.T * abs(self.scaling), value @ output.T
        return (left.shape[1] + 2) * _UNIT_ROUNDOFF * qk, (value.shape[1] + 1) * _UNIT_ROUNDOFF * vo

    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query = self.query if self.query_bias is None else np.concatenate([self.query, self.query_bias[:, None]], 1)
        left, right, value, output = (
            torch.tensor(x, device=self.device).double() for x in (query.T, self.key.T, self.value.T, self.output)
        )
        return left, right, value, output


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPiece(Piece):
    """One linear map (out, in), which the product of two random matrices stands for (Lemma 7)."""

    units_per_item: ClassVar[int] = 1

    weight: Numbers

    def matrices(self) -> tuple[RandomMatrix, RandomMatrix]:
        """Describe both random matrices."""
        d_out, d_in = self.weight.shape
        return layer_matrices(self.name, d_in, d_out, self.units_per_item * self.items * d_in, _INIT)

    def targets(self) -> dict[str, Tensor]:
        """Give the map itself."""
        return {"map": torch.tensor(self.weight, device=self.device).double()}

    def products(self, ticket: Ticket, device: torch.device | str) -> dict[str, Tensor]:
        """Multiply the two random matrices."""
        first, second = (matrix.name for matrix in self.matrices())
        return {"map": multiply_out(ticket, first, second, device)}

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Prune both matrices, with equal blocks of units for the inputs."""
        first, second = self.matrices()
        equal = equal_blocks("width", first.units, first.coordinates)
        return {"map": prune_product(targets["map"], first, second, equal, seed=self.seed, device=self.device)}

    def norms(self, targets: dict[str, Tensor], pruned: dict[str, Pruned]) -> dict[str, float]:
        """Take the norms of the map and of its error."""
        return {"norm": spectral_norm(targets["map"]), "error": pruned["map"].norm()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReluPiece(LinearPiece):
    """One linear map, which two random layers with a ReLU between them stand for (Lemma 2).

    Half of the units carry positive inputs and half negative ones, so that about `items` meet a sum.
    """

    units_per_item: ClassVar[int] = 2

    def products(self, ticket: Ticket, device: torch.device | str) -> dict[str, Tensor]:
        """Multiply the layers for positive inputs and for negative ones: [W+ W-], (out, 2 in)."""
        first, second = (matrix.name for matrix in self.matrices())
        halves = [
            multiply_out(ticket, first, second, device, own=own)
            for own in (lambda u: u.clamp(min=0), lambda u: u.clamp(max=0))
        ]
        return {"map": torch.cat(halves, dim=1)}

    def prune(self, targets: dict[str, Tensor]) -> dict[str, Pruned]:
        """Prune both layers; an input gets more units where its own would reach too little."""
        weight, matrices = targets["map"], self.matrices()
        sizes = balanced_blocks(*matrices, weight, self.items, self.seed, self.device)
        return {"map": prune_relu(weight, *matrices, sizes, seed=self.seed, device=self.device)}
