"""One setting changed at a time, where the paper is silent: which settings Figures 7 and 8 should use.

Half the length of a figure's runs, one scale, one seed: enough for large effects, and no others should be read off it
(`spread` says how much seeds differ).
"""

from collections.abc import Sequence
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
    """Name each run of one model and seed by what is changed in it."""
    full = schedules.base(schedule, size)
    half = schedules.shortened(full, full.steps // 2)
    base = schedules.ticket(half, embeddings="trained", scale=schedules.theory_scale(size), seed=seed)
    trained = schedules.dense(half, seed=seed)
    policy = base.policy
    large, large_trained = (_larger_batch(config, 4) for config in (base, trained))
    return {
        "ticket": base,
        "batch x 2": _larger_batch(base, 2),
        "batch x 4": large,
        "learning rate x 3": _faster(base, 3),
        "learning rate / 3": _faster(base, 1 / 3),
        "trained model": trained,
        "trained model, learning rate x 3": _faster(trained, 3),
        "trained model, learning rate / 3": _faster(trained, 1 / 3),
        "scores uniform on [-1, 1]": replace(base, policy=replace(policy, score_init="uniform")),
        "all tensors ranked together": replace(base, policy=replace(policy, scope="global")),
        "signed scores": replace(base, policy=replace(policy, signed=True)),
        "kept weights rescaled": replace(base, policy=replace(policy, rescale=True)),
        "no weight decay": replace(base, weight_decay=0.0),
        "batch x 4, learning rate x 3": _faster(large, 3),
        "batch x 4, learning rate x 10": _faster(large, 10),
        "trained model, batch x 4": large_trained,
        "trained model, batch x 4, learning rate x 3": _faster(large_trained, 3),
        "trained model, batch x 4, learning rate / 3": _faster(large_trained, 1 / 3),
    }


def _larger_batch(config: RunConfig, factor: int) -> RunConfig:
    """The same tokens in fewer steps."""
    larger = schedules.shortened(replace(config, sequences=factor * config.sequences), config.steps // factor)
    return replace(larger, warmup=config.warmup // factor)


def _faster(config: RunConfig, factor: float) -> RunConfig:
    return replace(config, lr=config.lr * factor, final_lr=config.final_lr * factor)


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed and model: every variant."""
    return [
        config
        for seed in range(choice.seeds)
        for size in choice.models
        for config in variants(size, choice.schedule, seed).values()
    ]


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Each run's loss, and how it differs from the one it is a variant of."""
    found = []
    for row in rows:
        config = row["config"]
        # Every schedule has its own base; the one that has this row is it.
        for schedule in ("quick", "short", "paper"):
            named = {label: c.as_json() for label, c in variants(config["size"], schedule, config["seed"]).items()}
            label = next((label for label, settings in named.items() if settings == config), None)
            if label is not None:
                origin = "trained model" if config["mode"] == "dense" else "ticket"
                base = next((other for other in rows if other["config"] == named[origin]), None)
                loss = row["final_validation_loss"]
                difference = loss - base["final_validation_loss"] if base is not None else None
                found.append(
                    {"size": config["size"], "seed": config["seed"], "variant": label, "final_validation_loss": loss}
                    | {"difference": difference, "curve": row["curve"]}
                )
    return {"variants": found}


def draw(result: Json, path: Path) -> None:
    """Draw the losses as dots, one line a variant, the best at the top."""
    found = sorted(result["variants"], key=lambda line: -line["final_validation_loss"])
    figure = plotting.new_figure(8.6, 1.4 + 0.3 * len(found))
    plotting.title(figure, "One setting changed at a time", caption(result))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.43, right=0.97, top=1 - 0.8 / figure.get_figheight(), bottom=0.15)
    for place, line in enumerate(found):
        colour = plotting.MEAN if line["variant"].startswith("trained") else plotting.MEDIAN
        axes.plot(line["final_validation_loss"], place, "o", color=colour, ms=6)
    axes.set_yticks(range(len(found)), [f"{line['variant']}, seed {line['seed']}" for line in found])
    plotting.style(axes, x="final validation loss")
    plotting.save(figure, path)


def tables(result: Json) -> "list[Table]":
    """Show each variant's loss and difference."""
    from strongticket.experiments.text_tables import variant_table

    return [variant_table(result)]


FIGURE = TextFigure(name="ablation", plan=plan, summarize=summarize, draw=draw, tables=tables)
