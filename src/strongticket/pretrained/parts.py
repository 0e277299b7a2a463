"""The parts of a layer that random matrices can stand for: where they are, what is proved, how they are put back.

A part's `input` bounds its inputs from the model's own numbers; the certificate holds for inputs within that bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn

from strongticket.bounds.certificate import Envelope, LinearNorms, propagate_feedforward
from strongticket.bounds.upward import Up, up_sqrt
from strongticket.construct.feedforward import relu_product
from strongticket.construct.linear import layer_matrices
from strongticket.construct.mlp import ACTIVATIONS, through_mlp
from strongticket.construct.norms import largest_row_norm, spectral_norm
from strongticket.construct.places import Map, Place, map_of, through_norm
from strongticket.construct.plan import Product
from strongticket.construct.product import Pruned
from strongticket.construct.source import Init
from strongticket.errors import StrongTicketError
from strongticket.pretrained.layer import Affine, Layer, numbers
from strongticket.pretrained.pieces import Factors, Piece, Solved
from strongticket.pretrained.random_maps import (
    BySigns,
    RandomPair,
    exact_bias,
    frozen_like,
    frozen_linear,
    multiply_out,
    weight_of,
)
from strongticket.tickets.details import PartNorms
from strongticket.tickets.ticket import Ticket

Mode = Literal["merged", "literal"]
Network = Literal["target", "source"]
INIT: Init = "theory"
# From a place before a branch to the one after it, in the target or in the source.
Through = Callable[[Place, Network], Place]
# Cosines and sines that turn queries and keys, (T, head size).
Rotary = tuple[Tensor, Tensor]

# Functions that never exceed their argument in absolute value, so that a bound on the norm still holds.
_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "quick_gelu")
_SHRINKING = (*_GELUS, "relu", "silu", "swish")
# The names of these settings in configurations.
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation", "dense_act_fn")


@dataclass(frozen=True, slots=True)
class Followed:
    """What parts need to know to follow given samples.

    Args:
        errors: from a part's name in the ticket to the errors of its pieces, by product; none for parts without any.
        attends: whether token i attends to token j, (T, T), where keys come from the same sequence; None for all.
        rotary: what turns queries and keys; None if they are not turned.
        memory: the outputs of the encoder in both networks, which keys and values of cross attention are made of.
    """

    errors: Callable[[str], Sequence[Mapping[str, Pruned]]]
    attends: Tensor | None
    rotary: Rotary | None = None
    memory: Mapping[Network, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Input:
    """The source of a part's inputs."""

    def largest(self, layer: Layer) -> float:
        """Bound the norm of every input, whatever the model reads."""
        raise NotImplementedError

    def tensors(self, layer: Layer, name: str) -> dict[str, Tensor]:
        """Return the numbers the bound depends on, except those of other parts, under a name."""
        return {}

    def check(self, config: Any) -> None:
        """Refuse a model for which the bound would not hold."""

    def in_words(self) -> str:
        """Name it for people."""
        return "the model's inputs"

    def made_at(self, layer: Layer) -> str:
        """Return the place, from the backbone, of the module whose outputs are the inputs, unchanged; "" if none."""
        return ""

    def made_from(self, layer: Layer) -> dict[str, Tensor]:
        """Return the linear maps by place, with those of their outputs, that the inputs are made from."""
        return {}

    def drawn(self, layer: Layer, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw numbers in place of these outputs that show inputs which are made in another way."""
        raise NotImplementedError

    def at_most(self, layer: Layer, *outputs: Tensor) -> Tensor:
        """Bound the absolute value of every input, given the drawn outputs of these maps."""
        raise NotImplementedError

    def branch(self) -> "Input | None":
        """Return the source of the inputs of a whole branch, such as an MLP, if the map that reads this ends one."""
        return None

    def through(self, layer: Layer, last: "LinearMap", followed: Followed) -> Through:
        """Follow given samples through a whole branch, which the last map ends."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Given(Input):
    r"""The model's own inputs: nothing bounds them, so the certificate assumes norms of at most $\sqrt{d}$."""

    def largest(self, layer: Layer) -> float:
        """Return the norm of d numbers of size 1."""
        return up_sqrt(layer.config.hidden_size).value


@dataclass(frozen=True, slots=True)
class Norm(Input):
    r"""A LayerNorm or a root-mean-square norm: at most $\sqrt{d} \max |\gamma| + \|\beta\|$.

    Args:
        at: its path in the layer; "../norm" is in the previous layer, for models that normalise after each block, and
            "/norm" is outside the layers.
        first: the source of the first layer's inputs instead: a path from the backbone, or another input.
    """

    at: str
    first: str | Input = ""

    def _path(self, layer: Layer) -> str | Input:
        if layer.index or not self.first:
            return self.at
        return self.first if isinstance(self.first, Input) else f"/{self.first}"

    def largest(self, layer: Layer) -> float:
        """Bound the norm of every output."""
        if isinstance(path := self._path(layer), Input):
            return path.largest(layer)
        read = layer.norm(path)
        return (up_sqrt(len(read.weight)) * float(read.weight.abs().max()) + read.length()).value

    def tensors(self, layer: Layer, name: str) -> dict[str, Tensor]:
        """Return gain and shift."""
        path = self._path(layer)
        return path.tensors(layer, name) if isinstance(path, Input) else layer.norm(path).named(name)

    def in_words(self) -> str:
        """Name it by its path."""
        return f"the output of {self.at}" + (f" (the first layer: {self.first})" if self.first else "")

    def made_at(self, layer: Layer) -> str:
        """Return its own place."""
        path = self._path(layer)
        return path.made_at(layer) if isinstance(path, Input) else layer.place(path)


@dataclass(frozen=True, slots=True)
class Behind(Input):
    r"""The outputs of a linear map after an activation that never increases absolute values.

    Args:
        map: the part.
        times: for gated MLPs, a part whose outputs are multiplied by these, entry by entry. The bound is then the
            longest output of one times the largest entry of the other, $\max_i \|w_i\| \alpha + |b_i|$.
        halves: for gated MLPs whose two maps are fused: the first half of the outputs is multiplied by the second.
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
        """Refuse an activation that could enlarge its input: the certificate would not hold."""
        names = [name for key in _ACTIVATIONS if isinstance(name := getattr(config, key, None), str)]
        if not names or any(name not in _SHRINKING for name in names):
            said = f"activation {', '.join(names)!r} may increase norms" if names else "activation is not named"
            raise StrongTicketError(f"the MLP's {said}; supported are {', '.join(_SHRINKING)}. Use --what attention.")

    def in_words(self) -> str:
        """Name the map."""
        return "the previous map's activated output"

    def made_from(self, layer: Layer) -> dict[str, Tensor]:
        """Return the map, or both that are multiplied."""
        maps = (self.map, self.times) if self.times is not None else (self.map,)
        return {layer.place(map.at): torch.arange(len(map.read(layer).weight), device="cpu") for map in maps}

    def drawn(self, layer: Layer, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw small and large numbers of both signs, where activations differ, and zeros."""
        signs = torch.randint(-1, 2, shape, generator=generator, device="cpu")
        return signs * 10 ** (4 * torch.rand(shape, generator=generator, device="cpu") - 2)

    def at_most(self, layer: Layer, *outputs: Tensor) -> Tensor:
        """Multiply what is multiplied."""
        made = outputs[0].chunk(2, dim=-1) if self.halves else outputs
        return torch.stack([output.abs() for output in made]).prod(dim=0)

    def branch(self) -> Input:
        """Return what the MLP reads."""
        return self.map.input

    def through(self, layer: Layer, last: "LinearMap", followed: Followed) -> Through:
        """Follow given samples through the MLP."""
        name = next((name for key in _ACTIVATIONS if isinstance(name := getattr(layer.config, key, None), str)), "")
        if name not in ACTIVATIONS:
            raise StrongTicketError(
                f"samples cannot be certified through activation {name!r}; covered are {', '.join(ACTIVATIONS)}."
            )
        maps = [part.map(layer, followed) for part in (self.map, self.times, last) if part is not None]
        if self.halves:
            half = len(maps[0].bias) // 2
            maps[:1] = [maps[0].columns(slice(half)), maps[0].columns(slice(half, None))]

        def through(place: Place, network: Network) -> Place:
            first, *times, second = maps if network == "target" else [map.source() for map in maps]
            return through_mlp(place, ACTIVATIONS[name], first, second, *times)

        return through


def through_norm_of(layer: Layer, path: str) -> Callable[[Place], Place]:
    """Follow given samples through a norm of the model, which is the same in both networks."""
    module, (weight, bias) = layer.module(path), layer.norm(path)
    eps = next(getattr(module, name) for name in ("eps", "variance_epsilon") if hasattr(module, name))
    return partial(through_norm, weight=weight, bias=bias, eps=eps, centred=isinstance(module, nn.LayerNorm))


def largest_output(map: Affine, input_norm: float) -> Up:
    """Bound the norm of a linear map's outputs on inputs of at most this norm."""
    return Up(input_norm) * spectral_norm(map.weight) + map.length()


def _largest_entry(map: Affine, input_norm: float) -> Up:
    """Bound every entry of its outputs."""
    bias = 0.0 if map.bias is None else float(map.bias.abs().max())
    return Up(input_norm) * largest_row_norm(map.weight) + bias


class PartSettings(TypedDict, total=False):
    """What a ticket's architecture says about parts: the first layer's heads, and which are linear maps."""

    n_heads: int
    d_model: int
    linear: list[str]


@dataclass(frozen=True)
class Part:
    """A part of every layer; each method takes the layer it is in.

    Args:
        name: its name in a ticket, after the layer's. Names that start with "mlp" are left out of attention tickets.
        at: the path of its module in the layer.
        input: the source of its inputs, which bounds them.
    """

    name: str
    at: str
    input: Input

    @property
    def in_mlp(self) -> bool:
        """Whether it is left out of attention tickets."""
        return self.name.startswith("mlp")

    def linear(self) -> "Sequence[LinearMap]":
        """Return the linear maps it is made of, as separate parts."""
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Refuse a model whose configuration the part does not support."""
        self.input.check(config)

    def reads(self, layer: Layer) -> dict[str, Input]:
        """Return the linear maps that read its inputs, by place, and the source of these inputs."""
        return {layer.place(self.at): self.input}

    def largest_input(self, layer: Layer) -> float:
        """Bound the norm of its inputs, whatever the model reads."""
        return max(input.largest(layer) for input in self.reads(layer).values())

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Return by name all of the model's numbers that masks and certificate depend on."""
        return self.input.tensors(layer, f"{self.name.rpartition('.')[0] or self.name}_norm")

    def describe(self, layer: Layer) -> PartSettings:
        """Return its settings for a ticket's architecture, the same for all layers."""
        return {}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """Split it into pieces of work with the given items, seed and device."""
        raise NotImplementedError

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Return the biases that a ticket keeps unchanged; their names follow the part's own."""
        raise NotImplementedError

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, PartNorms]:
        """Bound its error on inputs of at most that norm, from its solved pieces; return details too."""
        raise NotImplementedError

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket | None, mode: Mode) -> None:
        """Put the ticket's matrices in its place; without a ticket, the model's own in the form that a ticket has."""
        raise NotImplementedError

    def branch(self) -> Input | None:
        """Return what a branch of the layer reads, if this part ends one: its outputs are added to the residual."""
        return None

    def through(self, layer: Layer, followed: Followed) -> Through:
        """Follow given samples through the branch that it ends."""
        raise NotImplementedError

    def output(self, layer: Layer) -> nn.Module:
        """Return the module that gives the part's outputs; `at` is the one that takes its inputs."""
        return layer.module(self.at)

    def apply(self, layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """Run the part as in the model."""
        return layer.module(self.at)(*args, **kwargs)


@dataclass(frozen=True)
class LinearMap(Part):
    """One linear map, replaced by the product of two random matrices (Lemma 7)."""

    def read(self, layer: Layer) -> Affine:
        """Return its numbers."""
        return layer.linear_map(self.at)

    def linear(self) -> "Sequence[LinearMap]":
        """Return the map alone, without the ReLU of a `ReluPair`."""
        return [LinearMap(self.name, self.at, self.input)]

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Return weight, bias and the numbers that bound the inputs, by name."""
        # Maps of an MLP have always been hashed without this prefix.
        return self.read(layer).named(self.name.removeprefix("mlp.")) | super().tensors(layer)

    def describe(self, layer: Layer) -> PartSettings:
        """List it as linear: there is no ReLU between its two matrices."""
        return {"linear": [self.name]}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """Return one piece for the whole map."""
        name, weight = f"{layer.name}.{self.name}", numbers(self.read(layer).weight)
        product, factors = self._product(name, weight.shape, settings["items"]), Factors(weight)
        return [Piece(name=name, products={"map": product}, factors={"map": factors}, norms=_norms, **settings)]

    def map(self, layer: Layer, followed: Followed) -> Map:
        """Return it with the ticket's error on it."""
        weight, bias = self.read(layer)
        errors = followed.errors(f"{layer.name}.{self.name}")
        return map_of(weight, bias, errors[0]["map"] if errors else None)

    def branch(self) -> Input | None:
        """Return what an MLP or attention reads, if the map is its last."""
        return self.input.branch()

    def through(self, layer: Layer, followed: Followed) -> Through:
        """Follow given samples through the branch that it ends."""
        return self.input.through(layer, self, followed)

    def _product(self, name: str, shape: Sequence[int], items: int) -> Product:
        """Describe two random matrices for a map (out, in)."""
        d_out, d_in = shape
        first, second = layer_matrices(f"{name}.", d_in, d_out, items * d_in, INIT)
        return Product(blocked=first, free=second)

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Return its own bias."""
        bias = self.read(layer).bias
        return {} if bias is None else {"bias": bias}

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, PartNorms]:
        """Multiply the error's norm by the input's."""
        norms = LinearNorms(**solved[0].norms)
        return propagate_feedforward(Envelope(input_norm), [norms]).error, {"norm": norms.norm}

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket | None, mode: Mode) -> None:
        """Replace it by the product, or by both random matrices."""
        (piece,), own = pieces, layer.module(self.at)
        like = weight_of(own)
        if ticket is None:
            weight, bias = self.read(layer)
            layer.put(self.at, frozen_like(own, weight, bias))
            return
        bias = exact_bias(ticket, f"{piece.name}.bias", like)
        product = piece.products["map"]
        if mode == "literal":
            names = [matrix.name for matrix in piece.matrices()]
            layer.put(self.at, RandomPair(ticket, names, bias, relu=product.relu))
            return
        weight = multiply_out(ticket, product, like.device)
        put = frozen_linear(weight, bias, like, BySigns) if product.relu else frozen_like(own, weight, bias)
        layer.put(self.at, put)


@dataclass(frozen=True)
class ReluPair(LinearMap):
    """One linear map, replaced by two random layers with a ReLU between them (Lemma 2)."""

    def describe(self, layer: Layer) -> PartSettings:
        """Return nothing: this is the default for maps of an MLP."""
        return {}

    def _product(self, name: str, shape: Sequence[int], items: int) -> Product:
        """Describe two layers: half of their units carry positive inputs, which leaves about `items` per sum."""
        return relu_product(name, shape, 2 * items * shape[1], INIT)


def _norms(targets: Mapping[str, Tensor], pruned: Mapping[str, Pruned]) -> dict[str, float]:
    """Compute the norms of the map and of its error."""
    return {"norm": spectral_norm(targets["map"]), "error": pruned["map"].norm()}
