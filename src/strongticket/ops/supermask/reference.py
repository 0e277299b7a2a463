r"""The definition of a supermask, as published with edge-popup (Ramanujan et al., 2020), in plain torch.

Scores are ranked by a stable ascending sort of $|s|$ (or of $s$); the lowest $\lfloor (1 - \text{density})\, n \rfloor$
are dropped. So among equal scores the later index is kept, and NaN, which torch sorts above every number, is kept
first. The kernels beside this file must agree with it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

# What the gradient takes a score for: itself, its absolute value, or a function of it.
Soft = Literal["score", "magnitude", "sigmoid", "tanh"]


def dropped_count(numel: int, density: float) -> int:
    """Return how many of `numel` scores are dropped; the float64 product is part of the definition."""
    return int((1 - density) * numel)


def top_mask(scores: Tensor, density: float, *, signed: bool = False) -> Tensor:
    """Keep the top `density` of one tensor's scores."""
    return top_masks([scores], density, signed=signed)[0]


def top_masks(scores: Sequence[Tensor], density: float, *, signed: bool = False) -> list[Tensor]:
    """Keep the top `density` of all tensors' scores, ranked together in this order."""
    flat = torch.cat([s.detach().flatten() for s in scores])
    order = (flat if signed else flat.abs()).sort(stable=True).indices
    mask = torch.ones_like(flat, dtype=torch.bool)
    mask[order[: dropped_count(len(flat), density)]] = False
    parts = torch.split(mask, [s.numel() for s in scores])
    return [m.view(s.shape) for m, s in zip(parts, scores, strict=True)]


def masked_weight(weight: Tensor, scores: Tensor, mask: Tensor, *, signed: bool = False) -> Tensor:
    """Multiply the weight by its mask; the gradient ignores the ranking."""
    return weight * straight_through(scores if signed else scores.abs(), mask)


def straight_through(soft: Tensor, hard: Tensor) -> Tensor:
    """Return `hard` in the type of `soft`, which gets the gradient: rounding and ranking are ignored."""
    value: Tensor = _StraightThrough.apply(soft, hard)  # type: ignore[no-untyped-call]
    return value


def through_soft(gradient: Tensor, scores: Tensor, soft: Soft, sigmoids: Tensor | None) -> Tensor:
    """Return the gradient of the scores from that of a function of them."""
    match soft:
        case "score":
            return gradient
        case "magnitude":
            return gradient * scores.sign()
        case "sigmoid":
            assert sigmoids is not None
            return torch.ops.aten.sigmoid_backward(gradient, sigmoids)  # type: ignore[no-any-return]
        case "tanh":
            return torch.ops.aten.tanh_backward(gradient, scores.tanh())  # type: ignore[no-any-return]


def as_bytes(mask: Tensor) -> Tensor:
    """View a mask as 1 and 0, which a CPU multiplies five times and converts eight times as fast as bools.

    In compiled code both are equally fast, and torch 2.11 cannot compile the view for a GPU: there it is left out.
    """
    return mask if torch.compiler.is_compiling() else mask.view(torch.uint8)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, soft: Tensor, hard: Tensor) -> Tensor:
        return (as_bytes(hard) if hard.dtype == torch.bool else hard).to(soft.dtype)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
