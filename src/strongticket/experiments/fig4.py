r"""Figure 4: the error of tickets within a single-head attention against its hidden width $n_K = n_V$.

For each of the targets and widths, sources are drawn, pruned into the target by Lemma 7, and compared with it on the
test inputs. The error of a source is the largest error norm of a token, averaged over the inputs; the largest over the
inputs is kept beside it. Reported: mean and standard deviation over sources as in the paper; and median, quartiles and
the share of sources with an entry out of reach, because the mean tells mostly of those (`docs/reproduction.md`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from strongticket.charts.parts import Chart, Section, Series, Table, View, number, share
from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import bootstrap, curves, measure
from strongticket.experiments.constructions import Constructions
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import (
    PAPER,
    Decay,
    decay_json,
    decay_of,
    fit_decay,
    fit_decay_in_logs,
    summarize,
)
from strongticket.experiments.targets import D_MODEL, D_OUT, Target, TargetConfig, make_target
from strongticket.experiments.tasks import SourceConfig, Task, cut, prune_attention
from strongticket.files import Json

SOURCES_A_TASK = 25
ENTRIES = D_MODEL * D_MODEL + D_MODEL * D_OUT  # of both merged matrices, each a subset sum
SLOPE_WIDTHS = (24, 64)  # where the median is fitted: below, many sources miss; above, float64 begins to tell
SAMPLE_MAPS = 3
AGREES = 0.1  # of the theory's rate: a measured one within this is called the same
BESIDE = 0.03  # of the median: where the predicted slope is drawn, which would lie unseen on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    target: TargetConfig = field(default_factory=TargetConfig)
    widths: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)
    length: int = 4  # points in a sequence; the regression token comes on top
    inputs: int = 10_000  # of the test split


def configure(options: Options) -> Config:
    """Follow the options; quick means fewer sources, widths and inputs, and nothing else."""
    kind, normalize = options.target or "trained", options.normalize or False
    config = Config(
        seed=options.seed,
        targets=options.targets,
        init=options.init,
        target=TargetConfig(kind=kind, normalize=normalize),
    )
    if options.quick:
        config = replace(config, sources=20, widths=(8, 16, 24, 32, 40, 48), inputs=1000)
    return replace(config, sources=options.sources) if options.sources is not None else config


def run_task(task: Task[Config]) -> Json:
    """Prune each source into the target and measure it."""
    config, n = task.config, task.width
    target = Target.from_json(task.target)
    merged = target.attention.merged().requires_grad_(False)
    x = with_token(target.token, draw_angular("test", config.inputs, seed=config.seed).sequences(config.length))
    expected = merged(x)
    rows, maps = [], None
    for seed in task.seeds():
        ticket, found = prune_attention(task, merged, seed, target.input_norm())
        errors = measure.token_errors(found, expected, x)
        rows.append({**measure.describe_ticket(ticket), "error": errors.mean().item(), "worst": errors.max().item()})
        if maps is None and task.first == 0:
            maps = measure.rounded_maps(found.weights(x[:SAMPLE_MAPS])[:, 0])
    return {"target": task.target["index"], "width": n, "sources": measure.columns(rows), "maps": maps}


def summarize_rows(config: Config, targets: Sequence[Json], rows: Sequence[Json]) -> dict[str, Json]:
    """Gather the chunks, describe each width, and fit each target's curves."""
    points = [_describe_width(t["index"], n, rows) for t in targets for n in config.widths]
    return {
        "metric": "largest error norm of a token, averaged over the inputs; worst: the largest over the inputs",
        "rounding": measure.ROUNDING,
        "violations": sum(point["violations"] for point in points),
        "fits": [_fit_target(t["index"], points) for t in targets],
        "target_maps": [_target_maps(config, target) for target in targets],
        "widths": points,
    }


def _describe_width(target: int, width: int, rows: Sequence[Json]) -> Json:
    chunks = [row for row in rows if (row["target"], row["width"]) == (target, width)]
    sources = measure.join_columns([chunk["sources"] for chunk in chunks])
    count, unreachable = len(sources["seed"]), sources["unreachable"]
    return {
        "target": target,
        "width": width,
        "items": width // D_MODEL,
        "error": summarize(sources["error"]),
        "worst": summarize(sources["worst"]),
        "certificate": summarize(sources["certificate"]),
        # Shares of sources with any entry out of reach, and of all entries.
        "unreachable_sources": sum(n > 0 for n in unreachable) / count,
        "unreachable_entries": sum(unreachable) / (count * ENTRIES),
        # How much of the mean error comes from the sources with an entry out of reach.
        "mean_from_unreachable": _share_of_sum(sources["error"], [n > 0 for n in unreachable]),
        "violations": sum(map(measure.violated, sources["certificate"], sources["worst"])),
        "sources": sources,
        "maps": next(chunk["maps"] for chunk in chunks if chunk["maps"] is not None),
    }


def _share_of_sum(values: Sequence[float], chosen: Sequence[bool]) -> float:
    total = math.fsum(values)
    return math.fsum(value for value, wanted in zip(values, chosen, strict=True) if wanted) / total if total else 0.0


