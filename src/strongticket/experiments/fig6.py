r"""Figure 6: the error of tickets within a transformer of 1 to 4 blocks against its hidden widths $n_{MHA} = n_{FC}$.

Targets are untrained: one head and one linear layer a block, $d = 2$. The first b blocks of a source are a source of b
blocks, and their masks do not depend on what follows, so one source serves every number of blocks: its error after
block b is that of the transformer which ends there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from strongticket.construct import construct_transformer
from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import measure, plotting
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.seeds import derive_seed
from strongticket.experiments.statistics import decay_json, decay_of, fit_decay, fit_decay_in_logs, summarize
from strongticket.experiments.tasks import SourceConfig, Task, cut
from strongticket.files import Json
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from strongticket.ops.subset_sum import Effort

if TYPE_CHECKING:
    from rich.table import Table

D_MODEL = 2
SOURCES_A_TASK = 10
PARTS = ("query", "key", "value", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    # A sign split leaves n / 4 items to the linear layer's sums. They decide the error, and more effort for the n / 2
    # items of the attention's would not show.
    effort: Effort = "default"
    normalize: bool = True  # every matrix of the target has spectral norm 1, as the theorems assume
    key_width: int = 8  # d_K and d_V of the target
    n_blocks: int = 4
    widths: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96)
    length: int = 4  # points in a sequence; the regression token, at zero, comes on top
    inputs: int = 2000  # of the test split


def configure(options: Options) -> Config:
    """Follow the options; quick means fewer sources, widths and inputs, and nothing else."""
    if options.target == "trained":
        raise ValueError(
            "fig6 has untrained targets, as in the paper; leave --target out, or run other figures by themselves."
        )
    config = Config(seed=options.seed, targets=options.targets, init=options.init)
    if options.normalize is not None:
        config = replace(config, normalize=options.normalize)
    if options.quick:
        config = replace(config, sources=10, widths=(8, 16, 24, 32, 48), inputs=500)
    return replace(config, sources=options.sources) if options.sources is not None else config


def make_target(config: Config, index: int) -> Json:
    """Draw a transformer and describe it in plain JSON, with the spectral norms of its matrices."""
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "transformer", index))
    target = random_transformer(
        config.n_blocks, D_MODEL, key_width=config.key_width, generator=generator, normalize=config.normalize
    )
    return {"index": index, "blocks": [_block_json(block) for block in _blocks_of(target)]}


def read_target(content: Json) -> Transformer:
    """Read what `make_target` wrote."""

    def matrix(weight: Json) -> Tensor:
        return torch.tensor(weight, dtype=torch.float64)

    blocks = [
        Block(Attention(*(matrix(block[part]) for part in PARTS)), FeedForward([matrix(block["feedforward"])]))
        for block in content["blocks"]
    ]
    return Transformer(blocks).requires_grad_(False)


def run_task(task: Task[Config]) -> Json:
    """Prune each source into the target and measure it after every block."""
    config, n = task.config, task.width
    target = read_target(task.target)
    points = draw_angular("test", config.inputs, seed=config.seed).sequences(config.length)
    x = with_token(torch.zeros(D_MODEL, dtype=torch.float64), points)
    expected = outputs_by_block(target, x)
    rows = []
    for seed in task.seeds():
        ticket = construct_transformer(
            target,
            key_width=n,
            value_width=n,
            hidden_width=n,
            seed=seed,
            init=config.init,
            blocks=config.blocks,
            effort=config.effort,
            samples=x,
        )
        found = ticket.build("merged", dtype=torch.float64)
        assert isinstance(found, Transformer)
        assert ticket.certificate is not None
        errors = [
            (ours - theirs).norm(dim=-1).amax(dim=-1)
            for ours, theirs in zip(outputs_by_block(found, x), expected, strict=True)
        ]
        rows.append(
            {
                **measure.describe_ticket(ticket),
                # One for each number of blocks, from here on.
                "certificate": [block["error"] for block in ticket.certificate.details["blocks"]],
                "unreachable": _unreachable_by_block(ticket.certificate.details, config.n_blocks),
                "error": [error.mean().item() for error in errors],
                "worst": [error.max().item() for error in errors],
            }
        )
    return {"target": task.target["index"], "width": n, "sources": measure.columns(rows)}


def outputs_by_block(network: Transformer, x: Tensor) -> list[Tensor]:
    """Give what the transformers of 1, 2, ... blocks put out, (N, T + 1, d) each."""
    outputs = []
    with torch.inference_mode():
        for block in _blocks_of(network):
            x = block(x)
            outputs.append(x)
    return outputs


def summarize_rows(config: Config, targets: Sequence[Json], rows: Sequence[Json]) -> dict[str, Json]:
    """Gather the chunks, describe each width, and fit each target's curves."""
    points = [_describe_width(config, t["index"], n, rows) for t in targets for n in config.widths]
    return {
        "metric": "largest error norm of a token after block b, averaged over the inputs; worst: the largest over them",
        "rounding": measure.ROUNDING,
        "violations": sum(point["violations"] for point in points),
        "fits": [_fit_target(config, t["index"], points) for t in targets],
        "widths": points,
    }


