"""What the settings do where the paper is silent: which ones Figures 7 and 8 should use.

One scale, one seed: enough for large effects, and no others should be read off it
(`spread` says how much seeds differ).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strongticket.container import Json
from strongticket.experiments import plotting, schedules
from strongticket.experiments.text_figure import Choice, TextFigure, caption
from strongticket.search.config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table


def variants(size: str, schedule: schedules.ScheduleName, seed: int) -> dict[str, RunConfig]:
    """Name each run of one model and seed by what is changed in it: one setting, or a large one and then another."""
    start = schedules.shortened(schedules.origin(schedule, size), schedules.base(schedule, size).steps)
    base = schedules.ticket(start, embeddings="trained", scale=schedules.theory_scale(size), seed=seed)
    masked = schedules.ticket(start, embeddings="masked", scale=schedules.theory_scale(size), seed=seed)
    plain = schedules.ticket(start, embeddings="trained", scale=1.0, seed=seed)
    trained = schedules.dense(start, seed=seed)
    policy = base.policy
    doubled, large, large_trained = _larger_batch(base, 2), _larger_batch(base, 4), _larger_batch(trained, 4)
    slow, fast, fastest = (f"learning rate {base.lr * factor:.2g}" for factor in (1 / 3, 3, 10))
    few = _steps(large)
    rates = {
        "ticket": base,
        fast: schedules.times_rate(base, 3),
        "trained model": trained,
        f"trained model, {fast}": schedules.times_rate(trained, 3),
        f"trained model, {slow}": schedules.times_rate(trained, 1 / 3),
        "embeddings masked": masked,
        f"embeddings masked, {fast}": schedules.times_rate(masked, 3),
    }
    if schedules.is_costly(schedule, size):
        return rates
    return rates | {
        _steps(doubled): doubled,
        few: large,
        slow: schedules.times_rate(base, 1 / 3),
        "scores uniform on [-1, 1]": replace(base, policy=replace(policy, score_init="uniform")),
        "all tensors ranked together": replace(base, policy=replace(policy, scope="global")),
        "signed scores": replace(base, policy=replace(policy, signed=True)),
        "kept weights rescaled": replace(base, policy=replace(policy, rescale=True)),
        "no weight decay": replace(base, weight_decay=0.0),
        fastest: schedules.times_rate(base, 10),
        f"{fast}, all tensors ranked together": replace(
            schedules.times_rate(base, 3), policy=replace(policy, scope="global")
        ),
        f"{fast}, kept weights rescaled": replace(schedules.times_rate(base, 3), policy=replace(policy, rescale=True)),
        f"trained model, {fastest}": schedules.times_rate(trained, 10),
        "scale 1": plain,
        f"scale 1, {fast}": schedules.times_rate(plain, 3),
        f"scale 1, {fastest}": schedules.times_rate(plain, 10),
        f"embeddings masked, {fastest}": schedules.times_rate(masked, 10),
        f"embeddings masked, {fast}, gain 2": _with_gain(schedules.times_rate(masked, 3), 2.0),
        f"embeddings masked, {fast}, gain 8": _with_gain(schedules.times_rate(masked, 3), 8.0),
        f"{few}, {fast}": schedules.times_rate(large, 3),
        f"{few}, {fastest}": schedules.times_rate(large, 10),
        f"trained model, {few}": large_trained,
        f"trained model, {few}, {fast}": schedules.times_rate(large_trained, 3),
        f"trained model, {few}, {slow}": schedules.times_rate(large_trained, 1 / 3),
    }


def _larger_batch(config: RunConfig, factor: int) -> RunConfig:
    """The same tokens in fewer steps."""
    larger = schedules.shortened(replace(config, sequences=factor * config.sequences), config.steps // factor)
    return replace(larger, warmup=config.warmup // factor)


def _steps(config: RunConfig) -> str:
    return f"{config.steps:,} steps of {round(config.tokens_a_step / 1000):,}k tokens"


def _with_gain(config: RunConfig, gain: float) -> RunConfig:
    return replace(config, policy=replace(config.policy, output_gain=gain))


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed and model: every variant."""
    return [
        config for seed, size in choice.seeds_and_sizes() for config in variants(size, choice.schedule, seed).values()
    ]


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Each run's loss, and how it differs from the one it is a variant of."""
    found = [line for line in map(_line, rows) if line is not None]
    losses = {(line["size"], line["seed"], line["variant"]): line["final_validation_loss"] for line in found}
    for line in found:
        run = line["size"], line["seed"]
        line["base"] = base_of(line["variant"], [label for *other, label in losses if tuple(other) == run])
        base = losses.get((*run, line["base"]))
        line["difference"] = line["final_validation_loss"] - base if base is not None else None
    return {"variants": found}


def _line(row: Json) -> dict[str, Json] | None:
    config = row["config"]
    size, seed = config["size"], config["seed"]
    for schedule in schedules.NAMES:  # every schedule has its own variants; the one that has this row is it
        for label, variant in variants(size, schedule, seed).items():
            if variant.as_json() == config:
                return {
                    "size": size,
                    "seed": seed,
                    "variant": label,
                    "final_validation_loss": row["final_validation_loss"],
                    "curve": row["curve"],
                }
    return None


def base_of(variant: str, there: Collection[str]) -> str | None:
    """Find what a setting is a change of: itself without its last change, or as many as it takes to be among the runs.

    Example:
        >>> there = ["400 steps", "ticket"]
        >>> base_of("400 steps, signed scores", there), base_of("400 steps", there)
        ('400 steps', 'ticket')
    """
    changes = variant.split(", ")
    first = "trained model" if changes[0] == "trained model" else "ticket"
    for kept in range(len(changes) - 1, -1, -1):
        base = ", ".join(changes[:kept]) or first
        if base != variant and base in there:
            return base
    return None


def draw(result: Json, path: Path) -> None:
    """Draw the losses as dots, one line a variant, the best at the top."""
    found = sorted(result["variants"], key=lambda line: -line["final_validation_loss"])
    labels = _labels(found)
    room = 0.3 + 0.061 * max(map(len, labels))  # inches
    figure = plotting.new_figure(room + 4.7, 1.4 + 0.3 * len(found))
    plotting.title(figure, "What the settings do", f"{caption(result)}; red: tickets, blue: trained models")
    axes = figure.subplots()
    height = figure.get_figheight()
    figure.subplots_adjust(left=room / (room + 4.7), right=0.97, top=1 - 0.8 / height, bottom=0.6 / height)
    for place, line in enumerate(found):
        colour = plotting.MEAN if line["variant"].startswith("trained") else plotting.MEDIAN
        axes.plot(line["final_validation_loss"], place, "o", color=colour, ms=6)
    axes.set_yticks(range(len(found)), labels)
    plotting.style(axes, x="final validation loss")
    plotting.save(figure, path)


def _labels(found: Sequence[Json]) -> list[str]:
    """Name each run by what is changed in it, and by its model and seed where there are several."""
    sizes, seeds = ({line[key] for line in found} for key in ("size", "seed"))
    return [
        (f"{line['size']}: " if len(sizes) > 1 else "")
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
