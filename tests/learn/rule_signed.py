"""Signed supermasks (Koster et al., 2022), as a rule of one file: each weight is kept, dropped or flipped."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from strongticket.learn.draw import draw_scores
from strongticket.learn.policy import Policy
from strongticket.learn.rules.rule import Rule, Table, straight_through
from strongticket.learn.tensors import HiddenTensor

DROP_KEEP_OR_FLIP: Table = ((0.0, 0), (1.0, 0), (-1.0, 0))


class SignedMask(nn.Module):
    """Turns a weight into itself, 0 or its opposite, as the score of each says."""

    def __init__(self, scores: Tensor, threshold: float) -> None:
        super().__init__()
        self.scores, self.threshold = nn.Parameter(scores), threshold

    def signs(self) -> Tensor:
        """Give 1, 0 or -1 for each weight."""
        soft = self.scores.detach().tanh()
        return soft.sign() * (soft.abs() > self.threshold)

    def forward(self, weight: Tensor) -> Tensor:
        """Give the signed weight; the gradient is that of tanh."""
        return weight * straight_through(self.scores.tanh(), self.signs())


@dataclass
class SignedSupermask(Rule):
    """Keep a weight whose score is high, flip one whose score is low, and drop those between."""

    threshold: float = 0.01

    name = "signed-supermask"

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Draw the first scores."""
        for tensor in tensors:
            scores = draw_scores(tensor.tensor, policy, tensor.seed, tensor.parameter.device)
            tensor.module = SignedMask(scores, self.threshold)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Count 0, 1, -1 as 0, 1, 2."""
        assert isinstance(tensor.module, SignedMask)
        return tensor.module.signs().remainder(3).byte(), DROP_KEEP_OR_FLIP
