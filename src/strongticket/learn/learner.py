"""What a run learns: the scores of a hidden network, or all weights of an ordinary one."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from strongticket.learn.config import RunConfig
from strongticket.learn.edge_popup import hide
from strongticket.models.gpt2 import GPT2, Group


class Learner(Protocol):
    """A model and what an optimizer may change of it; `Hidden` is one."""

    model: nn.Module

    @property
    def refresh(self) -> Callable[[], None]:
        """What brings all that follows from it up to date."""
        ...

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """What is learned, by name."""
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
        self.refresh: Callable[[], None] = lambda: None  # nothing follows from weights
        self._counts = model.parameter_counts()

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Every parameter."""
        return list(self.model.named_parameters())

    def densities(self) -> Mapping[Group, float]:
        """Nothing is masked."""
        return {}

    def nonzero(self) -> dict[str, int]:
        """All parameters, with and without embeddings."""
        total = sum(self._counts.values())
        return {"all": total, "without_embeddings": total - self._counts["embeddings"]}


def make_learner(config: RunConfig, vocabulary: int, device: torch.device) -> Learner:
    """Draw the model and, for a search, put masks over it."""
    model = GPT2(config.model_config(vocabulary), seed=config.seed, device=device)
    return Dense(model) if config.mode == "dense" else hide(model, config.policy, seed=config.seed)


@torch.no_grad()
def set_learned(learner: Learner, values: Mapping[str, Tensor]) -> None:
    """Put values from another moment of the run in place."""
    for name, parameter in learner.trainable():
        parameter.copy_(values[name])
    learner.refresh()
