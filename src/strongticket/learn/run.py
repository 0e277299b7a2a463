"""One run from beginning to end, or from where it was stopped: steps, validation, checkpoints, the ticket."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from strongticket.data.text import Text
from strongticket.data.tokenizer import Tokenizer
from strongticket.data.windows import Tokens, window_count
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.learn.config import RunConfig
from strongticket.learn.folder import CHECKPOINT, TICKET, WEIGHTS, RunFolder
from strongticket.learn.hidden import Hidden
from strongticket.learn.learner import set_learned
from strongticket.learn.recorded import record
from strongticket.learn.shared import Share
from strongticket.learn.stopping import Stop, stop_when_asked
from strongticket.learn.train import Training
from strongticket.tickets.export import write_tensors

LOG_STEPS = 10
CHECKPOINT_SECONDS = 300.0


class StoppedError(StrongTicketError):
    """A run was asked to stop, and what it had done is kept."""

    exit_code = 130  # as shells have it for Ctrl-C: a script can tell it from a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How a run is carried out; its numbers do not depend on these, but for rounding."""

    share: Share
    compiler: str | None = None  # a backend of torch.compile; None runs eagerly
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # how much work a sudden end may cost
    keep: bool = True  # whether to write the ticket, or the trained weights, at the end
    also: Mapping[str, Tokens] = field(default_factory=dict)  # more texts to measure the best state on, by name
    command: str | None = None  # what was typed, for the record


@dataclass(slots=True)
class Moment:
    """How a run is doing, for whoever watches it."""

    step: int
    steps: int
    validated: int = -1  # the step of the last validation
    loss: float = math.nan  # mean training loss of the last few steps
    validation_loss: float = math.nan
    best_loss: float = math.nan
    tokens_per_second: float = math.nan
    densities: Mapping[str, float] = field(default_factory=dict)


Watch = Callable[[Moment], object]


