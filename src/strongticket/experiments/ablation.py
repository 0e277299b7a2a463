"""What the settings do where the paper is silent: which ones Figures 7 and 8 should use.

One scale, one seed: enough for large effects, and no others should be read off it
(`spread` says how much seeds differ).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strongticket.container import Json
from strongticket.experiments import plotting, schedules
from strongticket.experiments.text_figure import Choice, TextFigure, caption
from strongticket.search.config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table

TICKET, MASKED, TRAINED = "ticket", "embeddings masked", "trained model"


class Variant(NamedTuple):
    """A run, and the name of the variant that it changes in one thing."""

    config: RunConfig
    base: str | None


class Change(NamedTuple):
    """What makes another run of one, and its name once it is made."""

    made: Callable[[RunConfig], RunConfig]
    name: Callable[[RunConfig], str]


def _rate(factor: float) -> Change:
    return Change(lambda config: schedules.times_rate(config, factor), lambda config: f"learning rate {config.lr:.2g}")


def _batch(factor: int) -> Change:
    return Change(lambda config: _larger_batch(config, factor), _steps)


def _larger_batch(config: RunConfig, factor: int) -> RunConfig:
    """The same tokens in fewer steps."""
    larger = schedules.shortened(replace(config, sequences=factor * config.sequences), config.steps // factor)
    return replace(larger, warmup=config.warmup // factor)


def _steps(config: RunConfig) -> str:
    return f"{config.steps:,} steps of {round(config.tokens_a_step / 1000):,}k tokens"


def _warmup(factor: float) -> Change:
    return Change(
        lambda config: schedules.times_warmup(config, factor), lambda config: f"{config.warmup} steps of warm-up"
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
TICKET_WARMUPS = [_warmup(factor) for factor in (2, 4)]  # from half as many steps: those that trained models have

# How a run is made: what it sets out from, and what is changed in turn.
Recipe = tuple[str, *tuple[Change, ...]]

# In the order they are done.
RATES: tuple[Recipe, ...] = (
    (TICKET,),
    (TICKET, FAST),
    (TRAINED,),
    (TRAINED, FAST),
    (TRAINED, SLOW),
    (MASKED,),
    (MASKED, FAST),
)
# Trained models' warm-ups are tried at the rate that is best for them, which is another for mini than for larger ones.
FEW: tuple[Recipe, ...] = (*RATES, *((TRAINED, warmup) for warmup in TRAINED_WARMUPS))
ALL: tuple[Recipe, ...] = (
    *RATES,
    (TICKET, _batch(2)),
    (TICKET, FEW_STEPS),
    (TICKET, SLOW),
    (TICKET, _policy("scores uniform on [-1, 1]", score_init="uniform")),
    (TICKET, TOGETHER),
    (TICKET, _policy("signed scores", signed=True)),
    (TICKET, RESCALED),
    (TICKET, Change(lambda config: replace(config, weight_decay=0.0), lambda config: "no weight decay")),
    (TICKET, FASTEST),
    (TICKET, FAST, TOGETHER),
    (TICKET, FAST, RESCALED),
    (TRAINED, FASTEST),
    *((TRAINED, FAST, warmup) for warmup in TRAINED_WARMUPS),
    (TICKET, UNSCALED),
    (TICKET, UNSCALED, FAST),
    (TICKET, UNSCALED, FASTEST),
    (MASKED, FASTEST),
    (MASKED, FAST, _policy("gain 2", output_gain=2.0)),
    (MASKED, FAST, _policy("gain 8", output_gain=8.0)),
    (TICKET, FEW_STEPS, FAST),
    (TICKET, FEW_STEPS, FASTEST),
    (TRAINED, FEW_STEPS),
    (TRAINED, FEW_STEPS, FAST),
    (TRAINED, FEW_STEPS, SLOW),
    *((TICKET, FAST, warmup) for warmup in TICKET_WARMUPS),
    *((TICKET, UNSCALED, FAST, warmup) for warmup in TICKET_WARMUPS),
    *((MASKED, FAST, warmup) for warmup in TICKET_WARMUPS),
)


def variants(size: str, schedule: schedules.ScheduleName, seed: int) -> dict[str, Variant]:
    """Give the runs of one model and seed, each named by what is changed in it; fewer where a run is costly."""
    start = schedules.shortened(schedules.origin(schedule, size), schedules.base(schedule, size).steps)
    theory = schedules.theory_scale(size)
    origins = {
        TICKET: schedules.ticket(start, embeddings="trained", scale=theory, seed=seed),
        MASKED: schedules.ticket(start, embeddings="masked", scale=theory, seed=seed),
        TRAINED: schedules.dense(start, seed=seed),
    }
    chosen = FEW if schedules.is_costly(schedule, size) else ALL
    return dict(_variant(origins[origin], origin, changes) for origin, *changes in chosen)


def _variant(config: RunConfig, name: str, changes: Sequence[Change]) -> tuple[str, Variant]:
    base = TICKET if name == MASKED else None
    for change in changes:
        config = change.made(config)
        # A ticket is what is varied if nothing else is said.
        base, name = name, change.name(config) if name == TICKET else f"{name}, {change.name(config)}"
    return name, Variant(config, base)


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed and model: every variant."""
    return [
        variant.config
        for seed, size in choice.seeds_and_sizes()
        for variant in variants(size, choice.schedule, seed).values()
    ]


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Each run's loss, and how it differs from the one it is a variant of."""
    found = [*map(_line, rows)]
    losses = {(line["size"], line["seed"], line["variant"]): line["final_validation_loss"] for line in found}
    for line in found:
        base = losses.get((line["size"], line["seed"], line["base"]))
        line["difference"] = line["final_validation_loss"] - base if base is not None else None
    return {"usual": _usual(rows[0]), "variants": found}


