"""The runs of Figures 7 and 8: schedules by name, and their variations."""

import math
from dataclasses import replace
from typing import Literal, get_args

from strongticket.learn.config import RunConfig
from strongticket.models.gpt2 import gpt2_config

ScheduleName = Literal["quick", "short", "paper"]
NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)
Embeddings = Literal["trained", "masked"]

# Tied embeddings of std 0.02, three in ten kept, bound the logits far below what text needs.
MASKED_GAIN = 4.0
FIRST_STEPS = {"nano": 3200, "mini": 3200, "small": 1600, "medium": 800}
SHORT_STEPS = FIRST_STEPS | {"nano": 1600, "mini": 1600}
# Larger models need smaller rates: `ablation` chose those of mini and small, each at the theory's scale.
SHORT_RATE = {"nano": 3e-3, "mini": 3e-3, "small": 1e-3, "medium": 1e-3}
# Trained models' warm-ups, as multiples of the usual one: all for the first seed, the best two for the others. Mini has
# four, since its best two changed when longer ones were tried. Nano and medium use the best of mini and small.
WARMUPS = (0.5, 1, 2, 4, 8)
LONGEST = WARMUPS[-1]
BEST_WARMUPS = {"nano": (1, 2, 4, 8), "mini": (1, 2, 4, 8), "small": (4, 8), "medium": (4, 8)}


def quick(size: str) -> RunConfig:
    """Take a few seconds on two CPU cores, for nano on the sample: only shows that everything works."""
    return shortened(RunConfig(size=size, length=64, sequences=32, lr=1e-2, final_lr=1e-3), steps=120)


def first(size: str) -> RunConfig:
    """Return the schedule that `spread` and `ablation` start from, and from which they derived `short`."""
    config = RunConfig(size=size, sequences=32, lr=1e-3, final_lr=1e-4, precision="bfloat16")
    return shortened(config, FIRST_STEPS[size])


def short(size: str) -> RunConfig:
    """Take half a minute on an H200 for mini, two minutes for small: 52M tokens for both, 26M for medium.

    A step has 33k tokens: at equal tokens, twice the steps of half the batch lowered the loss by 0.46, and doubling
    them again by 0.29 (`ablation`). The learning rate is also from `ablation`, the length from `spread`.
    """
    start = first(size)
    return shortened(times_rate(start, round(SHORT_RATE[size] / start.lr)), SHORT_STEPS[size])


def times_rate(config: RunConfig, factor: float) -> RunConfig:
    """Multiply a schedule's learning rates."""
    return replace(config, lr=config.lr * factor, final_lr=config.final_lr * factor)


def times_warmup(config: RunConfig, factor: float) -> RunConfig:
    """Multiply a schedule's warm-up."""
    return replace(config, warmup=round(config.warmup * factor))


def shortened(config: RunConfig, steps: int) -> RunConfig:
    """Set the number of steps: a twentieth of them warm-up, four validations."""
    return replace(config, steps=steps, warmup=steps // 20, validate_every=steps // 4)


def paper(size: str) -> RunConfig:
    """Return the paper's schedule, as printed in B.2: 6e9 tokens."""
    return RunConfig(size=size, precision="bfloat16")


def base(schedule: ScheduleName, size: str) -> RunConfig:
    """Return a schedule by name."""
    return {"quick": quick, "short": short, "paper": paper}[schedule](size)


def origin(schedule: ScheduleName, size: str) -> RunConfig:
    """Return the schedule that `spread` and `ablation` vary, before their findings changed it."""
    return first(size) if schedule == "short" else base(schedule, size)


def is_costly(schedule: ScheduleName, size: str) -> bool:
    """Tell whether a figure should have fewer runs: those of the short schedule that still take minutes."""
    return schedule == "short" and size in ("small", "medium")


def ticket(config: RunConfig, *, embeddings: Embeddings, scale: float, seed: int) -> RunConfig:
    """Plan a search; runs that differ only in the scale share weights, first scores and text."""
    gain = MASKED_GAIN if embeddings == "masked" else 1.0
    policy = replace(config.policy, embeddings=embeddings, qk_scale=scale, output_gain=gain)
    return replace(config, seed=seed, policy=policy)


def dense(config: RunConfig, *, seed: int) -> RunConfig:
    """Plan the trained baseline of a schedule, with the warm-up, weight decay and clipping that training needs."""
    warmup = max(config.warmup, config.steps // 10)
    return replace(config, mode="dense", seed=seed, warmup=warmup, weight_decay=0.1, clip=1.0)


def baselines(schedule: ScheduleName, size: str, *, seed: int) -> list[RunConfig]:
    """List the trained models of a schedule: learning rates and warm-ups to choose from, and more seeds of the best.

    With a long warm-up, larger models can use three times the rate. Mini's rate is chosen in `ablation`.
    """
    usual = dense(base(schedule, size), seed=seed)
    if schedule != "short":
        return [usual]
    found = [times_warmup(usual, factor) for factor in (WARMUPS if seed == 0 else BEST_WARMUPS[size])]
    if is_costly(schedule, size):
        found += [times_rate(usual, factor) for factor in (1 / 3, 3)] if seed == 0 else []
        found.append(times_rate(times_warmup(usual, LONGEST), 3))
    return found


def theory_scale(size: str) -> float:
    """Return $n_K^{1/4}$, rounded as figures show it, so that rows can be looked up by it."""
    return round(math.sqrt(math.sqrt(gpt2_config(size).key_width)), 2)
