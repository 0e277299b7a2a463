"""The settings of a run: everything its numbers depend on."""

import math
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from strongticket.files import Json, as_json
from strongticket.learn.policy import Policy
from strongticket.learn.rules import DEFAULT_RULE
from strongticket.learn.schedule import Schedule
from strongticket.learn.step import Precision, StepConfig
from strongticket.models.gpt2 import GPT2, GPT2Config, gpt2_config
from strongticket.ops.rng import stream_of

Mode = Literal["search", "dense"]
STEPS_AN_EPOCH = 227  # of 512 sequences: WikiText-103 once, in the paper's counting


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What is searched or trained, on how much text; the defaults are the paper's (B.2)."""

    size: str = "small"
    mode: Mode = "search"
    policy: Policy = field(default_factory=Policy)  # of no account when all weights are trained
    seed: int = 0  # of the weights, the first scores and the order of the text
    length: int = 1024  # tokens in a sequence
    sequences: int = 512  # in a step
    micro_batch: int = 32  # sequences in a forward pass
    steps: int = 50 * STEPS_AN_EPOCH
    warmup: int = STEPS_AN_EPOCH
    lr: float = 1e-4
    final_lr: float = 1e-5
    weight_decay: float = 0.01
    clip: float | None = None  # most norm of the gradient
    validate_every: int = STEPS_AN_EPOCH
    activation: Literal["gelu", "relu"] = "gelu"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be search or dense; got {self.mode!r}.")
        for name in ("length", "sequences", "micro_batch", "validate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.sequences % self.micro_batch:
            raise ValueError(
                f"sequences must be a multiple of micro_batch (--micro-batch); got {self.sequences} "
                f"and {self.micro_batch}."
            )
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more; got {self.weight_decay}.")
        # These check themselves.
        _ = self.schedule, self.model_config(vocabulary=1), stream_of(self.seed, "")
        StepConfig(precision=self.precision, clip=self.clip)

    @property
    def schedule(self) -> Schedule:
        """The learning rate at each step."""
        return Schedule(steps=self.steps, lr=self.lr, final_lr=self.final_lr, warmup=self.warmup)

    @property
    def tokens_a_step(self) -> int:
        """How many tokens one step learns from."""
        return self.sequences * self.length

    def model_config(self, vocabulary: int) -> GPT2Config:
        """Describe the model: as long as a sequence, and without biases that would stay at 0."""
        biased = self.mode == "dense" or "trained" in (self.policy.biases, self.policy.norms)
        changes = {"context": self.length, "vocabulary": vocabulary, "activation": self.activation, "bias": biased}
        return gpt2_config(self.size, **changes)

    def weights(self, vocabulary: int) -> int:
        """Count the model's parameters without making them."""
        return sum(GPT2(self.model_config(vocabulary), device="meta").parameter_counts().values())

    def as_json(self) -> Json:
        """Give the settings as a file stores them."""
        settings = asdict(self)
        if self.mode == "dense":
            del settings["policy"]
        elif self.policy.rule == DEFAULT_RULE:
            del settings["policy"]["rule"]  # as before there were others
        return as_json(settings)
