"""Does the scale of Q and K help whatever the weights are drawn from? The loss at scale 1 and at n_K^(1/4), by init."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strongticket.container import Json
from strongticket.errors import StrongTicketError
from strongticket.experiments import plotting, schedules
from strongticket.experiments.paired import reach
from strongticket.experiments.text_figure import Choice, TextFigure, caption
from strongticket.experiments.text_rows import BEST, scale_points
from strongticket.search.config import RunConfig
from strongticket.search.policy import Init

if TYPE_CHECKING:
    from rich.table import Table

# GPT-2's own weights are normal, so "own" is it, and shares its runs with the other figures.
INITS: tuple[Init, ...] = tuple(init for init in get_args(Init) if init != "normal")
# Trained, since masked ones would be drawn from the init as well, which moves the largest logit they can give.
EMBEDDINGS: schedules.Embeddings = "trained"


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed, model and init: tickets without and with the theory's scale."""
    return [
        _drawn_from(init, schedules.ticket(base, embeddings=EMBEDDINGS, scale=scale, seed=seed))
        for seed, size in choice.seeds_and_sizes()
        for base in [schedules.base(choice.schedule, size)]
        for init in INITS
        for scale in (1.0, schedules.theory_scale(size))
    ]


def _drawn_from(init: Init, config: RunConfig) -> RunConfig:
    return replace(config, policy=replace(config.policy, init=init))


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Losses of each init at both scales over seeds, and their difference seed by seed."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in rows:
        groups.setdefault((row["config"]["size"], row["config"]["policy"]["init"]), []).append(row)
    found = []
    for (size, init), members in groups.items():
        points = scale_points(members)
        # A single scale has nothing to be held against yet; its row counts once the other is there.
        if len(points) == 2 and points[1][f"{BEST}_difference"] is not None:
            found.append({"size": size, "init": label(init), "embeddings": EMBEDDINGS, "points": points})
    if not found:
        raise StrongTicketError("no way to draw the weights has a seed at both scales yet; give --data to go on.")
    return {"inits": found}


def label(init: str) -> str:
    """Name an init for people."""
    return {"own": "normal", "sign": "signed constant"}.get(init, init)


def draw(result: Json, path: Path) -> None:
    """Draw the losses of each init at both scales, and their difference seed by seed."""
    figure = plotting.new_figure(9.2, 4.4)
    plotting.title(figure, "The scale of Q and K, for other ways to draw the weights", caption(result))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.8, bottom=0.13, wspace=0.2)
    lines = result["inits"]
    for shift, name, colour in ((-0.16, "scale 1", plotting.MISS), (0.16, "scale $n_K^{1/4}$", plotting.MEDIAN)):
        losses = [(k + shift, _at(line, scaled=shift > 0)[BEST]) for k, line in enumerate(lines)]
        _bars(left, [(place, loss["mean"], loss["std"] or 0.0) for place, loss in losses], colour, name)
    pairs = [(k, _at(line, scaled=True)[f"{BEST}_difference"]) for k, line in enumerate(lines)]
    for place, difference in pairs:
        right.plot([place] * difference["n"], difference["values"], ".", color=plotting.MEDIAN, ms=4, alpha=0.5)
    _bars(right, [(place, found["mean"], reach(found)) for place, found in pairs], plotting.MEDIAN)
    right.axhline(0, color=plotting.PALE, lw=0.8)
    several = len({line["size"] for line in lines}) > 1
    for axes in (left, right):
        names = [f"{line['init']}\n{line['size']}" if several else line["init"] for line in lines]
        axes.set_xticks(range(len(lines)), names)
        axes.set_xlim(-0.5, len(lines) - 0.5)
    plotting.style(left, "mean and deviation over seeds", y="best validation loss")
    plotting.style(right, "scaled minus unscaled, seed by seed; 95 % interval")
    plotting.legend(left, loc="best")
    plotting.save(figure, path)


def _bars(axes: plotting.Axes, points: list[tuple[float, float, float]], colour: str, name: str | None = None) -> None:
    places, means, reach = ([point[k] for point in points] for k in range(3))
    axes.errorbar(places, means, yerr=reach, color=colour, marker="o", ms=5, capsize=3, ls="none", label=name)


def _at(line: Json, *, scaled: bool) -> Json:
    """The point at a scale."""
    return line["points"][-1 if scaled else 0]


def tables(result: Json) -> "list[Table]":
    """Show the losses of each init."""
    from strongticket.experiments.text_tables import scale_table

    return [
        scale_table(result, line, f"{line['size']}, {line['init']} weights, embeddings {line['embeddings']}")
        for line in result["inits"]
    ]


FIGURE = TextFigure(name="inits", plan=plan, summarize=summarize, draw=draw, tables=tables)
