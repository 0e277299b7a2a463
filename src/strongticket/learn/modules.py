"""Search for a ticket in any module."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.checks import as_real, as_seed
from strongticket.environment import command_line
from strongticket.files import as_json
from strongticket.learn.checks import check_is_module
from strongticket.learn.folder import RunFolder
from strongticket.learn.groups import Groups
from strongticket.learn.hidden import Hidden
from strongticket.learn.hide import default_policy, hide
from strongticket.learn.learner import evaluating
from strongticket.learn.losses import as_loss
from strongticket.learn.optimizers import MakeOptimizer, MakeSchedule, Updates
from strongticket.learn.policy import Policy
from strongticket.learn.probe import Run, own_inputs
from strongticket.learn.rules.rule import Rule, as_rule
from strongticket.learn.run import CHECKPOINT_SECONDS, Means, Moment, Progress, StoppedError, Watch, carry_out
from strongticket.learn.schedule import Schedule
from strongticket.learn.shared import Share, share_of
from strongticket.learn.step import Loss, Precision, StepConfig
from strongticket.learn.train import Task, Training

_CPU = torch.device("cpu")
FOR_PEOPLE = ("role", "init", "note")  # remarks on a tensor, not settings
VALIDATIONS = 10  # per search, by default

# Batches, or a function that returns a number, the lower the better.
Validation = Iterable[Any] | Callable[[nn.Module], float]


def search(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    policy: Policy | None = None,
    density: float | None = None,
    rule: Rule | str | None = None,
    seed: int = 0,
    loss: Loss | Callable[[Any, Tensor], Tensor] | None = None,
    steps: int | None = None,
    accumulate: int = 1,
    lr: float | None = None,
    final_lr: float | None = None,
    warmup: int | None = None,
    weight_decay: float | None = None,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
    clip: float | None = None,
    validation: Validation | None = None,
    validate_every: int | None = None,
    out: Path | str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    compiler: str | None = None,
    deterministic: bool = False,
    groups: Groups | None = None,
    progress: Progress | bool | None = None,
    watch: Watch = lambda moment: None,
) -> Hidden:
    """Find a ticket in a module: redraw its weights at random, then learn which of them to keep.

    The module is changed in place, see `hide`; it stays in training or evaluation mode. With an initialized process
    group, each process brings its own batches.

    Args:
        model: any module with plain float parameters.
        batches: the input of the loss, on any device. Repeated from the start if the steps need more.
        policy: what is masked, frozen and trained, and how it is drawn; by default what suits the module, see
            `default_policy`.
        density: fraction kept, in place of the policy's.
        rule: how the masks are learned, a name or a `Rule`; by default the policy's.
        seed: of every random tensor and of the first scores.
        loss: (model, batch) -> mean loss, a scalar; or, if batches are (x, y), (output, target) -> scalar, such as
            `nn.CrossEntropyLoss()` or a function whose second argument is called `target` or `y`. By default the
            cross entropy of (x, y), or what the model returns when called with the batch (a tuple or list as
            arguments, a mapping as keywords): a scalar, or an output whose `loss` is one.
        steps: by default one pass over the batches, which `progress=True` says.
        accumulate: batches per step; all of one size.
        lr: the highest learning rate; by default the rule's `default_lr`, which is 1e-3, but 0.1 for `bernoulli`. The
            paper's is 1e-4, for 11,350 steps.
        final_lr: the end of the cosine; by default a tenth of the highest.
        warmup: steps of linear warm-up; by default a tenth of all.
        weight_decay: AdamW's, on scores and trained tensors; by default 0.01.
        optimizer: makes an optimizer, in place of AdamW, from pairs (name, parameter), for instance
            `partial(torch.optim.SGD, lr=0.1, momentum=0.9)`. Its learning rates stay constant unless there is a
            schedule.
        schedule: makes a schedule, in place of warm-up and cosine, from the optimizer, for instance
            `partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=200)`; it is stepped once after each step.
        clip: largest norm of the gradient.
        validation: batches, whose mean loss is measured in evaluation mode, or a function of the model that returns
            a number, the lower the better. The search ends with the masks that are best by it.
        validate_every: steps between validations; by default a tenth of all.
        out: a folder for what `strongticket search` writes: settings, metrics, checkpoint, ticket, result. The same
            call resumes from it, even after kill -9 or Ctrl-C, and returns a finished search at once. For that, batches
            must be the same after a restart: a list, or a DataLoader, shuffled or not, that uses torch's own generator.
        checkpoint_seconds: at most this much work is lost if the process is killed.
        device: where to search; by default where the module is.
        precision: "bfloat16" computes products by autocast.
        compiler: a backend of torch.compile, usually "inductor"; None runs eagerly.
        deterministic: on a GPU, use only kernels that give the same bits each time; some are slower. A warning names
            any operation that has none.
        groups: your own groups for some parameters, see `hide`.
        progress: True shows a bar on stderr, or lines if that is not a terminal. A function is called with the number
            of each step, from 1, and its loss; on a GPU, or in several processes, for ten steps at a time.
        watch: called every ten steps and after each validation with a `Moment`.

    Returns:
        The module with its masks: `describe()` describes each tensor, `to_ticket()` makes the ticket.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> x = torch.linspace(-1, 1, 64).view(32, 2)
        >>> model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
        >>> hidden = search(model, [x] * 20, loss=lambda run, x: (run(x) - x.sum(1, True)).square().mean(), density=0.5)
        >>> hidden.densities(), hidden.to_ticket().strong
        ({'mlp': 0.5, 'head': 0.5}, True)
        >>> y = (x.sum(1) > 0).long()  # classes: the loss is the cross entropy
        >>> search(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)), [(x, y)] * 20, density=0.5)
        Hidden(Sequential, edge-popup, seed=0, density: mlp 0.500, head 0.500; 20 steps)
    """
    # Check everything possible before the module changes. The loss is checked by its first call; a folder's settings,
    # after hiding, since they include the treatment of each tensor.
    ours = {"lr": lr, "final_lr": final_lr, "weight_decay": weight_decay}
    _check_given(model, batches, policy, ours | {"clip": clip})
    chosen = policy or default_policy(model, groups)
    _refuse_unused(ours | {"warmup": warmup}, optimizer is not None, schedule is not None)
    rule = as_rule(chosen.rule if rule is None else rule)
    lr, weight_decay = rule.default_lr if lr is None else lr, 0.01 if weight_decay is None else weight_decay
    title = "search" if steps is not None else "search, one pass over the batches"
    steps = _step_count(batches, accumulate) if steps is None else steps
    config = SearchConfig(
        policy=chosen if density is None else replace(chosen, density=density),
        seed=as_seed(seed),
        steps=steps,
        accumulate=accumulate,
        lr=lr,
        final_lr=lr / 10 if final_lr is None else final_lr,
        warmup=steps // 10 if warmup is None else warmup,
        weight_decay=weight_decay,
        clip=clip,
        validate_every=max(1, steps // VALIDATIONS) if validate_every is None else validate_every,
        precision=precision,
    )
    call = None if progress is None or isinstance(progress, bool) else progress
    if call is not None and not callable(call):
        raise ValueError(f"progress must be True, False, or a function of a step and its loss; got {progress!r:.40}.")
    if isinstance(validation, Iterator):
        raise ValueError("validation is used many times; pass a list or a DataLoader, not an iterator.")
    work = _Batches(batches, accumulate)
    model, take_loss = model if device is None else model.to(device), as_loss(loss)
    run = _first_run(model, work.first, take_loss)
    hidden = hide(model, config.policy, seed=config.seed, groups=groups, rule=rule, inputs=run)
    share = share_of(next(parameter.device for _, parameter in hidden.trainable()))
    updates = Updates(hidden.trainable(), lr=lr, weight_decay=weight_decay, optimizer=optimizer, schedule=schedule)
    training = Training(
        hidden,
        BatchTask(work, take_loss, validation, share, precision),
        share,
        schedule=config.schedule,
        step=StepConfig(precision=precision, compiler=compiler, clip=clip),
        updates=updates,
    )
    folder = None
    if out is not None:
        updates.check_storable()
        folder = RunFolder(Path(out), _as_json(config, hidden, share, updates), SearchConfig, option="out")
        folder.finished()  # refuses a folder with other settings
    means = Means(
        share=share,
        compiler=compiler,
        deterministic=deterministic,
        checkpoint_seconds=checkpoint_seconds,
        keep_checkpoint=True,
        command=command_line(),
    )
    with _shown(progress is True and share.rank == 0, title) as show:

        def both(moment: Moment) -> None:
            show(moment)
            watch(moment)

        try:
            carry_out(training, folder, means, validate_every=config.validate_every, watch=both, progress=call)
        except StoppedError as stopped:
            # In Python, Ctrl-C must end a loop over searches, whatever errors it catches.
            raise KeyboardInterrupt(str(stopped)) from None
    return hidden


def _shown(wanted: bool, title: str) -> AbstractContextManager[Watch]:
    """Show a search while it runs, if wanted; the code of the bar is imported only then."""
    if not wanted:
        return nullcontext(lambda moment: None)
    from strongticket.learn.watched import watched

    return watched(title, shown=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """The settings of a search in a module, apart from the module, the batches and the loss."""

    policy: Policy = field(default_factory=Policy)
    seed: int
    steps: int
    accumulate: int
    lr: float
    final_lr: float
    warmup: int
    weight_decay: float
    clip: float | None
    validate_every: int
    precision: Precision

    def __post_init__(self) -> None:
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more; got {self.weight_decay}.")
        for name in ("accumulate", "validate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        # These validate themselves.
        _ = self.schedule, StepConfig(precision=self.precision, clip=self.clip)

    @property
    def schedule(self) -> Schedule:
        """The learning rate at each step."""
        return Schedule(steps=self.steps, lr=self.lr, final_lr=self.final_lr, warmup=self.warmup)


def _check_given(model: object, batches: object, policy: object, numbers: Mapping[str, object]) -> None:
    """Refuse what is of another type than a search needs."""
    check_is_module(model)
    if not isinstance(policy, Policy | None):
        raise ValueError(f"policy must be a Policy, such as Policy(init='sign'); got {policy!r:.40}.")
    if isinstance(batches, Tensor) or not (hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")):
        raise ValueError(
            f"batches must be an iterable of batches, such as a DataLoader or a list; got: {type(batches).__name__}."
        )
    for name, value in numbers.items():
        if value is not None and math.isnan(as_real(value)):
            raise ValueError(f"{name} must be a number; got {value!r:.40}.")


def _refuse_unused(ours: Mapping[str, object], optimizer: bool, schedule: bool) -> None:
    """Refuse settings that the caller's optimizer or schedule replaces."""
    replaced = ["final_lr", "warmup"] * (optimizer or schedule) + ["lr", "weight_decay"] * optimizer
    for name in replaced:
        if ours[name] is not None:
            raise ValueError(f"{name} has no effect beside {'optimizer' if optimizer else 'schedule'}=; set it there.")


