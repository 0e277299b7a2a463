r"""Edge-popup (Ramanujan et al., 2020): each weight has a score, and those with the highest $|s|$ are kept.

The gradient of a score is that of its masked weight times the weight: the ranking is ignored.
"""

from collections.abc import Sequence

from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.rule import KEEP_OR_DROP, Rule, Table
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Refresh, Supermask


class EdgePopup(Rule):
    """Keep the policy's density of each tensor, or of all together; the base of other rules that rank scores."""

    name = "edge-popup"

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Prepare the ranking."""
        super().begin(tensors, policy)
        self.rank = Refresh([tensor.module for tensor in tensors], policy.scope)

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Supermask:
        """Make a supermask."""
        return Supermask(scores, self.density_at(tensor, 0), signed=self.policy.signed)

    def density_at(self, tensor: HiddenTensor, step: int) -> float:
        """Return the density of a tensor after a step."""
        return self.policy.density_at(step, tensor.density)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, with the density of the step if there is a ramp."""
        for tensor in tensors if self.policy.density_steps else ():
            tensor.module.density = self.density_at(tensor, step)
        self.rank()

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return the mask."""
        return tensor.module.mask, KEEP_OR_DROP
