"""Few learned factors over a masked tensor: one for all of it, for each head, block or output."""

import torch
from torch import Tensor, nn

from strongticket.learn.policy import Scales
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.tickets.tensors import spread

BLOCK = 64  # by as many weights have a scale of their own


def scales_of(hidden: HiddenTensor, kind: Scales) -> nn.Parameter | None:
    """Give a masked tensor its scales, all 1 at first."""
    if kind == "none":
        return None
    return nn.Parameter(torch.ones(_shape(hidden.tensor, kind), device=hidden.weight.device))


def _shape(tensor: ModelTensor, kind: Scales) -> list[int]:
    """How many scales there are along each axis."""
    shape = [1] * len(tensor.shape)
    if kind == "block":
        return [-(-size // BLOCK) if axis < 2 else 1 for axis, size in enumerate(tensor.shape)]
    if kind == "head" and tensor.heads > 1:
        shape[tensor.heads_axis] = tensor.heads
    elif kind == "output" and len(shape) > 1:
        # An embedding gives features, whatever number of tokens it is asked for.
        axis = 1 if tensor.group == "embeddings" else tensor.axis
        shape[axis] = tensor.shape[axis]
    return shape


class Scaled(nn.Module):
    """What a rule makes of a tensor, times the scales."""

    def __init__(self, rule: nn.Module, scales: nn.Parameter) -> None:
        super().__init__()
        self.rule, self.scales = rule, scales

    def forward(self, weight: Tensor) -> Tensor:
        """Scale what the rule gives."""
        masked: Tensor = self.rule(weight)
        # In float32, as a ticket does it.
        return (masked.float() * spread(self.scales, masked.shape)).to(masked.dtype)
