"""Figures 4, 5 and 6: errors of constructed tickets against width, length and number of blocks."""

import math
from collections.abc import Sequence

from strongticket.charts.parts import (
    SERIES,
    Chart,
    Colour,
    Section,
    Series,
    Table,
    View,
    above_zero,
    number,
    share,
)
from strongticket.experiments.statistics import Decay, decay_of
from strongticket.files import Json
from strongticket.report.figure_words import carried_in_words, depths_in_words, lengths_in_words, rate_in_words
from strongticket.report.find import Result
from strongticket.report.fits import block_fits, curve, paper_curve, width_fits
from strongticket.report.origin import origin_of

_WIDTH = "hidden width n"
_ERROR = "error"
_REACH = "share of sources"
_HALF_BARS = "On the log scale a bar has no lower half where mean − deviation is below zero."


def width_figure(result: Result) -> Section:
    """Figure 4: error against width."""
    content = result.content
    fits, *others = content["fits"]
    points = _of(content, fits["target"])
    widths = [point["width"] for point in points]
    rest = [_of(content, other["target"]) for other in others]
    caption = (
        f"{_setting(content['config'])}. An error is the largest error norm of a token, averaged over "
        f"{content['config']['inputs']:,} test inputs."
    )
    chart = Chart(
        title="Error of tickets in a single-head attention",
        caption=caption,
        views=(_median_view(points, fits, widths, rest), _mean_view(points, fits, widths, rest), _miss_view(points)),
        tables=(_width_table(points), width_fits(fits, points)),
    )
    last = points[-1]
    finding = f"median error {number(points[0]['error']['median'])} at width {widths[0]}, "
    finding += f"{number(last['error']['median'])} at width {widths[-1]}"
    said = (
        "A random attention is pruned into a given one: how close does the best pruning come as the random one gets "
        "wider? The paper reports the mean over sources and fits 0.8\xa0exp(−0.06\xa0n).",
        carried_in_words(points),
        "The theory of subset sums has errors halve with every second unit of width.",
        rate_in_words(fits["median_slope"], widths),
    )
    return Section(
        anchor="fig4",
        name="Figure 4",
        title="Figure 4: error against width",
        lead=" ".join(filter(None, said)),
        finding=finding,
        blocks=(chart,),
        origin=origin_of(result),
    )


def _mean_view(points: list[Json], fits: Json, widths: list[int], rest: Sequence[list[Json]]) -> View:
    mean = [point["error"]["mean"] for point in points]
    spread = [point["error"]["std"] for point in points]
    series = [
        Series(
            name="mean ± standard deviation over sources",
            points=list(zip(widths, above_zero(mean), strict=True)),
            low=[m - s for m, s in zip(mean, spread, strict=True)],
            high=[m + s for m, s in zip(mean, spread, strict=True)],
            colour="mean",
            line=False,
        )
    ]
    if (fit := decay_of(fits["mean"])) is not None:
        series.append(curve("its fit", fit, widths, "mean"))
    series.append(paper_curve(widths))
    series.append(_certificate(points, "mean"))
    series += [_other_target(other, "mean", "mean") for other in rest]
    return View(name="Mean", x=_WIDTH, y=_ERROR, series=series, note=_HALF_BARS)


def _median_view(points: list[Json], fits: Json, widths: list[int], rest: Sequence[list[Json]]) -> View:
    errors = [point["error"] for point in points]
    series = [
        Series(
            name="median source, with quartiles",
            points=list(zip(widths, above_zero(error["median"] for error in errors), strict=True)),
            low=above_zero(error["quartile_low"] for error in errors),
            high=above_zero(error["quartile_high"] for error in errors),
            spread="band",
            colour="median",
        )
    ]
    if (halving := _halving(points, fits["median_slope"])) is not None:
        series.append(halving)
    series.append(_certificate(points, "median"))
    series.append(paper_curve(widths))
    series += [_other_target(other, "median", "median") for other in rest]
    return View(name="Median", x=_WIDTH, y=_ERROR, series=series)