def _first_run(model: nn.Module, batch: Any, loss: Loss) -> Run | None:
    """Return a way to run a module whose inputs cannot be generated: its loss on the first batch."""
    device = next((parameter.device for parameter in model.parameters()), _CPU)
    return None if own_inputs(model) is not None else lambda module: loss(module, _moved(batch, device))


def _as_json(config: SearchConfig, hidden: Hidden, share: Share, updates: Updates) -> dict[str, object]:
    """Return the settings as stored in a folder, with everything that distinguishes searches."""
    settings: dict[str, object] = as_json(
        {
            **asdict(config),
            "rule": hidden.rule.settings(),  # which may be the caller's, with settings
            "processes": share.world,  # each has its own batches
            "module": hidden.architecture.get("class", hidden.architecture["family"]),
            # The remarks follow from how a tensor was drawn.
            "tensors": {
                row["name"]: {k: v for k, v in row.items() if k not in FOR_PEOPLE} for row in hidden.describe()
            },
            **({} if updates.sets_lr else {"optimizer": updates.describe()}),
        }
    )
    return settings


class BatchTask(Task):
    """Learn from the caller's batches."""

    advice = "Use a smaller lr or qk_scale, or clip."

    def __init__(
        self, batches: "_Batches", loss: Loss, validation: Validation | None, share: Share, precision: Precision
    ) -> None:
        self._batches, self._loss, self._validation, self._share = batches, loss, validation, share
        self._bfloat16 = precision == "bfloat16"

    def micro_batches(self, step: int) -> list[Any]:
        """Return the next batches, on this process's device."""
        return [_moved(batch, self._share.device) for batch in self._batches.of_step(step)]

    def loss(self, model: nn.Module, micro_batch: Any) -> Tensor:
        """Return the caller's loss; it must be a scalar."""
        value = self._loss(model, micro_batch)
        if not isinstance(value, Tensor) or value.dim():
            what = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(
                f"a search needs a scalar loss; got {what}. Pass a list of batches (x, y), or loss=, a function of the "
                "model and a batch; and a fresh module: this one has been redrawn."
            )
        return value

    @torch.no_grad()
    def validate(self, model: nn.Module) -> float | None:
        """Return the mean loss of the batches, or the caller's number, averaged over the processes."""
        if self._validation is None:
            return None
        device = self._share.device
        # Validation must not change what a search draws from torch's generators.
        unmoved = torch.random.fork_rng([device] if device.type == "cuda" else [])
        with evaluating(model), unmoved, torch.autocast(device.type, torch.bfloat16, enabled=self._bfloat16):
            if callable(self._validation):
                losses = [float(self._validation(model))]
            else:
                losses = [float(self.loss(model, _moved(batch, device))) for batch in self._validation]
        if not losses:
            raise ValueError("validation has no batches.")
        everybodys = self._share.gathered(math.fsum(losses) / len(losses))
        return math.fsum(everybodys) / len(everybodys)

    def state(self) -> dict[str, Any]:
        """Return the position in the batches and torch's generator states, which draw dropout and the next order."""
        return {"batches": self._batches.state(), "generators": _generators(self._share.device)}

    def load_state(self, state: Mapping[str, Any], step: int) -> None:
        """Advance the batches to where they were."""
        self._batches.load_state(state["batches"], step)
        _set_generators(state["generators"], self._share.device)


