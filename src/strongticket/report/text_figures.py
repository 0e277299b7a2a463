"""Figures 7 and 8: tickets found by search on text, with and without Q/K scaling."""

from strongticket.container import Json
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.parts import SERIES, Chart, Colour, Section, Series, Table, View, number

_LABELS = {"unscaled": "tickets, Q and K as drawn", "scaled": "tickets, Q and K × n_K^¼", "dense": "trained models"}
_COLOURS: dict[str, Colour] = {"unscaled": "miss", "scaled": "median", "dense": "mean"}
_LOSS = "best validation loss, nats a token"


def parameter_figure(result: Result) -> Section:
    """Figure 7: loss against nonzero parameters."""
    content = result.content
    chart = Chart(
        title="Loss against nonzero parameters",
        caption=f"{_setting(content)}. Mean and standard deviation over seeds. Points are joined only where all models "
        "saw the same amount of text.",
        views=(
            _parameter_view(content["points"], "all", "All parameters"),
            _parameter_view(content["points"], "without_embeddings", "Without embeddings"),
        ),
        tables=(_loss_table(content["points"]), _effect_table(content["effects"])),
    )
    best = [effect for effect in content["effects"] if effect["measure"] == "best_validation_loss"]
    finding = ""
    if best:
        effect = best[0]
        finding = f"Q/K scaling changes the loss of {effect['size']} by {effect['mean']:+.3f} {_interval(effect)}"
    return Section(
        anchor="fig7",
        name="Figure 7",
        title="Figure 7: loss against nonzero parameters",
        lead="GPT-2 models on text: tickets found by edge-popup, no weight trained, beside models trained in full. The "
        "paper draws query and key weights n_K^¼ times larger, as its theory asks, and reports better tickets.",
        finding=finding,
        blocks=(chart,),
        origin=origin_of(result),
    )


def _parameter_view(points: list[Json], counted: str, name: str) -> View:
    series = []
    for kind, embeddings in dict.fromkeys((point["kind"], point["embeddings"]) for point in points):
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: float(point["nonzero"][counted]))
        losses = [point["best_validation_loss"] for point in chosen]
        series.append(
            Series(
                name=_LABELS[kind] + ("" if kind == "dense" else f", embeddings {embeddings}"),
                points=[(p["nonzero"][counted], loss["mean"]) for p, loss in zip(chosen, losses, strict=True)],
                low=[loss["mean"] - (loss["std"] or 0) for loss in losses],
                high=[loss["mean"] + (loss["std"] or 0) for loss in losses],
                colour=_COLOURS[kind],
                dash="dashed" if embeddings == "masked" else "solid",
                line=_comparable(chosen),
                notes=[f"{point['size']}, {_text_seen(point)}" for point in chosen],
            )
        )
    return View(name=name, x="nonzero parameters", y=_LOSS, series=series, x_scale="log", y_scales=("linear", "log"))


def _comparable(points: list[Json]) -> bool:
    """A line says that larger is better or worse, which nobody can say of models that saw different amounts of text."""
    return len({point.get("tokens") for point in points}) == 1


def _text_seen(point: Json) -> str:
    return f"{point['tokens'] / 1e6:.3g}M tokens" if point.get("tokens") else "text seen not recorded"


def _loss_table(points: list[Json]) -> Table:
    rows = [
        (
            str(point["size"]),
            _LABELS[point["kind"]],
            str(point["embeddings"]),
            _text_seen(point),
            f"{point['nonzero']['all']:,}",
            f"{point['nonzero']['without_embeddings']:,}",
            str(len(point["seeds"])),
            _spread(point["best_validation_loss"]),
            _spread(point["final_validation_loss"]),
        )
        for point in points
    ]
    columns = ("model", "what", "embeddings", "text seen", "nonzero", "without embeddings", "seeds", "best loss")
    return Table(caption="Losses over seeds", columns=(*columns, "final loss"), rows=rows, words=3)


def _effect_table(effects: list[Json]) -> Table:
    rows = [
        (
            str(effect["size"]),
            str(effect["embeddings"]),
            str(effect["measure"]).split("_")[0],
            str(effect["n"]),
            f"{effect['mean']:+.4f}",
            number(effect["standard_error"]),
            _interval(effect),
        )
        for effect in effects
    ]
    columns = ("model", "embeddings", "measure", "seeds", "scaled − unscaled", "standard error", "95 % interval")
    caption = "What the scale changes, paired by seed; negative: the scale lowers the loss"
    return Table(caption=caption, columns=columns, rows=rows, words=3)


def scale_figure(result: Result) -> Section:
    """Figure 8: loss against the scale of query and key weights."""
    content = result.content
    curves = content["curves"]
    upright = [(theory, f"n_K^¼ = {theory:.3g}") for theory in sorted({float(curve["theory"]) for curve in curves})]
    chart = Chart(
        title="Loss against the scale of query and key weights",
        caption=f"{_setting(content)}. Loss: mean and standard deviation over seeds. Difference: to scale 1 of the "
        "same seed, mean and 95 % interval.",
        views=(_loss_view(curves, upright), _difference_view(curves, upright)),
        tables=[_scale_table(curve) for curve in curves],
    )
    lowest = min(curves[0]["points"], key=lambda point: float(point["best_validation_loss"]["mean"]))
    return Section(
        anchor="fig8",
        name="Figure 8",
        title="Figure 8: loss against the scale of Q and K",
        lead="Is the theory’s scale n_K^¼ also the best one in practice? The paper finds its optimum near there. The "
        "differences to scale 1, seed by seed, say how much of that is more than chance.",
        finding=f"{curves[0]['size']}: lowest loss at scale {float(lowest['scale']):.3g}, the theory’s is "
        f"{float(curves[0]['theory']):.3g}",
        blocks=(chart,),
        origin=origin_of(result),
    )


