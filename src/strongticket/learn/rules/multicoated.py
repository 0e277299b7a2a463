"""Multicoated supermasks (Okoshi et al., 2022): one score per weight, several nested masks.

A weight counts once for each coat that keeps it; each coat keeps a fraction of the last. Gradients are edge-popup's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import MAX_CODES, Table, scored_weight, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Refresh, Supermask


class Coats(Supermask):
    """Multiplies a weight by the number of coats that keep it; `mask` is the last of them."""

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight times its level."""
        return scored_weight(weight, self.scores, self.levels, self.soft)


@dataclass
class Multicoated(EdgePopup):
    """Rank the scores once for each coat."""

    levels: int = within(3, 1, MAX_CODES - 1)  # the most codes of a ticket
    shrink: float = within(0.32, 0.01, 1)  # nearly the published 0.3, 0.0788, 0.0315
    name = "multicoated"

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Prepare a ranking for each coat."""
        super().begin(tensors, policy)
        shares = [self.shrink**coat for coat in range(self.levels)]
        self.rank = Refresh([tensor.module for tensor in tensors], policy.scope, coats=shares)

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Coats:
        """Start without coats."""
        coats = Coats(scores, self.density_at(tensor, 0), signed=self.policy.signed)
        coats.register_buffer("levels", torch.zeros_like(scores, dtype=torch.uint8), persistent=False)
        return coats

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return the levels, which are their own coefficients."""
        return tensor.module.levels, tuple((float(level), 0) for level in range(self.levels + 1))
