r"""Edge-popup (Ramanujan et al., 2020): a score for each weight, and the weights of the highest $|s|$ are kept.

The gradient of a score is that of its masked weight times the weight, as if the ranking were not there.
"""

from collections.abc import Sequence

from torch import Tensor

from strongticket.learn.draw import draw_scores
from strongticket.learn.policy import Policy
from strongticket.learn.rules.rule import KEEP_OR_DROP, Rule, Table
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Refresh, Supermask


class EdgePopup(Rule):
    """Keep the policy's density of each tensor, or of all together."""

    name = "edge-popup"

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Draw the first scores."""
        supermasks = []
        for tensor in tensors:
            scores = draw_scores(tensor.tensor, policy, tensor.seed, tensor.parameter.device)
            tensor.module = supermask = Supermask(scores, policy.density, signed=policy.signed)
            supermasks.append(supermask)
        self._refresh = Refresh(supermasks, policy.scope)

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores anew."""
        self._refresh()

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores anew."""
        self._refresh()

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Give the mask."""
        mask: Tensor = tensor.module.get_buffer("mask")
        return mask, KEEP_OR_DROP
