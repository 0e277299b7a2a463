"""One layer of a model: the modules at a part's places, and their numbers."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError

# Conv1D is GPT-2's own linear map, which keeps (in, out).
_LINEAR_MAPS = ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear")
# Others of that name may add 1 to their weights, as Gemma's does.
_ROOT_MEAN_SQUARE_NORMS = ("RMSNorm", "LlamaRMSNorm")


class Affine(NamedTuple):
    """A linear map (out, in) with its bias (out,), or the gain and the shift of a norm, on the CPU."""

    weight: Tensor
    bias: Tensor | None

    def chunk(self, n: int) -> "list[Affine]":
        """Cut it into equal ones that stand side by side."""
        biases = self.bias.chunk(n) if self.bias is not None else (None,) * n
        return [Affine(weight, bias) for weight, bias in zip(self.weight.chunk(n), biases, strict=True)]

    def named(self, name: str) -> dict[str, Tensor]:
        """Name the tensors there are."""
        return {f"{name}.{part}": tensor for part, tensor in self._asdict().items() if tensor is not None}

    def length(self) -> float:
        """Bound the norm of the bias."""
        return 0.0 if self.bias is None else float(self.bias.double().norm()) * (1 + 1e-12)


@dataclass(frozen=True, slots=True)
class Layer:
    """One of the layers of a model; paths start there."""

    name: str  # in front of the names of a ticket's tensors
    layers: str  # the path of the list it is in, from the backbone
    index: int  # its place in that list
    backbone: nn.Module  # the model without its head
    config: Any  # of the model, or of its tower or decoder
    _read: dict[str, Affine] = field(default_factory=dict)

    def place(self, path: str, back: int = 0) -> str:
        """Give a path from the backbone on, in this layer or some layers before it."""
        return f"{self.layers}.{self.index - back}.{path}"

    def module(self, path: str) -> nn.Module:
        """Give the module at a path."""
        return submodule(self.backbone, self.place(path), self.config)

    def put(self, path: str, module: nn.Module) -> None:
        """Exchange the module at a path."""
        self.backbone.set_submodule(self.place(path), module)

    def linear_map(self, path: str) -> Affine:
        """Read a linear map, once."""
        place = self.place(path)
        kind = type(module := self.module(path)).__name__
        if kind not in _LINEAR_MAPS:
            raise StrongTicketError(
                f"a linear map was expected where the model has a {kind}; is it quantised, or wrapped?"
            )
        read = self._numbers(place, module)
        return read._replace(weight=read.weight.T) if kind == "Conv1D" else read

    def norm(self, place: str) -> Affine:
        """Read gain and shift of a LayerNorm or a root-mean-square norm, once; it may be outside the layer."""
        kind = type(module := submodule(self.backbone, place, self.config)).__name__
        if "LayerNorm" not in kind and kind not in _ROOT_MEAN_SQUARE_NORMS:
            raise StrongTicketError(f"a LayerNorm was expected where the model has a {kind}.")
        return self._numbers(place, module)

    def _numbers(self, place: str, module: nn.Module) -> Affine:
        if place not in self._read:
            weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
            if not isinstance(weight, Tensor):
                raise StrongTicketError(f"the {type(module).__name__} at {place!r} has no weight.")
            self._read[place] = Affine(_plain(weight), _plain(bias) if bias is not None else None)
        return self._read[place]


def submodule(backbone: nn.Module, place: str, config: Any) -> nn.Module:
    """Give the module at a place, or say that the model is not laid out as its family says."""
    try:
        return backbone.get_submodule(place)
    except AttributeError:
        raise StrongTicketError(
            f"this {config.model_type} has no {place!r}: its family was described for another layout. "
            "docs/adding-a-model.md shows how to describe one."
        ) from None


def _plain(tensor: Tensor) -> Tensor:
    """Take numbers as float32 on the CPU, exactly: products of two of them are then exact in float64."""
    if tensor.is_meta:
        return tensor.detach()  # for `check_target` to refuse by its name
    plain = tensor.detach().resolve_neg().cpu().float()
    same = tensor.dtype != torch.float64 or torch.allclose(plain.double(), tensor.detach().cpu(), 0, 0, equal_nan=True)
    if not same:
        raise StrongTicketError("a target's weights must be float32 numbers; these float64 ones are not. Use float().")
    return plain
