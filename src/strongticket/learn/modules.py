"""Search a module of the caller's own, in memory: no text, no folder, no checkpoint.

Importing this file must not import torch: `strongticket` needs the function itself at once, see there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from strongticket.errors import StrongTicketError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from strongticket.learn.groups import Groups
    from strongticket.learn.hidden import Hidden
    from strongticket.learn.policy import Policy
    from strongticket.learn.schedule import Schedule
    from strongticket.learn.step import Loss, Precision, Step

# Losses fetched together from a GPU, so that it is not waited for at every step.
_AT_ONCE = 10

# Called with the number of each step, from 1, and its loss.
Progress = Callable[[int, float], object]


def search(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    policy: Policy | None = None,
    density: float | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    steps: int | None = None,
    accumulate: int = 1,
    lr: float = 1e-3,
    final_lr: float | None = None,
    warmup: int | None = None,
    weight_decay: float = 0.01,
    clip: float | None = None,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    compiler: str | None = None,
    groups: Groups | None = None,
    progress: Progress | None = None,
) -> Hidden:
    """Find a ticket in a module: redraw its weights at random, then learn which of them to keep (edge-popup).

    The module is changed in place, see `hide`; it stays in training or evaluation mode as it is. With an initialized
    process group each process brings batches of its own.

    Args:
        model: any module with plain float parameters.
        batches: what the loss takes, on any device. Gone through again from the beginning when there are fewer than
            the steps need.
        policy: what is masked, frozen and trained, and how it is drawn.
        density: fraction kept, in place of the policy's.
        seed: of every random tensor and of the first scores.
        loss: (model, batch) -> mean loss, a scalar; by default the model gives it, or an output that has it as `loss`,
            when called with the batch: a tuple or list as arguments, a mapping as keyword arguments.
        steps: by default as many as go through the batches once.
        accumulate: how many batches make one step; all of one size.
        lr: the highest learning rate. The paper's is 1e-4, for 11,350 steps.
        final_lr: what a cosine ends at; by default a tenth of the highest.
        warmup: steps that lead up to the highest; by default a tenth of all.
        weight_decay: AdamW's, on scores and trained tensors.
        clip: most norm of the gradient.
        device: where to search; by default where the module is.
        precision: "bfloat16" computes products by autocast.
        compiler: a backend of torch.compile, "inductor" as a rule; None runs eagerly.
        groups: groups of the caller's own for some parameters, see `hide`.
        progress: called with the number of each step, from 1, and its loss; on a GPU for ten steps at a time.

    Returns:
        The module with its masks: `describe()` says what became of each tensor, `to_ticket()` makes the ticket.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> x = torch.linspace(-1, 1, 64).view(32, 2)
        >>> model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
        >>> hidden = search(model, [x] * 20, loss=lambda run, x: (run(x) - x.sum(1, True)).square().mean(), density=0.5)
        >>> hidden.densities(), hidden.to_ticket().strong
        ({'mlp': 0.5, 'head': 0.5}, True)
    """
    from strongticket.learn.edge_popup import hide
    from strongticket.learn.policy import Policy
    from strongticket.learn.schedule import Schedule
    from strongticket.learn.step import Step, StepConfig, make_optimizer

    # What can be refused is refused before the module changes; whether the loss is one, its first call tells.
    chosen = policy or Policy()
    chosen = chosen if density is None else replace(chosen, density=density)
    settings = StepConfig(precision=precision, compiler=compiler, clip=clip)
    if not 0 <= weight_decay < math.inf or accumulate < 1:
        raise ValueError(f"weight_decay must be 0 or more and accumulate at least 1; got {weight_decay}, {accumulate}.")
    steps = _step_count(batches, accumulate) if steps is None else steps
    schedule = Schedule(
        steps=steps,
        lr=lr,
        final_lr=lr / 10 if final_lr is None else final_lr,
        warmup=steps // 10 if warmup is None else warmup,
    )
    work = _steps_of(batches, accumulate)
    if (first := next(work, None)) is None:
        raise ValueError("a search needs batches; got none, or too few for one step.")
    hidden = hide(model if device is None else model.to(device), chosen, seed=seed, groups=groups)
    optimizer = make_optimizer((parameter for _, parameter in hidden.trainable()), lr=lr, weight_decay=weight_decay)
    step = Step(hidden.model, optimizer, settings, loss=_checked(loss or own_loss), refresh=hidden.refresh)
    _run(step, schedule, chain([first], work), progress)
    return hidden


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """Give the loss that a model itself computes from a batch, as Hugging Face's do from labels."""
    if isinstance(batch, Mapping):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    loss: Tensor = getattr(output, "loss", output)
    return loss


def _run(step: Step, schedule: Schedule, work: Iterator[list[Any]], progress: Progress | None) -> None:
    device = step.device
    fetched = 1 if device.type == "cpu" else _AT_ONCE
    losses: list[Tensor] = []
    for done in range(1, schedule.steps + 1):
        if (micro_batches := next(work, None)) is None:
            raise ValueError(
                f"batches ended after step {done - 1} of {schedule.steps}, and an iterator cannot be gone through "
                "again; pass a list or a DataLoader, or fewer steps."
            )
        step.set_lr(schedule.at(done - 1))
        losses.append(step([_moved(batch, device) for batch in micro_batches]))
        if done % fetched == 0 or done == schedule.steps:
            _tell(done, losses, progress)
            losses.clear()


def _tell(done: int, losses: list[Tensor], progress: Progress | None) -> None:
    import torch

    for number, loss in enumerate(torch.stack(losses).tolist(), done - len(losses) + 1):
        if not math.isfinite(loss):
            raise StrongTicketError(f"the loss is {loss} at step {number}; use a smaller lr or qk_scale, or clip.")
        if progress:
            progress(number, loss)


def _step_count(batches: Iterable[Any], accumulate: int) -> int:
    try:
        return max(1, len(batches) // accumulate)  # type: ignore[arg-type]
    except TypeError:
        kind = type(batches).__name__
        raise ValueError(f"the number of steps is not known: this {kind} has no length. Pass steps.") from None


def _steps_of(batches: Iterable[Any], accumulate: int) -> Iterator[list[Any]]:
    """Give the micro-batches of one step after another, without end if the batches can be gone through again."""
    endless = _again_and_again(batches)
    while len(micro_batches := list(islice(endless, accumulate))) == accumulate:
        yield micro_batches


def _again_and_again(batches: Iterable[Any]) -> Iterator[Any]:
    there_are_some = True
    while there_are_some:
        there_are_some = False
        for batch in batches:
            there_are_some = True
            yield batch


def _checked(loss: Loss) -> Loss:
    from torch import Tensor

    def scalar(model: nn.Module, batch: Any) -> Tensor:
        value = loss(model, batch)
        if not isinstance(value, Tensor) or value.dim():
            what = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(
                f"a search needs a scalar loss; got {what}. Pass loss=, a function of the model and a batch, and a "
                "fresh module: this one has been redrawn."
            )
        return value

    return scalar


def _moved(batch: Any, device: torch.device) -> Any:
    """Copy a batch's tensors to a device; what else it holds is left alone."""
    from torch import Tensor

    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [_moved(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch.to(device) if isinstance(batch, Tensor) else batch
