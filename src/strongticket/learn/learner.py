"""What a run learns: all weights of an ordinary network or, as `Hidden`, which weights of a random one to keep."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Group


class Learner(ABC):
    """A model and the part of it that an optimizer may change."""

    model: nn.Module

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return the learned parameters, by name."""
        return list(self.model.named_parameters())

    def before_step(self) -> None:  # noqa: B027
        """Add gradients that do not come from the loss."""

    def after_step(self) -> None:  # noqa: B027
        """Update everything derived from the parameters, after an optimizer step; by default nothing is."""

    def after_restore(self, step: int) -> None:  # noqa: B027
        """Update everything derived from restored parameters, which belong to this step."""

    def state(self) -> dict[str, Tensor]:
        """Return all that steps change, by name; not copied."""
        return {name: parameter.detach() for name, parameter in self.trainable()}

    def measured(self) -> list[Tensor]:
        """Return the numbers that a step takes from its data, such as running means; processes average them."""
        return []

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Restore what `state` returned after a step."""
        for name, value in self.state().items():
            value.copy_(state[name])
        self.after_restore(step)

    def check_weights(self) -> None:  # noqa: B027
        """Refuse weights that are not finite, with a clearer message than that of a loss that is not."""

    @abstractmethod
    def counts(self) -> Mapping[Group, int]:
        """Count the nonzero parameters of each group."""

    def nonzero(self) -> dict[str, int]:
        """Count the nonzero parameters, with and without embeddings."""
        counts = self.counts()
        total = sum(counts.values())
        return {"all": total, "without_embeddings": total - counts.get("embeddings", 0)}

    def densities(self) -> Mapping[Group, float]:
        """Return the fraction kept of each masked group."""
        return {}


class Dense(Learner):
    """A GPT-2 with all weights trained: the ordinary baseline."""

    def __init__(self, model: GPT2) -> None:
        self.model = self._gpt2 = model

    def counts(self) -> Mapping[Group, int]:
        """Count every parameter."""
        return self._gpt2.parameter_counts()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode during the block, then restore each module's mode."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
