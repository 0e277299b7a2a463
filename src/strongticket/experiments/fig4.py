r"""Figure 4: the error of tickets within a single-head attention against its hidden width $n_K = n_V$.

For each target and width, sources are drawn, pruned into the target by Lemma 7, and compared with it on the test
inputs. The error of a source is the largest error norm of a token, averaged over the inputs; the largest over the
inputs is stored as well. Reported are the mean and standard deviation over sources, as in the paper, and the median,
the quartiles and the share of sources with an entry out of reach, which dominate the mean (`docs/figures-4-6.md`).
Everything is measured twice on the same sources: with equal blocks of units, as in the paper, and with adaptive units.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from strongticket.charts.parts import Chart, Colour, Section, Series, Table, View, number, share, table_of
from strongticket.construct import construct_attention
from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import bootstrap, curves, tasks
from strongticket.experiments.bootstrap import Statistic
from strongticket.experiments.constructions import Constructions, following
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.maps import Mapped, Maps, describe_maps, sample_maps
from strongticket.experiments.statistics import PAPER, Decay, Summary, fit_decay, fit_decay_in_logs, summarize
from strongticket.experiments.targets import D_MODEL, D_OUT, Made, Target, TargetConfig, make_target
from strongticket.experiments.tasks import SourceConfig, Task
from strongticket.files import Json
from strongticket.models.attention import MergedAttention
from strongticket.settings import read_settings

ENTRIES = D_MODEL * D_MODEL + D_MODEL * D_OUT  # of a head's two merged matrices, each a subset sum
SLOPE_WIDTHS = (24, 64)  # where the median is fitted: below, many sources miss; above, float64 rounding shows
AGREES = 0.1  # of the theory's rate: a measured one within this is called the same
BESIDE = 0.03  # of the median: the predicted slope is drawn here, where the median does not hide it


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    varied: ClassVar[Mapping[str, str]] = {"widths": "widths", "heads": "target.n_heads", "inputs": "inputs"}

    target: TargetConfig = field(default_factory=TargetConfig)
    widths: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)
    length: int = 4  # points in a sequence, without the regression token
    inputs: int = 10_000  # of the test split


class Rows(tasks.Rows):
    """What a task found, and if it has the first source, its attention maps."""

    maps: Maps | None


class Point(Mapped):
    """One target's sources of one width."""

    items: int
    error: Summary
    worst: Summary
    certificate: Summary
    unreachable_sources: float  # shares of sources with any entry out of reach, and of all entries
    unreachable_entries: float
    mean_from_unreachable: float  # how much of the mean error comes from these sources


class Slope(TypedDict):
    """How fast the logarithm of the median falls between two widths, and the predicted rate."""

    widths: list[int]
    slope: float | None
    predicted: float
    ratio: float | None


class Fits(TypedDict):
    """One target's curves: fitted as the paper does, and on logarithms."""

    target: int
    mean: Decay | None
    mean_in_logs: Decay | None
    median: Decay | None
    median_in_logs: Decay | None
    median_slope: Slope


class Found(curves.Found[Point]):
    """What is found with one assignment of units."""

    fits: list[Fits]
    target_maps: list[Maps]


class Result(Found):
    """What `result.json` holds; what is at the top is for equal blocks, as in the paper."""

    config: Json
    targets: list[Made]
    adaptive: Found


def configure(options: Options) -> Config:
    """Apply the options; `--quick` only means fewer sources, widths and inputs."""
    target = TargetConfig(kind=options.target or "trained", normalize=options.normalize or False)
    quick: dict[str, Any] = {"sources": 20, "widths": (8, 16, 24, 32, 40, 48), "inputs": 1000}
    return following(Config(target=target), options, coordinates=D_MODEL, **quick)


def run_task(task: Task[Config, Made]) -> Rows:
    """Prune each source into the target and measure it."""
    target = Target.from_json(task.target)
    merged, x = target.attention.merged().requires_grad_(False), _inputs(task.config, target)
    expected = merged(x)
    rows, maps = [], None
    for source in task.sources():
        ticket = construct_attention(merged, input_norm=target.input_norm(), **source)
        found = ticket.build("merged", dtype=torch.float64)
        assert isinstance(found, MergedAttention)
        errors = tasks.token_errors(found, expected, x)
        rows.append({**tasks.describe_ticket(ticket), "error": errors.mean().item(), "worst": errors.max().item()})
        if maps is None and task.first == 0:
            maps = sample_maps(found, x)
    return {"target": task.target["index"], "width": task.width, "sources": tasks.columns(rows), "maps": maps}


