r"""Figure 5: the error of tickets within a single-head attention against the length T of its input.

The same targets and sources as Figure 4, at a few widths. A source is measured by its regression token, whose output is
the prediction, at every length; and by its worst token up to the length where all of them are still cheap. Its
certificate does not know T: it stands as a line above.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import measure, plotting
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import summarize
from strongticket.experiments.targets import Target, TargetConfig, make_target, token_output
from strongticket.experiments.tasks import SourceConfig, Task, cut, prune_attention
from strongticket.files import Json
from strongticket.models.attention import MergedAttention

if TYPE_CHECKING:
    from rich.table import Table

SOURCES_A_TASK = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    target: TargetConfig = field(default_factory=TargetConfig)
    widths: tuple[int, ...] = (16, 32, 48, 64)
    lengths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    inputs: int = 256  # of the test split, for the regression token
    all_tokens_up_to: int = 256  # the length up to which every token is measured, at quadratic cost
    all_tokens_inputs: int = 32


class Inputs(NamedTuple):
    """Sequences of one length, with what the target makes of them."""

    length: int
    x: Tensor
    token: Tensor  # the regression token's output, (N, d_2)
    all_tokens: Tensor | None  # every token's, for the first inputs, (M, T + 1, d_2)


def configure(options: Options) -> Config:
    """Follow the options; quick means fewer sources, widths, lengths and inputs, and nothing else."""
    kind, normalize = options.target or "trained", options.normalize or False
    config = Config(
        seed=options.seed,
        targets=options.targets,
        init=options.init,
        target=TargetConfig(kind=kind, normalize=normalize),
    )
    if options.quick:
        lengths = (4, 16, 64, 256, 1024)
        config = replace(config, sources=10, widths=(16, 32, 48), lengths=lengths, inputs=64, all_tokens_inputs=16)
    return replace(config, sources=options.sources) if options.sources is not None else config


def run_task(task: Task[Config]) -> Json:
    """Prune each source into the target and measure it at every length."""
    config, n = task.config, task.width
    target = Target.from_json(task.target)
    merged = target.attention.merged().requires_grad_(False)
    inputs = _prepare(config, target, merged)
    rows = []
    for seed in task.seeds():
        ticket, found = prune_attention(task, merged, seed, target.input_norm())
        rows.append({**measure.describe_ticket(ticket), **_measure_lengths(config, found, inputs)})
    return {"target": task.target["index"], "width": n, "sources": measure.columns(rows)}


def summarize_rows(config: Config, targets: Sequence[Json], rows: Sequence[Json]) -> dict[str, Json]:
    """Gather the chunks and describe each width at each length."""
    lines = [_describe_width(config, t["index"], n, rows) for t in targets for n in config.widths]
    return {
        "metric": "token: error norm of the regression token; all_tokens: largest error norm of a token; each averaged "
        "over the inputs. worst: the largest over the inputs",
        "rounding": measure.ROUNDING,
        "violations": sum(line["violations"] for line in lines),
        "widths": lines,
    }


def _prepare(config: Config, target: Target, merged: MergedAttention) -> list[Inputs]:
    longest = draw_angular("test", config.inputs, seed=config.seed).sequences(max(config.lengths))
    prepared = []
    for length in config.lengths:
        x = with_token(target.token, longest[:, :length])
        few = x[: config.all_tokens_inputs] if length <= config.all_tokens_up_to else None
        outputs = merged(few) if few is not None else None
        prepared.append(Inputs(length, x, token_output(merged.qk, merged.vo, x), outputs))
    return prepared


def _measure_lengths(config: Config, found: MergedAttention, inputs: list[Inputs]) -> dict[str, list[float]]:
    """Give, length by length, mean and largest error over the inputs."""
    measured: dict[str, list[float]] = {name: [] for name in ("token", "token_worst", "all_tokens", "all_tokens_worst")}
    with torch.inference_mode():
        for _, x, token, all_tokens in inputs:
            errors = (token_output(found.qk, found.vo, x) - token).norm(dim=-1)
            measured["token"].append(errors.mean().item())
            measured["token_worst"].append(errors.max().item())
            if all_tokens is not None:
                errors = measure.token_errors(found, all_tokens, x[: len(all_tokens)])
                measured["all_tokens"].append(errors.mean().item())
                measured["all_tokens_worst"].append(errors.max().item())
    return measured


def _describe_width(config: Config, target: int, width: int, rows: Sequence[Json]) -> Json:
    chunks = [row["sources"] for row in rows if (row["target"], row["width"]) == (target, width)]
    sources = measure.join_columns(chunks)
    largest = [max(a + b) for a, b in zip(sources["token_worst"], sources["all_tokens_worst"], strict=True)]
    count = len(largest)
    return {
        "target": target,
        "width": width,
        "certificate": summarize(sources["certificate"]),
        "lengths": list(config.lengths),
        "token": [summarize(errors) for errors in zip(*sources["token"], strict=True)],
        # One for each length up to `all_tokens_up_to`.
        "all_tokens": [summarize(errors) for errors in zip(*sources["all_tokens"], strict=True)],
        "unreachable_sources": sum(n > 0 for n in sources["unreachable"]) / count,
        "violations": sum(map(measure.violated, sources["certificate"], largest)),
        "sources": sources,
    }


def draw(result: Json, path: Path) -> None:
    """Draw error against length for the mean and for the median source, the certificates above."""
    figure = plotting.new_figure(9.6, 5.0)
    edges = {"left": 0.075, "right": 0.945, "top": 0.8, "bottom": 0.105, "wspace": 0.22}
    grid = figure.add_gridspec(1, 2, **edges)
    lines = [line for line in result["widths"] if line["target"] == result["targets"][0]["index"]]
    mean = figure.add_subplot(grid[0, 0])
    _draw_lines(mean, lines, "mean")
    plotting.style(mean, "Mean over sources, as in the paper", x="length T", y="error")
    median = figure.add_subplot(grid[0, 1], sharey=mean)
    _draw_lines(median, lines, "median")
    plotting.style(median, "Median source, with quartiles", x="length T")
    config = result["config"]
    plotting.title(
        figure,
        "Figure 5: error of tickets in a single-head attention against the length of the input",
        f"{config['target']['kind']} target, {config['sources']} sources a width, init {config['init']!r}; solid: the "
        f"regression token, {config['inputs']} inputs; dashed: the worst of all tokens, {config['all_tokens_inputs']} "
        "inputs; dotted: the certificate",
    )
    plotting.save(figure, path)


def _draw_lines(axes: plotting.Axes, lines: list[Json], statistic: str) -> None:
    for line, colour in zip(lines, plotting.SERIES, strict=False):
        lengths, token, every = line["lengths"], line["token"], line["all_tokens"]
        axes.plot(lengths, [errors[statistic] for errors in token], color=colour, marker="o", ms=3.5, lw=1.6)
        axes.plot(lengths[: len(every)], [errors[statistic] for errors in every], color=colour, lw=1.2, ls="--")
        if statistic == "median":
            low, high = ([errors[quartile] for errors in token] for quartile in ("quartile_low", "quartile_high"))
            axes.fill_between(lengths, low, high, color=colour, alpha=0.13, lw=0)
        bound = line["certificate"][statistic]
        axes.axhline(bound, color=colour, lw=1.1, ls=(0, (1, 1.4)))
        beyond = {"ha": "left", "va": "center", "transform": axes.get_yaxis_transform()}
        axes.text(1.01, bound, f"n = {line['width']}", fontsize=8, color=colour, **beyond)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lines[0]["lengths"][::2], [str(length) for length in lines[0]["lengths"][::2]])
    axes.minorticks_off()


def tables(result: Json) -> "list[Table]":
    """Show each target's widths at a few lengths."""
    from strongticket.experiments.tables import length_table

    return [length_table(result, target["index"]) for target in result["targets"]]


FIGURE = Figure(
    name="fig5",
    configure=configure,
    make_target=lambda config, index: make_target(config.target, config.seed, index),
    make_tasks=lambda config, targets: cut(config, targets, SOURCES_A_TASK),
    run_task=run_task,
    summarize=summarize_rows,
    draw=draw,
    tables=tables,
)
