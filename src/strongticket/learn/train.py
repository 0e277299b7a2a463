"""A run between two steps: what it has learned, how it goes on, and how it is put away and taken up again."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from strongticket.data.text import Text, training_batch
from strongticket.data.windows import Tokens, window_count
from strongticket.learn.config import RunConfig
from strongticket.learn.evaluate import validation_loss
from strongticket.learn.learner import make_learner, set_learned
from strongticket.learn.shared import Share
from strongticket.learn.step import Step, StepConfig, make_optimizer


class Training:
    """The state of a run. Which text a step sees follows from its number, so nothing else needs keeping.

    Args:
        config: what is done.
        text: what it is done with.
        share: of this process in the work.
        compiler: a backend of torch.compile; None runs eagerly.
    """

    def __init__(self, config: RunConfig, text: Text, share: Share, compiler: str | None = None) -> None:
        self.config, self.text, self.share = config, text, share
        for split in ("train", "valid"):
            window_count(text.tokens(split), config.length, f"the {split} text")  # which may be too short
        self.learner = make_learner(config, text.tokenizer.vocabulary, share.device)
        self._parameters = dict(self.learner.trainable())
        optimizer = make_optimizer(self._parameters.values(), lr=config.lr, weight_decay=config.weight_decay)
        settings = StepConfig(precision=config.precision, compiler=compiler, clip=config.clip)
        self._step = Step(self.learner.model, optimizer, settings, refresh=self.learner.refresh)
        self.step = 0  # done so far
        self.best_loss, self.best_step = math.inf, 0
        self._best: dict[str, Tensor] = {}
        self._losses: list[Tensor] = []  # of the steps since they were last asked for

    def advance(self) -> None:
        """Do one step; does not wait for a GPU to finish it."""
        self._step.set_lr(self.config.schedule.at(self.step))
        self._losses.append(self._step(self._micro_batches()))
        self.step += 1

    def losses(self) -> list[float]:
        """Give the training losses of the steps since the last call, each the mean over all processes."""
        losses = self._pending()
        self._losses = []
        return [float(loss) for loss in losses]

    def validate(self) -> float:
        """Measure the validation loss, and remember what was learned if it is the best so far."""
        loss = self.loss_on(self.text.valid)
        if loss < self.best_loss:
            self.best_loss, self.best_step, self._best = loss, self.step, self.learned()
        return loss

    def loss_on(self, tokens: Tokens) -> float:
        """Measure the loss on a text, without learning from it."""
        return validation_loss(
            self.learner.model,
            tokens,
            length=self.config.length,
            sequences=self.config.micro_batch,
            device=self.share.device,
            precision=self.config.precision,
        )

    def learned(self) -> dict[str, Tensor]:
        """Copy what has been learned so far."""
        return {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @property
    def best(self) -> Mapping[str, Tensor]:
        """What had been learned when the validation loss was lowest."""
        return self._best

    def state(self) -> dict[str, Any]:
        """Everything a process needs to go on as if it had never stopped."""
        return {
            "step": self.step,
            "best_loss": self.best_loss,
            "best_step": self.best_step,
            "losses": self._pending(),
            "learned": {name: parameter.detach() for name, parameter in self._parameters.items()},
            "best": self._best,
            "optimizer": self._step.optimizer.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.step, self.best_loss, self.best_step = state["step"], state["best_loss"], state["best_step"]
        self._losses, self._best = list(state["losses"]), dict(state["best"])
        set_learned(self.learner, state["learned"])
        self._step.optimizer.load_state_dict(state["optimizer"])

    def _pending(self) -> Tensor:
        if not self._losses:
            return torch.empty(0)
        losses = torch.stack(self._losses).double()
        if self.share.world > 1:
            dist.all_reduce(losses)
            losses /= self.share.world
        return losses.cpu()

    def _micro_batches(self) -> list[tuple[Tensor, Tensor]]:
        """This process's share of the step's sequences, on its device."""
        config, share = self.config, self.share
        batch = training_batch(
            self.text.train, length=config.length, sequences=config.sequences, seed=config.seed, step=self.step
        )
        starts = range(share.rank * config.micro_batch, config.sequences, share.world * config.micro_batch)
        inputs, targets = (
            [share.to_device(tensor[start : start + config.micro_batch]) for start in starts] for tensor in batch
        )
        return list(zip(inputs, targets, strict=True))
