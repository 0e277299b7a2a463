"""A module's parameters as the tensors of a search: their groups, roles, fans and standard deviations."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from strongticket.learn.groups import Groups, Place, groups_of, places_of
from strongticket.learn.policy import CONSTANT_GROUPS, Treatment
from strongticket.learn.roles import key_width_of, output_axis
from strongticket.learn.sites import Found, MakeProbe, find_roles
from strongticket.models.gpt2 import GPT2, INITIAL_STD, Group, initial_scales
from strongticket.ops.rng import Distribution, random_weights
from strongticket.tickets.fused import Cut, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTensor:
    """One tensor of a module: a parameter, or one of several that a parameter holds."""

    name: str  # in the ticket; keys its random numbers
    parameter: str  # the first name of its parameter
    group: Group
    shape: tuple[int, ...]
    fan_in: int
    fan_out: int
    std: float  # for drawing it; not for norms and biases
    constant: float | None  # value of a frozen norm or bias; None for all else
    role: Role | None
    key_width: int | None  # of a query or key, if the module tells
    axis: int  # of its outputs
    cut: Cut | None = None  # how its parameter is split
    part: str = ""  # its name within the parameter
    note: str = ""  # on its role, for people
    refused: bool = False  # it is called a query or a key, but this was not confirmed
    heads: int = 1  # of an attention, if the module tells
    heads_axis: int = 0  # axis of the heads

    def of(self, parameter: Tensor) -> Tensor:
        """Return this part of its parameter: a view, or a copy if it consists of several blocks."""
        return parameter if self.cut is None else self.cut.of(parameter, self.part)

    @property
    def is_query_or_key(self) -> bool:
        """Whether its weights get qk_scale."""
        return self.role in ("query", "key")

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclass(slots=True, kw_only=True, eq=False)
class HiddenTensor:
    """One tensor of a hidden module: how it is treated and drawn, where it is, and what a rule put over it."""

    tensor: ModelTensor
    treatment: Treatment
    seed: int
    distribution: Distribution | None = None  # of its weights; None if constant or trained
    scale: float | None = None  # of its distribution, or the constant; None if trained
    gain: float = 1.0  # factor on a trained tensor's first values
    density: float = 1.0  # fraction of a masked one to keep, after any ramp
    places: tuple[str, ...] = ()  # every name of its parameter
    parameter: nn.Parameter = field(init=False)  # holds the weights as drawn
    module: Any = field(init=False)  # the rule's module over a masked tensor
    scales: nn.Parameter | None = None  # factors on the rule's weights

    @property
    def name(self) -> str:
        """Its name in the ticket."""
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.tensor.shape

    @property
    def weight(self) -> Tensor:
        """The weights under the mask."""
        return self.tensor.of(self.parameter.detach())

    @weight.setter
    def weight(self, value: Tensor) -> None:
        """Replace them, when a rule redraws some."""
        if self.tensor.cut is None:
            self.parameter.data.copy_(value)
        else:
            self.tensor.cut.put(self.parameter.data, self.tensor.part, value)

    def draw(self, number: int = 0) -> Tensor:
        """Draw its weights from its seed: the first draw, or a later one."""
        assert self.distribution is not None
        assert self.scale is not None
        how = self.distribution, self.scale
        return random_weights(self.seed, self.name, self.shape, *how, draw=number, device=self.weight.device)

    def uniform(self, purpose: str) -> Tensor:
        """Draw one number in [-1, 1] per weight for a rule's own purpose, from the stream of that name."""
        return random_weights(self.seed, f"{self.name}.{purpose}", self.shape, device=self.parameter.device)

    def values(self, model: nn.Module) -> Iterator[Tensor]:
        """Yield the weights the module computes with, at each of its places."""
        for place in self.places:
            holder, _, attribute = place.rpartition(".")
            yield self.tensor.of(getattr(model.get_submodule(holder), attribute).detach())