def _step_count(batches: Iterable[Any], accumulate: int) -> int:
    try:
        return max(1, len(batches) // max(1, accumulate))  # type: ignore[arg-type]
    except TypeError:
        kind = type(batches).__name__
        raise ValueError(f"the number of steps is unknown: this {kind} has no length. Pass steps.") from None


class _Batches:
    """The batches of one step after another, without end if they can be iterated again."""

    def __init__(self, batches: Iterable[Any], accumulate: int) -> None:
        self._batches, self._accumulate = batches, accumulate
        self._place, self._generators = 0, _generators(_CPU)
        self._stream = self._endless()
        if len(first := self._next()) < max(1, accumulate):
            raise ValueError("a search needs batches; got none, or too few for one step.")
        self.first, self._stream = first[0], chain(first, self._stream)

    def of_step(self, step: int) -> list[Any]:
        """Return the micro-batches of a step."""
        if len(taken := self._next()) < self._accumulate:
            raise ValueError(
                f"batches ended after step {step}, and an iterator cannot be restarted; pass a list or a DataLoader, "
                "or fewer steps."
            )
        return taken

    def state(self) -> dict[str, Any]:
        """Return the place in the epoch, and torch's generator state at its start, which fixes a shuffled order."""
        return {"place": self._place, "generators": self._generators}

    def load_state(self, state: Mapping[str, Any], step: int) -> None:
        """Return to such a place."""
        if isinstance(self._batches, Iterator):
            raise ValueError(
                f"the search cannot resume after step {step}: its batches are an iterator, which cannot be restarted. "
                "Pass a list or a DataLoader, or another out."
            )
        _set_generators(state["generators"], _CPU)
        self._stream = self._endless()
        if sum(1 for _ in islice(self._stream, state["place"])) != self._place:
            raise ValueError(f"fewer batches than when the search started; it cannot resume after step {step}.")

    def _endless(self) -> Iterator[Any]:
        there_are_some = True
        while there_are_some:
            self._place, self._generators = 0, _generators(_CPU)
            for self._place, batch in enumerate(self._batches, 1):  # noqa: B020
                yield batch
            there_are_some = self._place > 0 and not isinstance(self._batches, Iterator)

    def _next(self) -> list[Any]:
        return list(islice(self._stream, self._accumulate))


def _generators(device: torch.device) -> list[Tensor]:
    """Return the states of torch's generators: the CPU's and a GPU's."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _set_generators(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1].cpu(), device)


def _moved(batch: Any, device: torch.device) -> Any:
    """Copy a batch's tensors to a device; everything else in it is left alone."""
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [_moved(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch.to(device) if isinstance(batch, Tensor) else batch
