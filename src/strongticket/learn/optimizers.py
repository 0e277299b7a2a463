"""An optimizer and a learning-rate schedule of the caller's own."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from strongticket.files import Json
from strongticket.learn.step import make_optimizer

Named = Sequence[tuple[str, nn.Parameter]]

# What is learned, by name, to its optimizer: `partial(torch.optim.SGD, lr=0.1)` is one, since torch takes names too.
MakeOptimizer = Callable[[Named], Optimizer]
# An optimizer to what steps its learning rates, once after each step: `partial(CosineAnnealingLR, T_max=200)`.
MakeSchedule = Callable[[Optimizer], LRScheduler]


class Updates:
    """What a run updates its parameters with, and how the learning rate goes where neither is ours.

    Args:
        named: what is learned.
        lr: of AdamW, where `optimizer` is None.
        weight_decay: likewise.
        optimizer: makes the caller's.
        schedule: makes the caller's.
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
                    "optimizer makes one of named parameters, as partial(torch.optim.SGD, lr=0.1) does; got "
                    f"{type(optimizer).__name__}."
                )
            self.optimizer = optimizer(named)
            _check_optimizer(self.optimizer, named)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        if schedule is not None and (
            not isinstance(self.schedule, LRScheduler) or isinstance(self.schedule, ReduceLROnPlateau)
        ):
            raise ValueError(
                "schedule takes the optimizer and gives a torch LRScheduler that needs no loss; got "
                f"{type(self.schedule).__name__}."
            )
        # Whether the learning rate is ours to set; an optimizer of the caller's own keeps what it has.
        self.sets_lr = optimizer is None and schedule is None
        self._named = list(named)

    def after_step(self) -> None:
        """Go on to the next learning rate of the caller's schedule."""
        if self.schedule is not None:
            self.schedule.step()

    def state(self) -> dict[str, Any]:
        """Give all that is needed to go on."""
        schedule = {} if self.schedule is None else {"schedule": self.schedule.state_dict()}
        return {"optimizer": self.optimizer.state_dict(), **schedule}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])

    def check_storable(self) -> None:
        """Refuse, before the first step, what a checkpoint could not bring back."""
        file = io.BytesIO()
        try:
            torch.save(self.state(), file)
            file.seek(0)
            torch.load(file, weights_only=True)
        except Exception as error:  # torch raises whatever its pickler met
            raise ValueError(
                f"the state of {type(self.optimizer).__name__} and {type(self.schedule).__name__} holds more than "
                "numbers, which a checkpoint cannot bring back; leave out= away or choose others."
            ) from error

    def describe(self) -> Json:
        """Give kinds and settings, by which a run with others is told."""
        names = {id(parameter): name for name, parameter in self._named}
        groups = [
            {"parameters": [names[id(p)] for p in group["params"]], **_plain(group)}
            for group in self.optimizer.param_groups
        ]
        told: dict[str, Json] = {"name": type(self.optimizer).__name__, "groups": groups}
        if self.schedule is not None:
            told["schedule"] = {"name": type(self.schedule).__name__, **_plain(self.schedule.state_dict())}
        return told


def _check_optimizer(optimizer: Any, named: Named) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"optimizer takes named parameters and gives a torch Optimizer; got {type(optimizer).__name__}."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS asks for the loss several times a step, which a search does not do; choose another.")
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, parameter in named if id(parameter) not in updated]
    foreign = len(updated) - (len(named) - len(missing))
    if missing or foreign:
        raise ValueError(
            f"the optimizer must update all {len(named)} parameters it was given and no others; it lacks "
            f"{missing[0] if missing else 'none'} and has {foreign} of its own. To leave a group alone, freeze it."
        )


def _plain(settings: dict[str, Any]) -> dict[str, Json]:
    """Keep what JSON can hold; the rest follows from the kind."""

    def plain(value: Any) -> bool:
        return isinstance(value, bool | int | float | str | None) or (
            isinstance(value, list | tuple) and all(map(plain, value))
        )

    numbers = {name: value.item() if isinstance(value, Tensor) else value for name, value in settings.items()}
    return {name: value for name, value in numbers.items() if plain(value)}
