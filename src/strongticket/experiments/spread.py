"""How much seeds differ, at two lengths: what it takes to see the effect Figures 7 and 8 are about.

Run before them. The difference of two runs that share a seed varies less than either, and how much less decides how
many seeds tell an effect of 0.03 nats from none.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strongticket.experiments import plotting, schedules
from strongticket.experiments.paired import paired_difference, pairs_needed, spread
from strongticket.experiments.text_figure import Choice, TextFigure, caption
from strongticket.experiments.text_rows import FINAL, by_scale, by_seed, tokens_of
from strongticket.files import Json
from strongticket.learn.config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table

EFFECT = 0.03  # nats


def plan(choice: Choice) -> list[RunConfig]:
    """For each length and seed: tickets without and with the theory's scale, embeddings trained."""
    runs = []
    for size, seeds in choice.models.items():
        full = schedules.origin(choice.schedule, size)
        # The last sees the tokens of the first, in batches four times as large: what a spread owes to few steps.
        coarse = schedules.shortened(replace(full, sequences=4 * full.sequences), full.steps // 8)
        for config in (schedules.shortened(full, full.steps // 2), full, coarse):
            for seed in range(seeds):
                for scale in (1.0, schedules.theory_scale(size)):
                    runs.append(schedules.ticket(config, embeddings="trained", scale=scale, seed=seed))
    return runs


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """For each length: the spread of each kind of ticket, of their difference, and the seeds it asks for."""
    groups: dict[tuple[str, int], list[Json]] = {}
    for row in rows:
        groups.setdefault((row["config"]["size"], row["config"]["steps"]), []).append(row)
    lengths = [_length(members) for _, members in sorted(groups.items())]
    return {"effect": EFFECT, "lengths": lengths}


def _length(rows: Sequence[Json]) -> dict[str, Json]:
    config = rows[0]["config"]
    losses = {scale: by_seed(members, FINAL) for scale, members in by_scale(rows).items()}
    difference = paired_difference(*losses.values()) if len(losses) == 2 else None
    return {
        "size": config["size"],
        "steps": config["steps"],
        "tokens": tokens_of(config),
        "losses": [
            {"scale": scale, "seeds": list(found), **spread(list(found.values()))} for scale, found in losses.items()
        ],
        "difference": difference,
        "seeds_needed": _seeds_needed(difference),
    }


def _seeds_needed(difference: Json | None) -> int | None:
    if difference is None or difference["std"] is None:
        return None
    return pairs_needed(EFFECT, difference["std"])


def draw(result: Json, path: Path) -> None:
    """Draw each seed's losses at both scales, joined, length by length."""
    figure = plotting.new_figure(3.0 * max(2, len(result["lengths"])), 4.2)
    plotting.title(figure, "How much seeds differ", caption(result))
    panels = figure.subplots(1, len(result["lengths"]), squeeze=False)[0]
    figure.subplots_adjust(left=0.08, right=0.985, top=0.8, bottom=0.13, wspace=0.28)
    # One height of the axes in nats, so that spreads can be compared by eye.
    height = 1.1 * max(max(values) - min(values) for values in map(_values, result["lengths"])) or 0.1
    for axes, length in zip(panels, result["lengths"], strict=True):
        labels = [f"{line['scale']:g}" for line in length["losses"]]
        losses = [dict(zip(line["seeds"], line["values"], strict=True)) for line in length["losses"]]
        for seed in sorted(set().union(*losses)):
            values = [of_scale.get(seed, math.nan) for of_scale in losses]
            axes.plot(range(len(values)), values, color=plotting.MEAN, marker="o", ms=4, lw=1, alpha=0.7)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlim(-0.4, len(labels) - 0.6)
        middle = (max(_values(length)) + min(_values(length))) / 2
        axes.set_ylim(middle - height / 2, middle + height / 2)
        batch = round(length["tokens"] / length["steps"] / 1000)
        heading = f"{length['size']}, {length['steps']:,} steps of {batch}k tokens"
        plotting.style(axes, heading, x="scale of Q and K", y="final validation loss" if axes is panels[0] else "")
    plotting.save(figure, path)


def _values(length: Json) -> list[float]:
    return [value for line in length["losses"] for value in line["values"]]


def tables(result: Json) -> "list[Table]":
    """Show the spreads, and how many seeds the effect asks for."""
    from strongticket.experiments.text_tables import spread_table

    return [spread_table(result)]


FIGURE = TextFigure(name="spread", plan=plan, summarize=summarize, draw=draw, tables=tables)
