"""The runs of the frontier: what was planned at each time, and why."""

from dataclasses import replace
from typing import Any, NamedTuple

from strongticket.experiments import schedules
from strongticket.experiments.text_figure import Choice
from strongticket.learn.config import RunConfig, Stored
from strongticket.learn.policy import Policy
from strongticket.learn.rules import DEFAULT_RULE
from strongticket.models.gpt2_sizes import SIZES

# Keep or flip each sign, drop none: one bit per weight.
FLIP = "signed:threshold=0"


class Run(NamedTuple):
    """How a run differs from the short schedule of mini."""

    size: str = "mini"
    stored: Stored | None = None  # of a trained model
    lr: float = 3e-3
    warmup: int = 320
    fall: float = 10.0  # ratio of the highest learning rate to the last
    split: int = 1  # steps that each usual step becomes, with as many times fewer sequences
    policy: dict[str, Any] = {}  # noqa: RUF012, never changed


def ticket(
    rule: str = DEFAULT_RULE, *, size: str = "mini", density: float = 0.5, gain: float = 4.0, **more: Any
) -> Run:
    """Plan a ticket of signed constants with everything masked."""
    run = {key: more.pop(key) for key in ("lr", "warmup", "fall", "split") if key in more}
    policy = {"init": "sign", "rule": rule, "output_gain": gain, **more}
    return Run(size=size, policy=policy if rule == FLIP else {"density": density, **policy}, **run)


# The size of a trained model whose file has about the 4.9 MB of a ticket of mini.
AS_LARGE: dict[Stored, str] = {
    "ternary": "4x352",
    "int4": "5x160",
    "binary": "mini",
    "int8": "5x80",
    "bfloat16": "4x64",
    "int3": "4x256",
}


def trained(stored: Stored, size: str = "", *, warmup: int = 1280, **more: Any) -> Run:
    """Plan a model trained in few bits, with the settings that Figure 7 found best for trained models."""
    return Run(size=size or AS_LARGE[stored], stored=stored, warmup=warmup, **more)


