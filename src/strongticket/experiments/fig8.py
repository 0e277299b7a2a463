"""Figure 8: loss against the scale of query and key weights; is the optimum at n_K^(1/4)?"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strongticket.experiments import plotting, schedules
from strongticket.experiments.paired import paired_difference, reach, seed_deviation
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextFigure, caption
from strongticket.experiments.text_rows import BEST, by_scale, by_seed, lowest_in_words, on_common_seeds, scale_points
from strongticket.files import Json
from strongticket.learn.config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table


def scales_of(size: str, schedule: schedules.ScheduleName, seed: int = 0) -> tuple[float, ...]:
    """Scales from 1 to 8, the theory's and its double among them; fewer where a run takes long, fewest if repeated."""
    theory = schedules.theory_scale(size)
    if schedules.is_costly(schedule, size):
        return (1.0, theory, 2 * theory) if seed == 0 else (1.0, theory)
    return tuple(sorted({1.0, 2.0, theory, 4.0, 2 * theory, 8.0}))


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed, model and treatment of the embeddings: all scales."""
    return [
        schedules.ticket(schedules.base(choice.schedule, size), embeddings=embeddings, scale=scale, seed=seed)
        for seed, size in choice.seeds_and_sizes()
        for embeddings in choice.treatments()
        for scale in scales_of(size, choice.schedule, seed)
    ]


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Losses at each scale over seeds, and seed by seed the difference to scale 1."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in rows:
        groups.setdefault((row["config"]["size"], row["config"]["policy"]["embeddings"]), []).append(row)
    return {"curves": [_curve(size, embeddings, members) for (size, embeddings), members in groups.items()]}


def _curve(size: str, embeddings: str, rows: Sequence[Json]) -> dict[str, Json]:
    found = {"lowest": lowest(rows), "points": scale_points(rows)}
    of = {"size": size, "embeddings": embeddings, "lr": rows[0]["config"]["lr"]}
    return {**of, "theory": schedules.theory_scale(size), **found}


def lowest(rows: Sequence[Json]) -> dict[str, Json] | None:
    """Say where the mean loss is lowest, and which scales the seeds do not tell from it: their interval holds zero.

    None without a seed that all scales were run with.
    """
    losses = {scale: by_seed(found, BEST) for scale, found in by_scale(rows).items()}
    common = on_common_seeds(losses)
    seeds = list(next(iter(common.values())))
    if not seeds:
        return None
    least = min(common, key=lambda scale: math.fsum(common[scale].values()))
    # Two scales may share more seeds than all of them do.
    differences = {scale: paired_difference(losses[least], losses[scale]) for scale in losses if scale != least}
    intervals = {scale: found["interval"] for scale, found in differences.items() if found is not None}
    once = [scale for scale, interval in intervals.items() if interval is None]
    return {
        "scale": least,
        "seeds": seeds,
        "not_told_apart": [scale for scale, interval in intervals.items() if interval and interval[0] <= 0],
        "one_seed": "all" if len(seeds) == 1 and len(once) == len(intervals) else once,
    }


def draw(result: Json, path: Path) -> None:
    """Draw the losses themselves, and their difference to scale 1 seed by seed."""
    figure = plotting.new_figure(9.2, 4.7)
    plotting.title(figure, "Figure 8: the loss against the scale of query and key weights", caption(result))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.81, bottom=0.22, wspace=0.16)
    curves = result["curves"]
    for place, curve in enumerate(curves):
        # A little beside each other, or intervals at one scale would hide each other.
        shift = 1.02 ** (place - (len(curves) - 1) / 2)
        _draw_curve(left, right, curve, plotting.SERIES[place % len(plotting.SERIES)], shift)
    ticks = sorted({point["scale"] for curve in result["curves"] for point in curve["points"]})
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{scale:g}" for scale in ticks])
        axes.minorticks_off()
        for theory in sorted({curve["theory"] for curve in result["curves"]}):
            axes.axvline(theory, color=plotting.INK, lw=0.9, ls=":", label="$n_K^{1/4}$")
    points = [point for curve in result["curves"] for point in curve["points"]]
    plotting.style(left, plotting.over_seeds(points), x="scale of Q and K", y="best validation loss")
    plotting.style(right, "minus that of scale 1, seed by seed; 95 % interval", x="scale of Q and K")
    right.axhline(0, color=plotting.PALE, lw=0.8)
    plotting.legend_below(figure, left, columns=3)
    plotting.save(figure, path)


def _draw_curve(left: plotting.Axes, right: plotting.Axes, curve: Json, colour: str, shift: float) -> None:
    points = curve["points"]
    label = f"{curve['size']}, embeddings {curve['embeddings']}, rate {curve['lr']:.2g}"
    losses = [point[BEST] for point in points]
    scales = [shift * point["scale"] for point in points]
    plotting.draw_means(
        left, scales, [x["mean"] for x in losses], [*map(seed_deviation, losses)], color=colour, label=label
    )
    differences = [point[f"{BEST}_difference"] for point in points]
    pairs = [(scale, found) for scale, found in zip(scales, differences, strict=True) if found is not None]
    for scale, found in pairs:
        right.plot([scale] * found["n"], found["values"], "_", color=colour, ms=7, alpha=0.6)
    if pairs:
        # Scale 1 is what the others are held against: zero, and known.
        beside, means, reaches = zip((shift, 0.0, 0.0), *((x, y["mean"], reach(y)) for x, y in pairs), strict=True)
        plotting.draw_means(right, beside, means, reaches, color=colour)


def tables(result: Json) -> "list[Table]":
    """Show the losses at each scale."""
    from strongticket.experiments.text_tables import scale_table

    return [scale_table(result, curve, heading(curve)) for curve in result["curves"]]


def heading(curve: Json) -> str:
    """Say which runs a table is about, and where their loss is lowest."""
    which = f"{curve['size']}, embeddings {curve['embeddings']}, n_K^(1/4) = {curve['theory']:g}"
    return f"Figure 8, {which}; {lowest_in_words(curve['lowest'])}"


FIGURE = TextFigure(name="fig8", plan=plan, summarize=summarize, draw=draw, tables=tables, usual=MINI_AND_SMALL)
