"""The effect of settings that the paper does not give, to choose those of Figures 7 and 8.

Most runs have one seed, which shows large effects only (`spread` measures how much seeds differ).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypedDict

from strongticket.charts.parts import Colour, Section
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import Pair, paired_difference, spread
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextRuns
from strongticket.experiments.text_rows import FINAL, RunRow, TextResult
from strongticket.learn.config import RunConfig

TICKET, MASKED, TRAINED = "ticket", "embeddings masked", "trained model"

Losses = dict[tuple[str, str], dict[int, float]]  # by model, variant and seed


class Outcome(TypedDict):
    """The outcome of a run, and the name of its base variant."""

    size: str
    seed: int
    variant: str
    base: str | None
    final_validation_loss: float
    curve: list[tuple[int, float]]


class Found(TypedDict):
    """What the runs show."""

    usual: str  # the settings of a run with no changes
    variants: list[Outcome]


class Result(TextResult, Found):
    """What `result.json` holds."""


class Variant(NamedTuple):
    """A run, and the name of the variant that differs from it in one setting."""

    config: RunConfig
    base: str | None


class Change(NamedTuple):
    """A function that changes one setting of a run, and one that names the change."""

    made: Callable[[RunConfig], RunConfig]
    name: Callable[[RunConfig], str]


def _rate(factor: float) -> Change:
    return Change(lambda config: schedules.times_rate(config, factor), lambda config: f"learning rate {config.lr:.2g}")


def _batch(factor: int) -> Change:
    """The same tokens in fewer steps."""

    def made(config: RunConfig) -> RunConfig:
        larger = schedules.shortened(replace(config, sequences=factor * config.sequences), config.steps // factor)
        return replace(larger, warmup=config.warmup // factor)

    return Change(made, _steps)


def _steps(config: RunConfig) -> str:
    return f"{config.steps:,} steps of {round(config.tokens_per_step / 1000):,}k tokens"


def _warmup(factor: float) -> Change:
    return Change(
        lambda config: schedules.times_warmup(config, factor), lambda config: f"{config.warmup:,} steps of warm-up"
    )


def _policy(name: str, **settings: object) -> Change:
    return Change(
        lambda config: replace(config, policy=replace(config.policy, **settings)),  # type: ignore[arg-type]
        lambda config: name,
    )


SLOW, FAST, FASTEST = _rate(1 / 3), _rate(3), _rate(10)
TOGETHER = _policy("all tensors ranked together", scope="global")
RESCALED = _policy("kept weights rescaled", rescale=True)
UNSCALED = _policy("scale 1", qk_scale=1.0)
FEW_STEPS = _batch(4)
TRAINED_WARMUPS = [_warmup(factor) for factor in schedules.WARMUPS if factor != 1]
LONGEST = _warmup(schedules.LONGEST)
# Tickets have half as many steps: these warm-ups match those of trained models; the last is their longest.
TWICE, FOUR_TIMES, AS_LONGEST = (_warmup(factor) for factor in (2, 4, 2 * schedules.LONGEST))

# How a run is made: its starting point, then the changes in order.
Recipe = tuple[str, *tuple[Change, ...]]


def _each(recipe: Recipe, *changes: Change) -> list[Recipe]:
    """List a recipe with each of these as one more change."""
    return [(*recipe, change) for change in changes]


# In the order they are run.
RATES: tuple[Recipe, ...] = (
    (TICKET,),
    (TICKET, FAST),
    (TRAINED,),
    *_each((TRAINED,), FAST, SLOW),
    (MASKED,),
    (MASKED, FAST),
)
# Trained models' warm-ups are tried at the rate that is best with the usual warm-up, which differs between mini and the
# larger models; then other rates with the longest warm-up.
FEW: tuple[Recipe, ...] = (*RATES, *_each((TRAINED,), *TRAINED_WARMUPS), (TRAINED, FAST, LONGEST))
ALL: tuple[Recipe, ...] = (
    *RATES,
    *_each((TICKET,), _batch(2), FEW_STEPS, SLOW),
    (TICKET, _policy("scores uniform on [-1, 1]", score_init="uniform")),
    *_each((TICKET,), TOGETHER, _policy("signed scores", signed=True), RESCALED),
    (TICKET, Change(lambda config: replace(config, weight_decay=0.0), lambda config: "no weight decay")),
    (TICKET, FASTEST),
    *_each((TICKET, FAST), TOGETHER, RESCALED),
    (TRAINED, FASTEST),
    *_each((TRAINED, FAST), *TRAINED_WARMUPS),
    (TICKET, UNSCALED),
    *_each((TICKET, UNSCALED), FAST, FASTEST),
    (MASKED, FASTEST),
    *_each((MASKED, FAST), _policy("gain 2", output_gain=2.0), _policy("gain 8", output_gain=8.0)),
    *_each((TICKET, FEW_STEPS), FAST, FASTEST),
    (TRAINED, FEW_STEPS),
    *_each((TRAINED, FEW_STEPS), FAST, SLOW),
    *_each((TICKET, FAST), TWICE, FOUR_TIMES),
    *_each((TICKET, UNSCALED, FAST), TWICE, FOUR_TIMES),
    *_each((MASKED, FAST), TWICE, FOUR_TIMES, UNSCALED),
    (MASKED, FAST, UNSCALED, FOUR_TIMES),
    (TRAINED, LONGEST),
    (TRAINED, FASTEST, LONGEST),
    *((start, FAST, AS_LONGEST) for start in (TICKET, MASKED)),
)
# Runs repeated with further seeds: those that the first seed cannot tell apart.
FEW_AGAIN: tuple[Recipe, ...] = (
    *_each((TRAINED,), *map(_warmup, schedules.BEST_WARMUPS["small"])),  # the usual warm-up is not among them
    (TRAINED, FAST, LONGEST),
)
ALL_AGAIN: tuple[Recipe, ...] = (
    (TICKET, FAST),
    (TICKET, UNSCALED, FAST),
    (MASKED, FAST),
    *_each((MASKED, FAST), FOUR_TIMES, UNSCALED),
    (MASKED, FAST, UNSCALED, FOUR_TIMES),
    (TRAINED, FAST),
    *_each((TRAINED, FAST), *(_warmup(factor) for factor in schedules.BEST_WARMUPS["mini"] if factor != 1)),
)


@cache
def variants(size: str, schedule: schedules.ScheduleName, seed: int) -> dict[str, Variant]:
    """Return the runs of one model and seed, each named by its changes.

    There are fewer where a run is costly, and for seeds after the first.
    """
    start, steps = schedules.origin(schedule, size), schedules.base(schedule, size).steps
    start = start if start.steps == steps else schedules.shortened(start, steps)
    theory = schedules.theory_scale(size)
    origins = {
        TICKET: schedules.ticket(start, embeddings="trained", scale=theory, seed=seed),
        MASKED: schedules.ticket(start, embeddings="masked", scale=theory, seed=seed),
        TRAINED: schedules.dense(start, seed=seed),
    }
    first, again = (FEW, FEW_AGAIN) if schedules.is_costly(schedule, size) else (ALL, ALL_AGAIN)
    chosen = first if seed == 0 else again
    return dict(_variant(origins[origin], origin, changes) for origin, *changes in chosen)


def _variant(config: RunConfig, name: str, changes: Sequence[Change]) -> tuple[str, Variant]:
    base = TICKET if name == MASKED else None
    for change in changes:
        config = change.made(config)
        # Without another name, the base is a ticket.
        base, name = name, change.name(config) if name == TICKET else f"{name}, {change.name(config)}"
    return name, Variant(config, base)


def plan(choice: Choice) -> list[RunConfig]:
    """List every variant of each seed and model."""
    return [
        variant.config
        for seed, size in choice.seeds_and_sizes()
        for variant in variants(size, choice.schedule, seed).values()
    ]


def summarize(rows: Sequence[RunRow]) -> Found:
    """Collect each run's loss and the name of its base variant."""
    outcomes, usual = list[Outcome](), dict[str, str]()
    for row in rows:
        size, seed = row["config"]["size"], row["config"]["seed"]
        schedule, label, base = _identify(row)
        usual[size] = _usual(size, schedule)
        outcomes.append(
            {
                "size": size,
                "seed": seed,
                "variant": label,
                "base": base,
                "final_validation_loss": row["final_validation_loss"],
                "curve": row["curve"],
            }
        )
    alike = len(set(usual.values())) == 1
    settings = [*usual.values()][:1] if alike else [f"{size}: {words}" for size, words in usual.items()]
    return {"usual": "; ".join(settings), "variants": outcomes}


