"""Figure 8: loss against the scale of query and key weights; is the optimum at n_K^(1/4)?"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from strongticket.charts.parts import SERIES, Chart, Colour, Dash, Section, Series, View, span, table_of
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import Pair, paired_difference
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextRuns
from strongticket.experiments.text_rows import (
    BEST,
    DIFFERENCE,
    Lowest,
    RunRow,
    ScalePoint,
    TextResult,
    by_scale,
    by_seed,
    grouped,
    lowest_in_words,
    on_common_seeds,
    scale_points,
)
from strongticket.learn.config import RunConfig


class Curve(TypedDict):
    """Losses of one model and treatment of its embeddings over the scale."""

    size: str
    embeddings: str
    lr: float
    theory: float
    lowest: Lowest | None
    points: list[ScalePoint]


class Result(TextResult):
    """What `result.json` holds."""

    curves: list[Curve]


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


def summarize(rows: Sequence[RunRow]) -> dict[str, list[Curve]]:
    """Losses at each scale over seeds, and seed by seed the difference to scale 1."""
    groups = grouped(rows, lambda row: (row["config"]["size"], row["config"]["policy"]["embeddings"]))
    curves: list[Curve] = [
        {
            "size": size,
            "embeddings": embeddings,
            "lr": members[0]["config"]["lr"],
            "theory": schedules.theory_scale(size),
            "lowest": lowest(members),
            "points": scale_points(members),
        }
        for (size, embeddings), members in groups.items()
    ]
    return {"curves": curves}


def lowest(rows: Sequence[RunRow]) -> Lowest | None:
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


def describe(result: Result) -> Section:
    """The losses themselves, and their difference to scale 1 seed by seed."""
    curves = result["curves"]
    counts = [len(point["seeds"]) for curve in curves for point in curve["points"]]
    chart = Chart(
        title="Loss against the scale of query and key weights",
        caption=f"{losses.setting(result)}; {losses.seeds(counts)}. Mean and standard deviation over seeds. "
        f"{losses.DOTS}",
        views=[_loss_view(curves)],
        tables=[
            table_of(
                f"{curve_name(curve)}, learning rate {curve['lr']:.2g}: {lowest_in_words(curve['lowest'])}",
                curve["points"],
                {"scale": scale_of, **losses.loss_columns(curve["points"])},
                words=0,
            )
            for curve in curves
        ],
        half=True,
    )
    return Section(
        anchor="fig8",
        name="Figure 8",
        title="Figure 8: loss against the scale of Q and K",
        lead="Is the theory’s scale, the fourth root of a head’s width, also the best one in practice? The paper finds "
        "its optimum near there. The differences to scale 1, seed by seed, say how much of that is more than chance.",
        finding=_finding(curves),
        blocks=(chart, *_differences(curves)),
    )


def _finding(curves: Sequence[Curve]) -> str:
    """Say where each loss is lowest, and where the theory has it: once, if that is the same for all models."""
    lowest = [f"{curve_name(curve)}: {lowest_in_words(curve['lowest'])}" for curve in curves]
    theories = [f"the theory’s is {float(curve['theory']):.3g}" for curve in curves]
    if len(set(theories)) == 1:
        return "; ".join([*lowest, theories[0]])
    return "; ".join(f"{found}, {theory}" for found, theory in zip(lowest, theories, strict=True))


def _differences(curves: Sequence[Curve]) -> list[Chart]:
    """Draw the paired differences beside the losses; a curve without scale 1 has none."""
    pairs = [found for curve in curves for _, found in _pairs(curve)]
    if not pairs:
        return []
    alone = [curve_name(curve) for curve in curves if not _pairs(curve)]
    missing = f" {'; '.join(alone)}: no run at scale 1 to compare with." if alone else ""
    columns: dict[str, Callable[[tuple[float, Pair]], str]] = {
        "scale": lambda pair: f"{pair[0]:.3g}",
        "seeds": lambda pair: str(pair[1]["n"]),
        "best − that of scale 1": lambda pair: losses.difference(pair[1]),
        "95 % interval": lambda pair: losses.interval(pair[1]),
    }
    chart = Chart(
        title="The same, minus that of scale 1",
        caption="Below zero: the scale lowers the loss. Bars that leave the frame go on; the table has their ends. "
        + losses.caution([found["n"] for found in pairs])
        + missing,
        views=[_difference_view(curves)],
        tables=[table_of(curve_name(curve), _pairs(curve), columns, words=0) for curve in curves if _pairs(curve)],
        half=True,
    )
    return [chart]


def _loss_view(curves: Sequence[Curve]) -> View:
    series = [
        losses.over_seeds(
            curve_name(curve),
            [point["scale"] for point in curve["points"]],
            [point[BEST] for point in curve["points"]],
            colour=colour,
            dash=dash,
        )
        for curve, colour, dash in _styles(curves)
    ]
    return _view("Loss", losses.BEST_LOSS, series, curves, y_scales=("linear", "log"))


def _difference_view(curves: Sequence[Curve]) -> View:
    series, values, reached = list[Series](), [0.0], [0.0]
    for curve, colour, dash in _styles(curves):
        if pairs := _pairs(curve):
            scales, found = zip(*pairs, strict=True)
            series.append(losses.over_seeds(curve_name(curve), scales, found, losses.ends, colour=colour, dash=dash))
            values += [float(value) for pair in found for value in pair["values"]]
            reached += [end for pair in found for end in losses.ends(pair) or ()]
    look = {"y_scales": ("linear",), "zero": True, "y_range": span(values, reached)}
    return _view("Difference to scale 1", "difference of the loss to scale 1", series, curves, **look)


def _view(name: str, y: str, series: Sequence[Series], curves: Sequence[Curve], **look: Any) -> View:
    theories = sorted({float(curve["theory"]) for curve in curves})
    return View(
        name=name,
        x="scale of Q and K",
        y=y,
        series=series,
        x_scale="log",
        x_ticks=_ticks(curves),
        upright=[(theory, f"theory: {theory:.3g}") for theory in theories],
        apart=True,
        **look,
    )


def _pairs(curve: Curve) -> list[tuple[float, Pair]]:
    found = [(float(point["scale"]), point[DIFFERENCE]) for point in curve["points"]]
    return [(scale, pair) for scale, pair in found if pair is not None]


def _styles(curves: Sequence[Curve]) -> list[tuple[Curve, Colour, Dash]]:
    """Give each model a colour; masked embeddings are dashed."""
    colours: dict[str, Colour] = {}
    styled = list[tuple[Curve, Colour, Dash]]()
    for curve in curves:
        colour = colours.setdefault(curve["size"], SERIES[len(colours) % len(SERIES)])
        styled.append((curve, colour, "dashed" if curve["embeddings"] == "masked" else "solid"))
    return styled


def curve_name(curve: Curve) -> str:
    """Name a curve by its model and what was done with the embeddings."""
    return f"{curve['size']}, embeddings {curve['embeddings']}"


def scale_of(point: ScalePoint) -> str:
    """Write a point's scale."""
    return f"{float(point['scale']):.3g}"


def _ticks(curves: Sequence[Curve]) -> list[float]:
    scales = sorted({float(point["scale"]) for curve in curves for point in curve["points"]})
    # Labels closer than a quarter of an octave would touch.
    return [scale for place, scale in enumerate(scales) if place == 0 or scale / scales[place - 1] > 1.19]


FIGURE = Figure(name="fig8", plan=TextRuns(runs=plan, summarize=summarize, usual=MINI_AND_SMALL), describe=describe)