def _describe_width(config: Config, target: int, width: int, rows: Sequence[Json]) -> Json:
    chunks = [row["sources"] for row in rows if (row["target"], row["width"]) == (target, width)]
    sources = measure.join_columns(chunks)
    count = len(sources["seed"])
    return {
        "target": target,
        "width": width,
        "blocks": [
            {
                "error": summarize(errors),
                "worst": summarize(worst),
                "certificate": summarize(certificates),
                # The share of sources with an entry out of reach in this block or one before it.
                "unreachable_sources": sum(n > 0 for n in unreachable) / count,
            }
            for errors, worst, certificates, unreachable in zip(
                *(zip(*sources[name], strict=True) for name in ("error", "worst", "certificate", "unreachable")),
                strict=True,
            )
        ],
        "violations": sum(
            measure.violated(certificate, worst)
            for certificates, worsts in zip(sources["certificate"], sources["worst"], strict=True)
            for certificate, worst in zip(certificates, worsts, strict=True)
        ),
        "sources": sources,
    }


def _fit_target(config: Config, target: int, points: Sequence[Json]) -> Json:
    """Fit each number of blocks twice: with the first one's rate, as in the paper, and with its own."""
    own = [point for point in points if point["target"] == target]
    widths = [point["width"] for point in own]
    fits: Json = {"target": target}
    for what in ("mean", "median"):
        curves = [[point["blocks"][b]["error"][what] for point in own] for b in range(config.n_blocks)]
        first = fit_decay(widths, curves[0])
        shared = [fit_decay(widths, curve, delta=first.delta) if first else None for curve in curves]
        fits[what] = {
            "shared_rate": [decay_json(fit) for fit in shared],
            "own_rate": [decay_json(fit_decay(widths, curve)) for curve in curves],
            "in_logs": [decay_json(fit_decay_in_logs(widths, curve)) for curve in curves],
        }
    return fits


def _unreachable_by_block(details: Json, n_blocks: int) -> list[int]:
    """Count entries out of reach in the first 1, 2, ... blocks."""
    listed = details["unreachable"]
    assert listed["count"] == len(listed["worst"]), "a transformer of this size has fewer entries than a list holds"
    places = [int(entry["matrix"].split(".")[1]) for entry in listed["worst"]]  # "block.2.head.0.qk"
    return [sum(place <= b for place in places) for b in range(n_blocks)]


def _block_json(block: Block) -> Json:
    attention, network = block.attention, block.feedforward
    assert isinstance(attention, Attention)
    assert isinstance(network, FeedForward)
    weights = {part: getattr(attention, part).detach() for part in PARTS} | {"feedforward": network.weights[0].detach()}
    norms = {part: torch.linalg.matrix_norm(weight, ord=2).max().item() for part, weight in weights.items()}
    return {part: weight.tolist() for part, weight in weights.items()} | {"norms": norms}


def _blocks_of(network: Transformer) -> list[Block]:
    return [block for block in network.blocks if isinstance(block, Block)]


def draw(result: Json, path: Path) -> None:
    """Draw the means as the paper does, with one rate for all; and means and medians on a logarithmic scale."""
    figure = plotting.new_figure(9.6, 6.0)
    edges = {"left": 0.07, "right": 0.985, "top": 0.835, "bottom": 0.085, "hspace": 0.36, "wspace": 0.16}
    grid = figure.add_gridspec(2, 2, height_ratios=(4.2, 1), **edges)
    linear, logarithmic = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    fits = result["fits"][0]
    points = [point for point in result["widths"] if point["target"] == fits["target"]]
    _draw_as_paper(linear, points, fits)
    _draw_in_logs(logarithmic, points, fits)
    _draw_misses(figure.add_subplot(grid[1, 0], sharex=linear), points)
    _draw_rates(figure.add_subplot(grid[1, 1]), fits)
    config = result["config"]
    norms = "norms 1" if config["normalize"] else "norms as they come"
    plotting.title(
        figure,
        f"Figure 6: error of tickets in transformers of 1 to {config['n_blocks']} blocks",
        f"untrained target, d = {D_MODEL}, {norms}; {config['sources']} sources a width, init {config['init']!r}; "
        f"T = {config['length']} and the regression token; {config['inputs']:,} test inputs",
    )
    plotting.save(figure, path)


