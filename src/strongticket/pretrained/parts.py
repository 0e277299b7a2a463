"""The parts of a layer that random matrices can stand for: where they sit, what is proved of them, how they go back.

A part's `input` bounds its inputs by the model's own numbers; that is what its certificate holds for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from strongticket.bounds.certificate import Envelope, LinearNorms, propagate_feedforward
from strongticket.bounds.upward import Up, up_sqrt
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.pretrained.layer import Affine, Layer
from strongticket.pretrained.pieces import LinearPiece, Piece, ReluPiece, Solved
from strongticket.pretrained.random_maps import RandomPair, exact_bias, frozen_linear, multiply_out, weight_of
from strongticket.tickets.build import SignSplitNetwork
from strongticket.tickets.ticket import Ticket

Mode = Literal["merged", "literal"]

# Functions that are never larger than their argument, in absolute value: they keep a bound on a norm.
_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "quick_gelu")
_SHRINKING = (*_GELUS, "relu", "silu", "swish")


@dataclass(frozen=True, slots=True)
class Input:
    """What makes the inputs of a part."""

    def largest(self, layer: Layer) -> float:
        """Bound the norm of every input, for whatever the model reads."""
        raise NotImplementedError

    def tensors(self, layer: Layer, name: str) -> dict[str, Tensor]:
        """Give the numbers the bound depends on, those of other parts excepted, under a name."""
        return {}

    def check(self, config: Any) -> None:
        """Refuse a model for which the bound would not hold."""


@dataclass(frozen=True, slots=True)
class Norm(Input):
    r"""A LayerNorm or a root-mean-square norm: at most $\sqrt{d} \max |\gamma| + \|\beta\|$.

    Args:
        at: its path in the layer.
        first: for models that normalise behind each block; `at` is then in the layer before, and this is what makes the
            inputs of the first layer, its path from the backbone.
    """

    at: str
    first: str = ""

    def place(self, layer: Layer) -> str:
        """Say where it is, from the backbone."""
        if not self.first:
            return layer.place(self.at)
        return layer.place(self.at, back=1) if layer.index else self.first

    def largest(self, layer: Layer) -> float:
        """Bound the norm of everything it gives."""
        read = layer.norm(self.place(layer))
        return (up_sqrt(len(read.weight)) * float(read.weight.abs().max()) + read.length()).value

    def tensors(self, layer: Layer, name: str) -> dict[str, Tensor]:
        """Give gain and shift."""
        return layer.norm(self.place(layer)).named(name)


@dataclass(frozen=True, slots=True)
class Behind(Input):
    """The outputs of a linear map, through an activation that never makes a number larger.

    Args:
        map: the part.
        times: for gated MLPs, a part whose outputs are multiplied by those, entry by entry.
        activation: the configuration's key for the activation's name.
    """

    map: "LinearMap"
    times: "LinearMap | None" = None
    activation: str = "hidden_act"

    def largest(self, layer: Layer) -> float:
        """Bound the outputs; those of two maps by the product, since no entry is larger than the norm."""
        bound = self.map.largest_output(layer)
        return (bound if self.times is None else bound * self.times.largest_output(layer)).value

    def check(self, config: Any) -> None:
        """Refuse an activation that could make its input larger: the certificate would not hold."""
        name = getattr(config, self.activation, None)
        if name not in _SHRINKING:
            raise StrongTicketError(
                f"the MLP's activation {name!r} is not known to keep norms; known are {', '.join(_SHRINKING)}. "
                "Prune into the attention alone."
            )


@dataclass(frozen=True, slots=True)
class Mixed(Input):
    r"""The heads of an attention side by side: each a mixture of the outputs that a map has for it.

    A mixture is no longer than the longest it is made of, but every head may be made of another token. So the bound is
    $\sqrt{\sum_j (\|W_j\| \alpha + \|b_j\|)^2}$ over the heads, of which some share their $W_j$ where there are groups.

    Args:
        values: the part that makes the values.
    """

    values: "LinearMap"

    def largest(self, layer: Layer) -> float:
        """Bound all heads together."""
        heads = int(layer.config.num_attention_heads)
        groups = int(getattr(layer.config, "num_key_value_heads", None) or heads)
        alpha, squares = self.values.input.largest(layer), Up(0.0)
        for head in self.values.read(layer).chunk(groups):
            size = _largest_output(head, alpha)
            squares += size * size
        return up_sqrt((squares * math.ceil(heads / groups)).value).value


def _largest_output(map: Affine, input_norm: float) -> Up:
    norm = float(torch.linalg.matrix_norm(map.weight.double(), ord=2)) * (1 + 1e-12)
    return Up(input_norm) * norm + map.length()


@dataclass(frozen=True)
class Part:
    """A part of every layer; each method gets the layer it is in.

    Args:
        name: in a ticket, behind the layer's. Those that begin with "mlp" are left out of a ticket of the attention.
        at: the path of its module in the layer.
        input: what makes its inputs, and so bounds them.
    """

    name: str
    at: str
    input: Input

    def check(self, config: Any) -> None:
        """Refuse a model that the part cannot stand for, by its configuration."""
        self.input.check(config)

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Name all numbers of the model that masks and certificate depend on."""
        return self.input.tensors(layer, f"{self.name.rpartition('.')[0] or self.name}_norm")

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Give what the architecture of a ticket says of it, alike for all layers."""
        return {}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """Cut it into work, to be done with the items, the seed and the device that are given."""
        raise NotImplementedError

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Name the biases that a ticket keeps as they are, behind the part's own name."""
        raise NotImplementedError

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, dict[str, Json]]:
        """Bound its error on inputs of at most that norm, from what was found for its pieces; give details too."""
        raise NotImplementedError

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket, mode: Mode) -> None:
        """Put what a ticket has for it in its place."""
        raise NotImplementedError

    def output(self, layer: Layer) -> nn.Module:
        """Give the module whose outputs are the part's; `at` is the one whose inputs are."""
        return layer.module(self.at)

    def apply(self, layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """Run the part as it is in the model."""
        return layer.module(self.at)(*args, **kwargs)


@dataclass(frozen=True)
class LinearMap(Part):
    """One linear map, which the product of two random matrices stands for (Lemma 7)."""

    piece: ClassVar[type[LinearPiece]] = LinearPiece

    def read(self, layer: Layer) -> Affine:
        """Give its numbers."""
        return layer.linear_map(self.at)

    def largest_output(self, layer: Layer) -> Up:
        """Bound the norm of everything the model's own map gives."""
        return _largest_output(self.read(layer), self.input.largest(layer))

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Name weight, bias and what bounds the inputs."""
        # Maps of an MLP have always been hashed without that in front.
        return self.read(layer).named(self.name.removeprefix("mlp.")) | super().tensors(layer)

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Say that nothing is between its two matrices."""
        return {"linear": [self.name]}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """One piece is all of it."""
        return [self.piece(name=f"{layer.name}.{self.name}", weight=self.read(layer).weight.numpy(), **settings)]

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Give its own."""
        bias = self.read(layer).bias
        return {} if bias is None else {"bias": bias}

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, dict[str, Json]]:
        """Multiply the error's norm by the input's."""
        norms = LinearNorms(**solved[0].norms)
        return propagate_feedforward(Envelope(input_norm), [norms]).error, {"norm": norms.norm}

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket, mode: Mode) -> None:
        """Put the product, or both random matrices, in its place."""
        (piece,), like = pieces, weight_of(layer.module(self.at))
        bias = exact_bias(ticket, f"{piece.name}.bias", like)
        product = piece.products()["map"]
        if mode == "literal":
            names = [matrix.name for matrix in piece.matrices()]
            layer.put(self.at, RandomPair(ticket, names, bias, relu=product.relu))
        elif product.relu:
            # It acts on positive and on negative inputs by matrices of their own.
            halves = multiply_out(ticket, product, like.device).to(like.dtype).chunk(2, dim=1)
            positive, negative = (half.contiguous() for half in halves)
            layer.put(self.at, SignSplitNetwork([positive], [negative], [bias]).requires_grad_(False))
        else:
            layer.put(self.at, frozen_linear(multiply_out(ticket, product, like.device), bias, like))


@dataclass(frozen=True)
class ReluPair(LinearMap):
    """One linear map, which two random layers with a ReLU between them stand for (Lemma 2)."""

    piece = ReluPiece

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Say nothing: this is what maps of an MLP are."""
        return {}
