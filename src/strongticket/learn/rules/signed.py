"""Signed supermasks (Koster et al., 2022): each weight is kept, dropped or flipped, according to its score.

Weights with the lowest |score| are dropped; or, as published, those with |tanh(score)| below a threshold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table, straight_through, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask


class SignedMask(Supermask):
    """Multiplies a weight by 1, 0 or -1, according to its score."""

    def __init__(self, scores: Tensor, density: float, threshold: float | None) -> None:
        super().__init__(scores, density)
        self.threshold = threshold

    def signs(self) -> Tensor:
        """Return 1, 0 or -1 for each weight."""
        scores = self.scores.detach()
        return scores.sign() * (self.ones if self.threshold is None else scores.tanh().abs() > self.threshold)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the signed weight."""
        return weight * straight_through(self.scores.tanh(), self.signs())


@dataclass
class Signed(EdgePopup):
    """Keep weights with high scores, flip those with low scores, and drop those in between."""

    threshold: float | None = within(None, 0, 1)

    name = "signed"
    ignored = ("signed",)

    def check(self, densities: Mapping[str, float], policy: Policy) -> None:
        """Refuse settings of the ranking if a threshold decides."""
        super().check(densities, policy)
        self.refuse(() if self.threshold is None else ("scope", "density_steps"), policy)

    def over(self, tensor: HiddenTensor, scores: Tensor) -> SignedMask:
        """Make a signed mask."""
        return SignedMask(scores, self.density_at(tensor, 0), self.threshold)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, unless a threshold decides."""
        if self.threshold is None:
            super().after_restore(tensors, step)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Code 0, 1, -1 as 0, 1, 2."""
        return tensor.module.signs().remainder(3).byte(), ((0.0, 0), (1.0, 0), (-1.0, 0))