def run(config: RunConfig, text: Text, path: Path, means: Means, *, watch: Watch = lambda moment: None) -> Json:
    """Search or train, or what is left of it.

    Args:
        config: everything the numbers depend on, together with the text.
        text: to learn from and to validate on.
        path: the run's folder.
        means: how it is carried out. Of several processes only the first writes.
        watch: called every few steps.

    Returns:
        The content of `result.json`.

    Raises:
        StoppedError: Ctrl-C or SIGTERM came; the same call goes on from there.
    """
    share = means.share
    if (micro_batches := config.sequences // config.micro_batch) % share.world:
        raise ValueError(
            f"{micro_batches} micro-batches a step cannot be shared by {share.world} processes; "
            "change sequences or micro_batch."
        )
    folder = RunFolder(path, {**config.as_json(), "text": text.describe()}, RunConfig)
    if (result := folder.finished()) is not None:
        return result
    _check_also(means.also, config.length, text.tokenizer)
    if means.compiler is not None:
        # What the runs before this one left compiled counts against a limit, beyond which nothing more is.
        torch.compiler.reset()
    if share.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(share.device)
    with _full_memory_told(config):
        # Made before the folder, which would otherwise hold settings that cannot work.
        training = Training(config, text, share, means.compiler)
        with folder.opened(writes=share.rank == 0), stop_when_asked() as stop:
            under_way = _Run(training, folder, means, watch)
            under_way.resume()
            under_way.go_on(stop)
            result = under_way.finish(text)
            if stop.asked:
                # Too late for this run, which took a moment more; but whoever begins the next one should know.
                raise StoppedError(f"Stopped after the last step: the run is finished, its result is in {path}.")
            return result


def _check_also(also: Mapping[str, Tokens], length: int, tokenizer: Tokenizer) -> None:
    """Refuse other texts that cannot be measured: they are when all steps are done, too late to fail."""
    for name, tokens in also.items():
        window_count(tokens, length, f"the text {name}")
        if (largest := int(tokens.max())) >= tokenizer.vocabulary:
            raise ValueError(
                f"the text {name} has the token {largest:,}, but the run's tokenizer, {tokenizer.name}, has only "
                f"{tokenizer.vocabulary:,} tokens. Make its tokens with this one."
            )


@contextmanager
def _full_memory_told(config: RunConfig) -> Iterator[None]:
    """Say in one line that a GPU's memory is full, and what filled it; torch takes a page."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise StrongTicketError(
            f"{reason}: {config.size}, {config.micro_batch} sequences of {config.length:,} tokens in a forward pass. "
            "Free some memory, use a smaller model, or search with another --out and a smaller --micro-batch."
        ) from None


class _Run:
    def __init__(self, training: Training, folder: RunFolder, means: Means, watch: Watch) -> None:
        self.training, self.folder, self.means, self.watch = training, folder, means, watch
        self.writes = means.share.rank == 0
        self.moment = Moment(0, training.config.steps)
        self.began = self.checkpoint_time = time.monotonic()
        self.resumed_step = 0
        self.saved_step: int | None = None
        self.step_seconds = 0.0  # of training alone

    def resume(self) -> None:
        state = self.folder.load_checkpoint(self.means.share.device)
        if state is not None:
            self.training.load_state(state)
            self.resumed_step = self.saved_step = self.moment.step = self.training.step
            self.watch(self.moment)  # at once, so that one sees where it goes on
        if self.writes:
            self.folder.rewind_metrics(self.training.step if state is not None else -1)

    def go_on(self, stop: Stop) -> None:
        training, config = self.training, self.training.config
        if training.step == 0:
            self._validate()
        counted, since = training.step, time.monotonic()
        while training.step < config.steps:
            training.advance()
            validating = training.step % config.validate_every == 0 or training.step == config.steps
            if training.step % LOG_STEPS == 0 or validating:
                losses = training.losses()  # waits for the GPU, so that the time is that of whole steps
                self._log(losses, training.step - counted, time.monotonic() - since)
                if validating:
                    self._validate()
                if time.monotonic() - self.checkpoint_time >= self.means.checkpoint_seconds:
                    self._save_checkpoint()
                self._stop_if(self._anybody_asks(stop))
                counted, since = training.step, time.monotonic()
            elif self.means.share.world == 1:
                self._stop_if(stop.asked)

    def finish(self, text: Text) -> dict[str, Json]:
        """Write what was found, then the result."""
        training, learner = self.training, self.training.learner
        # Before anything is counted: all that is told of a run is told of its best step.
        set_learned(learner, training.best)
        rows = self.folder.metrics() if self.writes else []
        curve = [(row["step"], row["validation_loss"]) for row in rows if "validation_loss" in row]
        result: dict[str, Json] = {
            "config": self.folder.config,
            "best_validation_loss": training.best_loss,
            "best_step": training.best_step,
            "final_validation_loss": curve[-1][1] if curve else self.moment.validation_loss,
            "curve": curve,
            "nonzero": learner.nonzero(),
        }
        if not self.writes:
            return result
        result["also"] = {name: training.loss_on(tokens) for name, tokens in self.means.also.items()}
        result["found"] = self._write_found(text)
        self.folder.finish(result, self._circumstances())
        return result

    def _write_found(self, text: Text) -> dict[str, Json]:
        training, learner = self.training, self.training.learner
        if isinstance(learner, Hidden):
            config = training.config
            measured = record(
                text,
                length=config.length,
                sequences=config.micro_batch,
                precision=config.precision,
                validation_loss=training.best_loss,
            )
            settings = {"step": training.best_step, "settings": config.as_json()}
            ticket = learner.to_ticket(metadata={"search": {**measured, **settings}})
            if self.means.keep:
                ticket.save(self.folder.path / TICKET)
            file = TICKET if self.means.keep else None
            return {"ticket": file, "identity": ticket.identity, "strong": ticket.strong}
        if self.means.keep:
            write_tensors(self.folder.path / WEIGHTS, dict(learner.trainable()))
        return {"weights": WEIGHTS if self.means.keep else None}

    def _log(self, losses: list[float], steps: int, seconds: float) -> None:
        training, moment = self.training, self.moment
        for place, loss in enumerate(losses, training.step - len(losses) + 1):
            self._refuse_nan("training loss", loss, place)
        self.step_seconds += seconds
        moment.step, moment.loss = training.step, sum(losses) / len(losses)
        moment.tokens_per_second = steps * training.config.tokens_a_step / seconds
        row = {"step": training.step, "loss": moment.loss, "tokens_per_second": round(moment.tokens_per_second, 1)}
        self._append(row)
        self.watch(moment)

    def _validate(self) -> None:
        training, moment = self.training, self.moment
        loss = training.validate()
        self._refuse_nan("validation loss", loss, training.step)
        moment.step = moment.validated = training.step
        moment.validation_loss, moment.best_loss = loss, training.best_loss
        moment.densities = {group: kept for group, kept in training.learner.densities().items()}
        self._append({"step": training.step, "validation_loss": loss})
        self.watch(moment)

    def _append(self, row: dict[str, Json]) -> None:
        if self.writes:
            self.folder.append_metrics(row)

    def _refuse_nan(self, what: str, loss: float, step: int) -> None:
        if math.isfinite(loss):
            return
        kept = (
            "no checkpoint had been written yet"
            if self.saved_step is None
            else f"the last good state, of step {self.saved_step}, is in {self.folder.path / CHECKPOINT}"
        )
        raise StrongTicketError(
            f"the {what} is {loss} at step {step}; {kept}. Choose another --out and a smaller --lr or --qk-scale."
        )

    def _save_checkpoint(self) -> None:
        self.checkpoint_time = time.monotonic()
        if self.writes:
            self.folder.save_checkpoint(self.training.state())
        self.saved_step = self.training.step

    def _anybody_asks(self, stop: Stop) -> bool:
        if self.means.share.world == 1:
            return stop.asked
        asked = torch.tensor(float(stop.asked), device=self.means.share.device)
        dist.all_reduce(asked)
        return bool(asked)

    def _stop_if(self, asked: bool) -> None:
        if asked and self.training.step < self.training.config.steps:
            self._save_checkpoint()
            raise StoppedError(
                f"Stopped after step {self.training.step} of {self.training.config.steps}. What is done is kept in "
                f"{self.folder.path}; the same command goes on from there."
            )

    def _circumstances(self) -> dict[str, Json]:
        from strongticket.environment import environment

        steps = self.training.step - self.resumed_step
        device = self.means.share.device
        cuda = device.type == "cuda"
        return {
            "command": self.means.command,
            "seconds": round(time.monotonic() - self.began, 3),
            "resumed_at_step": self.resumed_step,
            "tokens_per_second": steps * self.training.config.tokens_a_step / max(self.step_seconds, 1e-9),
            "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if cuda else None,
            "processes": self.means.share.world,
            "compiler": self.means.compiler,
            **environment(device.type),
        }
