"""IteRand (Chijiwa et al., 2021): edge-popup that redraws some dropped weights from time to time.

A weight's value follows from how often it was drawn, which is its code in a ticket. There are codes for 15 draws,
including the first; after that a weight is not drawn again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import MAX_CODES, Table, within
from strongticket.learn.tensors import HiddenTensor

LAST_DRAW = MAX_CODES - 2  # code 0 is a dropped weight, and draws count from 0


@dataclass
class IteRand(EdgePopup):
    """Rank signed scores; every `every` steps redraw each dropped weight with probability `rate`."""

    every: int = within(300, 1)  # steps
    rate: float = within(0.1, 0, 1)  # share of dropped weights redrawn

    name = "iterand"
    state = ("scores", "draws")

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Start as edge-popup on signed scores, every weight at its first draw."""
        super().begin(tensors, replace(policy, signed=True))
        for tensor in tensors:
            tensor.module.register_buffer("draws", torch.zeros_like(tensor.weight, dtype=torch.uint8))

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, and redraw weights when due."""
        super().after_restore(tensors, step)
        for tensor in tensors if step % self.every == 0 else ():
            mask, draws = tensor.module.mask, tensor.module.draws
            draws += ~mask & (tensor.uniform(f"again-{step}").abs() < self.rate) & (draws < LAST_DRAW)
            self._draw(tensor, step)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores, and restore the weights."""
        super().after_restore(tensors, step)
        for tensor in tensors:
            self._draw(tensor, step)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Count a kept weight's draws from 1."""
        mask, draws = tensor.module.mask, tensor.module.draws
        last = int(draws.max()) if draws.numel() else 0
        return mask * (draws + 1), ((0.0, 0), *((1.0, draw) for draw in range(last + 1)))

    def _draw(self, tensor: HiddenTensor, step: int) -> None:
        for draw in range(min(step // self.every, LAST_DRAW) + 1):  # as often as was due
            tensor.weight = torch.where(tensor.module.draws == draw, tensor.draw(draw), tensor.weight)