def _fit_target(target: int, points: Sequence[Json]) -> Json:
    """Fit mean and median as the paper does, and on logarithms; the slope of the median has a prediction."""
    own = [point for point in points if point["target"] == target]
    widths = [point["width"] for point in own]
    fits: Json = {"target": target}
    for what in ("mean", "median"):
        errors = [point["error"][what] for point in own]
        fits[what] = decay_json(fit_decay(widths, errors))
        fits[f"{what}_in_logs"] = decay_json(fit_decay_in_logs(widths, errors))
    low, high = SLOPE_WIDTHS
    between = [(n, point["error"]["median"]) for n, point in zip(widths, own, strict=True) if low <= n <= high]
    slope = fit_decay_in_logs([n for n, _ in between], [e for _, e in between])
    predicted = math.log(2) / D_MODEL
    fits["median_slope"] = {
        "widths": [low, high],
        "slope": slope.delta if slope else None,
        "predicted": predicted,
        "ratio": slope.delta / predicted if slope else None,
    }
    return fits


def _target_maps(config: Config, content: Json) -> Json:
    target = Target.from_json(content)
    x = with_token(target.token, draw_angular("test", config.inputs, seed=config.seed).sequences(config.length))
    with torch.inference_mode():
        return measure.rounded_maps(target.attention.merged().weights(x[:SAMPLE_MAPS])[:, 0])


def describe(result: Json) -> Section:
    """Errors as the paper has them and on a logarithmic scale, the slope of the median, and what misses do."""
    config = result["config"]
    (first, points), *others = [(found, curves.of_target(result, found["target"])) for found in result["fits"]]
    widths = [point["width"] for point in points]
    thin = [own for _, own in others]
    chart = Chart(
        title="Error of tickets in a single-head attention",
        caption=f"Target {config['target']['kind']}, {curves.norms_in_words(config['target'])}; "
        f"{curves.sources_in_words(config)}. An error is the largest error norm of a token, averaged over "
        f"{config['inputs']:,} test inputs.{f' Thin: {len(thin)} more targets.' if thin else ''}",
        views=(
            _median_view(points, first, thin),
            _mean_view(points, first, thin),
            curves.shares(
                widths,
                {
                    "sources with an entry out of reach": ("miss", [p["unreachable_sources"] for p in points]),
                    "their part of the mean error": ("mean", [p["mean_from_unreachable"] for p in points]),
                },
            ),
        ),
        tables=[table(own, found) for found, own in [(first, points), *others] for table in (_width_table, _fit_table)],
    )
    said = (
        "A random attention is pruned into a given one: how close does the best pruning come as the random one gets "
        "wider? The paper reports the mean over sources and fits 0.8\xa0exp(−0.06\xa0n).",
        carried_in_words(points),
        "The theory of subset sums has errors halve with every second unit of width.",
        rate_in_words(first["median_slope"], widths),
    )
    narrow, wide = (number(point["error"]["median"]) for point in (points[0], points[-1]))
    return Section(
        anchor="fig4",
        name="Figure 4",
        title="Figure 4: error against width",
        lead=" ".join(filter(None, said)),
        finding=f"median error {narrow} at width {widths[0]}, {wide} at width {widths[-1]}",
        blocks=(chart,),
    )


def _median_view(points: Sequence[Json], found: Json, others: Sequence[Sequence[Json]]) -> View:
    series = [
        _line("median source, with quartiles", points, "median", spread=True, colour="median"),
        _line("mean", points, "mean", colour="mean"),
        *_predicted(points, found["median_slope"]),
        _line("median certificate", points, "median", "certificate", dash="dotted", marks=False),
        curves.paper_curve([point["width"] for point in points]),
        *_thin(others, "median"),
    ]
    return View(name="Median", x=curves.WIDTH, y="error", series=series)


def _mean_view(points: Sequence[Json], found: Json, others: Sequence[Sequence[Json]]) -> View:
    widths = [point["width"] for point in points]
    fitted = {what: decay_of(found[what]) for what in ("mean", "median")}
    series = [
        _line("mean ± standard deviation over sources", points, "mean", spread=True, colour="mean"),
        *([curves.curve("its fit", fitted["mean"], widths, "mean")] if fitted["mean"] else []),
        _line("median", points, "median", colour="median", line=False),
        *([curves.curve("its fit", fitted["median"], widths, "median", "dashdot")] if fitted["median"] else []),
        curves.paper_curve(widths),
        _line("mean certificate", points, "mean", "certificate", dash="dotted", marks=False),
        *_thin(others, "mean"),
    ]
    # Linear on paper, as there.
    return View(name="Mean", x=curves.WIDTH, y="error", series=series, note=curves.HALF_BARS, printed="linear")


def _line(name: str, points: Sequence[Json], what: curves.Statistic, measured: str = "error", **look: Any) -> Series:
    found = [point[measured] for point in points]
    return curves.errors(name, [point["width"] for point in points], found, what, **look)


def _thin(others: Sequence[Sequence[Json]], what: curves.Statistic) -> list[Series]:
    """Draw other targets' errors thin, in the colour of the first one's, which the figure is about."""
    return [
        _line(f"target {points[0]['target']}, {what}", points, what, colour=what, thin=True, marks=False)
        for points in others
    ]


