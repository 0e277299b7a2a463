"""A module's parameters as the tensors a search deals with: group, own deviation, what is a query or a key."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Group, group_of, initial_scales
from strongticket.search.policy import CONSTANT_GROUPS


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTensor:
    """One tensor of a module: a parameter, or one of the equal pieces that a parameter holds side by side."""

    name: str  # in the ticket; keys its random numbers
    parameter: str  # the parameter that holds it
    group: Group
    shape: tuple[int, ...]
    fan_in: int
    fan_out: int
    std: float  # standard deviation to draw it with; 0 for norms and biases
    constant: float | None = None  # what a norm or bias is if frozen
    is_query_or_key: bool = False
    key_width: int | None = None  # width of a head, for a query or key where the module tells it
    piece: int = 0
    pieces: int = 1
    axis: int = 0  # along which the pieces lie

    def of(self, parameter: Tensor) -> Tensor:
        """Give this tensor's view of its parameter."""
        return parameter.chunk(self.pieces, dim=self.axis)[self.piece] if self.pieces > 1 else parameter


def tensors_of(model: nn.Module) -> list[ModelTensor]:
    """List the tensors of a module, in the order of its parameters."""
    if type(model) is not GPT2:
        raise NotImplementedError(f"only our GPT2 so far; got {type(model).__name__}.")
    return _tensors_of_gpt2(model)


def holders_of(model: nn.Module) -> Mapping[str, list[tuple[nn.Module, str]]]:
    """Give, for the first name of each parameter, the modules that hold it and what they call it."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    holders: dict[str, list[tuple[nn.Module, str]]] = {name: [] for name in names.values()}
    for module in model.modules():
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            holders[names[id(parameter)]].append((module, attribute))
    return holders


def _tensors_of_gpt2(model: GPT2) -> list[ModelTensor]:
    scales = initial_scales(model.config)
    tensors = []
    for name, parameter in model.named_parameters():
        group, shape = group_of(name), tuple(parameter.shape)
        is_query_or_key = name.endswith(("attention.query.weight", "attention.key.weight"))
        tensors.append(
            ModelTensor(
                name=name,
                parameter=name,
                group=group,
                shape=shape,
                fan_in=shape[-1],
                fan_out=shape[0],
                std=scales[name][1] if name in scales else 0.0,
                constant=float(not name.endswith("bias")) if group in CONSTANT_GROUPS else None,
                is_query_or_key=is_query_or_key,
                key_width=model.config.key_width if is_query_or_key else None,
            )
        )
    return tensors
