r"""Figure 4: the error of tickets within a single-head attention against its hidden width $n_K = n_V$.

For each of the targets and widths, sources are drawn, pruned into the target by Lemma 7, and compared with it on the
test inputs. The error of a source is the largest error norm of a token, averaged over the inputs; the largest over the
inputs is kept beside it. Reported: mean and standard deviation over sources as in the paper; and median, quartiles and
the share of sources with an entry out of reach, because the mean tells mostly of those (`docs/reproduction.md`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import measure, plotting
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

if TYPE_CHECKING:
    from rich.table import Table

SOURCES_A_TASK = 25
ENTRIES = D_MODEL * D_MODEL + D_MODEL * D_OUT  # of both merged matrices, each a subset sum
SLOPE_WIDTHS = (24, 64)  # where the median is fitted: below, many sources miss; above, float64 begins to tell
SAMPLE_MAPS = 3


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


def draw(result: Json, path: Path) -> None:
    """Draw the errors as the paper does, the same errors on a logarithmic scale, and below them what misses do."""
    figure = plotting.new_figure(9.6, 6.0)
    edges = {"left": 0.07, "right": 0.985, "top": 0.835, "bottom": 0.085, "hspace": 0.36, "wspace": 0.16}
    grid = figure.add_gridspec(2, 2, height_ratios=(4.2, 1), **edges)
    linear, logarithmic = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    first, *others = result["fits"]
    points = [point for point in result["widths"] if point["target"] == first["target"]]
    _draw_as_paper(linear, points, first)
    _draw_in_logs(logarithmic, points, first)
    for fits in others:
        _draw_thin(logarithmic, [point for point in result["widths"] if point["target"] == fits["target"]])
    misses = figure.add_subplot(grid[1, 0], sharex=linear)
    _draw_shares(misses, points, "unreachable_sources", "% of sources with an entry out of reach")
    carried = figure.add_subplot(grid[1, 1], sharex=logarithmic)
    _draw_shares(carried, points, "mean_from_unreachable", "% of the mean error that these sources carry")
    plotting.title(
        figure, "Figure 4: error of tickets in a single-head attention", _subtitle(result["config"], len(others))
    )
    plotting.save(figure, path)


def _subtitle(config: Json, others: int) -> str:
    norms = "norms at most 1" if config["target"]["normalize"] else "norms as they come"
    text = f"{config['target']['kind']} target, {norms}; {config['sources']} sources a width, init {config['init']!r}; "
    text += f"T = {config['length']} and the regression token; {config['inputs']:,} test inputs"
    return f"{text}; thin: {others} more targets" if others else text


def _draw_as_paper(axes: plotting.Axes, points: list[Json], fits: Json) -> None:
    widths = [point["width"] for point in points]
    mean, median, spread = ([point["error"][what] for point in points] for what in ("mean", "median", "std"))
    fit, median_fit = decay_of(fits["mean"]), decay_of(fits["median"])
    bars = {"fmt": "o", "ms": 4.5, "lw": 1.2, "capsize": 2.5}
    axes.errorbar(widths, mean, spread, color=plotting.MEAN, label="mean ± standard deviation over sources", **bars)
    plotting.draw_decay(axes, fit, widths, color=plotting.MEAN, lw=1.6, label=f"its fit, {plotting.formula(fit)}")
    axes.plot(widths, median, "D", color=plotting.MEDIAN, ms=3.2, label="median")
    label = f"its fit, {plotting.formula(median_fit)}"
    plotting.draw_decay(axes, median_fit, widths, color=plotting.MEDIAN, lw=1, ls="--", label=label)
    paper = f"the paper's fit, {plotting.formula(PAPER)}"
    plotting.draw_decay(axes, PAPER, widths, color=plotting.PAPER_COLOUR, lw=1.6, ls=":", label=paper)
    plotting.style(axes, "Linear scale, as in the paper", y="error")
    axes.set_ylim(bottom=-0.06)
    plotting.legend(axes, loc="upper right")


def _draw_in_logs(axes: plotting.Axes, points: list[Json], fits: Json) -> None:
    widths = [point["width"] for point in points]

    def line(what: str, statistic: str) -> list[float]:
        # Zero, an error below what float64 can show, has no place on a logarithmic scale.
        return [max(point[what][statistic], 1e-17) for point in points]

    low, high = line("error", "quartile_low"), line("error", "quartile_high")
    axes.fill_between(widths, low, high, color=plotting.MEDIAN, alpha=0.16, lw=0, label="quartiles")
    axes.plot(widths, line("error", "median"), color=plotting.MEDIAN, marker="o", ms=4.5, lw=1.6, label="median")
    axes.plot(widths, line("error", "mean"), color=plotting.MEAN, marker="o", ms=4.5, lw=1.6, label="mean")
    certified = line("certificate", "median")
    axes.plot(widths, certified, color=plotting.MEDIAN, lw=1, ls=(0, (1, 1.4)), label="median certificate")
    plotting.draw_decay(axes, PAPER, widths, color=plotting.PAPER_COLOUR, lw=1.6, ls=":", label="the paper")
    _draw_slope(axes, points, fits)
    axes.set_yscale("log")
    plotting.style(axes, "The same errors, logarithmic scale")
    plotting.legend(axes, loc="lower left")


def _draw_slope(axes: plotting.Axes, points: list[Json], fits: Json) -> None:
    """Draw the predicted halving per item beside the median, on which it would lie unseen, and name both slopes."""
    found = fits["median_slope"]
    low, high = found["widths"]
    inside = [point for point in points if low <= point["width"] <= high and point["error"]["median"] > 0]
    if found["slope"] is None or not inside:
        return
    middle = inside[len(inside) // 2]
    beside = 0.03 * middle["error"]["median"]
    decay = Decay(beside * math.exp(found["predicted"] * middle["width"]), found["predicted"])
    widths = [inside[0]["width"], inside[-1]["width"]]
    label = f"slope of $2^{{-n/2}}$: {found['predicted']:.3f}"
    plotting.draw_decay(axes, decay, widths, color=plotting.INK, lw=1.4, ls="--", label=label)
    text = f"median, n = {low} to {high}:\nslope {found['slope']:.3f}"
    place = (middle["width"], middle["error"]["median"])
    axes.annotate(
        text,
        place,
        (60, 14),
        textcoords="offset points",
        fontsize=8,
        color=plotting.MEDIAN,
        arrowprops={"arrowstyle": "-", "color": plotting.MEDIAN, "lw": 0.7},
    )


def _draw_thin(axes: plotting.Axes, points: list[Json]) -> None:
    widths = [point["width"] for point in points]
    for statistic, colour in (("median", plotting.MEDIAN), ("mean", plotting.MEAN)):
        errors = [max(point["error"][statistic], 1e-17) for point in points]
        axes.plot(widths, errors, color=colour, lw=0.7, alpha=0.6)


def _draw_shares(axes: plotting.Axes, points: list[Json], share: str, heading: str) -> None:
    widths = [point["width"] for point in points]
    axes.bar(widths, [100 * point[share] for point in points], width=4.5, color=plotting.MISS)
    plotting.style(axes, x="hidden width $n = n_K = n_V$")
    axes.set_title(heading, loc="left", fontsize=8.5, color=plotting.INK)
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_xticks([n for n in widths if n % 16 == 0])


def tables(result: Json) -> "list[Table]":
    """Show each target's widths."""
    from strongticket.experiments.tables import width_table

    return [width_table(result, fits) for fits in result["fits"]]


FIGURE = Figure(
    name="fig4",
    configure=configure,
    make_target=lambda config, index: make_target(config.target, config.seed, index),
    make_tasks=lambda config, targets: cut(config, targets, SOURCES_A_TASK),
    run_task=run_task,
    summarize=summarize_rows,
    draw=draw,
    tables=tables,
)
