"""Signed supermasks (Koster et al., 2022): each weight is kept, dropped or flipped, according to its score."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table, scored_weight, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask, dropped_count


class SignedMask(Supermask):
    """Multiplies a weight by 1, 0 or -1, according to its score."""

    threshold: float | None

    def kept(self) -> Tensor:
        """Return which weights are kept or flipped."""
        return self.mask if self.threshold is None else self.scores.detach().tanh().abs() > self.threshold

    def forward(self, weight: Tensor) -> Tensor:
        """Return the signed weight."""
        return scored_weight(weight, self.scores, self.kept(), "tanh", signs=True)


@dataclass
class Signed(EdgePopup):
    """Keep weights with high scores, flip those with low scores, and drop those in between."""

    threshold: float | None = within(None, 0, 0.99)  # on |tanh(score)|, as published; None ranks |score|
    name = "signed"
    ignored = ("signed",)

    def check(self, densities: Mapping[str, float], policy: Policy) -> None:
        """Refuse settings of the ranking if a threshold decides."""
        super().check(densities, policy)
        self.refuse(() if self.threshold is None else ("scope", "density_steps"), policy)

    def over(self, tensor: HiddenTensor, scores: Tensor) -> SignedMask:
        """Make a signed mask; with a threshold, scale the first scores so that a fraction `density` exceeds it."""
        if self.threshold and scores.numel():
            lowest = scores.abs().flatten().kthvalue(1 + dropped_count(scores.numel(), tensor.density)).values
            scores = scores * (1.0001 * math.atanh(self.threshold) / lowest)
        mask = SignedMask(scores, self.density_at(tensor, 0))
        mask.threshold = self.threshold
        return mask

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, unless a threshold decides."""
        if self.threshold is None:
            super().after_restore(tensors, step)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Code 0, 1, -1 as 0, 1, 2."""
        signs = tensor.module.scores.detach().sign() * tensor.module.kept()
        return signs.remainder(3).byte(), ((0.0, 0), (1.0, 0), (-1.0, 0))
