"""What a run learns: all weights of an ordinary network, or, as `Hidden`, what to keep of a random one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Group


class Learner(ABC):
    """A model and what an optimizer may change of it."""

    model: nn.Module

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Give what is learned, by name."""
        return list(self.model.named_parameters())

    def before_step(self) -> None:  # noqa: B027
        """Add to the gradients what does not come from the loss."""

    def after_step(self) -> None:  # noqa: B027
        """Bring up to date what follows from an optimizer's step; from weights nothing does."""

    def after_restore(self, step: int) -> None:  # noqa: B027
        """Bring up to date what follows from values put back, those after a step."""

    def state(self) -> dict[str, Tensor]:
        """Give all that steps change, by name; not copied."""
        return {name: parameter.detach() for name, parameter in self.trainable()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Put back what `state` gave after a step."""
        for name, value in self.state().items():
            value.copy_(state[name])
        self.after_restore(step)

    def check_weights(self) -> None:  # noqa: B027
        """Refuse weights that are no numbers, with a better line than that of a loss that is none."""

    @abstractmethod
    def counts(self) -> Mapping[Group, int]:
        """Count the nonzero parameters of each group."""

    def nonzero(self) -> dict[str, int]:
        """Count the nonzero parameters, with and without embeddings."""
        counts = self.counts()
        total = sum(counts.values())
        return {"all": total, "without_embeddings": total - counts.get("embeddings", 0)}

    def densities(self) -> Mapping[Group, float]:
        """Give the fraction kept of each group that has masks."""
        return {}


class Dense(Learner):
    """A GPT-2 all of whose weights are trained: the ordinary baseline."""

    def __init__(self, model: GPT2) -> None:
        self.model = self._gpt2 = model

    def counts(self) -> Mapping[Group, int]:
        """Count every parameter."""
        return self._gpt2.parameter_counts()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout and the like off, and each module back to what it was."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
