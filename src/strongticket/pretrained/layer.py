"""One layer of a model: the modules at given paths, and their numbers."""

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
    """A linear map (out, in) with its bias (out,), or the gain and shift of a norm, on the CPU."""

    weight: Tensor
    bias: Tensor | None

    def chunk(self, n: int) -> "list[Affine]":
        """Split it into n equal maps along the outputs."""
        biases = self.bias.chunk(n) if self.bias is not None else (None,) * n
        return [Affine(weight, bias) for weight, bias in zip(self.weight.chunk(n), biases, strict=True)]

    def named(self, name: str) -> dict[str, Tensor]:
        """Return the tensors that exist, by name."""
        return {f"{name}.{part}": tensor for part, tensor in self._asdict().items() if tensor is not None}

    def length(self) -> float:
        """Bound the norm of the bias."""
        return 0.0 if self.bias is None else float(self.bias.double().norm()) * (1 + 1e-12)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a model; paths start from it."""

    name: str  # the prefix of its tensors' names in a ticket
    layers: str  # the path of its list of layers, from the backbone
    index: int  # its position in that list
    backbone: nn.Module  # the model without its head
    config: Any  # of the model, or of its tower or decoder

    def place(self, path: str) -> str:
        """Return a path from the backbone: "norm" is in this layer, "../norm" in the previous one, "/norm" outside."""
        if path.startswith("/"):
            return path[1:]
        if not self.layers:  # the model is its only layer
            return path
        back = path.startswith("../")
        if back and not self.index:
            raise StrongTicketError(
                f"no layer is before {self.name}: the norm at {path} needs first=, the source of that layer's inputs."
            )
        return f"{self.layers}.{self.index - back}.{path.removeprefix('../')}".rstrip(".")

    def module(self, path: str) -> nn.Module:
        """Return the module at a path."""
        return submodule(self.backbone, self.place(path), self.config)

    def put(self, path: str, module: nn.Module) -> None:
        """Replace the module at a path."""
        self.backbone.set_submodule(self.place(path), module)

    def linear_map(self, path: str) -> Affine:
        """Read a linear map."""
        kind = type(module := self.module(path)).__name__
        if kind not in LINEAR_MAPS:
            raise StrongTicketError(
                f"expected a linear map at {self.place(path)}, but the model has a {kind}; is it quantised or wrapped?"
            )
        read = _numbers(self.place(path), module)
        return read._replace(weight=read.weight.T) if kind == "Conv1D" else read

    def norm(self, path: str) -> Affine:
        """Read the gain and shift of a LayerNorm or a root-mean-square norm; it may be outside the layer.

        Names are not reliable: Gemma's norms multiply by 1 plus their weights. So the module is tried out.
        """
        module = self.module(path)
        if getattr(module, "weight", None) is None and isinstance(module, nn.LayerNorm):
            return Affine(torch.ones(math.prod(module.normalized_shape), device="cpu"), None)
        read = _numbers(self.place(path), module)
        if read.weight.is_meta or _normalises(module, read):
            return read
        # Rounded up, because a bound is computed from it.
        one_more = (1 + read.weight.double()).nextafter(read.weight.double().sign() * math.inf)
        if _normalises(module, read._replace(weight=one_more)):
            return read._replace(weight=one_more)
        raise StrongTicketError(
            f"expected a LayerNorm at {self.place(path)}, but the model has a {type(module).__name__}."
        )


def _numbers(place: str, module: nn.Module) -> Affine:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor):
        raise StrongTicketError(f"the {type(module).__name__} at {place!r} has no weight.")
    return Affine(_plain(weight), _plain(bias) if bias is not None else None)


@torch.no_grad()
def _normalises(module: nn.Module, read: Affine) -> bool:
    """Test whether a module divides by a root mean square, with or without the mean removed, and has this gain."""
    if read.weight.dim() != 1:
        return False
    gain, shift = read.weight.double(), 0.0 if read.bias is None else read.bias.double()
    generator = torch.Generator("cpu").manual_seed(0)
    # Large enough that a norm's epsilon is negligible.
    x = 1e4 * (1 + torch.randn(3, 2, len(gain), generator=generator, dtype=torch.float64, device="cpu"))
    try:
        # `forward` rather than a call, which would run hooks.
        y = copy.deepcopy(module).cpu().double().forward(x)
    except RuntimeError:
        return False
    each = (z / z.square().mean(dim=-1, keepdim=True).sqrt() * gain + shift for z in (x, x - x.mean(-1, keepdim=True)))
    return any(y.shape == z.shape and torch.allclose(y.double(), z, rtol=1e-4, atol=1e-4) for z in each)


def submodule(backbone: nn.Module, place: str, config: Any) -> nn.Module:
    """Return the module at a place, or raise if the model's layout is not its family's."""
    try:
        return backbone.get_submodule(place)
    except AttributeError:
        raise StrongTicketError(
            f"this {config.model_type} has no {place!r}: its family was described for another layout. "
            "docs/adding-a-model.md shows how to describe one."
        ) from None


def numbers(tensor: Tensor) -> NDArray[np.float32]:
    """Convert numbers for a piece; a model on meta has only shapes, which take no memory."""
    return np.broadcast_to(np.float32(0), tensor.shape) if tensor.is_meta else tensor.numpy()


def _plain(tensor: Tensor) -> Tensor:
    """Convert numbers exactly to float32 on the CPU, so that products of two of them are exact in float64."""
    if tensor.is_meta:
        return tensor.detach()  # `check_target` refuses it by name
    plain = tensor.detach().resolve_neg().cpu().float()
    same = tensor.dtype != torch.float64 or torch.allclose(plain.double(), tensor.detach().cpu(), 0, 0, equal_nan=True)
    if not same:
        raise StrongTicketError(
            "a target's weights must fit float32; these float64 weights do not. Convert with float()."
        )
    return plain
