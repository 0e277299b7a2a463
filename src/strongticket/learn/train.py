"""The state of a run between two steps: how to advance, save and restore it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from strongticket.learn.hidden import Snapshot
from strongticket.learn.learner import Learner
from strongticket.learn.optimizers import Updates
from strongticket.learn.schedule import Schedule
from strongticket.learn.shared import Share
from strongticket.learn.step import Step, StepConfig


class Task(ABC):
    """What a run learns from, and what it is measured by."""

    tokens_per_step: int | None = None  # if batches are text
    advice: str  # what to try if a loss is not finite

    @abstractmethod
    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return this process's share of a step, counted from 0, on its device; called in order."""

    def loss(self, model: nn.Module, micro_batch: Any) -> Tensor:
        """Return the mean loss of a micro-batch, a scalar; by default the model's own."""
        loss: Tensor = model(*micro_batch)
        return loss

    @abstractmethod
    def validate(self, model: nn.Module) -> float | None:
        """Return a number, lower for a better model and equal in all processes; None if there is no validation."""

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Return further measurements of the best state."""
        return {}

    def metadata(self, best: Snapshot | None) -> Mapping[str, object] | None:
        """Return what a ticket records of the run."""
        return None

    def state(self) -> dict[str, Any]:
        """Return what this process needs to resume with the next step; nothing if its number is enough."""
        return {}

    def load_state(self, state: Mapping[str, Any], step: int) -> None:
        """Resume from what `state` returned after this many steps."""
        assert not state


class Training:
    """The state of a run.

    Args:
        learner: the model to learn.
        task: the data to learn from.
        share: this process's share of the work.
        schedule: the number of steps, and their learning rates.
        step: how each step is computed.
        updates: the optimizer.
    """

    def __init__(
        self,
        learner: Learner,
        task: Task,
        share: Share,
        *,
        schedule: Schedule,
        step: StepConfig,
        updates: Updates,
    ) -> None:
        self.learner, self.task, self.share, self.schedule = learner, task, share, schedule
        self._updates = updates
        self._step = Step(
            learner.model,
            updates.optimizer,
            step,
            loss=task.loss,
            prepare=learner.before_step,
            refresh=learner.after_step,
        )
        self.step = 0  # done so far
        self.best: Snapshot | None = None  # at the lowest validation loss
        self._losses: list[Tensor] = []  # of the steps since the last call of `losses`

    def advance(self) -> Tensor:
        """Do one step, without waiting for a GPU to finish it; return this process's loss."""
        micro_batches = self.task.micro_batches(self.step)
        if self._updates.sets_lr:
            self._step.set_lr(self.schedule.at(self.step))
        self._losses.append(loss := self._step(micro_batches))
        self._updates.after_step()
        for measured in self.learner.measured() if self.share.world > 1 else ():
            self._average(measured)
        self.step += 1
        return loss

    def losses(self) -> list[float]:
        """Return the training losses of the steps since the last call, averaged over all processes."""
        losses = self._pending()
        self._losses = []
        return [float(loss) for loss in losses]

    def validate(self) -> float | None:
        """Measure the validation loss, and take a snapshot if it is the best so far."""
        loss = self.task.validate(self.learner.model)
        if loss is not None and loss < (math.inf if self.best is None else self.best.loss):
            self.best = self.snapshot(loss)
        return loss

    def snapshot(self, loss: float) -> Snapshot:
        """Copy the learned state."""
        values = {name: value.clone() for name, value in self.learner.state().items()}
        return Snapshot(step=self.step, loss=loss, values=values)

    def state(self) -> dict[str, Any]:
        """Return everything the processes need to resume exactly; all of them must call this."""
        best = self.best or Snapshot(step=0, loss=math.inf, values={})
        return {
            "step": self.step,
            "best_loss": best.loss,
            "best_step": best.step,
            "losses": self._pending(),
            "learned": self.learner.state(),
            "best": dict(best.values),
            **self._updates.state(),
            "tasks": self.share.gathered(self.task.state()),
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError for anything that `state` cannot have returned."""
        fields = {"step", "best_loss", "best_step", "losses", "learned", "best", "tasks", *self._updates.state()}
        if missing := sorted(fields - state.keys()):
            raise ValueError(f"it has no {missing[0]}")
        step, best_step, best_loss, losses = (state[name] for name in ("step", "best_step", "best_loss", "losses"))
        if type(step) is not int or not 0 <= step <= self.schedule.steps:
            raise ValueError(f"its step is {step!r:.20}, of {self.schedule.steps}")
        if type(best_step) is not int or not 0 <= best_step <= step or type(best_loss) is not float:
            raise ValueError("its best step is invalid")
        if not isinstance(losses, Tensor) or losses.dim() != 1:
            raise ValueError("its losses are invalid")
        ours = _sizes(self.learner.state())
        if _sizes(state["learned"]) != ours or _sizes(state["best"]) not in ({}, ours):
            raise ValueError("it has tensors of another network")
        if not _fits(state["optimizer"], self._step.optimizer):
            raise ValueError("it has another optimizer's state")
        tasks = state["tasks"]
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise ValueError("its tasks are invalid")

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.step, self._losses = state["step"], list(state["losses"])
        best = Snapshot(step=state["best_step"], loss=state["best_loss"], values=state["best"])
        self.best = best if best.values else None
        self.learner.load_state(state["learned"], self.step)
        self._updates.load_state(state)
        tasks = state["tasks"]  # a text has no state, so there may be more processes now than then
        self.task.load_state(tasks[self.share.rank] if self.share.rank < len(tasks) else {}, self.step)

    def _pending(self) -> Tensor:
        if not self._losses:
            return torch.empty(0)
        losses = torch.stack(self._losses).double()
        if self.share.world > 1:
            self._average(losses)
        return losses.cpu()

    def _average(self, values: Tensor) -> None:
        """Average numbers over all processes, in place."""
        dist.all_reduce(values)
        values /= self.share.world


def _sizes(values: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in values.items()}


def _fits(state: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer can load a state: alike groups and, for AdamW, all its tensors in the right shapes."""
    ours, groups = optimizer.state_dict()["param_groups"], state["param_groups"]
    if not _alike(groups, ours) or any(a["params"] != b["params"] for a, b in zip(groups, ours, strict=True)):
        return False
    shapes = [parameter.shape for group in optimizer.param_groups for parameter in group["params"]]
    places = dict(zip((i for group in ours for i in group["params"]), shapes, strict=True))
    if not all(isinstance(values, dict) for values in state["state"].values()):
        return False
    kept = {i: values for i, values in state["state"].items() if values}
    if not isinstance(optimizer, torch.optim.AdamW):
        return kept.keys() <= places.keys()
    sizes = {i: {name: value.shape for name, value in values.items()} for i, values in kept.items()}
    return all(
        i in places and own == {name: () if name == "step" else places[i] for name in {*own, "step", *_MOMENTS}}
        for i, own in sizes.items()
    )


_MOMENTS = ("exp_avg", "exp_avg_sq")  # of AdamW, for every parameter


def _alike(theirs: Any, ours: Any) -> bool:
    """Whether two values have the same types all the way down; numbers are alike, and so are flags and None."""
    if isinstance(ours, dict):
        same = isinstance(theirs, dict) and theirs.keys() == ours.keys()
        return same and all(_alike(theirs[name], ours[name]) for name in ours)
    if isinstance(ours, list | tuple):
        same = type(theirs) is type(ours) and len(theirs) == len(ours)
        return same and all(map(_alike, theirs, ours))
    both = {type(theirs), type(ours)}
    return len(both) == 1 or both in ({int, float}, {bool, type(None)})