def _identify(row: RunRow) -> tuple[schedules.ScheduleName, str, str | None]:
    """Find the schedule of a row, its variant and its base; each schedule has its own variants."""
    for schedule in schedules.NAMES:
        for label, variant in variants(row["config"]["size"], schedule, row["config"]["seed"]).items():
            if variant.config.as_json() == row["config"]:
                return schedule, label, variant.base
    raise ValueError("this run is not a variant in any schedule")


def _usual(size: str, schedule: schedules.ScheduleName) -> str:
    """Describe a run with no changes."""
    found = variants(size, schedule, 0)
    ticket, trained = (found[name].config for name in (TICKET, TRAINED))
    warmup = f"warm-up {ticket.warmup:,} (trained models {trained.warmup:,})"
    return f"scale {ticket.policy.qk_scale:g}, {_steps(ticket)}, learning rate {ticket.lr:.2g}, {warmup}"


def describe(result: Result) -> Section:
    """Show final losses, lowest first, and the effect of each change, seed by seed."""
    found: Losses = {}
    for line in result["variants"]:
        found.setdefault((line["size"], line["variant"]), {})[line["seed"]] = float(line[FINAL])
    means = {key: spread([*of_seeds.values()]) for key, of_seeds in found.items()}
    order = sorted(means, key=lambda key: means[key]["mean"])
    sizes, counts = list(dict.fromkeys(size for size, _ in order)), [own["n"] for own in means.values()]
    more = ("model",) if len(sizes) > 1 else ()
    lowest = ", ".join((order[0][0], order[0][1])[1 - len(more) :])
    once = " (one seed)" if means[order[0]]["n"] == 1 else ""
    changes = _changes(result, found, len(more))
    return Section(
        anchor="ablation",
        name="Ablation",
        title=f"The most helpful change: {changes[0][0][0]}" if changes else f"Lowest final loss: {lowest}",
        lead=f"{losses.setting(result)}: {len(found)} settings of {' and '.join(sizes)}, {losses.seeds(counts)}. "
        f"Unless stated otherwise: {result['usual']}. {losses.caution(counts)}",
        finding=f"lowest final loss: {lowest}: {means[order[0]]['mean']:.3f}{once}",
        blocks=(
            losses.compare_losses(
                [((variant, size)[: 1 + len(more)], means[size, variant], _colour(variant)) for size, variant in order],
                title=f"Lowest final loss: {lowest}",
                words=("setting", *more),
                axis=losses.FINAL_LOSS,
                key=(("median", "tickets"), ("mean", "trained models")),
            ),
            *losses.compare_pairs(
                changes,
                title="Each change against its base, the most helpful first",
                caption="Left of zero: the change lowers the loss. Settings whose base was not run are left out.",
                words=("change", "of", *more),
                axis="change, nats",
                printed=False,  # a picture of one comparison this long is enough
            ),
        ),
    )


def _colour(variant: str) -> Colour:
    return "mean" if variant.startswith(TRAINED) else "median"


def _changes(result: Result, found: Losses, more: int) -> list[losses.Line[Pair]]:
    """Compare each variant with its base, where that was run; a change is named without its base's name."""
    lines: list[losses.Line[Pair]] = []
    bases = {(line["size"], line["variant"]): line["base"] for line in result["variants"]}
    for (size, variant), base in bases.items():
        pair = paired_difference(found.get((size, base), {}), found[size, variant]) if base is not None else None
        if base is not None and pair is not None:
            change = variant.removeprefix(base).removeprefix(", ")
            lines.append(((change, base, size)[: 2 + more], pair, _colour(variant)))
    return sorted(lines, key=lambda line: float(line[1]["mean"]))


FIGURE = Figure(name="ablation", plan=TextRuns(runs=plan, summarize=summarize, usual=MINI_AND_SMALL), describe=describe)