def _curve(points: list[Json], b: int, statistic: str) -> list[float]:
    return [point["blocks"][b]["error"][statistic] for point in points]


def _draw_as_paper(axes: plotting.Axes, points: list[Json], fits: Json) -> None:
    widths = [point["width"] for point in points]
    for b, colour in zip(range(len(points[0]["blocks"])), plotting.SERIES, strict=False):
        fit = decay_of(fits["mean"]["shared_rate"][b])
        shift = 0.7 * (b - 1.5)  # so that the bars of one width stand side by side
        bars = {"fmt": "o", "ms": 4, "lw": 1, "capsize": 2, "color": colour}
        label = f"{b + 1} block{'s' if b else ''}, {plotting.formula(fit)}"
        axes.errorbar(
            [n + shift for n in widths], _curve(points, b, "mean"), _curve(points, b, "std"), **bars, label=label
        )
        plotting.draw_decay(axes, fit, widths, color=colour, lw=1.5)
    plotting.style(axes, "Mean ± standard deviation; one rate for all, as in the paper", y="error")
    axes.set_ylim(bottom=-0.2)
    plotting.legend(axes, loc="upper right")


def _draw_in_logs(axes: plotting.Axes, points: list[Json], fits: Json) -> None:
    widths = [point["width"] for point in points]
    for b, colour in zip(range(len(points[0]["blocks"])), plotting.SERIES, strict=False):
        axes.plot(widths, _curve(points, b, "mean"), color=colour, marker="o", ms=4, lw=1.5)
        axes.plot(widths, _curve(points, b, "median"), color=colour, marker="D", ms=3, lw=1.2, ls="--")
    axes.plot([], [], color=plotting.INK, marker="o", ms=4, lw=1.5, label="mean")
    axes.plot([], [], color=plotting.INK, marker="D", ms=3, lw=1.2, ls="--", label="median")
    axes.set_yscale("log")
    plotting.style(axes, "Mean and median, logarithmic scale", x="hidden width $n = n_{MHA} = n_{FC}$")
    axes.set_xticks([n for n in widths if n % 16 == 0])
    plotting.legend(axes, loc="lower left")


def _draw_misses(axes: plotting.Axes, points: list[Json]) -> None:
    widths = [point["width"] for point in points]
    for b, colour in zip(range(len(points[0]["blocks"])), plotting.SERIES, strict=False):
        shares = [100 * point["blocks"][b]["unreachable_sources"] for point in points]
        axes.plot(widths, shares, color=colour, marker="o", ms=3, lw=1.2)
    plotting.style(axes, x="hidden width $n = n_{MHA} = n_{FC}$")
    axes.set_title("% of sources with an entry out of reach", loc="left", fontsize=8.5, color=plotting.INK)
    axes.set_ylim(0, 108)
    axes.set_yticks([0, 50, 100])
    axes.set_xticks([n for n in widths if n % 16 == 0])


def _draw_rates(axes: plotting.Axes, fits: Json) -> None:
    """Draw each number of blocks' own rate."""
    rates = [decay_of(fit) for fit in fits["mean"]["own_rate"]]
    for b, (rate, colour) in enumerate(zip(rates, plotting.SERIES, strict=False)):
        if rate is not None:
            axes.bar(b + 1, rate.delta, width=0.5, color=colour)
            axes.text(b + 1, rate.delta, f" {rate.delta:.3f}", ha="center", va="bottom", fontsize=8, color=plotting.INK)
    plotting.style(axes, x="blocks")
    axes.set_title("Rate δ of the mean when each has its own", loc="left", fontsize=8.5, color=plotting.INK)
    axes.set_xticks(range(1, len(rates) + 1))
    axes.set_ylim(0, 1.5 * max((rate.delta for rate in rates if rate), default=1.0))
    axes.set_yticks([])
    axes.grid(visible=False)


def tables(result: Json) -> "list[Table]":
    """Show each target's fits."""
    from strongticket.experiments.tables import block_table

    return [block_table(result, fits) for fits in result["fits"]]


FIGURE = Figure(
    name="fig6",
    configure=configure,
    make_target=make_target,
    make_tasks=lambda config, targets: cut(config, targets, SOURCES_A_TASK),
    run_task=run_task,
    summarize=summarize_rows,
    draw=draw,
    tables=tables,
)
