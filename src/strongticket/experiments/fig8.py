"""Figure 8: loss against the scale of query and key weights; is the optimum at n_K^(1/4)?"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from strongticket.charts.parts import SERIES, Chart, Section, Series, Table, grouped, signed, span, table_of
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
    lowest_in_words,
    on_common_seeds,
    scale_points,
)
from strongticket.learn.config import RunConfig


class Curve(TypedDict):
    """Losses of one model, with one treatment of its embeddings, against the scale."""

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
    """List scales from 1 to 8, with the theory's and its double; fewer for costly runs, fewest for further seeds."""
    theory = schedules.theory_scale(size)
    if schedules.is_costly(schedule, size):
        return (1.0, theory, 2 * theory) if seed == 0 else (1.0, theory)
    return tuple(sorted({1.0, 2.0, theory, 4.0, 2 * theory, 8.0}))


def plan(choice: Choice) -> list[RunConfig]:
    """List all scales for each seed, model and treatment of the embeddings."""
    return [
        schedules.ticket(schedules.base(choice.schedule, size), embeddings=embeddings, scale=scale, seed=seed)
        for seed, size in choice.seeds_and_sizes()
        for embeddings in choice.treatments()
        for scale in scales_of(size, choice.schedule, seed)
    ]


def summarize(rows: Sequence[RunRow]) -> dict[str, list[Curve]]:
    """Compute losses at each scale over seeds and, seed by seed, their difference from scale 1."""
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
    """Find where the mean loss is lowest, and which scales are not distinguishable: their interval contains zero.

    None if no seed was run at all scales.
    """
    losses = {scale: by_seed(found, BEST) for scale, found in by_scale(rows).items()}
    common = on_common_seeds(losses)
    seeds = list(next(iter(common.values())))
    if not seeds:
        return None
    least = min(common, key=lambda scale: math.fsum(common[scale].values()))
    # Two scales may share more seeds than all scales do.
    differences = {scale: paired_difference(losses[least], losses[scale]) for scale in losses if scale != least}
    intervals = {scale: found["interval"] for scale, found in differences.items() if found is not None}
    once = [scale for scale, interval in intervals.items() if interval is None]
    return {
        "scale": least,
        "seeds": seeds,
        "not_told_apart": [scale for scale, interval in intervals.items() if interval and interval[0] <= 0],
        "one_seed": "all" if len(seeds) == 1 and len(once) == len(intervals) else once,
    }


_PAIR_COLUMNS: dict[str, Callable[[tuple[float, Pair]], str]] = {
    "scale": lambda pair: f"{pair[0]:.3g}",
    "seeds": lambda pair: str(pair[1]["n"]),
    "best − that of scale 1": lambda pair: signed(pair[1]["mean"]),
    "95 % interval": lambda pair: losses.interval(pair[1]),
}


