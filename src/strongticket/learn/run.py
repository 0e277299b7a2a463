"""One run from start to end, or from where it stopped: steps, validation, checkpoints, the ticket.

The same for GPT-2 on text (`text_run.py`) and for any module of the caller (`modules.py`).
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from strongticket.data.windows import Tokens
from strongticket.errors import StrongTicketError
from strongticket.files import atomic_write
from strongticket.learn import rounded_file
from strongticket.learn.folder import CHECKPOINT, METRICS, TICKET, WEIGHTS, RunFolder
from strongticket.learn.hidden import Hidden, UnwritableError
from strongticket.learn.repeat import repeatable
from strongticket.learn.result import Found, RunResult
from strongticket.learn.rounded import Rounded
from strongticket.learn.shared import Share
from strongticket.learn.stopping import Stop, stop_when_asked
from strongticket.learn.train import Training
from strongticket.tickets.export import write_tensors

LOG_STEPS = 10
CHECKPOINT_SECONDS = 300.0


class StoppedError(StrongTicketError):
    """A run was asked to stop; its work is saved."""

    exit_code = 130  # the shells' code for Ctrl-C, so that scripts can distinguish it from a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How a run is carried out; its numbers depend on these only by rounding."""

    share: Share
    compiler: str | None = None  # a backend of torch.compile; None runs eagerly
    deterministic: bool = False  # whether the same run on the same kind of GPU gives the same bits
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # at most this much work is lost by a kill
    keep: bool = True  # whether to write the ticket, or the trained weights, at the end
    keep_checkpoint: bool = False  # whether a finished run keeps its last checkpoint
    also: Mapping[str, Tokens] = field(default_factory=dict)  # further texts to measure the best state on, by name
    command: str | None = None  # what was typed, for the record
    warn: Callable[[str], object] = warnings.warn  # called with a line about a problem that can be fixed


@dataclass(slots=True)
class Moment:
    """The progress of a run, for those who watch it."""

    step: int
    steps: int
    validated: int = -1  # the step of the last validation
    loss: float = math.nan  # mean training loss of the last few steps
    validation_loss: float = math.nan
    best_loss: float = math.nan
    tokens_per_second: float = math.nan
    densities: Mapping[str, float] = field(default_factory=dict)


Watch = Callable[[Moment], object]

# Called with each step's number, from 1, and its loss.
Progress = Callable[[int, float], object]


def carry_out(
    training: Training,
    folder: RunFolder | None,
    means: Means,
    *,
    validate_every: int,
    watch: Watch = lambda moment: None,
    progress: Progress | None = None,
) -> RunResult:
    """Do a run, or the rest of it; the learner ends in the state of its best step.

    Args:
        training: a run at its start.
        folder: where it is saved; None saves nothing, and leaves Ctrl-C to the caller.
        means: how it is carried out. Of several processes only the first writes.
        validate_every: steps between validations; there is also one before the first and one after the last step.
        watch: called every few steps.
        progress: called with each step's loss; on a GPU, or in several processes, for several steps at a time.

    Returns:
        The content of `result.json`.

    Raises:
        StoppedError: Ctrl-C or SIGTERM came; the same call resumes.
    """
    under_way = _Run(training, folder, means, watch, progress)
    if isinstance(learner := training.learner, Hidden) and (line := learner.rule.remark(training.schedule.steps)):
        under_way.warn(line)
    repeating = repeatable(means.deterministic and means.share.device.type == "cuda")
    if folder is None:
        with repeating:
            under_way.train(Stop(), validate_every)
            return under_way.finish()
    with folder.opened(writes=under_way.writes), stop_when_asked() as stop, repeating:
        under_way.resume(folder)
        under_way.train(stop, validate_every)
        result = under_way.finish()
        if stop.asked:
            # Too late for this run, which has finished; but a caller should not start the next one.
            raise StoppedError(f"Stopped after the last step; the run is finished, its result is in {folder.path}.")
        return result


