r"""Bernoulli supermasks (Zhou et al., 2019): a weight is kept with probability $\sigma(s)$, drawn every step.

The gradient treats the draw as its probability. The density is only the start. A draw follows from seed, name and step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from strongticket.learn.rules.rule import Rule, Table, scored_weight
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask, draw_mask, set_sigmoids


class Sampled(Supermask):
    """Keeps the weights of the last draw; in evaluation, with `final="threshold"`, those with positive scores."""

    def __init__(self, scores: Tensor, rule: "Bernoulli") -> None:
        super().__init__(scores, density=1.0)
        self.rule, self.p = rule, nn.Buffer(scores.sigmoid(), persistent=False)

    def chosen(self, searching: bool) -> tuple[Tensor, Tensor | float]:
        """Return the mask and the factor on kept weights."""
        mask = self.mask if searching or self.rule.final == "sample" else self.scores.detach() > 0
        return mask, max(1, mask.numel()) / mask.sum().clamp(min=1) if self.rule.rescale else 1.0

    def forward(self, weight: Tensor) -> Tensor:
        """Return the kept weights."""
        mask, factor = self.chosen(searching=self.training)
        scaled = factor * weight if self.rule.rescale else weight
        return scored_weight(scaled, self.scores, mask, "sigmoid", sigmoids=self.p)


@dataclass
class Bernoulli(Rule):
    """Draw each mask by its probabilities; the result is the last draw, or the weights more likely kept than not."""

    final: Literal["sample", "threshold"] = "sample"
    rescale: bool = False  # multiply kept weights by all / kept
    name = "bernoulli"
    ignored = ("scope", "signed", "density_steps")
    default_lr = 0.1  # scores are log-odds, which must move by about 1

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Sampled:
        """Start with probabilities around the density."""
        odds = min(tensor.density, 0.999)  # 1 has no finite score
        return Sampled(scores + math.log(odds / (1 - odds)), self)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Draw the mask of a step."""
        for t, module in ((tensor, tensor.module) for tensor in tensors):
            draw_mask(module.mask, set_sigmoids(module.p, module.scores), t.seed, f"{t.name}.sample-{step}")

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return the mask and its factor."""
        mask, factor = tensor.module.chosen(searching=False)
        return mask, ((0.0, 0), (float(factor), 0))
