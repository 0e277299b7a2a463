"""The optimizer and the learning-rate schedule: ours or the caller's."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from strongticket.learn.step import make_optimizer

Named = Sequence[tuple[str, nn.Parameter]]

# From named parameters to an optimizer: `partial(torch.optim.SGD, lr=0.1)` is one, since torch accepts names.
MakeOptimizer = Callable[[Named], Optimizer]
# From an optimizer to its schedule, stepped once after each step: `partial(CosineAnnealingLR, T_max=200)`.
MakeSchedule = Callable[[Optimizer], LRScheduler]


class Updates:
    """The optimizer of a run, and the caller's schedule if there is one.

    Args:
        named: the learned parameters.
        lr: of AdamW, if `optimizer` is None.
        weight_decay: of AdamW, likewise.
        optimizer: makes the caller's optimizer.
        schedule: makes the caller's schedule.
    """

    def __init__(
        self,
        named: Named,
        *,
        lr: float,
        weight_decay: float,
        optimizer: MakeOptimizer | None = None,
        schedule: MakeSchedule | None = None,
    ) -> None:
        if optimizer is None:
            self.optimizer: Optimizer = make_optimizer((p for _, p in named), lr=lr, weight_decay=weight_decay)
        else:
            if not callable(optimizer):
                raise ValueError(
                    "optimizer must make one from named parameters, as partial(torch.optim.SGD, lr=0.1) does; got "
                    f"{type(optimizer).__name__}."
                )
            self.optimizer = optimizer(named)
            _check_optimizer(self.optimizer, named)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        if schedule is not None and (
            not isinstance(self.schedule, LRScheduler) or isinstance(self.schedule, ReduceLROnPlateau)
        ):
            raise ValueError(
                "schedule must take the optimizer and return a torch LRScheduler that needs no loss; got "
                f"{type(self.schedule).__name__}."
            )
        # Whether we set the learning rate; the caller's optimizer keeps its own.
        self.sets_lr = optimizer is None and schedule is None
        self._named = list(named)

    def after_step(self) -> None:
        """Advance the caller's schedule."""
        if self.schedule is not None:
            self.schedule.step()

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume."""
        schedule = {} if self.schedule is None else {"schedule": self.schedule.state_dict()}
        return {"optimizer": self.optimizer.state_dict(), **schedule}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])

    def check_storable(self) -> None:
        """Refuse, before the first step, a state that a checkpoint could not restore."""
        file = io.BytesIO()
        try:
            torch.save(self.state(), file)
            file.seek(0)
            torch.load(file, weights_only=True)
        except Exception as error:  # pickling can raise anything
            raise ValueError(
                f"the state of {type(self.optimizer).__name__} and {type(self.schedule).__name__} holds more than "
                "numbers, which a checkpoint cannot restore; omit out= or choose others."
            ) from error

    def describe(self) -> dict[str, object]:
        """Return types and settings, so that a run with others is recognized."""
        names = {id(parameter): name for name, parameter in self._named}
        groups = [
            {"parameters": [names[id(p)] for p in group["params"]], **_plain(group)}
            for group in self.optimizer.param_groups
        ]
        described: dict[str, object] = {"name": type(self.optimizer).__name__, "groups": groups}
        if self.schedule is not None:
            described["schedule"] = {"name": type(self.schedule).__name__, **_plain(self.schedule.state_dict())}
        return described


def _check_optimizer(optimizer: Any, named: Named) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"optimizer must take named parameters and return a torch Optimizer; got {type(optimizer).__name__}."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS needs the loss several times per step, which a search does not offer; choose another.")
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, parameter in named if id(parameter) not in updated]
    foreign = len(updated) - (len(named) - len(missing))
    if missing or foreign:
        raise ValueError(
            f"the optimizer must update all {len(named)} parameters it was given and no others; it lacks "
            f"{missing[0] if missing else 'none'} and has {foreign} others. To leave a group alone, freeze it."
        )


def _plain(settings: dict[str, Any]) -> dict[str, object]:
    """Keep what JSON can hold; the rest follows from the type."""

    def plain(value: Any) -> bool:
        return isinstance(value, bool | int | float | str | None) or (
            isinstance(value, list | tuple) and all(map(plain, value))
        )

    numbers = {name: value.item() if isinstance(value, Tensor) else value for name, value in settings.items()}
    return {name: value for name, value in numbers.items() if plain(value)}
