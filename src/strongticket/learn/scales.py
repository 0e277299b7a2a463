"""A few learned factors on a masked tensor: one for all of it, or one per head, block or output."""

import torch
from torch import Tensor, nn

from strongticket.learn.policy import Scales
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.tickets.tensors import spread

BLOCK = 64  # rows and columns of a block, at most


def scales_of(hidden: HiddenTensor, kind: Scales) -> nn.Parameter | None:
    """Return a masked tensor's scales, all 1 at first."""
    if kind == "none":
        return None
    return nn.Parameter(torch.ones(_shape(hidden.tensor, kind), device=hidden.weight.device))


def _shape(tensor: ModelTensor, kind: Scales) -> list[int]:
    """Return the number of scales along each axis."""
    shape = [1] * len(tensor.shape)
    if kind == "block":
        return [-(-size // BLOCK) if axis < 2 else 1 for axis, size in enumerate(tensor.shape)]
    if kind == "head" and tensor.heads > 1:
        shape[tensor.heads_axis] = tensor.heads
    elif kind == "output" and len(shape) > 1:
        # An embedding's outputs are its features, not its tokens.
        axis = 1 if tensor.group == "embeddings" else tensor.axis
        shape[axis] = tensor.shape[axis]
    return shape


class Scaled(nn.Module):
    """A rule's weights times the scales."""

    def __init__(self, rule: nn.Module, scales: nn.Parameter) -> None:
        super().__init__()
        self.rule, self.scales = rule, scales

    def forward(self, weight: Tensor) -> Tensor:
        """Scale the rule's weights."""
        masked: Tensor = self.rule(weight)
        # In float32, as in a ticket.
        return (masked.float() * spread(self.scales, masked.shape)).to(masked.dtype)
