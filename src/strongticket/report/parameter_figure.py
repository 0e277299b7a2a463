"""Figures 7 and 8: tickets found by search on text, with and without Q/K scaling."""

from collections.abc import Sequence

from strongticket.container import Json
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.parts import SERIES, Chart, Colour, Comparison, Dash, Row, Section, Series, Table, View, number
from strongticket.report.text_words import (
    LOSS,
    caution,
    difference,
    ends,
    interval,
    loss,
    million,
    paired_mark,
    seeds,
    setting,
)

_LABELS = {"unscaled": "tickets, Q and K as drawn", "scaled": "tickets, Q and K scaled", "dense": "trained models"}
_COLOURS: dict[str, Colour] = {"unscaled": "miss", "scaled": "median", "dense": "mean"}
_MEASURE = "best_validation_loss"
_SCALE = "scale of Q and K"
_NO_PAIR = " No ticket was searched both with and without that scale yet, so what it changes cannot be read off here."
_BEYOND = 1.5  # how far intervals of few seeds may stretch the axis, in spans of the differences


def parameter_figure(result: Result) -> Section:
    """Figure 7: loss against nonzero parameters."""
    content = result.content
    points = content["points"]
    chart = Chart(
        title="Loss against nonzero parameters",
        caption=f"{setting(content)}; {seeds(len(point['seeds']) for point in points)}. {_several(points)}Points are "
        "joined only where all models saw the same amount of text.",
        views=(
            _parameter_view(points, "all", "All parameters"),
            _parameter_view(points, "without_embeddings", "Without embeddings"),
        ),
        tables=(_loss_table(points),),
    )
    effects = [effect for effect in content["effects"] if effect["measure"] == _MEASURE]
    return Section(
        anchor="fig7",
        name="Figure 7",
        title="Figure 7: loss against nonzero parameters",
        lead="GPT-2 models on text: tickets found by edge-popup, no weight trained, beside models trained in full. The "
        "paper draws query and key weights larger, by the fourth root of a head’s width, as its theory asks, and "
        f"reports better tickets.{'' if effects else _NO_PAIR}",
        finding=_parameter_finding(points, effects),
        blocks=(chart, *([_effects(effects)] if effects else [])),
        origin=origin_of(result),
    )


def _parameter_finding(points: list[Json], effects: list[Json]) -> str:
    if effects:
        effect = effects[0]
        sure = f", 95 % interval {interval(effect)}" if effect["interval"] is not None else ", one seed"
        return f"Q/K scaling changes the loss of {effect['size']} by {difference(effect)}{sure}"
    for size in dict.fromkeys(point["size"] for point in points):
        own = [point for point in points if point["size"] == size]
        tickets = [float(point[_MEASURE]["mean"]) for point in own if point["kind"] != "dense"]
        trained = [float(point[_MEASURE]["mean"]) for point in own if point["kind"] == "dense"]
        if tickets and trained:
            return f"{size}: loss {min(tickets):.3f} as a ticket, {min(trained):.3f} trained"
    return ""


def _parameter_view(points: list[Json], counted: str, name: str) -> View:
    series = []
    for kind, embeddings in dict.fromkeys((point["kind"], point["embeddings"]) for point in points):
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: float(point["nonzero"][counted]))
        losses = [point[_MEASURE] for point in chosen]
        series.append(
            Series(
                name=_LABELS[kind] + ("" if kind == "dense" else f", embeddings {embeddings}"),
                points=[(p["nonzero"][counted], found["mean"]) for p, found in zip(chosen, losses, strict=True)],
                low=[found["mean"] - (found["std"] or 0) for found in losses],
                high=[found["mean"] + (found["std"] or 0) for found in losses],
                colour=_COLOURS[kind],
                dash="dashed" if embeddings == "masked" else "solid",
                line=_comparable(chosen),
                notes=[f"{point['size']}, {_text_seen(point)}" for point in chosen],
                labels=[_label(point) for point in chosen],
            )
        )
    return View(
        name=name,
        x="nonzero parameters",
        y=LOSS,
        series=series,
        x_scale="log",
        y_scales=("linear", "log"),
        apart=True,
    )


def _several(points: list[Json]) -> str:
    return "Mean and standard deviation over seeds. " if any(len(point["seeds"]) > 1 for point in points) else ""


def _label(point: Json) -> str:
    return f"{point['size']}, {_text_seen(point)}" if point.get("tokens") else str(point["size"])


def _comparable(points: list[Json]) -> bool:
    """A line says that larger is better or worse, which nobody can say of models that saw different amounts of text."""
    return len({point.get("tokens") for point in points}) == 1


