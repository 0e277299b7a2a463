"""IteRand (Chijiwa et al., 2021): edge-popup in which some dropped weights are drawn again from time to time.

A weight's value follows from how often it was drawn, which a ticket holds as its code. There are codes for 15 draws,
the first one included: a weight that was drawn so often is not drawn again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import MAX_CODES, Table, within
from strongticket.learn.tensors import HiddenTensor

LAST_DRAW = MAX_CODES - 2  # code 0 is a dropped weight, and draws are counted from 0


@dataclass
class IteRand(EdgePopup):
    """Rank signed scores; every so many steps draw a dropped weight again with some probability."""

    every: int = within(300, 1)  # steps
    rate: float = within(0.1, 0, 1)  # of dropped weights drawn again

    name = "iterand"
    state = ("scores", "draws")

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Begin as edge-popup on signed scores, every weight with its first draw."""
        super().begin(tensors, replace(policy, signed=True))
        for tensor in tensors:
            tensor.module.register_buffer("draws", torch.zeros_like(tensor.weight, dtype=torch.uint8))

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, and draw weights again if it is time to."""
        super().after_restore(tensors, step)
        for tensor in tensors if step % self.every == 0 else ():
            mask, draws = tensor.module.mask, tensor.module.draws
            draws += ~mask & (tensor.uniform(f"again-{step}").abs() < self.rate) & (draws < LAST_DRAW)
            self._draw(tensor, step)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, and bring the weights back."""
        super().after_restore(tensors, step)
        for tensor in tensors:
            self._draw(tensor, step)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Count a kept weight's draws from 1."""
        mask, draws = tensor.module.mask, tensor.module.draws
        last = int(draws.max()) if draws.numel() else 0
        return mask * (draws + 1), ((0.0, 0), *((1.0, draw) for draw in range(last + 1)))

    def _draw(self, tensor: HiddenTensor, step: int) -> None:
        for draw in range(min(step // self.every, LAST_DRAW) + 1):  # as often as it was time to
            tensor.weight = torch.where(tensor.module.draws == draw, tensor.draw(draw), tensor.weight)
