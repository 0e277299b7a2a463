"""What a run learns: what a rule keeps of a hidden network, or all weights of an ordinary one."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Group


class Learner(Protocol):
    """A model and what an optimizer may change of it; `Hidden` is one."""

    model: nn.Module

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """What is learned, by name."""
        ...

    def after_step(self) -> None:
        """Bring up to date what follows from an optimizer's step."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that steps change, by name; not copied."""
        ...

    def load_state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Put back what `state` gave after a step."""
        ...

    def check_weights(self) -> None:
        """Refuse weights that are no numbers, with a better line than that of a loss that is none."""
        ...

    def densities(self) -> Mapping[Group, float]:
        """The fraction kept of each group that has masks."""
        ...

    def nonzero(self) -> dict[str, int]:
        """Nonzero parameters, with and without embeddings."""
        ...


class Dense:
    """A model all of whose weights are trained: the ordinary baseline."""

    def __init__(self, model: GPT2) -> None:
        self.model: nn.Module = model
        self._counts = model.parameter_counts()

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Every parameter."""
        return list(self.model.named_parameters())

    def after_step(self) -> None:
        """Nothing follows from weights."""

    def state(self) -> dict[str, Tensor]:
        """Every parameter."""
        return {name: parameter.detach() for name, parameter in self.trainable()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Put every parameter back."""
        for name, parameter in self.trainable():
            parameter.copy_(state[name])

    def check_weights(self) -> None:
        """Trained weights are what the loss makes them."""

    def densities(self) -> Mapping[Group, float]:
        """Nothing is masked."""
        return {}

    def nonzero(self) -> dict[str, int]:
        """All parameters, with and without embeddings."""
        total = sum(self._counts.values())
        return {"all": total, "without_embeddings": total - self._counts["embeddings"]}