def _usual(row: Json) -> str:
    """Say what a run is that nothing is changed in."""
    config = _variants_with(row)[TICKET].config
    return f"scale {config.policy.qk_scale:g}, {_steps(config)}, learning rate {config.lr:.2g}"


def _line(row: Json) -> dict[str, Json]:
    found = _variants_with(row)
    label = next(label for label, variant in found.items() if variant.config.as_json() == row["config"])
    return {
        "size": row["config"]["size"],
        "seed": row["config"]["seed"],
        "variant": label,
        "base": found[label].base,
        "final_validation_loss": row["final_validation_loss"],
        "curve": row["curve"],
    }


def _variants_with(row: Json) -> dict[str, Variant]:
    """Give the variants of the schedule that a row is from: every schedule has its own."""
    for schedule in schedules.NAMES:
        found = variants(row["config"]["size"], schedule, row["config"]["seed"])
        if any(variant.config.as_json() == row["config"] for variant in found.values()):
            return found
    raise ValueError("no schedule has this run among its variants")


def draw(result: Json, path: Path) -> None:
    """Draw the losses as dots, one line a variant, the best at the top."""
    found = sorted(result["variants"], key=lambda line: -line["final_validation_loss"])
    labels = _labels(found)
    room = 0.3 + 0.061 * max(map(len, labels))  # inches
    figure = plotting.new_figure(room + 4.7, 1.6 + 0.3 * len(found))
    plotting.title(figure, "What the settings do", _caption(result))
    axes = figure.subplots()
    height = figure.get_figheight()
    figure.subplots_adjust(left=room / (room + 4.7), right=0.97, top=1 - 0.9 / height, bottom=0.6 / height)
    for place, line in enumerate(found):
        colour = plotting.MEAN if line["variant"].startswith("trained") else plotting.MEDIAN
        axes.plot(line["final_validation_loss"], place, "o", color=colour, ms=6)
    axes.set_yticks(range(len(found)), labels)
    axes.set_ylim(-0.8, len(found) - 0.2)
    plotting.style(axes, x="final validation loss")
    plotting.save(figure, path)


def _caption(result: Json) -> str:
    once = "one seed each; " if len({line["seed"] for line in result["variants"]}) == 1 else ""
    return f"{caption(result)}; {once}red: tickets, blue: trained models\nwhere nothing else is said: {result['usual']}"


def _labels(found: Sequence[Json]) -> list[str]:
    """Name each run by what is changed in it, and by its model and seed where there are several."""
    sizes, seeds = ({line[key] for line in found} for key in ("size", "seed"))
    return [
        (f"{line['size']}: " if len(sizes) > 1 else "")
        + ("" if line["variant"].startswith((TICKET, MASKED, TRAINED)) else f"{TICKET}, ")
        + line["variant"]
        + (f", seed {line['seed']}" if len(seeds) > 1 else "")
        for line in found
    ]


def tables(result: Json) -> "list[Table]":
    """Show each variant's loss and difference."""
    from strongticket.experiments.text_tables import variant_table

    return [variant_table(result)]


USUAL = {"mini": 1, "small": 1}
FIGURE = TextFigure(name="ablation", plan=plan, summarize=summarize, draw=draw, tables=tables, usual=USUAL)