def _halving(points: list[Json], slope: Json) -> Series | None:
    """Draw the predicted rate through the middle of where it should hold."""
    low, high = slope["widths"]
    inside = [point for point in points if low <= point["width"] <= high and point["error"]["median"] > 0]
    if not inside:
        return None
    middle, rate = inside[len(inside) // 2], slope["predicted"]
    decay = Decay(middle["error"]["median"] * math.exp(rate * middle["width"]), rate)
    ends = [point["width"] for point in inside]
    return Series(
        name="theory: half the error per item", points=[(n, decay.at(n)) for n in ends], dash="dashed", marks=False
    )


def _miss_view(points: list[Json]) -> View:
    widths = [point["width"] for point in points]

    def shares(name: str, key: str, colour: Colour) -> Series:
        values = (float(point[key]) for point in points)
        return Series(name=name, points=list(zip(widths, values, strict=True)), colour=colour)

    series = (
        shares("sources with an entry out of reach", "unreachable_sources", "miss"),
        shares("their part of the mean error", "mean_from_unreachable", "mean"),
    )
    return View(name="Out of reach", x=_WIDTH, y="share", series=series, y_scales=("linear",), percent=True)


def _width_table(points: list[Json]) -> Table:
    columns = ("n", "items", "mean", "std", "median", "quartiles", "largest", "median certificate", "out of reach")
    rows = [
        (
            str(point["width"]),
            str(point["items"]),
            number(point["error"]["mean"]),
            number(point["error"]["std"]),
            number(point["error"]["median"]),
            f"{number(point['error']['quartile_low'])} to {number(point['error']['quartile_high'])}",
            number(point["worst"]["max"]),
            number(point["certificate"]["median"]),
            share(point["unreachable_sources"]),
        )
        for point in points
    ]
    return Table(caption="Errors over sources, width by width", columns=columns, rows=rows, words=0)


def length_figure(result: Result) -> Section:
    """Figure 5: error against the length of the input."""
    content = result.content
    config = content["config"]
    lines = _of(content, content["targets"][0]["index"])
    ends, lengths = lines[-1]["token"], lines[-1]["lengths"]
    note = (
        f"Solid: the regression token, {config['inputs']:,} inputs; dashed: the worst of all tokens, "
        f"{config['all_tokens_inputs']:,} inputs; dotted: the certificate, which holds for every length."
    )
    chart = Chart(
        title="Error of tickets against the length of the input",
        caption=f"{_setting(config)}.",
        views=(_length_view(lines, "median", note), _length_view(lines, "mean", note), _length_misses(lines)),
        tables=[_length_table(lines, what) for what in ("median", "mean")],
    )
    return Section(
        anchor="fig5",
        name="Figure 5",
        title="Figure 5: error against length",
        lead="Is a ticket worse on longer inputs, or better, as attention averages over more tokens? One certificate "
        f"holds for every length. From T = {lengths[0]} to {lengths[-1]:,} the median error of the regression token "
        f"{lengths_in_words(lines)}.",
        finding=f"at width {lines[-1]['width']} the median error is {number(ends[0]['median'])} at length "
        f"{lengths[0]} and {number(ends[-1]['median'])} at {lengths[-1]:,}",
        blocks=(chart,),
        origin=origin_of(result),
    )


def _length_view(lines: list[Json], what: str, note: str) -> View:
    series = []
    for line, colour in zip(lines, SERIES, strict=False):
        lengths, token, every = line["lengths"], line["token"], line["all_tokens"]
        band = what == "median"
        series.append(
            Series(
                name=f"n = {line['width']}",
                points=list(zip(lengths, above_zero(errors[what] for errors in token), strict=True)),
                low=above_zero(errors["quartile_low"] for errors in token) if band else None,
                high=above_zero(errors["quartile_high"] for errors in token) if band else None,
                spread="band",
                colour=colour,
            )
        )
        worst = list(zip(lengths, above_zero(errors[what] for errors in every), strict=False))
        name = f"n = {line['width']}, worst token"
        series.append(Series(name=name, points=worst, colour=colour, dash="dashed", marks=False, follows=True))
        bound = max(float(line["certificate"][what]), 1e-17)
        certified = [(length, bound) for length in lengths]
        name = f"n = {line['width']}, certificate"
        series.append(Series(name=name, points=certified, colour=colour, dash="dotted", marks=False, follows=True))
    ticks = lines[0]["lengths"][::2]
    return View(name=what.capitalize(), x="length T", y=_ERROR, series=series, x_scale="log", x_ticks=ticks, note=note)


def _length_misses(lines: list[Json]) -> View:
    points = [(line["width"], float(line["unreachable_sources"])) for line in lines]
    series = (Series(name="sources with an entry out of reach", points=points, colour="miss"),)
    return View(name="Out of reach", x=_WIDTH, y=_REACH, series=series, y_scales=("linear",), percent=True)


def _length_table(lines: list[Json], what: str) -> Table:
    lengths = lines[0]["lengths"]
    rows = [
        (str(line["width"]), *(number(errors[what]) for errors in line["token"]), number(line["certificate"][what]))
        for line in lines
    ]
    columns = ("n", *(f"T = {length:,}" for length in lengths), "certificate")
    return Table(caption=f"{what.capitalize()} error of the regression token", columns=columns, rows=rows, words=0)


def block_figure(result: Result) -> Section:
    """Figure 6: error against width, for several numbers of blocks."""
    content = result.content
    config, fits = content["config"], content["fits"][0]
    points = _of(content, fits["target"])
    narrow, wide = points[0], points[-1]
    caption = (
        f"Target untrained, {'norms 1' if config['normalize'] else 'norms as they come'}; {config['sources']} sources "
        f"a width, init {config['init']}; {config['length']} points and the regression token; {config['inputs']:,} "
        "inputs."
    )
    chart = Chart(
        title=f"Error of tickets in transformers of 1 to {config['n_blocks']} blocks",
        caption=caption,
        views=(_block_view(points, fits, "median"), _block_view(points, fits, "mean"), _block_misses(points)),
        tables=(_block_table(points), block_fits(fits, points)),
    )
    rates = [decay_of(fit) for fit in fits["mean"]["own_rate"]]
    deepest = narrow["blocks"][-1]["error"]["median"], wide["blocks"][-1]["error"]["median"]
    return Section(
        anchor="fig6",
        name="Figure 6",
        title="Figure 6: error against width and depth",
        lead="Whole transformer blocks, attention and feed-forward layer, are hidden in wider random ones: does every "
        "depth decay with width, and as fast as one block? The paper fits all depths with the rate of one block. Left "
        f"to themselves, the means of 1 to {config['n_blocks']} blocks decay at rates {depths_in_words(rates)}.",
        finding=f"{config['n_blocks']} blocks: median error {number(deepest[0])} at width {narrow['width']}, "
        f"{number(deepest[1])} at width {wide['width']}",
        blocks=(chart,),
        origin=origin_of(result),
    )


def _block_view(points: list[Json], fits: Json, what: str) -> View:
    widths, series = [point["width"] for point in points], []
    for b, colour in zip(range(len(points[0]["blocks"])), SERIES, strict=False):
        errors = [point["blocks"][b]["error"] for point in points]
        name = f"{b + 1} block{'s' if b else ''}"
        mean = what == "mean"
        fit = decay_of(fits[what]["shared_rate"][b])
        low = [e["mean"] - e["std"] if mean else e["quartile_low"] for e in errors]
        high = [e["mean"] + e["std"] if mean else e["quartile_high"] for e in errors]
        series.append(
            Series(
                name=name,
                points=list(zip(widths, above_zero(error[what] for error in errors), strict=True)),
                low=low if mean else above_zero(low),
                high=high if mean else above_zero(high),
                spread="bars" if mean else "band",
                colour=colour,
                line=not mean,
            )
        )
        if fit is not None and mean:
            series.append(curve("fit", fit, widths, colour))
    note = _HALF_BARS if mean else ""
    return View(name=what.capitalize(), x=_WIDTH, y=_ERROR, series=series, apart=mean, note=note)


def _block_misses(points: list[Json]) -> View:
    series = [
        Series(
            name=f"{b + 1} block{'s' if b else ''}",
            points=[(point["width"], float(point["blocks"][b]["unreachable_sources"])) for point in points],
            colour=colour,
        )
        for b, colour in zip(range(len(points[0]["blocks"])), SERIES, strict=False)
    ]
    return View(name="Out of reach", x=_WIDTH, y=_REACH, series=series, y_scales=("linear",), percent=True)


def _block_table(points: list[Json]) -> Table:
    depth = len(points[0]["blocks"])
    names = [f"{what}, {b + 1} block{'s' if b else ''}" for what in ("mean", "median") for b in range(depth)]
    rows = [
        (
            str(point["width"]),
            *(number(point["blocks"][b]["error"][what]) for what in ("mean", "median") for b in range(depth)),
        )
        for point in points
    ]
    return Table(caption="Errors over sources, width by width", columns=("n", *names), rows=rows, words=0)


def _certificate(points: list[Json], statistic: str) -> Series:
    values = above_zero(point["certificate"][statistic] for point in points)
    widths = [point["width"] for point in points]
    return Series(
        name=f"{statistic} certificate", points=list(zip(widths, values, strict=True)), dash="dotted", marks=False
    )


def _other_target(points: list[Json], statistic: str, colour: Colour) -> Series:
    """Draw another target's errors thin: the same colour as the first one's, which the figure is about."""
    values = above_zero(point["error"][statistic] for point in points)
    widths = [point["width"] for point in points]
    return Series(
        name=f"target {points[0]['target']}, {statistic}",
        points=list(zip(widths, values, strict=True)),
        colour=colour,
        thin=True,
        marks=False,
    )


def _of(content: Json, target: int) -> list[Json]:
    return [point for point in content["widths"] if point["target"] == target]


def _setting(config: Json) -> str:
    target = config["target"]
    norms = "norms at most 1" if target["normalize"] else "norms as they come"
    length = f"; {config['length']} points and the regression token" if "length" in config else ""
    return f"Target {target['kind']}, {norms}; {config['sources']} sources a width, init {config['init']}{length}"
