r"""Continuous sparsification (Savarese et al., 2020): a weight is multiplied by $\sigma(\beta s)$; $\beta$ grows."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from strongticket.learn.rules.rule import KEEP_OR_DROP, Rule, Table, scored_weight, with_gradients, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import add_slopes, dropped_count, set_sigmoids


class Soft(nn.Module):
    """Multiplies weights by factors in (0, 1) while searching, and by 0 or 1 in evaluation."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores, self.sharpness = nn.Parameter(scores), nn.Buffer(scores.new_ones(()), persistent=False)
        self.p = nn.Buffer(scores.sigmoid(), persistent=False)  # the factors

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weights times their factors."""
        factors = None if self.training else self.scores.detach() > 0
        return scored_weight(weight, self.scores, factors, "sigmoid", sigmoids=self.p, sharpness=self.sharpness)


@dataclass
class Relaxed(Rule):
    """Sharpen the factors over `steps`, with a penalty on their sum; weights with factors above one half are kept."""

    steps: int = within(1000, 1)  # until the factors are sharpest
    sharpness: float = within(200.0, 1)  # at that step
    penalty: float = within(1e-5, 0)  # on the sum of the factors

    name = "relaxed"
    ignored = ("scope", "signed", "density_steps")

    def remark(self, steps: int) -> str | None:
        """Warn if the search ends before the factors are sharp."""
        long = f"the rule relaxed sharpens its masks over {self.steps:,} steps, but the search ends after {steps:,}"
        return f"{long}, when they are still soft. Use relaxed:steps={steps}." if steps < self.steps else None

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Soft:
        """Shift the first scores so that a fraction `density` is above 0."""
        dropped = max(1, dropped_count(scores.numel(), tensor.density))
        return Soft(scores - scores.flatten().kthvalue(dropped).values if scores.numel() else scores)

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Add the gradient of the penalty."""
        for module in with_gradients(tensors):
            add_slopes(module.scores.grad, module.p, self.penalty * module.sharpness)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Set the sharpness of the step, and the factors."""
        for module in (tensor.module for tensor in tensors):
            set_sigmoids(module.p, module.scores, module.sharpness.fill_(self.sharpness ** min(1.0, step / self.steps)))

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Keep weights with scores above 0."""
        return tensor.module.scores.detach() > 0, KEEP_OR_DROP