def _inputs(config: Config, target: Target) -> Tensor:
    return with_token(target.token, draw_angular("test", config.inputs, seed=config.seed).sequences(config.length))


def summarize_rows(config: Config, targets: Sequence[Made], rows: Sequence[Rows]) -> Found:
    """Gather the chunks, describe each width, and fit each target's curves."""
    entries = ENTRIES * config.target.n_heads
    points = [_describe_width(t["index"], n, entries, rows) for t in targets for n in config.widths]
    drawn = [Target.from_json(target) for target in targets]
    return {
        "metric": "largest error norm of a token, averaged over the inputs; worst: the largest over the inputs",
        "rounding": tasks.ROUNDING,
        "violations": sum(point["violations"] for point in points),
        "fits": [_fit_target(t["index"], curves.of_target(points, t["index"])) for t in targets],
        "target_maps": [sample_maps(target.attention.merged(), _inputs(config, target)) for target in drawn],
        "widths": points,
    }


def _describe_width(target: int, width: int, entries: int, rows: Sequence[Rows]) -> Point:
    sources = tasks.sources_of(rows, target, width)
    count, unreachable, total = len(sources["seed"]), sources["unreachable"], math.fsum(sources["error"])
    missed = math.fsum(error for error, entries in zip(sources["error"], unreachable, strict=True) if entries)
    return {
        "target": target,
        "width": width,
        "items": width // D_MODEL,
        "error": summarize(sources["error"]),
        "worst": summarize(sources["worst"]),
        "certificate": summarize(sources["certificate"]),
        "unreachable_sources": sum(n > 0 for n in unreachable) / count,
        "unreachable_entries": sum(unreachable) / (count * entries),
        "mean_from_unreachable": missed / total if total else 0.0,
        "violations": sum(map(tasks.violated, sources["certificate"], sources["worst"])),
        "sources": sources,
        "maps": next(row["maps"] for row in rows if (row["target"], row["width"]) == (target, width) and row["maps"]),
    }


def _fit_target(target: int, points: Sequence[Point]) -> Fits:
    """Fit mean and median as the paper does, and on logarithms; compare the median's slope with the prediction."""
    widths = [point["width"] for point in points]
    means, medians = ([point["error"][what] for point in points] for what in curves.STATISTICS)
    low, high = SLOPE_WIDTHS
    between = [(n, error) for n, error in zip(widths, medians, strict=True) if low <= n <= high]
    slope = fit_decay_in_logs([n for n, _ in between], [error for _, error in between])
    predicted = math.log(2) / D_MODEL
    return {
        "target": target,
        "mean": fit_decay(widths, means),
        "mean_in_logs": fit_decay_in_logs(widths, means),
        "median": fit_decay(widths, medians),
        "median_in_logs": fit_decay_in_logs(widths, medians),
        "median_slope": {
            "widths": [between[0][0], between[-1][0]] if between else [low, high],
            "slope": slope and slope["delta"],
            "predicted": predicted,
            "ratio": slope and slope["delta"] / predicted,
        },
    }