def _text_seen(point: Json) -> str:
    return f"{million(point['tokens'])} tokens" if point.get("tokens") else "text seen not recorded"


def _loss_table(points: list[Json]) -> Table:
    rows = [
        (
            str(point["size"]),
            _LABELS[point["kind"]],
            loss(point[_MEASURE]),
            loss(point["final_validation_loss"]),
            str(len(point["seeds"])),
            f"{point['nonzero']['all']:,}",
            f"{point['nonzero']['without_embeddings']:,}",
            _text_seen(point),
            str(point["embeddings"]),
        )
        for point in points
    ]
    columns = ("model", "what", "best loss", "final loss", "seeds", "nonzero", "without embeddings", "text seen")
    return Table(caption="Losses over seeds", columns=(*columns, "embeddings"), rows=rows, words=2, remarks=2)


def _effects(effects: list[Json]) -> Comparison:
    rows = [
        Row(
            words=(str(effect["size"]), str(effect["embeddings"])),
            marks=(paired_mark(effect, "median"),),
            numbers=(str(effect["n"]), difference(effect), number(effect["standard_error"]), interval(effect)),
        )
        for effect in effects
    ]
    return Comparison(
        title="What the scale of Q and K changes, seed by seed",
        caption=f"Left of zero: the scale lowers the loss. {caution([effect['n'] for effect in effects])}",
        words=("model", "embeddings"),
        axis="scaled − unscaled, nats a token",
        numbers=("seeds", "mean", "standard error", "95 % interval"),
        rows=rows,
        zero=True,
    )


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
        tables=[_scale_table(curve) for curve in curves],
        half=True,
    )
    lowest = min(curves[0]["points"], key=lambda point: float(point[_MEASURE]["mean"]))
    return Section(
        anchor="fig8",
        name="Figure 8",
        title="Figure 8: loss against the scale of Q and K",
        lead="Is the theory’s scale, the fourth root of a head’s width, also the best one in practice? The paper finds "
        "its optimum near there. The differences to scale 1, seed by seed, say how much of that is more than chance.",
        finding=f"{curve_name(curves[0])}: lowest loss at scale {float(lowest['scale']):.3g}, the theory’s is "
        f"{float(curves[0]['theory']):.3g}",
        blocks=(losses, *_differences(curves, upright)),
        origin=origin_of(result),
    )


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
        tables=[_scale_table(curve) for curve in curves],
        half=True,
    )
    return [chart]


def _loss_view(curves: list[Json], upright: list[tuple[float, str]]) -> View:
    series = []
    for curve, colour, dash in _styles(curves):
        losses = [point[_MEASURE] for point in curve["points"]]
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
    found = [(float(point["scale"]), point[f"{_MEASURE}_difference"]) for point in curve["points"]]
    return [(scale, pair) for scale, pair in found if pair is not None]


def _styles(curves: list[Json]) -> list[tuple[Json, Colour, Dash]]:
    """Give each model and way of drawing weights a colour; masked embeddings are dashed."""
    colours: dict[str, Colour] = {}
    styled = list[tuple[Json, Colour, Dash]]()
    for curve in curves:
        kind = f"{curve['size']}, {curve.get('init')}"
        colour = colours.setdefault(kind, SERIES[len(colours) % len(SERIES)])
        styled.append((curve, colour, "dashed" if curve["embeddings"] == "masked" else "solid"))
    return styled


def _scale_table(curve: Json) -> Table:
    rows = [
        (
            f"{float(point['scale']):.3g}",
            str(len(point["seeds"])),
            loss(point[_MEASURE]),
            loss(point["final_validation_loss"]),
            difference(point[f"{_MEASURE}_difference"]),
            interval(point[f"{_MEASURE}_difference"]),
        )
        for point in curve["points"]
    ]
    columns = ("scale", "seeds", "best loss", "final loss", "best − that of scale 1", "95 % interval")
    return Table(caption=curve_name(curve), columns=columns, rows=rows, words=0)


def curve_name(curve: Json) -> str:
    """Name a curve by its model and what was done with the weights."""
    drawn = f", {curve['init']} weights" if curve.get("init") else ""
    return f"{curve['size']}{drawn}, embeddings {curve['embeddings']}"


def _ticks(curves: Sequence[Json]) -> list[float]:
    scales = sorted({float(point["scale"]) for curve in curves for point in curve["points"]})
    # Labels closer than a quarter of an octave would touch.
    return [scale for place, scale in enumerate(scales) if place == 0 or scale / scales[place - 1] > 1.19]