class _Run:
    def __init__(
        self, training: Training, folder: RunFolder | None, means: Means, watch: Watch, progress: Progress | None
    ) -> None:
        self.training, self.folder, self.means = training, folder, means
        self.watch, self.progress = watch, progress
        self.writes = folder is not None and means.share.rank == 0
        # True if there is nothing to wait for, neither a GPU nor other processes.
        self.tells_at_once = means.share.device.type == "cpu" and means.share.world == 1
        self.steps = training.schedule.steps
        self.moment = Moment(0, self.steps)
        self.curve: list[tuple[int, float]] = []  # of validation losses
        self.losses: list[tuple[int, float]] = []  # of training, one mean every few steps
        self.metrics_lines = 0
        self.began = self.checkpoint_time = time.monotonic()
        self.resumed_step = 0
        self.saved_step: int | None = None
        self.step_seconds = 0.0  # of training alone

    def warn(self, line: str) -> None:
        """Report a line, once for all processes."""
        if self.means.share.rank == 0:
            self.means.warn(line)

    def resume(self, folder: RunFolder) -> None:
        state = folder.load_checkpoint(self.means.share.device, self._check_state, self.warn)
        if state is not None:
            self.training.load_state(state)
            self.resumed_step = self.saved_step = self.moment.step = self.training.step
            self.watch(self.moment)  # at once, to show where it resumes
        if self.writes:
            kept = folder.rewind_metrics(self.training.step if state is not None else -1)
            rows = list(folder.metrics())
            self.curve = [(row["step"], row["validation_loss"]) for row in rows if "validation_loss" in row]
            self.losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
            if state is not None:
                self.curve = [(step, loss) for step, loss in state["curve"]]
                if kept < state["metrics_lines"]:
                    self.warn(
                        f"{folder.path / METRICS} has lost {state['metrics_lines'] - kept} of its "
                        f"{state['metrics_lines']} lines; the validation losses are also in the checkpoint."
                    )
            self.metrics_lines = kept
        self.curve = self.means.share.gathered(self.curve)[0]

    def _check_state(self, state: Mapping[str, Any]) -> None:
        """Raise an error for anything that `_keep` cannot have written."""
        self.training.check_state(state)
        if any(type(step) is not int or type(loss) is not float for step, loss in state["curve"]):
            raise ValueError("its curve is invalid")
        if type(state["metrics_lines"]) is not int:
            raise ValueError("its number of metrics is invalid")

    def train(self, stop: Stop, validate_every: int) -> None:
        training, alone = self.training, self.means.share.world == 1
        if training.step == 0:
            self._validate()
        counted, since = training.step, time.monotonic()
        while training.step < self.steps:
            loss = training.advance()
            if self.tells_at_once:
                self._tell(training.step, float(loss))
            validating = training.step % validate_every == 0 or training.step == self.steps
            if training.step % LOG_STEPS == 0 or validating:
                losses = training.losses()  # waits for the GPU, so that whole steps are timed
                self._log(losses, training.step - counted, time.monotonic() - since)
                if validating:
                    self._validate()
                self._keep(stop)
                counted, since = training.step, time.monotonic()
            elif alone:
                self._stop_if(stop.asked)

    def finish(self) -> RunResult:
        """Write the ticket or the weights, then the result."""
        training, learner, best = self.training, self.training.learner, self.training.best
        if self.folder and self.means.keep_checkpoint:
            self._save_checkpoint(self.folder)
        if isinstance(learner, Hidden):
            learner.curves = {"training": self.losses, "validation": self.curve}
        if best is not None:
            if isinstance(learner, Hidden):
                learner.best, learner.final = best, training.snapshot(self.curve[-1][1])
            # Before counting: everything reported of a run is about its best step.
            learner.load_state(best.values, best.step)
        result: RunResult = {
            "config": self.folder.config if self.folder else None,
            "best_validation_loss": best.loss if best else None,
            "best_step": best.step if best else training.step,
            "final_validation_loss": self.curve[-1][1] if self.curve else None,
            "curve": self.curve,
            "nonzero": learner.nonzero(),
        }
        if self.folder is None or not self.writes:
            return result
        result["also"] = training.task.measure(learner.model)
        result["found"] = self._write_found(self.folder)
        if self.folder.finished() is None:
            self.folder.finish(result, self._circumstances())
        if not self.means.keep_checkpoint:
            self.folder.remove_checkpoint()
        return result

    def _write_found(self, folder: RunFolder) -> Found:
        training, learner, keep = self.training, self.training.learner, self.means.keep
        if isinstance(learner, Rounded):
            content = rounded_file.to_bytes(learner)
            if keep:
                with atomic_write(folder.path / WEIGHTS) as file:
                    file.write(content)
            return {"weights": WEIGHTS if keep else None, "bytes": len(content)}
        if not isinstance(learner, Hidden):
            if keep:
                write_tensors(folder.path / WEIGHTS, dict(learner.trainable()))
            return {"weights": WEIGHTS if keep else None}
        try:
            ticket = learner.to_ticket(metadata=training.task.metadata(training.best))
        except UnwritableError as error:
            return {"ticket": None, "unwritable": str(error)}
        content = ticket.to_bytes()
        if keep:
            with atomic_write(folder.path / TICKET) as file:
                file.write(content)
        return {
            "ticket": TICKET if keep else None,
            "bytes": len(content),
            "rule_version": learner.rule.version,
            "identity": ticket.identity,
            "strong": ticket.strong,
            "strength": ticket.strength,
        }

    def _log(self, losses: list[float], steps: int, seconds: float) -> None:
        training, moment = self.training, self.moment
        for step, loss in enumerate(losses, training.step - len(losses) + 1):
            if not self.tells_at_once:
                self._tell(step, loss)
        self.step_seconds += seconds
        moment.step, moment.loss = training.step, sum(losses) / len(losses)
        self.losses.append((training.step, moment.loss))
        speed = self._speed(steps, seconds)
        moment.tokens_per_second = speed.get("tokens_per_second", math.nan)
        self._append({"step": training.step, "loss": moment.loss, **{key: round(v, 1) for key, v in speed.items()}})
        self.watch(moment)

    def _tell(self, step: int, loss: float) -> None:
        self._refuse_nan("training loss", loss, step)
        if self.progress:
            self.progress(step, loss)

    def _speed(self, steps: int, seconds: float) -> dict[str, float]:
        tokens = self.training.task.tokens_per_step
        per_second = steps / max(seconds, 1e-9)
        return {"steps_per_second": per_second} if tokens is None else {"tokens_per_second": tokens * per_second}

    def _validate(self) -> None:
        training, moment = self.training, self.moment
        if (loss := training.validate()) is None:
            return
        self._refuse_nan("validation loss", loss, training.step)
        assert training.best is not None
        moment.step = moment.validated = training.step
        moment.validation_loss, moment.best_loss = loss, training.best.loss
        moment.densities = {group: kept for group, kept in training.learner.densities().items()}
        self.curve.append((training.step, loss))
        self._append({"step": training.step, "validation_loss": loss})
        self.watch(moment)

    def _append(self, row: Mapping[str, object]) -> None:
        if self.folder is not None and self.writes:
            self.folder.append_metrics(row)
            self.metrics_lines += 1

    def _refuse_nan(self, what: str, loss: float, step: int) -> None:
        if math.isfinite(loss):
            return
        self.training.learner.check_weights()
        kept = "nothing was kept"
        if self.folder is not None:
            kept = (
                "no checkpoint had been written yet"
                if self.saved_step is None
                else f"the last good state, of step {self.saved_step}, is in {self.folder.path / CHECKPOINT}"
            )
        raise StrongTicketError(f"the {what} is {loss} at step {step}; {kept}. {self.training.task.advice}")

    def _keep(self, stop: Stop) -> None:
        """Write a checkpoint when due; all processes must agree, since each contributes to it."""
        if self.folder is None:
            return
        due = time.monotonic() - self.checkpoint_time >= self.means.checkpoint_seconds
        due_anywhere, asked_anywhere = map(any, zip(*self.means.share.gathered((due, stop.asked)), strict=True))
        if due_anywhere:
            self._save_checkpoint(self.folder)
        self._stop_if(asked_anywhere)

    def _save_checkpoint(self, folder: RunFolder) -> None:
        self.checkpoint_time = time.monotonic()
        if self.saved_step != self.training.step:
            state = self.training.state()
            if self.writes:
                curve = [list(point) for point in self.curve]
                folder.save_checkpoint({**state, "curve": curve, "metrics_lines": self.metrics_lines})
        self.saved_step = self.training.step

    def _stop_if(self, asked: bool) -> None:
        if asked and self.folder is not None and self.training.step < self.steps:
            self._save_checkpoint(self.folder)
            raise StoppedError(
                f"Stopped after step {self.training.step:,} of {self.steps:,}; the same {self.folder.caller} resumes."
            )

    def _circumstances(self) -> dict[str, object]:
        from strongticket.environment import environment

        steps = self.training.step - self.resumed_step
        device = self.means.share.device
        cuda = device.type == "cuda"
        return {
            "command": self.means.command,
            "seconds": round(time.monotonic() - self.began, 3),
            "resumed_at_step": self.resumed_step,
            **self._speed(steps, self.step_seconds),
            "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if cuda else None,
            "processes": self.means.share.world,
            "compiler": self.means.compiler,
            "deterministic": self.means.deterministic or not cuda,
            **environment(device.type),
        }