def tensors_of(
    model: nn.Module, groups: Groups | None = None, probe: MakeProbe = lambda: "nobody asked"
) -> list[ModelTensor]:
    """List the tensors of a module, in parameter order; a tied parameter is one tensor.

    Args:
        model: any module.
        groups: the caller's groups for some parameters, see `groups_of`.
        probe: for checking roles, see `find_roles`.
    """
    known = initial_scales(model.config) if type(model) is GPT2 else {}
    stds = {name: std for name, (_, std) in known.items()}
    places = {name: tied[0] for name, tied in places_of(model).items()}
    groups_found = groups_of(model, groups)
    roles = find_roles(places, groups_found, (lambda: "") if type(model) is GPT2 else probe)
    return [
        tensor
        for name, group in groups_found.items()
        for tensor in _tensors_of_parameter(places[name], group, roles.get(name, Found()), stds)
    ]


def _tensors_of_parameter(place: Place, group: Group, found: Found, stds: Mapping[str, float]) -> Iterator[ModelTensor]:
    parameter, cut = place.parameter.detach(), found.cut
    axis = output_axis(place.holder) if cut is None else cut.axis
    for part in [""] if cut is None else cut.names():
        view = parameter if cut is None else cut.of(parameter, part)
        role = found.role_of(part)
        fan_in, fan_out = _fans(view, group, axis)
        yield ModelTensor(
            name=f"{place.name}.{part}" if part else place.name,
            parameter=place.name,
            group=group,
            shape=tuple(view.shape),
            fan_in=fan_in,
            fan_out=fan_out,
            std=stds.get(place.name) or _own_std(view, group, fan_in),
            constant=_constant(place, view, group) if group in CONSTANT_GROUPS else None,
            role=role,
            key_width=key_width_of(place, role, view.shape[axis]) if role in ("query", "key") else None,
            axis=axis,
            cut=cut,
            part=part,
            note=found.note_of(part),
            refused=found.refused,
            **_heads(place, group, role, view, axis),
        )


def _heads(place: Place, group: Group, role: Role | None, view: Tensor, axis: int) -> dict[str, int]:
    """Count the heads: side by side in the outputs of a query, key or value, and in the inputs of the last matrix."""
    if group != "attention" or view.dim() != 2:
        return {}
    heads_axis = axis if role in ("query", "key", "value") else 1 - axis
    width = key_width_of(place, role or "value", size := view.shape[heads_axis])
    return {"heads": size // width, "heads_axis": heads_axis} if width and size % width == 0 else {}


def _fans(view: Tensor, group: Group, axis: int) -> tuple[int, int]:
    """Return inputs per output and outputs per input; an embedding's width counts as its inputs."""
    if view.dim() < 2 or group == "embeddings":
        width = view.shape[-1] if view.dim() else 1
        return max(width, 1), max(view.numel() // max(width, 1), 1)
    field = math.prod(view.shape[2:])
    return max(view.shape[1 - axis] * field, 1), max(view.shape[axis] * field, 1)


def _own_std(view: Tensor, group: Group, fan_in: int) -> float:
    """Return a tensor's own standard deviation, or torch's default for a layer if its numbers are all equal."""
    std = view.float().std(correction=0).item() if view.numel() else 0.0
    if not (math.isfinite(std) and std > 0):
        return INITIAL_STD if group == "embeddings" else 1 / math.sqrt(3 * fan_in)
    # Four digits: sums in another order, as on another device, draw the same tensor.
    return float(f"{std:.4g}")


def _constant(place: Place, view: Tensor, group: Group) -> float:
    """Return the value of a frozen norm or bias: 0 for biases; for scales 1, or their common value if all are equal."""
    if group == "biases" or "bias" in place.attribute:
        return 0.0
    # Some norms count from 0 and some scales start small, as a freshly constructed module shows.
    first = view.flatten()[:1]
    return first.item() if first.numel() and bool((view == first).all()) else 1.0
