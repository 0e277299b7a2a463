"""IteRand (Chijiwa et al., 2021), as a rule of one file: some dropped weights are drawn again from time to time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.rng import random_weights


@dataclass
class IteRand(EdgePopup):
    """Edge-popup on signed scores; every so many steps a dropped weight is drawn again with some probability."""

    every: int = 300
    rate: float = 0.1

    name = "iterand"
    state = ("scores", "draws")

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Begin as edge-popup, every weight with its first draw."""
        super().begin(tensors, replace(policy, signed=True))
        for tensor in tensors:
            tensor.module.register_buffer("draws", torch.zeros_like(tensor.weight, dtype=torch.uint8))

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Rank the scores anew, and draw weights again if it is time to."""
        super().after_step(tensors, step)
        for tensor in tensors if step % self.every == 0 else ():
            chances = random_weights(
                tensor.seed, f"{tensor.name}.again-{step}", tensor.shape, device=tensor.weight.device
            )
            dropped = ~super().codes(tensor)[0]
            tensor.module.get_buffer("draws").add_(dropped & (chances.abs() < self.rate))
            self._draw(tensor)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Bring the same weights back."""
        super().after_restore(tensors, step)
        for tensor in tensors:
            self._draw(tensor)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Count a kept weight's draws from 1."""
        mask, draws = super().codes(tensor)[0], tensor.module.get_buffer("draws")
        return mask * (draws + 1), ((0.0, 0), *((1.0, draw) for draw in range(int(draws.max()) + 1)))

    def _draw(self, tensor: HiddenTensor) -> None:
        draws = tensor.module.get_buffer("draws")
        for number in range(int(draws.max()) + 1):
            tensor.weight.copy_(torch.where(draws == number, tensor.draw(number), tensor.weight))
