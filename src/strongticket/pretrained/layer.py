"""One layer of a model: the modules at a part's places, and their numbers."""

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from strongticket.errors import StrongTicketError

# Conv1D is GPT-2's own linear map, which keeps (in, out).
LINEAR_MAPS = ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear")


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

    def place(self, path: str) -> str:
        """Give a path from the backbone on: of "norm" in this layer, "../norm" in the one before, "/norm" outside."""
        if path.startswith("/"):
            return path[1:]
        if not self.layers:  # the model is its only layer
            return path
        back = path.startswith("../")
        return f"{self.layers}.{self.index - back}.{path.removeprefix('../')}".rstrip(".")

    def module(self, path: str) -> nn.Module:
        """Give the module at a path."""
        return submodule(self.backbone, self.place(path), self.config)

    def put(self, path: str, module: nn.Module) -> None:
        """Exchange the module at a path."""
        self.backbone.set_submodule(self.place(path), module)

    def linear_map(self, path: str) -> Affine:
        """Read a linear map."""
        kind = type(module := self.module(path)).__name__
        if kind not in LINEAR_MAPS:
            raise StrongTicketError(
                f"a linear map was expected where the model has a {kind}; is it quantised, or wrapped?"
            )
        read = _numbers(self.place(path), module)
        return read._replace(weight=read.weight.T) if kind == "Conv1D" else read

    def norm(self, path: str) -> Affine:
        """Read gain and shift of a LayerNorm or a root-mean-square norm; it may be outside the layer.

        What it is called says little: Gemma's multiply by 1 plus their weights. So it is tried.
        """
        module = self.module(path)
        if getattr(module, "weight", None) is None and isinstance(module, nn.LayerNorm):
            return Affine(torch.ones(math.prod(module.normalized_shape), device="cpu"), None)
        read = _numbers(self.place(path), module)
        if read.weight.is_meta or _normalises(module, read):
            return read
        # Rounded up, since a bound is made of it.
        one_more = (1 + read.weight.double()).nextafter(read.weight.double().sign() * math.inf)
        if _normalises(module, read._replace(weight=one_more)):
            return read._replace(weight=one_more)
        raise StrongTicketError(f"a LayerNorm was expected where the model has a {type(module).__name__}.")


def _numbers(place: str, module: nn.Module) -> Affine:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor):
        raise StrongTicketError(f"the {type(module).__name__} at {place!r} has no weight.")
    return Affine(_plain(weight), _plain(bias) if bias is not None else None)


@torch.no_grad()
def _normalises(module: nn.Module, read: Affine) -> bool:
    """Try whether a module divides by a root of squares, with the mean taken off or not, and then has this gain."""
    if read.weight.dim() != 1:
        return False
    gain, shift = read.weight.double(), 0.0 if read.bias is None else read.bias.double()
    generator = torch.Generator("cpu").manual_seed(0)
    # So large that what a norm adds to the squares does not show.
    x = 1e4 * (1 + torch.randn(3, 2, len(gain), generator=generator, dtype=torch.float64, device="cpu"))
    try:
        # Not by a call, which would run what others have hooked to it.
        y = copy.deepcopy(module).cpu().double().forward(x)
    except RuntimeError:
        return False
    each = (z / z.square().mean(dim=-1, keepdim=True).sqrt() * gain + shift for z in (x, x - x.mean(-1, keepdim=True)))
    return any(y.shape == z.shape and torch.allclose(y.double(), z, rtol=1e-4, atol=1e-4) for z in each)


def submodule(backbone: nn.Module, place: str, config: Any) -> nn.Module:
    """Give the module at a place, or say that the model is not laid out as its family says."""
    try:
        return backbone.get_submodule(place)
    except AttributeError:
        raise StrongTicketError(
            f"this {config.model_type} has no {place!r}: its family was described for another layout. "
            "docs/adding-a-model.md shows how to describe one."
        ) from None


def numbers(tensor: Tensor) -> NDArray[np.float32]:
    """Give numbers as a piece has them; those of a model on meta have shapes alone, which takes no memory."""
    return np.broadcast_to(np.float32(0), tensor.shape) if tensor.is_meta else tensor.numpy()


def _plain(tensor: Tensor) -> Tensor:
    """Take numbers as float32 on the CPU, exactly: products of two of them are then exact in float64."""
    if tensor.is_meta:
        return tensor.detach()  # for `check_target` to refuse by its name
    plain = tensor.detach().resolve_neg().cpu().float()
    same = tensor.dtype != torch.float64 or torch.allclose(plain.double(), tensor.detach().cpu(), 0, 0, equal_nan=True)
    if not same:
        raise StrongTicketError("a target's weights must be float32 numbers; these float64 ones are not. Use float().")
    return plain
