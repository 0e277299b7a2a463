"""The independent pieces of work: one head, or one linear map of an MLP. Small to send, and small to keep."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.bounds.certificate import HeadNorms
from strongticket.construct import certify
from strongticket.construct.attention import head_matrices, prune_head
from strongticket.construct.balance import balanced_blocks
from strongticket.construct.feedforward import layer_matrices, prune_layer
from strongticket.construct.product import Miss, Pruned, PrunedHead, spectral_norm
from strongticket.construct.source import Init, RandomMatrix, equal_blocks
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.adapters import Layer, Target, What
from strongticket.tickets.mask import Bits, PackedMask
from strongticket.tickets.tensors import RandomTensor

Numbers = NDArray[np.float32]

_INIT: Init = "theory"
_UNIT_ROUNDOFF = 2.0**-53 * 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What is kept of a solved part.

    Args:
        name: the part's.
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
class Part:
    """A piece of work, as another process or machine gets it.

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

    @property
    def sums(self) -> int:
        """How many subset sums it takes."""
        raise NotImplementedError

    def matrices(self) -> tuple[RandomMatrix, ...]:
        """Describe its random matrices, in the order they have in a ticket."""
        raise NotImplementedError

    def tensors(self, solved: Solved) -> Iterator[RandomTensor]:
        """Make its tensors from what was found; the ones without bits are blocks."""
        for matrix in self.matrices():
            if matrix.name in solved.bits:
                mask = PackedMask(matrix.shape, solved.bits[matrix.name], copy=False)
                yield RandomTensor(name=matrix.name, mask=mask, distribution="uniform", scale=matrix.scale)
            else:
                yield matrix.with_blocks(solved.sizes or equal_blocks("width", matrix.units, matrix.coordinates))

    def solve(self) -> Solved:
        """Find the masks."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPart(Part):
    """One attention head: query and key (d_k, d), value (d_v, d), output (d_out, d_v), as the model has them."""

    query: Numbers
    query_bias: Numbers | None
    key: Numbers
    value: Numbers
    output: Numbers
    scaling: float

    @property
    def sums(self) -> int:
        """One for each entry of both merged matrices."""
        d, rows, d_out = self._sizes()
        return rows * d + d * d_out

    def matrices(self) -> tuple[RandomMatrix, ...]:
        """Describe query, key, value and output."""
        d, rows, d_out = self._sizes()
        return head_matrices(self.name, rows, d, d_out, self.items * d, self.items * d, _INIT)

    def merged(self) -> tuple[Tensor, Tensor]:
        r"""Multiply out $[W_Q; b_Q] W_K^\top$, scaled, and $W_V W_O$: (d or d + 1, d) and (d, d_out).

        Products of two float32 numbers are exact in float64, so that only the additions round.
        """
        left, right, value, output = self._factors()
        return ordered_product(left, right) * self.scaling, ordered_product(value, output)

    def merged_rounding(self) -> tuple[Tensor, Tensor]:
        """Bound what `merged` lost: a sum of n exact products rounds n times, and the scale once."""
        left, right, value, output = (x.abs() for x in self._factors())
        qk, vo = left @ right.T * abs(self.scaling), value @ output.T
        return (left.shape[1] + 2) * _UNIT_ROUNDOFF * qk, (value.shape[1] + 1) * _UNIT_ROUNDOFF * vo

    def solve(self) -> Solved:
        """Prune the head and take the norms of its errors."""
        (qk, vo), width = self.merged(), self.items * self.key.shape[1]
        found = prune_head(qk, vo, self.name, width, width, seed=self.seed, init=_INIT, device=self.device)
        qk_rounding, vo_rounding = self.merged_rounding()
        head = PrunedHead(found.qk.with_more_rounding(qk_rounding), found.vo.with_more_rounding(vo_rounding))
        norms = certify.head_norms(qk, vo, head)
        return solved_from(self.name, tuple(head.tensors()), {"qk": head.qk, "vo": head.vo}, norms)

    def _sizes(self) -> tuple[int, int, int]:
        d = self.key.shape[1]
        return d, d + (self.query_bias is not None), len(self.output)

    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query = self.query if self.query_bias is None else np.concatenate([self.query, self.query_bias[:, None]], 1)
        left, right, value, output = (
            torch.tensor(x, device=self.device).double() for x in (query.T, self.key.T, self.value.T, self.output)
        )
        return left, right, value, output


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPart(Part):
    """One linear map (out, in) of an MLP, which two random layers with a ReLU between them stand for."""

    weight: Numbers

    @property
    def sums(self) -> int:
        """Two for each entry, one for either sign of its input."""
        return 2 * int(self.weight.size)

    @property
    def hidden_width(self) -> int:
        """Units between the two layers: half of them carry positive inputs, so about `items` meet a sum."""
        return 2 * self.items * int(self.weight.shape[1])

    def matrices(self) -> tuple[RandomMatrix, ...]:
        """Describe both layers."""
        d_out, d_in = self.weight.shape
        return layer_matrices(self.name, d_in, d_out, self.hidden_width, _INIT)

    def solve(self) -> Solved:
        """Prune both layers and take the norm of their error."""
        weight = torch.tensor(self.weight, device=self.device).double()
        first, second = self.matrices()
        sizes = balanced_blocks(first, second, weight, self.items, self.seed, self.device)
        found = prune_layer(
            weight, self.name, self.hidden_width, seed=self.seed, init=_INIT, sizes=sizes, device=self.device
        )
        norms = {"norm": spectral_norm(weight), "error": found.norm()}
        return solved_from(self.name, found.tensors, {"map": found}, norms, sizes)


def parts_of(target: Target, what: What, items: int, seed: int, device: str) -> list[Part]:
    """Cut a target into its parts, layer by layer; they hold views of the model's numbers, not copies."""
    parts: list[Part] = []
    for i, layer in enumerate(target.layers()):
        common: dict[str, Any] = {"items": items, "seed": seed, "device": device}
        parts += [_head_part(layer, j, name=f"layer.{i}.attention.head.{j}", **common) for j in range(layer.n_heads)]
        if what == "attention+mlp":
            for name, weight in (("up", layer.up.weight), ("down", layer.down.weight)):
                parts.append(MapPart(name=f"layer.{i}.mlp.{name}", weight=weight.numpy(), **common))
    return parts