# Done first, to decide the question at 4.9 MB.
FIRST: tuple[Run, ...] = (
    ticket(FLIP, gain=2.0),
    ticket(FLIP, gain=2.0, scales="block"),
    trained("ternary"),
    ticket(FLIP),
    ticket(FLIP, init="kaiming-sign", qk_scale=1.0, gain=0.7),
    trained("int4"),
    ticket(FLIP, gain=2.0, scales="output", norms="trained"),
    *(trained(stored, lr=1e-2) for stored in ("int4", "ternary")),
    ticket(),
)
SMALL_STEPS: dict[str, Any] = {"warmup": 1280, "split": 2}
FLIP_SCALED: dict[str, Any] = {"gain": 2.0, "scales": "output", "norms": "trained", **SMALL_STEPS}
# Planned when these ten were known: dropping half beats flipping, and trained models want a higher rate than we gave.
SECOND: tuple[Run, ...] = (
    ticket(split=2),
    trained("int4", lr=1e-2, split=2),
    ticket(warmup=1280),
    ticket(density=0.45, scales="block"),
    ticket(size="10x384"),
    ticket(split=4),
    trained("binary"),
    ticket(FLIP, warmup=1280),
    ticket(density=0.4, scales="output", norms="trained"),
    ticket(embeddings="frozen"),
    trained("ternary", lr=1e-2, split=2),
    ticket(size="6x448"),
    ticket(fall=100),
    # Flipped signs need scales of their own: all that helped trained models, and a width that leaves room for them.
    ticket(FLIP, size="4x480", **FLIP_SCALED),
)
# Planned when these were known. Flips with scales gained most, and the scales had turned the positions down to a
# twentieth, which a constant can, too. One scale per tensor shows which other constants flips want.
FEW_POSITIONS: dict[str, Any] = {"factors": {"positions.weight": 0.1}}
FEWER_POSITIONS: dict[str, Any] = {"factors": {"positions.weight": 0.03}}
# Each of these three helped edge-popup by itself.
PATIENT: dict[str, Any] = {**SMALL_STEPS, "fall": 100}
THIRD: tuple[Run, ...] = (
    ticket(FLIP, gain=2.0, **SMALL_STEPS, **FEW_POSITIONS),
    ticket(FLIP, gain=2.0, scales="tensor", **SMALL_STEPS),
    ticket(**PATIENT),
    ticket(warmup=1280, **FEW_POSITIONS),
    # 10, 6 and 4 layers in the same bytes had 5.10, 5.06 and 4.98.
    ticket(size="3x544", **PATIENT),
    ticket(size="2x576", **PATIENT),
    # What enters the kept ticket's GELUs has deviations of 0.4 to 0.5, where they are nearly linear.
    ticket(warmup=1280, factors={"*.mlp.up.weight": 2.0}),
    ticket(FLIP, size="4x480", lr=1e-2, **FLIP_SCALED),
    ticket(FLIP, gain=2.0, **SMALL_STEPS, **FEWER_POSITIONS),
    ticket(FLIP, gain=2.0, lr=1e-2, **SMALL_STEPS, **FEW_POSITIONS),
    ticket(FLIP, size="3x512", **FLIP_SCALED),
    ticket(FLIP, gain=1.4, **SMALL_STEPS, **FEW_POSITIONS),
)
BETTER: tuple[Run, ...] = (
    *(trained(stored) for stored in ("int8", "bfloat16", "int3")),
    *(trained(stored, lr=1e-2) for stored in ("binary", "int8", "bfloat16", "int3")),
    *(trained(stored, lr=1e-2, fall=100) for stored in ("int4", "ternary")),
    trained("int4", "6x176", lr=1e-2),
    # Ternary codes take 1.58 bits per weight, so these models have fewer weights.
    ticket("signed", density=0.67, size="4x352"),
    ticket("iterand:every=100,rate=0.1"),
    ticket(lr=1e-2),
    *(ticket(gain=gain) for gain in (3.0, 6.0)),
    ticket(signed=True),
    ticket(density_steps=800),
    ticket(init="own"),
    ticket(density=0.3),
    *(ticket(rule) for rule in ("biprop", "gem-miner")),
    ticket("multicoated:levels=3,shrink=0.5", density=0.7, size="4x352"),
    *(ticket(qk_scale=scale) for scale in (4.0, 1.0)),
    ticket(norms="trained"),
)
OTHER_BYTES: tuple[Run, ...] = (
    ticket(size="4x256"),
    trained("ternary", "4x176", lr=1e-2),
    trained("int4", "4x80", lr=1e-2),
    ticket(size="4x128"),
    trained("ternary", "4x80", lr=1e-2),
    trained("int4", "4x48", lr=1e-2),
    *(ticket(size="small", lr=lr) for lr in (1e-3, 3e-3)),
    trained("ternary", "8x512", lr=1e-2),
    trained("int4", "8x256", lr=1e-2),
    *(trained("int8", size) for size in ("4x48", "4x160")),
    *(trained("bfloat16", size) for size in ("4x48", "4x32", "4x112")),
    trained("ternary", "small", lr=1e-3),
)
# Leaders of their kind at 4.9 MB, each with its best schedule, which get two more seeds.
AGAIN: tuple[Run, ...] = (
    ticket(warmup=1280),
    ticket(FLIP, size="4x480", **FLIP_SCALED),
    *(trained(stored, lr=1e-2, split=2) for stored in ("int4", "ternary")),
)
# A quick demonstration on a CPU.
QUICK: tuple[Run, ...] = (
    ticket(FLIP, size="nano", gain=8.0),
    ticket(size="nano", gain=8.0),
    ticket(size="nano", gain=8.0, scales="tensor"),
    trained("int4", "2x32"),
    trained("ternary", "2x48"),
)


def plan(choice: Choice) -> list[RunConfig]:
    """List all runs with the first seed, and more seeds of the best."""
    seeds = max(choice.models.values())
    if choice.schedule == "quick":
        return [config_of(run, choice.schedule, seed) for seed in range(seeds) for run in QUICK]
    runs = [
        *((run, 0) for run in (*FIRST, *SECOND, *THIRD)),
        *((run, seed) for seed in range(1, seeds) for run in AGAIN),
        *((run, 0) for run in (*BETTER, *OTHER_BYTES)),
    ]
    return [
        config_of(run, choice.schedule, seed)
        for run, seed in runs
        if run.size not in SIZES or run.size in choice.models
    ]


def config_of(run: Run, schedule: schedules.ScheduleName, seed: int = 0) -> RunConfig:
    """Return a run's settings."""
    quick = schedule == "quick"
    base = replace(schedules.base(schedule, "nano" if quick else "mini"), size=run.size, seed=seed)
    if not quick:
        base = replace(base, lr=run.lr, final_lr=run.lr / run.fall, warmup=run.warmup)
    if run.split > 1:
        base = replace(
            base,
            sequences=base.sequences // run.split,
            micro_batch=min(base.micro_batch, base.sequences // run.split),
            steps=run.split * base.steps,
            warmup=run.split * base.warmup,
            validate_every=run.split * base.validate_every,
        )
    if run.stored is not None:
        return replace(schedules.dense(base, seed=seed), stored=run.stored)
    scale = schedules.theory_scale(run.size)
    return replace(base, policy=Policy(**{"qk_scale": scale, **run.policy}))