def _predicted(points: Sequence[Json], slope: Json) -> list[Series]:
    """Draw the predicted halving per item beside the median, and name both slopes."""
    low, high = slope["widths"]
    inside = [point for point in points if low <= point["width"] <= high and point["error"]["median"] > 0]
    if slope["slope"] is None or not inside:
        return []
    middle, rate = inside[len(inside) // 2], slope["predicted"]
    decay = Decay(BESIDE * middle["error"]["median"] * math.exp(rate * middle["width"]), rate)
    name = f"slope of 2^(−n/2), {rate:.3f}; the median’s, n = {low} to {high}: {slope['slope']:.3f}"
    line = [(point["width"], decay.at(point["width"])) for point in inside]
    return [Series(name=name, points=line, dash="dashed", marks=False)]


def _width_table(points: Sequence[Json], found: Json) -> Table:
    columns = ("n", "items", "mean", "std", "median", "quartiles", "largest", "median certificate", "out of reach")
    rows = [
        (
            *(str(point[key]) for key in ("width", "items")),
            *(number(point["error"][what]) for what in ("mean", "std", "median")),
            " to ".join(number(point["error"][f"quartile_{end}"]) for end in ("low", "high")),
            number(point["worst"]["max"]),
            number(point["certificate"]["median"]),
            share(point["unreachable_sources"]),
        )
        for point in points
    ]
    caption = f"Errors over sources, width by width, target {found['target']}"
    return Table(caption=caption, columns=columns, rows=rows, words=0)


def _fit_table(points: Sequence[Json], found: Json) -> Table:
    """Set the fits beside the paper's and the theory's, with bootstrap intervals."""
    widths = [point["width"] for point in points]
    sources = [point["sources"]["error"] for point in points]
    means, medians = (bootstrap.redraw(sources, of) for of in (bootstrap.mean_of_rows, bootstrap.median_of_rows))
    rows = []
    for what, drawn, paper in (("mean", means, PAPER), ("median", medians, None)):
        fit, intervals = decay_of(found[what]), curves.redrawn_fits(widths, drawn)
        for symbol, part in (("γ", "gamma"), ("δ", "delta")):
            ours, theirs = (number(getattr(decay, part, None)) for decay in (fit, paper))
            name = f"{what}: {symbol} of γ exp(−δ n), least squares"
            rows.append((name, ours, curves.in_words(intervals[part]), theirs))
    slope = found["median_slope"]
    low, high = slope["widths"]
    inside = [place for place, n in enumerate(widths) if low <= n <= high]
    if len(inside) > 1:
        values = bootstrap.slopes_in_logs([widths[place] for place in inside], medians[:, inside])
        name = f"median: rate of its logarithm, n = {low} to {high} (theory: ln 2 / 2 = {slope['predicted']:.4f})"
        rows.append((name, number(slope["slope"]), curves.in_words(bootstrap.interval(values)), "–"))
    return Table(caption=curves.FIT_CAPTION, columns=("fit", "value", "95 % interval", "the paper"), rows=rows)


def carried_in_words(points: Sequence[Json]) -> str:
    """Say how much of the mean error comes from sources with an entry out of reach; nothing where there are none."""
    missed = [point for point in points if point["unreachable_sources"] > 0]
    if not missed:
        return ""
    least = min(float(point["mean_from_unreachable"]) for point in missed)
    carried = f"{share(least)}{'' if least == 1 else ' or more'} of the mean error"
    return f"Up to width {missed[-1]['width']} some sources cannot reach some entry at all; they carry {carried}."


def rate_in_words(slope: Json, widths: Sequence[int]) -> str:
    """Hold the rate at which the median source's error falls against the theory's.

    Example:
        >>> rate_in_words({"widths": [24, 64], "slope": 0.35, "predicted": 0.3466}, [8, 24, 48])
        'The median source’s error falls at rate 0.3500 from width 24 to 48, as the theory predicts: 0.3466.'
    """
    rate, theory = slope["slope"], float(slope["predicted"])
    if rate is None:
        return f"There are too few widths to tell the median source’s rate; the theory’s is {theory:.4f}."
    low, high = slope["widths"]
    inside = [n for n in widths if low <= n <= high]
    where = f"from width {inside[0]} to {inside[-1]}"
    if rate <= 0:
        return f"The median source’s error does not fall {where}; the theory’s rate is {theory:.4f}."
    falls = f"The median source’s error falls at rate {rate:.4f} {where}"
    if abs(rate / theory - 1) <= AGREES:
        return f"{falls}, as the theory predicts: {theory:.4f}."
    return f"{falls}, not as the theory predicts: {share(rate / theory)} of its {theory:.4f}."


FIGURE = Figure(
    name="fig4",
    plan=Constructions(
        configure=configure,
        make_target=lambda config, index: make_target(config.target, config.seed, index),
        make_tasks=lambda config, targets: cut(config, targets, SOURCES_A_TASK),
        run_task=run_task,
        summarize=summarize_rows,
    ),
    describe=describe,
)
