"""Gem-Miner (Sreenivasan et al., 2022): scores in [0, 1] are rounded, pulled to 0, and the lowest frozen there.

A weight is kept if its score is 0.5 or more; the gradient ignores the rounding. Every `every` steps the lowest are
frozen as dropped, down to the density: at once, or along a ramp of `density_steps`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import KEEP_OR_DROP, Table, scored_weight, with_gradients, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask, at_least_half, clamp_kept, pull_kept


class Rounded(Supermask):
    """Keeps weights whose scores round to 1; `mask` marks those not frozen."""

    def forward(self, weight: Tensor) -> Tensor:
        """Return the kept weights."""
        return scored_weight(weight, self.scores, at_least_half(self.scores), "score")


@dataclass
class GemMiner(EdgePopup):
    """Freeze by rank, keep by rounding."""

    every: int = within(100, 1)  # steps
    l2: float = within(1e-4, 0)

    name = "gem-miner"
    ignored = ("signed", "score_init")

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Rounded:
        """Start with scores uniform in [0, 1], none frozen."""
        return Rounded((tensor.uniform("scores") + 1) / 2, self.density_at(tensor, 0), signed=True)

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Pull scores toward 0; frozen ones have no gradient."""
        for module in with_gradients(tensors):
            pull_kept(module.scores.grad, module.scores, module.mask, self.l2)

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Clamp the scores to their range, and freeze the lowest when due."""
        for freezing in (False, True) if step % self.every == 0 else (False,):
            if freezing:
                super().after_restore(tensors, step)
            for tensor in tensors:
                clamp_kept(tensor.module.scores.data, tensor.module.mask)  # frozen scores are -1, below all others

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Recognize frozen weights by their scores."""
        for tensor in tensors:
            tensor.module.mask.copy_(tensor.module.scores.detach() >= 0)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Round the scores."""
        return at_least_half(tensor.module.scores), KEEP_OR_DROP
