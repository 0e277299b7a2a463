"""The settings of a run: everything its numbers depend on."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from strongticket.checks import as_seed
from strongticket.files import Json, as_json
from strongticket.learn.policy import Policy
from strongticket.learn.result import RunSettings
from strongticket.learn.schedule import Schedule
from strongticket.models.gpt2_sizes import GPT2Config, gpt2_config
from strongticket.settings import setting, value_before

Mode = Literal["search", "dense"]
Stored = Literal["float32", "bfloat16", "int8", "int4", "int3", "ternary", "binary"]
Precision = Literal["float32", "bfloat16"]
EPOCHS = 50
STEPS_PER_EPOCH = 227  # of 512 sequences: WikiText-103 once, as the paper counts
MASKS, SCHEDULE, MACHINE = "What is masked, and how it is drawn (search only)", "Schedule", "Machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """How a step is computed; the model and the optimizer decide what is computed."""

    precision: Precision = "float32"  # bfloat16: products by autocast; parameters and gradients stay float32
    compiler: str | None = None  # a backend of torch.compile, usually "inductor"; None: eager
    clip: float | None = None  # largest norm of the whole gradient

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision must be {' or '.join(get_args(Precision))}; got {self.precision!r}.")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"clip must be a positive norm, or None; got {self.clip}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What is searched or trained, on how much text; the defaults are the paper's (B.2)."""

    size: str = setting("small", "GPT-2 size: nano, mini, small, medium or LAYERSxWIDTH.", metavar="NAME")
    mode: Mode = setting("search", "Search for a ticket, or train all weights as usual.")
    stored: Stored = setting(
        "float32", "Type that a dense run's weights are rounded to, in every step and in its file.", metavar="TYPE"
    )
    # Ignored when all weights are trained.
    policy: Policy = field(default_factory=Policy, metadata={"panel": MASKS})
    seed: int = setting(0, "Seed of the weights, first scores and order of the text.", least=0)
    length: int = setting(1024, "Tokens per sequence.", panel=SCHEDULE, least=1, shown="1024; nano: 128")
    sequences: int = setting(512, "Sequences per step.", panel=SCHEDULE, least=1)
    micro_batch: int = setting(
        32,
        "Sequences per forward pass, a divisor of --sequences; fewer take less memory.",
        panel=MACHINE,
        least=1,
    )
    steps: int = setting(EPOCHS * STEPS_PER_EPOCH, "Steps, instead of --epochs.", panel=SCHEDULE, least=1, shown="")
    warmup: int = setting(
        STEPS_PER_EPOCH,
        "Steps of linear warm-up.",
        panel=SCHEDULE,
        least=0,
        shown="one epoch, at most a tenth of the steps",
    )
    lr: float = setting(1e-4, "Highest learning rate.", panel=SCHEDULE)
    final_lr: float = setting(1e-5, "Last learning rate.", panel=SCHEDULE, shown="a tenth of the highest")
    weight_decay: float = setting(0.01, "AdamW's weight decay, on scores or weights.", panel=SCHEDULE, least=0)
    clip: float | None = setting(None, "Scale larger gradients down to this norm.", panel=SCHEDULE, shown="none")
    validate_every: int = setting(
        STEPS_PER_EPOCH, "Steps between validations.", panel=SCHEDULE, least=1, shown="one epoch"
    )
    activation: Literal["gelu", "relu"] = setting("gelu", "Activation of the MLP.", panel=SCHEDULE)
    precision: Precision = setting("float32", "Precision of products.", panel=MACHINE, shown="bfloat16 on cuda")

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be search or dense; got {self.mode!r}.")
        if self.stored not in get_args(Stored):
            raise ValueError(f"stored must be one of {', '.join(get_args(Stored))}; got {self.stored!r:.40}.")
        if self.mode == "search" and self.stored != "float32":
            raise ValueError(f"stored={self.stored!r} is for trained weights (--mode dense); a search trains none.")
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
        # These validate themselves.
        _ = self.schedule, self.model_config(vocabulary=1), as_seed(self.seed)
        StepConfig(precision=self.precision, clip=self.clip)

    @property
    def schedule(self) -> Schedule:
        """The learning rate at each step."""
        return Schedule(steps=self.steps, lr=self.lr, final_lr=self.final_lr, warmup=self.warmup)

    @property
    def tokens_per_step(self) -> int:
        """The number of tokens in one step."""
        return self.sequences * self.length

    def model_config(self, vocabulary: int) -> GPT2Config:
        """Describe the model: its context is one sequence, and biases that would stay 0 are left out."""
        biased = self.mode == "dense" or "trained" in (self.policy.biases, self.policy.norms)
        changes = {"context": self.length, "vocabulary": vocabulary, "activation": self.activation, "bias": biased}
        return gpt2_config(self.size, **changes)

    def weights(self, vocabulary: int) -> int:
        """Count the model's parameters without creating them."""
        from strongticket.models.gpt2 import GPT2

        return sum(GPT2(self.model_config(vocabulary), device="meta").parameter_counts().values())

    def as_json(self) -> RunSettings:
        """Return the settings as stored in a file."""
        settings = asdict(self)
        if self.mode == "dense":
            del settings["policy"]
        written: RunSettings = as_json(settings)
        return written


# The settings that existed when runs were first named. Names hash all of these, so that changed defaults do not change
# names; a later setting counts only if it differs from what runs did before.
FIRST_SETTINGS: Mapping[type[Any], str] = {
    RunConfig: "size mode policy seed length sequences micro_batch steps warmup lr final_lr weight_decay clip "
    "validate_every activation precision",
    Policy: "attention mlp embeddings head norms biases density scope signed qk_scale init rescale score_init "
    "output_gain",
}


def settings_that_count(settings: Mapping[str, Json], kind: type[Any] = RunConfig) -> Json:
    """Leave out settings newer than names that do what runs did before them; `settings.filled` restores them."""
    before = {own.name: value_before(own) for own in fields(kind)}
    return {
        name: settings_that_count(value, Policy) if name == "policy" else value
        for name, value in settings.items()
        if name in FIRST_SETTINGS[kind].split() or value != as_json(before[name])
    }