def describe(result: Result) -> Section:
    """Show the losses and, seed by seed, their difference from scale 1."""
    curves = result["curves"]
    sizes = [*dict.fromkeys(curve["size"] for curve in curves)]
    scales = sorted({float(point["scale"]) for curve in curves for point in curve["points"]})
    counts = [len(point["seeds"]) for curve in curves for point in curve["points"]]
    found, differences, tables, pair_tables = list[Series](), list[Series](), list[Table](), list[Table]()
    paired, alone = list[Pair](), list[str]()
    for curve in curves:
        name, points = curve_name(curve), curve["points"]
        # Each model has a colour; masked embeddings are dashed.
        look: dict[str, Any] = {
            "colour": SERIES[sizes.index(curve["size"]) % len(SERIES)],
            "dash": "dashed" if curve["embeddings"] == "masked" else "solid",
        }
        found.append(losses.over_seeds(name, [p["scale"] for p in points], [p[BEST] for p in points], **look))
        caption = f"{name}, learning rate {curve['lr']:.2g}: {lowest_in_words(curve['lowest'])}"
        columns = {"scale": lambda point: f"{point['scale']:.3g}", **losses.loss_columns(points)}
        tables.append(table_of(caption, points, columns, words=0))
        if pairs := [(point["scale"], pair) for point in points if (pair := point[DIFFERENCE]) is not None]:
            own = [pair for _, pair in pairs]
            differences.append(losses.over_seeds(name, [scale for scale, _ in pairs], own, losses.ends, **look))
            pair_tables.append(table_of(name, pairs, _PAIR_COLUMNS, words=0))
            paired += own
        else:
            alone.append(name)
    x = "scale of Q and K"
    shared: dict[str, Any] = {
        # Labels closer than a quarter of an octave would touch.
        "x_ticks": [scale for place, scale in enumerate(scales) if place == 0 or scale / scales[place - 1] > 1.19],
        "upright": [(theory, f"theory: {theory:.3g}") for theory in sorted({float(c["theory"]) for c in curves})],
    }
    charts = [
        Chart(
            title=_message(curves),
            caption=f"{losses.setting(result)}; {losses.seeds(counts)}. Mean and standard deviation over seeds. "
            f"{losses.DOTS}",
            views=[losses.view(x, found, **shared)],
            tables=tables,
        )
    ]
    if paired:
        values = [float(value) for pair in paired for value in pair["values"]]
        ends = [end for pair in paired for end in losses.ends(pair) or ()]
        shared |= {"y": "difference in loss from scale 1", "zero": True, "y_range": span([0.0, *values], [0.0, *ends])}
        charts.append(
            Chart(
                title=_at_theory(curves),
                caption="Below zero: the scale lowers the loss. Bars cut off by the frame extend further; the table "
                f"has their ends. {losses.caution([pair['n'] for pair in paired])}"
                + (f" {'; '.join(alone)}: no run at scale 1 to compare with." if alone else ""),
                views=[losses.view(x, differences, name="Difference from scale 1", **shared)],
                tables=pair_tables,
            )
        )
    return Section(
        anchor="fig8",
        name="Figure 8",
        title="Figure 8: a larger scale of Q and K lowers the loss"
        if min(_best_scales(curves), default=1) > 1
        else "Figure 8: the loss against the scale of Q and K",
        lead="Is the theory’s scale, the fourth root of a head’s width, also the best one in practice? The paper finds "
        "its optimum near there. The differences from scale 1, seed by seed, show how much of that exceeds chance.",
        finding=_finding(curves) if _best_scales(curves) else "",
        blocks=charts,
    )


def _message(curves: Sequence[Curve]) -> str:
    """Name the scales at which losses are lowest."""
    return f"The loss is lowest {_where(curves)}" if _best_scales(curves) else "The loss against the scale of Q and K"


def _where(curves: Sequence[Curve]) -> str:
    return f"at a scale of {' or '.join(f'{scale:.3g}' for scale in _best_scales(curves))}"


def _best_scales(curves: Sequence[Curve]) -> list[float]:
    return sorted({float(curve["lowest"]["scale"]) for curve in curves if curve["lowest"] is not None})


def _at_theory(curves: Sequence[Curve]) -> str:
    """Say whether the theory's scale beats scale 1 for every model."""
    pairs = [
        pair
        for curve in curves
        for point in curve["points"]
        if math.isclose(point["scale"], curve["theory"], rel_tol=0.01) and (pair := point[DIFFERENCE]) is not None
    ]
    if pairs and max(pair["mean"] for pair in pairs) < 0:
        return "Against scale 1, the theory’s scale lowers the mean loss of every model"
    return "The loss minus that of scale 1, seed by seed"


def _finding(curves: Sequence[Curve]) -> str:
    """Compare the scales at which losses are lowest with the theory's; the tables say what is not ruled out."""
    theories = sorted({float(curve["theory"]) for curve in curves})
    return f"lowest {_where(curves)}; the theory’s is {' or '.join(f'{theory:.3g}' for theory in theories)}"


def curve_name(curve: Curve) -> str:
    """Name a curve by its model and the treatment of its embeddings."""
    return f"{curve['size']}, embeddings {curve['embeddings']}"


FIGURE = Figure(name="fig8", plan=TextRuns(runs=plan, summarize=summarize, usual=MINI_AND_SMALL), describe=describe)