def _loss_view(curves: list[Json], upright: list[tuple[float, str]]) -> View:
    series = []
    for curve, colour in zip(curves, SERIES, strict=False):
        losses = [point["best_validation_loss"] for point in curve["points"]]
        series.append(
            Series(
                name=_curve_name(curve),
                points=[(p["scale"], loss["mean"]) for p, loss in zip(curve["points"], losses, strict=True)],
                low=[loss["mean"] - (loss["std"] or 0) for loss in losses],
                high=[loss["mean"] + (loss["std"] or 0) for loss in losses],
                colour=colour,
            )
        )
    return View(
        name="Loss",
        x="scale of Q and K",
        y=_LOSS,
        series=series,
        x_scale="log",
        x_ticks=_ticks(curves),
        y_scales=("linear", "log"),
        upright=upright,
    )


def _difference_view(curves: list[Json], upright: list[tuple[float, str]]) -> View:
    series = []
    for curve, colour in zip(curves, SERIES, strict=False):
        found = [(p["scale"], p["best_validation_loss_difference"]) for p in curve["points"]]
        pairs = [(scale, difference) for scale, difference in found if difference is not None]
        ends = [difference["interval"] or (difference["mean"], difference["mean"]) for _, difference in pairs]
        series.append(
            Series(
                name=_curve_name(curve),
                points=[(scale, difference["mean"]) for scale, difference in pairs],
                low=[low for low, _ in ends],
                high=[high for _, high in ends],
                colour=colour,
            )
        )
    return View(
        name="Difference to scale 1",
        x="scale of Q and K",
        y="difference of the loss",
        series=series,
        x_scale="log",
        x_ticks=_ticks(curves),
        y_scales=("linear",),
        upright=upright,
    )


def _scale_table(curve: Json) -> Table:
    rows = []
    for point in curve["points"]:
        difference = point["best_validation_loss_difference"]
        rows.append(
            (
                f"{float(point['scale']):.3g}",
                str(len(point["seeds"])),
                _spread(point["best_validation_loss"]),
                _spread(point["final_validation_loss"]),
                f"{difference['mean']:+.4f}" if difference else "–",
                _interval(difference) if difference else "–",
            )
        )
    columns = ("scale", "seeds", "best loss", "final loss", "best − that of scale 1", "95 % interval")
    return Table(caption=_curve_name(curve), columns=columns, rows=rows, words=0)


def spread_figure(result: Result) -> Section:
    """The spread over seeds: how many runs it takes to see an effect."""
    content = result.content
    rows = []
    for length in content["lengths"]:
        difference, needed = length["difference"], length["seeds_needed"]
        for losses in length["losses"]:
            rows.append(
                (
                    str(length["size"]),
                    f"{length['tokens']:,}",
                    f"{float(losses['scale']):.3g}",
                    str(losses["n"]),
                    _spread(losses),
                    f"{difference['mean']:+.4f}" if difference else "–",
                    _interval(difference) if difference else "–",
                    "–" if needed is None else str(needed),
                )
            )
    columns = ("model", "tokens", "scale", "seeds", "final loss", "scaled − unscaled", "95 % interval", "seeds needed")
    caption = "Final losses over seeds; seeds needed: until the standard error of the difference is 0.0075 nats"
    return Section(
        anchor="spread",
        name="Spread over seeds",
        title="How much seeds differ",
        lead=f"{_setting(content)}. Before an effect of the scale can be claimed, the spread over seeds says how many "
        "runs it takes to see one.",
        blocks=(Table(caption=caption, columns=columns, rows=rows),),
        origin=origin_of(result),
    )


def ablation_figure(result: Result) -> Section:
    """One setting changed at a time."""
    content = result.content
    found = sorted(content["variants"], key=lambda line: float(line["final_validation_loss"]))
    rows = [
        (
            str(line["variant"]),
            str(line["size"]),
            str(line["seed"]),
            f"{line['final_validation_loss']:.4f}",
            f"{line['difference']:+.4f}" if line.get("difference") is not None else "–",
        )
        for line in found
    ]
    columns = ("variant", "model", "seed", "final loss", "difference to its base")
    return Section(
        anchor="ablation",
        name="Ablation",
        title="One setting changed at a time",
        lead=f"{_setting(content)}. Single runs: differences smaller than the spread over seeds mean nothing.",
        blocks=(Table(caption="Final validation losses, the lowest first", columns=columns, rows=rows, words=2),),
        origin=origin_of(result),
    )


def _curve_name(curve: Json) -> str:
    return f"{curve['size']}, embeddings {curve['embeddings']}"


def _ticks(curves: list[Json]) -> list[float]:
    scales = sorted({float(point["scale"]) for curve in curves for point in curve["points"]})
    # Labels closer than a quarter of an octave would touch.
    return [scale for place, scale in enumerate(scales) if place == 0 or scale / scales[place - 1] > 1.19]


def _setting(content: Json) -> str:
    missing = f", {len(content['missing'])} runs missing" if content["missing"] else ""
    return f"The {content['config']['schedule']} schedule on {content['text']['data']}, {content['runs']} runs{missing}"


def _spread(found: Json) -> str:
    return f"{found['mean']:.4f}" + ("" if found["std"] is None else f" ± {found['std']:.4f}")


def _interval(found: Json) -> str:
    return "–" if found["interval"] is None else f"{found['interval'][0]:+.4f} to {found['interval'][1]:+.4f}"
