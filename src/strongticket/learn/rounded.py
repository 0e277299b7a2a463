"""Trained weights in few bits, the rivals of tickets: rounded in every step, and stored exactly as used.

A matrix is whole numbers times scales: 8, 4 or 3 bits, scaled per output by its largest weight; or ternary and binary
(BitNet, Wang et al., 2023 and 2024), scaled per tensor by its mean magnitude, an embedding per token. Scales, norms and
biases have 16 bits. The gradient ignores the rounding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from strongticket.learn.config import Stored
from strongticket.learn.learner import Dense
from strongticket.models.gpt2 import GPT2, Group, group_of
from strongticket.ops.supermask.reference import straight_through

# The whole numbers that a weight is rounded to, unless it is a bfloat16.
GRIDS: Mapping[Stored, tuple[int, ...]] = {
    "int8": tuple(range(-127, 128)),
    "int4": tuple(range(-7, 8)),
    "int3": tuple(range(-3, 4)),
    "ternary": (-1, 0, 1),
    "binary": (-1, 1),
}
_LEAST_SCALE = 2.0**-100  # of a row that is all 0


def to_bfloat16(x: Tensor) -> Tensor:
    """Round float32 to bfloat16 values, as float32: by bits, since a compiler removes a pair of casts."""
    return ((x.view(torch.int32) + 0x8000) & -0x10000).view(torch.float32)


@dataclass(frozen=True, slots=True)
class Coded:
    """A matrix as stored: whole numbers, in its shape, and the scales that multiply them."""

    codes: Tensor
    scales: Tensor


def coded(weight: Tensor, stored: Stored, group: Group) -> Coded:
    """Round a matrix (outputs, inputs) to whole numbers times scales."""
    most, sizes = GRIDS[stored][-1], weight.abs()
    if most > 1:
        scales = sizes.amax(dim=1, keepdim=True) / most
    else:
        scales = sizes.mean(dim=1, keepdim=True) if group == "embeddings" else sizes.mean().expand(1, 1)
    scales = to_bfloat16(scales).clamp(min=_LEAST_SCALE)
    if stored == "binary":
        return Coded(torch.where(weight < 0, -1.0, 1.0), scales)
    return Coded((weight / scales).round().clamp(-most, most), scales)


class Rounding(nn.Module):
    """A parametrization that replaces a weight by its stored value."""

    def __init__(self, stored: Stored, group: Group) -> None:
        super().__init__()
        self.stored, self.group = stored, group

    def forward(self, weight: Tensor) -> Tensor:
        """Return the rounded weight."""
        return straight_through(weight, self.rounded(weight.detach()))

    def rounded(self, weight: Tensor) -> Tensor:
        """Round a matrix as chosen, anything else to bfloat16."""
        if self.stored == "bfloat16" or weight.dim() < 2:
            return to_bfloat16(weight)
        found = coded(weight, self.stored, self.group)
        return found.codes * found.scales  # at most 7 bits times 8: exact


class Rounded(Dense):
    """A GPT-2 trained with all its numbers rounded."""

    def __init__(self, model: GPT2, stored: Stored) -> None:
        super().__init__(model)
        self.stored = stored
        # The trained parameters by their usual names; a parametrization renames them.
        self.latent = dict(model.named_parameters())
        for name in self.latent:
            holder, _, attribute = name.rpartition(".")
            register_parametrization(model.get_submodule(holder), attribute, Rounding(stored, group_of(name)))

    def rounded(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor as the network uses it."""
        for name, latent in self.latent.items():
            yield name, Rounding(self.stored, group_of(name)).rounded(latent.detach())

    def counts(self) -> Mapping[Group, int]:
        """Count the weights not rounded to 0."""
        counts: dict[Group, int] = dict.fromkeys(map(group_of, self.latent), 0)
        for name, weight in self.rounded():
            counts[group_of(name)] += int(weight.count_nonzero())
        return counts
