r"""Biprop (Diffenderfer and Kailkhura, 2021): the network computes with signs, times one number per tensor.

That number, $\alpha$, is the mean magnitude of the kept weights. The gradient of a score is edge-popup's: that of the
weight, times the full random weight, magnitude included.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from strongticket.learn.draw import weight_distribution
from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table, scored_weight
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.ops.rng import Distribution, random_weights
from strongticket.ops.supermask import Supermask, mean_magnitude


class Binary(Supermask):
    """Gives kept signs their common magnitude."""

    alpha: Tensor
    full: Tensor

    def forward(self, weight: Tensor) -> Tensor:
        """Return each sign times alpha, or 0."""
        return scored_weight(weight, self.scores, self.mask, self.soft, scale=self.alpha, source=self.full)


class Biprop(EdgePopup):
    """Draw signs, which a ticket reproduces, and magnitudes, which only the search needs."""

    name = "biprop"

    def source(self, tensor: ModelTensor, policy: Policy) -> tuple[Distribution, float]:
        """Draw signs."""
        return "sign", 1.0

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Binary:
        """Draw the magnitudes of the weights that the policy would draw."""
        how = weight_distribution(tensor.tensor, replace(self.policy, density=tensor.density))
        drawn = random_weights(tensor.seed, f"{tensor.name}.magnitudes", tensor.shape, *how, device=scores.device)
        binary = Binary(scores, self.density_at(tensor, 0), signed=self.policy.signed)
        binary.register_buffer("full", drawn.abs() * tensor.weight, persistent=False)
        binary.register_buffer("alpha", scores.new_zeros(()), persistent=False)
        return binary

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores and take the means."""
        super().after_restore(tensors, step)
        for binary in (tensor.module for tensor in tensors):
            binary.alpha.fill_(mean_magnitude(binary.full, binary.mask))

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return the mask, with alpha as the coefficient of kept weights."""
        return tensor.module.mask, ((0.0, 0), (tensor.module.alpha.item(), 0))