def describe(result: Result) -> Section:
    """Show errors as in the paper and on a log scale, the slope of the median, and the effect of misses."""
    config = read_settings(result["config"], Config)
    targets = [(found, curves.of_target(result["widths"], found["target"])) for found in result["fits"]]
    (first, points), *others = targets
    widths = [point["width"] for point in points]
    adaptive = curves.of_target(result["adaptive"]["widths"], first["target"])
    thin: dict[str, Any] = {"thin": True, "marks": False}
    heads = config.target.n_heads
    ours = [
        _line("mean, adaptive units", adaptive, "mean", colour="s1"),
        _line("median, adaptive units", adaptive, "median", colour="s1", dash="dashed", marks=False),
    ]
    paper = curves.curve("the paper’s fit of its mean", PAPER, widths, "paper", "dashed")
    medians = [
        _line("median, with quartiles", points, "median", spread=True, colour="median"),
        _line("mean", points, "mean", colour="mean"),
        *ours,
        *_predicted(points, first["median_slope"]),
        _line("median certificate", points, "median", "certificate", dash="dotted", marks=False),
        *paper,
    ]
    means = [
        _line("mean ± deviation over sources", points, "mean", spread=True, colour="mean"),
        *curves.curve("fit of the mean", first["mean"], widths, "mean"),
        _line("median", points, "median", colour="median", line=False),
        *curves.curve("fit of the median", first["median"], widths, "median", "dashdot"),
        *ours,
        *paper,
        _line("mean certificate", points, "mean", "certificate", dash="dotted", marks=False),
    ]
    for found, own in others:  # in the colours of the first target, the figure's subject
        medians.append(_line(f"target {found['target']}, median", own, "median", colour="median", **thin))
        means.append(_line(f"target {found['target']}, mean", own, "mean", colour="mean", **thin))
    missed = [point["unreachable_sources"] for point in points]
    # Where no source misses an entry, misses cause no part of the error.
    parts = [point["mean_from_unreachable"] if point["unreachable_sources"] else None for point in points]
    shares: dict[str, tuple[Colour, list[float] | list[float | None]]] = {
        "sources that miss an entry": ("miss", missed),
        "part of mean error from misses": ("mean", parts),
        "sources that miss an entry, adaptive units": ("s1", [point["unreachable_sources"] for point in adaptive]),
    }
    tables = [table(own, found) for found, own in targets for table in (_width_table, _fit_table)]
    tables.append(_width_table(adaptive, first, ", adaptive units"))
    tables.append(_fit_table(adaptive, result["adaptive"]["fits"][0]))
    narrow, wide = (number(point["error"]["median"]) for point in (points[0], points[-1]))
    halved = halves(first["median_slope"])
    if halved:
        falls = "Each extra random number halves the error"
    elif len(points) > 1:
        falls = f"From width {widths[0]} to {widths[-1]}, the median error falls from {narrow} to {wide}"
    else:
        falls = f"At width {widths[0]}, the median error is {narrow}"
    low, high = (width // D_MODEL for width in first["median_slope"]["widths"])
    where = f"from {low} to {high} random numbers per weight"
    carried = "Sources that miss an entry dominate the mean" if any(missed) else "The mean error and the paper’s fit"
    chart = Chart(
        title=f"Error of tickets in {'a single-head attention' if heads == 1 else f'an attention of {heads} heads'}",
        caption=f"{curves.target_in_words(config.target)}; {curves.sources_in_words(config, config.length)}. An error "
        f"is the largest error norm of a token, averaged over {config.inputs:,} test inputs."
        f"{f' Thin: {len(others)} more targets.' if others else ''}"
        f"{f' The halving holds {where}.' if halved else ''}{curves.ADAPTIVE}",
        views=(
            View(name="Median", says=falls, x=curves.WIDTH, y="error", series=medians),
            View(
                name="Mean",
                says=carried,
                x=curves.WIDTH,
                y="error",
                series=means,
                note=curves.half_bars(widths, [point["error"] for point in points]),
                printed="linear",  # as in the paper
            ),
            curves.shares(widths, shares, curves.reach_in_words(widths, missed)),
        ),
        tables=tables,
    )
    theory = (
        "A random attention, the source, is pruned into a given one. How close does the best pruning come as the "
        "source gets wider? By the theory of subset sums, each random number per weight halves the error. Two hidden "
        "units make one such number, so errors halve with every second unit of width.",
        rate_in_words(first["median_slope"], widths),
    )
    mean = (
        "The paper reports the mean over sources and fits 0.8\xa0exp(−0.06\xa0n).",
        carried_in_words(points),
        curves.gain_in_words(points, adaptive, lambda point: point["error"]["mean"]),
    )
    return Section(
        anchor="fig4",
        name="Figure 4",
        title=f"Figure 4: {'each extra random number halves the error' if halved else 'error against width'}",
        lead="\n\n".join(" ".join(filter(None, said)) for said in (theory, mean)),
        finding=f"median error {narrow} at width {widths[0]}"
        + (f", {wide} at width {widths[-1]}" if len(points) > 1 else ""),
        plain="Prune a random attention, train nothing, and it computes nearly the same as a given one. "
        + (f"{falls}, {where}." if halved else f"{falls}."),
        blocks=(chart,),
    )


def halves(slope: Slope) -> bool:
    """Tell whether the median falls as the theory predicts: by half for each item."""
    return slope["slope"] is not None and abs(slope["slope"] / slope["predicted"] - 1) <= AGREES


def _line(
    name: str,
    points: Sequence[Point],
    what: Statistic,
    measured: Literal["error", "certificate"] = "error",
    **look: Any,
) -> Series:
    found = [point[measured] for point in points]
    return curves.errors(name, [point["width"] for point in points], found, what, **look)


def _predicted(points: Sequence[Point], slope: Slope) -> list[Series]:
    """Draw the predicted halving per item beside the median, and name both slopes."""
    low, high = slope["widths"]
    inside = [point for point in points if low <= point["width"] <= high and point["error"]["median"] > 0]
    if slope["slope"] is None or not inside:
        return []
    middle, rate = inside[len(inside) // 2], slope["predicted"]
    gamma = BESIDE * middle["error"]["median"] * math.exp(rate * middle["width"])
    name = f"halving per item, drawn lower: slope {rate:.3f}; measured median: {slope['slope']:.3f}"
    line = [(point["width"], gamma * math.exp(-rate * point["width"])) for point in inside]
    return [Series(name=name, points=line, dash="dashed", marks=False)]


def _width_table(points: Sequence[Point], found: Fits, how: str = "") -> Table:
    return table_of(
        f"Errors over sources, width by width{how}, target {found['target']}",
        points,
        {
            "n": lambda point: str(point["width"]),
            "items": lambda point: str(point["items"]),
            "mean": lambda point: number(point["error"]["mean"]),
            "std": lambda point: number(point["error"]["std"]),
            "median": lambda point: number(point["error"]["median"]),
            "quartiles": lambda point: curves.in_words(curves.quartiles(point["error"])),
            "largest": lambda point: number(point["worst"]["max"]),
            "median certificate": lambda point: number(point["certificate"]["median"]),
            "out of reach": lambda point: share(point["unreachable_sources"]),
        },
        words=0,
    )


def _fit_table(points: Sequence[Point], found: Fits) -> Table:
    """Compare the fits with the paper's and the theory's, with bootstrap intervals."""
    widths, sources = [point["width"] for point in points], [point["sources"]["error"] for point in points]
    drawn = {what: bootstrap.redraw(sources, what) for what in curves.STATISTICS}
    rows = []
    for what in curves.STATISTICS:
        intervals, paper = curves.redrawn_fits(widths, drawn[what]), PAPER if what == "mean" else None
        for symbol, part in zip("γδ", curves.FIT, strict=True):
            name = f"{what}: {symbol} of γ exp(−δ n), least squares, n = {widths[0]} to {widths[-1]}"
            ours, theirs = (number(fit[part] if fit else None) for fit in (found[what], paper))
            rows.append((name, ours, curves.in_words(intervals[part]), theirs))
    slope = found["median_slope"]
    low, high = slope["widths"]
    inside = [place for place, n in enumerate(widths) if low <= n <= high]
    if len(inside) > 1:
        values = bootstrap.slopes_in_logs([widths[place] for place in inside], drawn["median"][:, inside])
        name = f"median: rate of its logarithm, n = {low} to {high} (theory: ln 2 / 2 = {slope['predicted']:.4f})"
        rows.append((name, number(slope["slope"]), curves.in_words(bootstrap.interval(values)), "–"))
    return Table(caption=curves.FIT_CAPTION, columns=("fit", "value", "95 % interval", "the paper"), rows=rows)


def carried_in_words(points: Sequence[Point]) -> str:
    """Say how much of the mean error comes from sources with an entry out of reach; empty if there are none."""
    missed = [point for point in points if point["unreachable_sources"] > 0]
    if not missed:
        return ""
    least = min(float(point["mean_from_unreachable"]) for point in missed)
    part = f"{share(least)}{'' if least == 1 else ' or more'} of the mean error"
    return f"Up to width {missed[-1]['width']} some sources cannot reach some entry at all; they cause {part}."


def rate_in_words(slope: Slope, widths: Sequence[int]) -> str:
    """Compare the rate at which the median source's error falls with the theory's.

    Example:
        >>> rate_in_words({"widths": [24, 64], "slope": 0.35, "predicted": 0.3466}, [8, 24, 48])
        'The median source’s error falls at rate 0.3500 from width 24 to 48, as the theory predicts: 0.3466.'
    """
    rate, theory = slope["slope"], float(slope["predicted"])
    if rate is None:
        return f"There are too few widths to fit the median source’s rate; the theory’s is {theory:.4f}."
    low, high = slope["widths"]
    inside = [n for n in widths if low <= n <= high]
    where = f"from width {inside[0]} to {inside[-1]}"
    if rate <= 0:
        return f"The median source’s error does not fall {where}; the theory’s rate is {theory:.4f}."
    falls = f"The median source’s error falls at rate {rate:.4f} {where}"
    if halves(slope):
        return f"{falls}, as the theory predicts: {theory:.4f}."
    return f"{falls}, not as the theory predicts: {share(rate / theory)} of its {theory:.4f}."


def _make_target(config: Config, index: int) -> Made:
    return make_target(config.target, config.seed, index)


FIGURE = Figure(
    "fig4", Constructions(configure, _make_target, run_task, summarize_rows, 25), describe, more=(describe_maps,)
)
