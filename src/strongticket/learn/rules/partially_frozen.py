"""Partially frozen sources (Otsuka et al., 2025): the seed decides on most weights, edge-popup on the rest.

A random map drops and keeps weights before the search, by the density; only the others have scores and take bits.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table, scored_weight, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask
from strongticket.tickets.codes import FREE, Frozen


class Rest(Supermask):
    """A supermask over the free weights; `fixed` has the codes of all, flat."""

    def __init__(self, scores: Tensor, fixed: Tensor, density: float, signed: bool, scaled: bool) -> None:
        free = (fixed == FREE).nonzero().squeeze(1)
        super().__init__(scores.flatten()[free], density, signed=signed)
        self.free, self.always = nn.Buffer(free, persistent=False), nn.Buffer((fixed == 1).byte(), persistent=False)
        self.scaled = scaled

    def chosen(self) -> tuple[Tensor, Tensor | float]:
        """Return the mask of all weights, flat, and the factor on kept weights."""
        full = self.always.index_copy(0, self.free, self.mask.type_as(self.always))
        return full, (max(1, full.numel()) / full.sum().clamp(min=1)).sqrt() if self.scaled else 1.0

    def forward(self, weight: Tensor) -> Tensor:
        """Return the kept weights."""
        full, factor = self.chosen()
        weight = factor * weight if self.scaled else weight
        return scored_weight(weight, self.scores, full.view_as(weight), self.soft, places=self.free)


@dataclass
class PartiallyFrozen(EdgePopup):
    """Rank the free weights."""

    frozen: float = within(0.7, 0.01, 0.99)  # of each tensor
    scale: bool = False  # multiply kept weights by 1 / sqrt(the tensor's density)

    name = "partially-frozen"

    def frozen_part(self, tensor: HiddenTensor) -> Frozen:
        """Return the map: the shares always dropped and always kept."""
        shares = self.frozen * (1 - tensor.density), self.frozen * tensor.density
        return Frozen.of(tensor.seed, tensor.name, shares)

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Rest:
        """Give scores to the free weights."""
        fixed = self.frozen_part(tensor).codes(scores.numel(), scores.device)
        return Rest(scores, fixed, self.density_at(tensor, 0), self.policy.signed, self.scale)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return the whole mask."""
        mask, factor = tensor.module.chosen()
        return mask.view(tensor.shape), ((0.0, 0), (float(factor), 0))
