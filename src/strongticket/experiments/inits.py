"""Does the scale of Q and K help whatever the weights are drawn from? The loss at scale 1 and at n_K^(1/4), by init."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strongticket.experiments import fig8, plotting, schedules
from strongticket.experiments.paired import reach, seed_deviation
from strongticket.experiments.text_figure import Choice, NothingToDrawError, TextFigure, caption
from strongticket.experiments.text_rows import BEST, scale_points
from strongticket.files import Json
from strongticket.learn.config import RunConfig
from strongticket.learn.draw import weight_distribution
from strongticket.learn.policy import Init, Policy
from strongticket.learn.tensors import tensors_of
from strongticket.models.gpt2 import GPT2, gpt2_config

if TYPE_CHECKING:
    from rich.table import Table

# GPT-2's own weights are normal, so "own" is it, and shares its runs with the other figures.
INITS: tuple[Init, ...] = tuple(init for init in get_args(Init) if init != "normal")
# Trained, since masked ones would be drawn from the init as well, which moves the largest logit they can give.
EMBEDDINGS: schedules.Embeddings = "trained"


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed, model and init: tickets at its scales."""
    return [
        _drawn_from(init, schedules.ticket(base, embeddings=EMBEDDINGS, scale=scale, seed=seed))
        for seed, size in choice.seeds_and_sizes()
        for base in [schedules.base(choice.schedule, size)]
        for init in INITS
        for scale in scales_of(init, size, choice.schedule)
    ]


def scales_of(init: Init, size: str, schedule: schedules.ScheduleName) -> tuple[float, ...]:
    """The scales an init is tried at: 1 and the theory's; GPT-2's own also at the others of Figure 8.

    Kaiming's weights are three times as large as mini's own. They are tried at scales that make Q and K as large as
    the own ones are in Figure 8, too: is a loss lowest at the same size of Q and K, whatever the other weights are?
    """
    pair = (1.0, schedules.theory_scale(size))
    if schedule == "quick" or init not in ("own", "kaiming"):
        return pair
    own = fig8.scales_of(size, schedule)
    if init == "own":
        return own
    ratio = deviation(size, "own", 1.0) / deviation(size, init, 1.0)
    return (*pair, *(float(f"{ratio * scale:.3g}") for scale in own))


def _drawn_from(init: Init, config: RunConfig) -> RunConfig:
    return replace(config, policy=replace(config.policy, init=init))


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Losses of each init at its scales over seeds, and their difference to scale 1 seed by seed."""
    groups: dict[tuple[str, Init], list[Json]] = {}
    for row in rows:
        groups.setdefault((row["config"]["size"], row["config"]["policy"]["init"]), []).append(row)
    found = []
    for (size, init), members in groups.items():
        points = scale_points(members)
        # A single scale has nothing to be held against yet; its row counts once another is there.
        if any(point[f"{BEST}_difference"] is not None for point in points):
            points = [point | {"deviation": deviation(size, init, point["scale"])} for point in points]
            found.append({"size": size, "init": label(init), "embeddings": EMBEDDINGS, "points": points})
    if not found:
        raise NothingToDrawError("inits has no way to draw the weights with a seed at two scales yet.")
    return {"inits": found}


@cache
def deviation(size: str, init: Init, scale: float) -> float:
    """Give the standard deviation that the weights of Q and K are drawn with, to four digits.

    Example:
        >>> deviation("mini", "own", 2.0), deviation("mini", "kaiming", 1.0)
        (0.04, 0.0625)
    """
    first_block = GPT2(gpt2_config(size, n_layers=1, context=1, vocabulary=1))
    query = next(tensor for tensor in tensors_of(first_block) if tensor.is_query_or_key)
    distribution, width = weight_distribution(query, Policy(init=init, qk_scale=scale))
    return float(f"{width / math.sqrt(3) if distribution == 'uniform' else width:.4g}")


def label(init: str) -> str:
    """Name an init for people."""
    return {"own": "normal", "sign": "signed constant"}.get(init, init)


def draw(result: Json, path: Path) -> None:
    """Draw the losses over the size of Q's and K's weights, and their difference to scale 1 seed by seed."""
    figure = plotting.new_figure(9.2, 4.4)
    plotting.title(figure, "The scale of Q and K, for other ways to draw the weights", caption(result))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.8, bottom=0.13, wspace=0.2)
    lines = result["inits"]
    several = len({line["size"] for line in lines}) > 1
    names = [f"{line['init']}, {line['size']}" if several else line["init"] for line in lines]
    colours = [plotting.SERIES[place % len(plotting.SERIES)] for place in range(len(lines))]
    for line, name, colour in zip(lines, names, colours, strict=True):
        _draw_losses(left, line["points"], name, colour)
    left.set_xscale("log")
    left.xaxis.set_major_formatter(lambda size, place: f"{size:g}")
    left.xaxis.set_minor_formatter(lambda size, place: f"{size:g}" if f"{size:g}"[-1] in "25" else "")
    for place, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        _draw_difference(right, place, line, colour)
    right.axhline(0, color=plotting.PALE, lw=0.8)
    right.set_xticks(range(len(lines)), [name.replace(" ", "\n") for name in names])
    right.set_xlim(-0.5, len(lines) - 0.5)
    weights = "standard deviation of the weights of Q and K (ring: scale 1)"
    points = [point for line in lines for point in line["points"]]
    plotting.style(left, plotting.over_seeds(points), x=weights, y="best validation loss")
    plotting.style(right, "scale $n_K^{1/4}$ minus scale 1, seed by seed; 95 % interval")
    plotting.legend(left, loc="best")
    plotting.save(figure, path)


def _draw_losses(axes: plotting.Axes, points: Sequence[Json], name: str, colour: str) -> None:
    losses = [point[BEST] for point in points]
    places, means = [point["deviation"] for point in points], [loss["mean"] for loss in losses]
    plotting.draw_means(axes, places, means, [*map(seed_deviation, losses)], color=colour, label=name)
    for point in points:
        if point["scale"] == 1:  # a ring, so that one sees from where the others are scaled
            axes.plot(point["deviation"], point[BEST]["mean"], "o", ms=9, mfc="none", mec=colour, mew=0.9)


def _draw_difference(axes: plotting.Axes, place: int, line: Json, colour: str) -> None:
    """Draw what the theory's scale changes, if it was run."""
    theory = schedules.theory_scale(line["size"])
    found = next((point[f"{BEST}_difference"] for point in line["points"] if point["scale"] == theory), None)
    if found is not None:
        axes.plot([place] * found["n"], found["values"], "_", color=colour, ms=7, alpha=0.6)
        plotting.draw_means(axes, [place], [found["mean"]], [reach(found)], color=colour)


def tables(result: Json) -> "list[Table]":
    """Show the losses of each init."""
    from strongticket.experiments.text_tables import scale_table

    return [
        scale_table(result, line, f"{line['size']}, {line['init']} weights, embeddings {line['embeddings']}")
        for line in result["inits"]
    ]


FIGURE = TextFigure(name="inits", plan=plan, summarize=summarize, draw=draw, tables=tables)