def solve_part(part: Part) -> Solved:
    """Solve a part, wherever it was sent."""
    return part.solve()


def _head_part(layer: Layer, j: int, **common: Any) -> HeadPart:
    d_k, d_v = len(layer.query.weight) // layer.n_heads, len(layer.value.weight) // layer.n_heads
    of_keys, of_values = slice(j * d_k, (j + 1) * d_k), slice(j * d_v, (j + 1) * d_v)
    bias = layer.query.bias
    return HeadPart(
        query=layer.query.weight[of_keys].numpy(),
        query_bias=bias[of_keys].numpy() if bias is not None else None,
        key=layer.key.weight[of_keys].numpy(),
        value=layer.value.weight[of_values].numpy(),
        output=layer.output.weight[:, of_values].numpy(),
        scaling=layer.scaling,
        **common,
    )


def solved_from(
    name: str,
    tensors: tuple[RandomTensor, ...],
    products: Mapping[str, Pruned],
    norms: HeadNorms | dict[str, float],
    sizes: tuple[int, ...] | None = None,
) -> Solved:
    """Keep of a part's products what the ticket and the certificate need."""
    missed = [(f"{name}.{of}", miss) for of, product in products.items() for miss in product.unreachable]
    return Solved(
        name=name,
        bits={tensor.name: tensor.mask.bits for tensor in tensors if isinstance(tensor.mask, PackedMask)},
        sizes=sizes,
        norms=asdict(norms) if isinstance(norms, HeadNorms) else norms,
        worst_entry=max(product.worst_entry() for product in products.values()),
        worst_reached=max(product.worst_reached for product in products.values()),
        n_unreachable=len(missed),
        unreachable=certify.worst_missed(missed),
    )
