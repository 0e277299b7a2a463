"""Figure 8: loss against the scale of query and key weights."""

from collections.abc import Sequence

from strongticket.charts.parts import SERIES, Chart, Colour, Dash, Section, Series, Table, View
from strongticket.experiments.text_rows import BEST, FINAL, lowest_in_words
from strongticket.files import Json
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.text_words import (
    LOSS,
    caution,
    difference,
    ends,
    interval,
    loss,
    losses_on,
    other_texts,
    seeds,
    setting,
)

_SCALE = "scale of Q and K"
_BEYOND = 1.5  # how far intervals of few seeds may stretch the axis, in spans of the differences


def scale_figure(result: Result) -> Section:
    """Figure 8: loss against the scale of query and key weights."""
    content = result.content
    curves = content["curves"]
    upright = [(theory, f"theory: {theory:.3g}") for theory in sorted({float(curve["theory"]) for curve in curves})]
    losses = Chart(
        title="Loss against the scale of query and key weights",
        caption=f"{setting(content)}; {seeds(len(p['seeds']) for curve in curves for p in curve['points'])}. Mean and "
        "standard deviation over seeds; small dots are single seeds.",
        views=(_loss_view(curves, upright),),
        tables=[_loss_table(curve) for curve in curves],
        half=True,
    )
    return Section(
        anchor="fig8",
        name="Figure 8",
        title="Figure 8: loss against the scale of Q and K",
        lead="Is the theory’s scale, the fourth root of a head’s width, also the best one in practice? The paper finds "
        "its optimum near there. The differences to scale 1, seed by seed, say how much of that is more than chance.",
        finding=_finding(curves),
        blocks=(losses, *_differences(curves, upright)),
        origin=origin_of(result),
    )


def _finding(curves: list[Json]) -> str:
    """Say where each loss is lowest, and where the theory has it: once, if that is the same for all models."""
    lowest = [f"{curve_name(curve)}: {lowest_in_words(curve['lowest'])}" for curve in curves]
    theories = [f"the theory’s is {float(curve['theory']):.3g}" for curve in curves]
    if len(set(theories)) == 1:
        return "; ".join([*lowest, theories[0]])
    return "; ".join(f"{found}, {theory}" for found, theory in zip(lowest, theories, strict=True))


def _differences(curves: list[Json], upright: list[tuple[float, str]]) -> list[Chart]:
    """Draw the paired differences beside the losses; a curve without scale 1 has none."""
    pairs = [found for curve in curves for _, found in _pairs(curve)]
    if not pairs:
        return []
    alone = [curve_name(curve) for curve in curves if not _pairs(curve)]
    missing = f" {'; '.join(alone)}: no run at scale 1 to compare with." if alone else ""
    chart = Chart(
        title="The same, minus that of scale 1",
        caption="Below zero: the scale lowers the loss. Bars that leave the frame go on; the table has their ends. "
        + caution([found["n"] for found in pairs])
        + missing,
        views=(_difference_view(curves, upright),),
        tables=[_difference_table(curve) for curve in curves if _pairs(curve)],
        half=True,
    )
    return [chart]


def _loss_view(curves: list[Json], upright: list[tuple[float, str]]) -> View:
    series = []
    for curve, colour, dash in _styles(curves):
        losses = [point[BEST] for point in curve["points"]]
        series.append(
            Series(
                name=curve_name(curve),
                points=[(p["scale"], found["mean"]) for p, found in zip(curve["points"], losses, strict=True)],
                low=[found["mean"] - (found["std"] or 0) for found in losses],
                high=[found["mean"] + (found["std"] or 0) for found in losses],
                colour=colour,
                dash=dash,
                notes=[f"{found['n']} seeds" if found["n"] > 1 else "1 seed" for found in losses],
                each=[found["values"] if found["n"] > 1 else () for found in losses],
            )
        )
    return View(
        name="Loss",
        x=_SCALE,
        y=LOSS,
        series=series,
        x_scale="log",
        x_ticks=_ticks(curves),
        y_scales=("linear", "log"),
        upright=upright,
        apart=True,
    )


def _difference_view(curves: list[Json], upright: list[tuple[float, str]]) -> View:
    series, values, reached = [], [0.0], [0.0]
    for curve, colour, dash in _styles(curves):
        pairs = _pairs(curve)
        bars = [ends(found) or (found["mean"], found["mean"]) for _, found in pairs]
        values += [float(value) for _, found in pairs for value in found["values"]]
        reached += [end for bar in bars for end in bar]
        if pairs:
            series.append(
                Series(
                    name=curve_name(curve),
                    points=[(scale, found["mean"]) for scale, found in pairs],
                    low=[low for low, _ in bars],
                    high=[high for _, high in bars],
                    colour=colour,
                    dash=dash,
                    notes=[f"{found['n']} seeds" if found["n"] > 1 else "1 seed, no interval" for _, found in pairs],
                    each=[found["values"] if found["n"] > 1 else () for _, found in pairs],
                )
            )
    low, high = min(values), max(values)
    reach = _BEYOND * ((high - low) or 0.01)
    return View(
        name="Difference to scale 1",
        x=_SCALE,
        y="difference of the loss to scale 1",
        series=series,
        x_scale="log",
        x_ticks=_ticks(curves),
        y_scales=("linear",),
        upright=upright,
        zero=True,
        apart=True,
        y_range=(max(min(reached), low - reach), min(max(reached), high + reach)),
    )


def _pairs(curve: Json) -> list[tuple[float, Json]]:
    found = [(float(point["scale"]), point[f"{BEST}_difference"]) for point in curve["points"]]
    return [(scale, pair) for scale, pair in found if pair is not None]


def _styles(curves: list[Json]) -> list[tuple[Json, Colour, Dash]]:
    """Give each model a colour; masked embeddings are dashed."""
    colours: dict[str, Colour] = {}
    styled = list[tuple[Json, Colour, Dash]]()
    for curve in curves:
        colour = colours.setdefault(curve["size"], SERIES[len(colours) % len(SERIES)])
        styled.append((curve, colour, "dashed" if curve["embeddings"] == "masked" else "solid"))
    return styled


def _loss_table(curve: Json) -> Table:
    also = other_texts(curve["points"])
    rows = [
        (
            f"{float(point['scale']):.3g}",
            str(len(point["seeds"])),
            loss(point[BEST]),
            loss(point[FINAL]),
            *losses_on(also, point),
        )
        for point in curve["points"]
    ]
    columns = ("scale", "seeds", "best", "final", *(f"on {name}" for name in also))
    return Table(caption=curve_name(curve), columns=columns, rows=rows, words=0)


def _difference_table(curve: Json) -> Table:
    rows = [(f"{scale:.3g}", str(found["n"]), difference(found), interval(found)) for scale, found in _pairs(curve)]
    columns = ("scale", "seeds", "best − that of scale 1", "95 % interval")
    return Table(caption=curve_name(curve), columns=columns, rows=rows, words=0)


def curve_name(curve: Json) -> str:
    """Name a curve by its model and what was done with the embeddings."""
    return f"{curve['size']}, embeddings {curve['embeddings']}"


def _ticks(curves: Sequence[Json]) -> list[float]:
    scales = sorted({float(point["scale"]) for curve in curves for point in curve["points"]})
    # Labels closer than a quarter of an octave would touch.
    return [scale for place, scale in enumerate(scales) if place == 0 or scale / scales[place - 1] > 1.19]
