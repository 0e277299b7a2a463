"""A run on text: search or train GPT-2."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from strongticket.data.text import Text, training_batch
from strongticket.data.tokenizer import Tokenizer
from strongticket.data.windows import Tokens, window_count
from strongticket.errors import StrongTicketError
from strongticket.learn.config import RunConfig
from strongticket.learn.evaluate import validation_loss
from strongticket.learn.folder import RunFolder
from strongticket.learn.hidden import Snapshot
from strongticket.learn.hide import hide
from strongticket.learn.learner import Dense, Learner
from strongticket.learn.optimizers import Updates
from strongticket.learn.recorded import How, record
from strongticket.learn.result import RunResult
from strongticket.learn.rounded import Rounded
from strongticket.learn.run import Means, Watch, carry_out
from strongticket.learn.shared import Share
from strongticket.learn.step import StepConfig
from strongticket.learn.train import Task, Training
from strongticket.models.gpt2 import GPT2


def run(config: RunConfig, text: Text, path: Path, means: Means, *, watch: Watch = lambda moment: None) -> RunResult:
    """Search or train, or finish an earlier run.

    Args:
        config: everything the numbers depend on, apart from the text.
        text: to learn from and to validate on.
        path: the run's folder.
        means: how it is carried out. Of several processes only the first writes.
        watch: called every few steps.

    Returns:
        The content of `result.json`.

    Raises:
        StoppedError: Ctrl-C or SIGTERM came; the same call resumes.
    """
    share = means.share
    if (micro_batches := config.sequences // config.micro_batch) % share.world:
        raise ValueError(
            f"{micro_batches} micro-batches per step cannot be shared by {share.world} processes; "
            "change sequences or micro_batch."
        )
    folder = RunFolder(path, {**config.as_json(), "text": text.describe()}, RunConfig)
    if (result := folder.finished()) is not None:
        return result
    task = TextTask(config, text, share, means.also)
    if means.compiler is not None:
        # Code compiled for earlier runs counts toward torch's limit, beyond which nothing is compiled.
        torch.compiler.reset()
    if share.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(share.device)
    with _explain_full_memory(config):
        # Made before the folder, which would otherwise hold invalid settings.
        learner = make_learner(config, text.tokenizer.vocabulary, share.device)
        training = Training(
            learner,
            task,
            share,
            schedule=config.schedule,
            step=StepConfig(precision=config.precision, compiler=means.compiler, clip=config.clip),
            updates=Updates(learner.trainable(), lr=config.lr, weight_decay=config.weight_decay),
        )
        return carry_out(training, folder, means, validate_every=config.validate_every, watch=watch)


def make_learner(config: RunConfig, vocabulary: int, device: torch.device) -> Learner:
    """Draw the model and, for a search, hide a network in it."""
    model = GPT2(config.model_config(vocabulary), seed=config.seed, device=device)
    if config.mode == "search":
        return hide(model, config.policy, seed=config.seed)
    return Dense(model) if config.stored == "float32" else Rounded(model, config.stored)


class TextTask(Task):
    """Learn to predict a text; the number of a step determines which part of the text it sees."""

    advice = "Choose another --out and a smaller --lr or --qk-scale."

    def __init__(self, config: RunConfig, text: Text, share: Share, also: Mapping[str, Tokens]) -> None:
        self._config, self._text, self._share, self._also = config, text, share, also
        self.tokens_per_step = config.tokens_per_step
        self._how: How = {"length": config.length, "sequences": config.micro_batch, "precision": config.precision}
        for split in ("train", "valid"):
            window_count(text.tokens(split), config.length, f"the {split} text")  # raises if too short
        _check_also(also, config.length, text.tokenizer)

    def micro_batches(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """Return this process's share of the step's sequences, on its device."""
        config, share = self._config, self._share
        batch = training_batch(
            self._text.train, length=config.length, sequences=config.sequences, seed=config.seed, step=step
        )
        starts = range(share.rank * config.micro_batch, config.sequences, share.world * config.micro_batch)
        inputs, targets = (
            [share.to_device(tensor[start : start + config.micro_batch]) for start in starts] for tensor in batch
        )
        return list(zip(inputs, targets, strict=True))

    def validate(self, model: nn.Module) -> float:
        """Measure the loss on the validation text; every process measures all of it."""
        return self._loss_on(model, self._text.valid)

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Measure the loss on the other texts."""
        return {name: self._loss_on(model, tokens) for name, tokens in self._also.items()}

    def metadata(self, best: Snapshot | None) -> Mapping[str, object]:
        """Return what `evaluate` and `generate` need."""
        assert best is not None
        measured = record(self._text, best.loss, self._how)
        return {"search": {**measured, "step": best.step, "settings": self._config.as_json()}}

    def _loss_on(self, model: nn.Module, tokens: Tokens) -> float:
        return validation_loss(model, tokens, **self._how, device=self._share.device)


def _check_also(also: Mapping[str, Tokens], length: int, tokenizer: Tokenizer) -> None:
    """Refuse other texts that cannot be measured, now rather than after the last step."""
    for name, tokens in also.items():
        window_count(tokens, length, f"the text {name}")
        if (largest := int(tokens.max())) >= tokenizer.vocabulary:
            raise ValueError(
                f"the text {name} has the token {largest:,}, but the run's tokenizer, {tokenizer.name}, has only "
                f"{tokenizer.vocabulary:,} tokens. Tokenize it with this one."
            )


@contextmanager
def _explain_full_memory(config: RunConfig) -> Iterator[None]:
    """Replace torch's page-long error of a full GPU memory by a line that says what filled it."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise StrongTicketError(
            f"{reason}: {config.size}, {config.micro_batch} sequences of {config.length:,} tokens per forward pass. "
            "Free some memory, use a smaller model, or search with another --out and a smaller --micro-batch."
        ) from None
