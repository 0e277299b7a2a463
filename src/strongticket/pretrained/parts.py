"""The parts of a layer that random matrices can stand for: where they sit, what is proved of them, how they go back.

A part's `input` bounds its inputs by the model's own numbers; that is what its certificate holds for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from strongticket.bounds.certificate import Envelope, LinearNorms, propagate_feedforward
from strongticket.bounds.upward import Up, up_sqrt
from strongticket.construct.norms import largest_row_norm, spectral_norm
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.pretrained.layer import Affine, Layer, numbers
from strongticket.pretrained.pieces import LinearPiece, Piece, ReluPiece, Solved
from strongticket.pretrained.random_maps import BySigns, RandomPair, exact_bias, frozen_linear, multiply_out, weight_of
from strongticket.tickets.ticket import Ticket

Mode = Literal["merged", "literal"]

# Functions that are never larger than their argument, in absolute value: they keep a bound on a norm.
_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "quick_gelu")
_SHRINKING = (*_GELUS, "relu", "silu", "swish")
# What configurations call them.
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation", "dense_act_fn")


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

    def made_at(self, layer: Layer) -> str:
        """Give the place of the module whose very outputs the inputs are, from the backbone, or nothing."""
        return ""

    def vanishes_with(self, layer: Layer) -> dict[str, Tensor]:
        """Give linear maps by their place, and which of their outputs: where these are 0, so are the inputs."""
        return {}


@dataclass(frozen=True, slots=True)
class Given(Input):
    r"""What the model itself is given: nothing bounds it, and the certificate is for norms of at most $\sqrt{d}$."""

    def largest(self, layer: Layer) -> float:
        """Give the norm of d numbers of size 1."""
        return up_sqrt(layer.config.hidden_size).value


@dataclass(frozen=True, slots=True)
class Norm(Input):
    r"""A LayerNorm or a root-mean-square norm: at most $\sqrt{d} \max |\gamma| + \|\beta\|$.

    Args:
        at: its path in the layer; "../norm" is in the layer before, for models that normalise behind each block, and
            "/norm" outside of the layers.
        first: what makes the inputs of the first layer instead, a path from the backbone or another input.
    """

    at: str
    first: str | Input = ""

    def _path(self, layer: Layer) -> str | Input:
        if layer.index or not self.first:
            return self.at
        return self.first if isinstance(self.first, Input) else f"/{self.first}"

    def largest(self, layer: Layer) -> float:
        """Bound the norm of everything it gives."""
        if isinstance(path := self._path(layer), Input):
            return path.largest(layer)
        read = layer.norm(path)
        return (up_sqrt(len(read.weight)) * float(read.weight.abs().max()) + read.length()).value

    def tensors(self, layer: Layer, name: str) -> dict[str, Tensor]:
        """Give gain and shift."""
        path = self._path(layer)
        return path.tensors(layer, name) if isinstance(path, Input) else layer.norm(path).named(name)

    def made_at(self, layer: Layer) -> str:
        """Give its own place."""
        path = self._path(layer)
        return path.made_at(layer) if isinstance(path, Input) else layer.place(path)


@dataclass(frozen=True, slots=True)
class Behind(Input):
    r"""The outputs of a linear map, through an activation that never makes a number larger.

    Args:
        map: the part.
        times: for gated MLPs, a part whose outputs are multiplied by those, entry by entry. The bound is then the
            longest output of one times the largest entry of the other, $\max_i \|w_i\| \alpha + |b_i|$.
        halves: for gated MLPs whose two maps are one: its first half is multiplied by its second.
    """

    map: "LinearMap"
    times: "LinearMap | None" = None
    halves: bool = False

    def largest(self, layer: Layer) -> float:
        """Bound the outputs, or the products of outputs."""
        alpha, maps = self.map.input.largest(layer), [self.map.read(layer)]
        if self.times is not None:
            maps.append(self.times.read(layer))
        elif self.halves:
            maps = maps[0].chunk(2)
        if len(maps) == 1:
            return largest_output(maps[0], alpha).value
        first, second = maps
        return min(
            (largest_output(one, alpha) * _largest_entry(other, alpha)).value
            for one, other in ((first, second), (second, first))
        )

    def check(self, config: Any) -> None:
        """Refuse an activation that could make its input larger: the certificate would not hold."""
        names = [name for key in _ACTIVATIONS if isinstance(name := getattr(config, key, None), str)]
        if not names or any(name not in _SHRINKING for name in names):
            said = f"activation {', '.join(names)!r} is not known to keep norms" if names else "activation is not named"
            raise StrongTicketError(f"the MLP's {said}; known are {', '.join(_SHRINKING)}. Use --what attention.")

    def vanishes_with(self, layer: Layer) -> dict[str, Tensor]:
        """Give the map; of two that are multiplied, the first."""
        rows = torch.arange(len(self.map.read(layer).weight), device="cpu")
        return {layer.place(self.map.at): rows[: len(rows) // 2] if self.halves else rows}


def largest_output(map: Affine, input_norm: float) -> Up:
    """Bound the norm of everything a linear map gives on inputs of at most a norm."""
    return Up(input_norm) * spectral_norm(map.weight) + map.length()


def _largest_entry(map: Affine, input_norm: float) -> Up:
    """Bound every single number that it gives."""
    bias = 0.0 if map.bias is None else float(map.bias.abs().max())
    return Up(input_norm) * largest_row_norm(map.weight) + bias


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

    def linear(self) -> "Sequence[LinearMap]":
        """Give the linear maps that it is made of, as parts of their own."""
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Refuse a model that the part cannot stand for, by its configuration."""
        self.input.check(config)

    def reads(self, layer: Layer) -> dict[str, Input]:
        """Give the linear maps that read its inputs, by their place, and what makes these."""
        return {layer.place(self.at): self.input}

    def largest_input(self, layer: Layer) -> float:
        """Bound the norm of its inputs, for whatever the model reads."""
        return max(input.largest(layer) for input in self.reads(layer).values())

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

    def linear(self) -> "Sequence[LinearMap]":
        """Give itself, or where it is two layers with a ReLU the map alone."""
        return [LinearMap(self.name, self.at, self.input)]

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Name weight, bias and what bounds the inputs."""
        # Maps of an MLP have always been hashed without that in front.
        return self.read(layer).named(self.name.removeprefix("mlp.")) | super().tensors(layer)

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Say that nothing is between its two matrices."""
        return {"linear": [self.name]}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """One piece is all of it."""
        return [self.piece(name=f"{layer.name}.{self.name}", weight=numbers(self.read(layer).weight), **settings)]

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
        else:
            kind = BySigns if product.relu else nn.Linear
            layer.put(self.at, frozen_linear(multiply_out(ticket, product, like.device), bias, like, kind))


@dataclass(frozen=True)
class ReluPair(LinearMap):
    """One linear map, which two random layers with a ReLU between them stand for (Lemma 2)."""

    piece = ReluPiece

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Say nothing: this is what maps of an MLP are."""
        return {}
