r"""Figure 6: the error of tickets within a transformer of 1 to 4 blocks against its hidden widths $n_{MHA} = n_{FC}$.

Targets are untrained: one head and one linear layer per block, d = 2. The first b blocks of a source are a source of b
blocks, and their masks do not depend on later blocks. So one source serves every number of blocks: its error after
block b is that of the transformer that ends there. As in Figure 4, each source is used twice: with equal blocks of
units, as in the paper, and with adaptive units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor

from strongticket.charts.parts import Chart, Colour, Section, Series, Table, View, changes, number, ramp_of
from strongticket.construct import construct_transformer
from strongticket.data.angular import draw_angular, with_token
from strongticket.errors import InfeasibleError
from strongticket.experiments import bootstrap, curves, tasks
from strongticket.experiments.bootstrap import Statistic
from strongticket.experiments.constructions import Constructions, following
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import Decay, Summary, fit_decay, fit_decay_in_logs, summarize
from strongticket.experiments.targets import Weights, read_attention, weights_of
from strongticket.experiments.tasks import Indexed, Rows, SourceConfig, Sources, Task, derive_seed
from strongticket.files import Json
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from strongticket.ops.subset_sum import Effort
from strongticket.settings import read_settings
from strongticket.tickets.details import Details
from strongticket.tickets.ticket import Ticket

D_MODEL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    varied: ClassVar[Mapping[str, str]] = {
        "widths": "widths",
        "blocks": "n_blocks",
        "heads": "n_heads",
        "inputs": "inputs",
    }

    # A sign split leaves n / 4 items for the linear layer's sums. These decide the error; more effort on the
    # attention's sums, which have n / 2 items, would not show.
    effort: Effort = "default"
    normalize: bool = True  # every matrix of the target has spectral norm 1, as the theorems assume
    key_width: int = 8  # d_K and d_V of the target
    n_blocks: int = 4
    n_heads: int = 1
    widths: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96)
    length: int = 4  # points in a sequence, without the regression token, which is zero
    inputs: int = 2000  # of the test split


class Blocks(TypedDict):
    """Errors after some blocks."""

    error: Summary
    worst: Summary
    certificate: Summary
    unreachable_sources: float  # with an entry out of reach in these blocks


class Point(curves.Width):
    """One target's sources of one width, after 1, 2, ... blocks."""

    blocks: list[Blocks]


class Curves(TypedDict):
    """Fits to each number of blocks: with the rate of one block, as in the paper, with its own, and in logarithms."""

    shared_rate: list[Decay | None]
    own_rate: list[Decay | None]
    in_logs: list[Decay | None]


class Fits(TypedDict):
    """One target's curves."""

    target: int
    mean: Curves
    median: Curves


class MadeBlock(Weights):
    """A block of a target."""

    feedforward: list[list[float]]
    norms: dict[str, float]  # the largest spectral norm of each matrix


class Made(Indexed):
    """A target as a result file has it."""

    blocks: list[MadeBlock]


class Found(curves.Found[Point]):
    """What is found with one assignment of units."""

    fits: list[Fits]


class Result(Found):
    """What `result.json` holds; what is at the top is for equal blocks, as in the paper."""

    config: Json
    targets: list[Made]
    adaptive: Found


def configure(options: Options) -> Config:
    """Apply the options; `--quick` only means fewer sources, widths and inputs."""
    if options.target == "trained":
        raise ValueError(
            "fig6 has untrained targets, as in the paper; leave out --target, or run the other figures without fig6."
        )
    config = Config() if options.normalize is None else Config(normalize=options.normalize)
    return following(config, options, coordinates=D_MODEL, sources=10, widths=(8, 16, 24, 32, 48), inputs=500)


def make_target(config: Config, index: int) -> Made:
    """Draw a transformer and describe it in plain JSON, with the spectral norms of its matrices."""
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "transformer", index))
    sizes = {"key_width": config.key_width, "n_heads": config.n_heads}
    target = random_transformer(config.n_blocks, D_MODEL, **sizes, generator=generator, normalize=config.normalize)
    blocks: list[MadeBlock] = []
    for block in _blocks_of(target):
        assert isinstance(block.attention, Attention)
        assert isinstance(block.feedforward, FeedForward)
        feedforward = block.feedforward.weights[0].detach()
        weights = {**dict(block.attention.named_parameters()), "feedforward": feedforward}
        norms = {part: torch.linalg.matrix_norm(weight, ord=2).max().item() for part, weight in weights.items()}
        blocks.append({**weights_of(block.attention), "feedforward": feedforward.tolist(), "norms": norms})
    return {"index": index, "blocks": blocks}


def read_target(content: Made) -> Transformer:
    """Read what `make_target` wrote."""
    networks = [FeedForward([torch.tensor(b["feedforward"], dtype=torch.float64)]) for b in content["blocks"]]
    attentions = map(read_attention, content["blocks"])
    return Transformer([*map(Block, attentions, networks)]).requires_grad_(False)


def run_task(task: Task[Config, Made]) -> Rows:
    """Prune each source into the target and measure it after every block."""
    config, target = task.config, read_target(task.target)
    points = draw_angular("test", config.inputs, seed=config.seed).sequences(config.length)
    x = with_token(torch.zeros(D_MODEL, dtype=torch.float64), points)
    expected = outputs_by_block(target, x)
    rows = []
    for source in task.sources():
        ticket = _construct(target, source | {"hidden_width": task.width, "samples": x})
        found = ticket.build("merged", dtype=torch.float64)
        assert isinstance(found, Transformer)
        assert ticket.certificate is not None
        outputs = zip(outputs_by_block(found, x), expected, strict=True)
        errors = [(ours - theirs).norm(dim=-1).amax(dim=-1) for ours, theirs in outputs]
        rows.append(
            {
                **tasks.describe_ticket(ticket),
                # From here on, one value per number of blocks.
                "certificate": [block["error"] for block in ticket.certificate.details["blocks"]],
                "unreachable": _unreachable_by_block(ticket.certificate.details, config.n_blocks),
                "error": [error.mean().item() for error in errors],
                "worst": [error.max().item() for error in errors],
            }
        )
    return {"target": task.target["index"], "width": task.width, "sources": tasks.columns(rows)}


def _construct(target: Transformer, settings: Mapping[str, Any]) -> Ticket:
    """Construct; a source in which no choice of units serves every input keeps equal blocks, and counts as it does."""
    try:
        return construct_transformer(target, **settings)
    except InfeasibleError:
        return construct_transformer(target, **{**settings, "assignment": "equal"})


def outputs_by_block(network: Transformer, x: Tensor) -> list[Tensor]:
    """Return the outputs of the transformers of 1, 2, ... blocks, (N, T + 1, d) each."""
    outputs = []
    with torch.inference_mode():
        for block in _blocks_of(network):
            x = block(x)
            outputs.append(x)
    return outputs


def summarize_rows(config: Config, targets: Sequence[Made], rows: Sequence[Rows]) -> Found:
    """Gather the chunks, describe each width, and fit each target's curves."""
    points = [_describe_width(t["index"], n, rows) for t in targets for n in config.widths]
    return {
        "metric": "largest error norm of a token after block b, averaged over the inputs; worst: the largest over them",
        "rounding": tasks.ROUNDING,
        "violations": sum(point["violations"] for point in points),
        "fits": [_fit_target(t["index"], curves.of_target(points, t["index"])) for t in targets],
        "widths": points,
    }


def _describe_width(target: int, width: int, rows: Sequence[Rows]) -> Point:
    sources = tasks.sources_of(rows, target, width)
    by_block = {name: [*zip(*sources[name], strict=True)] for name in ("error", "worst", "certificate", "unreachable")}
    certified, worst = ([value for values in sources[name] for value in values] for name in ("certificate", "worst"))
    return {
        "target": target,
        "width": width,
        "blocks": [
            {
                "error": summarize(errors),
                "worst": summarize(worst),
                "certificate": summarize(certificates),
                "unreachable_sources": sum(n > 0 for n in unreachable) / len(unreachable),
            }
            for errors, worst, certificates, unreachable in zip(*by_block.values(), strict=True)
        ],
        "violations": sum(map(tasks.violated, certified, worst)),
        "sources": sources,
    }


def _fit_target(target: int, points: Sequence[Point]) -> Fits:
    """Fit each number of blocks: with the rate of one block, as in the paper, with its own, and in logarithms."""
    widths = [point["width"] for point in points]

    def fit(what: Statistic) -> Curves:
        errors = [*zip(*([block["error"][what] for block in point["blocks"]] for point in points), strict=True)]
        first = fit_decay(widths, errors[0])
        return {
            "shared_rate": [first and fit_decay(widths, curve, delta=first["delta"]) for curve in errors],
            "own_rate": [fit_decay(widths, curve) for curve in errors],
            "in_logs": [fit_decay_in_logs(widths, curve) for curve in errors],
        }

    return {"target": target, "mean": fit("mean"), "median": fit("median")}


def _unreachable_by_block(details: Details, n_blocks: int) -> list[int]:
    """Count entries out of reach in the first 1, 2, ... blocks."""
    listed = details["unreachable"]
    assert listed["count"] == len(listed["worst"]), "the list must hold every entry out of reach"
    places = [int(entry["matrix"].split(".")[1]) for entry in listed["worst"]]  # "block.2.head.0.qk"
    return [sum(place <= b for place in places) for b in range(n_blocks)]


def _blocks_of(network: Transformer) -> list[Block]:
    return [block for block in network.blocks if isinstance(block, Block)]


def describe(result: Result) -> Section:
    """Show means with one rate for all, as in the paper; means and medians in logs; misses; each depth's own rate."""
    config = read_settings(result["config"], Config)
    targets = [(found, curves.of_target(result["widths"], found["target"])) for found in result["fits"]]
    found, points = targets[0]
    adaptive = curves.of_target(result["adaptive"]["widths"], found["target"])
    widths, depths = [point["width"] for point in points], range(config.n_blocks)
    intervals = [_fit_intervals(own) for _, own in targets]
    missed: dict[str, tuple[Colour | float, list[float]]] = {
        _blocks(b): (ramp_of(b, len(depths)), [point["blocks"][b]["unreachable_sources"] for point in points])
        for b in depths
    }
    deepest = missed[_blocks(depths[-1])][1]
    tables = [
        table
        for (fits, own), sure in zip(targets, intervals, strict=True)
        for table in (_block_table(own), _fit_table(fits, sure, widths))
    ]
    theirs = [point["blocks"][-1]["unreachable_sources"] for point in adaptive]
    missed[f"{_blocks(depths[-1])}, adaptive units"] = ("median", theirs)
    tables.append(_block_table(adaptive, ", adaptive units"))
    tables.append(_fit_table(result["adaptive"]["fits"][0], _fit_intervals(adaptive), widths))
    gain = curves.gain_in_words(points, adaptive, lambda point: point["blocks"][-1]["error"]["mean"])
    rates = zip(found["mean"]["own_rate"], intervals[0], strict=True)
    fitted = [(b, fit["delta"], *sure["delta"]) for b, (fit, sure) in enumerate(rates, 1) if fit is not None]
    rate = View(
        name="Rate",
        says=f"Rate of the mean{order_of(found['mean']['own_rate'])}",
        x="blocks",
        y="rate δ",
        series=[
            Series(
                name="of the mean, each depth its own; 95 % interval",
                points=[(b, delta) for b, delta, _, _ in fitted],
                low=[low for _, _, low, _ in fitted],
                high=[high for _, _, _, high in fitted],
                colour="mean",
            )
        ],
        y_scales=("linear",),
        minor=True,
    )
    chart = Chart(
        title=f"Error of tickets in transformers of 1 to {config.n_blocks} blocks",
        caption=f"Target untrained, {'norms 1' if config.normalize else 'norms not rescaled'}; "
        f"{curves.sources_in_words(config, config.length)}; {config.inputs:,} inputs.{curves.ADAPTIVE}",
        views=(
            _block_view(points, adaptive, found, "median"),
            _block_view(points, adaptive, found, "mean"),
            curves.shares(widths, missed, curves.reach_in_words(widths, deepest)),
            # One width has no rate.
            *([rate] if fitted else []),
        ),
        tables=tables,
    )
    ends = [number(point["blocks"][-1]["error"]["median"]) for point in (points[0], points[-1])]
    fall = all(points[-1]["blocks"][b]["error"]["median"] < points[0]["blocks"][b]["error"]["median"] for b in depths)
    return Section(
        anchor="fig6",
        name="Figure 6",
        title=f"Figure 6: {'at every depth, the error falls with width' if fall else 'error against width and depth'}",
        lead="Whole transformer blocks, attention and feed-forward layer, are hidden in wider random ones. Does the "
        "error decay with width at every depth, and as fast as for one block? The paper fits all depths with the rate "
        f"of one block. Fitted separately, the means of 1 to {config.n_blocks} blocks decay at rates "
        f"{depths_in_words(found['mean']['own_rate'])}. {gain}",
        finding=f"{config.n_blocks} blocks: median error {ends[0]} at width {widths[0]}, {ends[1]} at width "
        f"{widths[-1]}",
        blocks=(chart,),
    )


def _blocks(b: int) -> str:
    return f"{b + 1} block{'s' if b else ''}"


def _block_view(points: Sequence[Point], adaptive: Sequence[Point], found: Fits, what: Statistic) -> View:
    widths, series, mean = [point["width"] for point in points], list[Series](), what == "mean"
    depths = len(points[0]["blocks"])
    for b in range(depths):
        ramp = ramp_of(b, depths)
        errors = [point["blocks"][b]["error"] for point in points]
        series.append(curves.errors(_blocks(b), widths, errors, what, spread=True, ramp=ramp))
        series += curves.curve("fit", found[what]["shared_rate"][b], widths, ramp) if mean else []
        errors, name = [point["blocks"][b]["error"] for point in adaptive], f"{_blocks(b)}, adaptive units"
        series.append(curves.errors(name, widths, errors, what, ramp=ramp, dash="dashed", follows=True))
    look: dict[str, Any] = {"key": [Series(name="adaptive units", points=(), dash="dashed", marks=mean)]}
    if mean:  # linear in print, as in the paper
        notes = [curves.half_bars(widths, [point["blocks"][b]["error"] for point in points]) for b in range(depths)]
        cut = [_blocks(b) for b, note in enumerate(notes) if note]
        note = (
            f"On the log scale some bars of {', '.join(cut)} have no lower half: mean − deviation is below zero there."
        )
        look |= {"note": note if cut else "", "printed": "linear"}
    last = [(point["width"], point["blocks"][-1]["error"][what]) for point in points]
    says = changes(f"{_blocks(depths - 1)}: the {what} error", last, "n")
    return View(name=what.capitalize(), says=says, x=curves.WIDTH, y="error", series=series, **look)


def _fit_intervals(points: Sequence[Point]) -> list[curves.FitIntervals]:
    """Return the intervals of each depth's own fit, from resampled sources."""
    widths, found = [point["width"] for point in points], []
    for b in range(len(points[0]["blocks"])):
        sources = [[errors[b] for errors in point["sources"]["error"]] for point in points]
        found.append(curves.redrawn_fits(widths, bootstrap.redraw(sources, "mean")))
    return found


def _block_table(points: Sequence[Point], how: str = "") -> Table:
    shown = [(what, b) for what in curves.STATISTICS for b in range(len(points[0]["blocks"]))]
    rows = [
        (str(point["width"]), *(number(point["blocks"][b]["error"][what]) for what, b in shown)) for point in points
    ]
    caption = f"Errors over sources, width by width{how}, target {points[0]['target']}"
    return Table(caption=caption, columns=("n", *(f"{what}, {_blocks(b)}" for what, b in shown)), rows=rows, words=0)


def _fit_table(found: Fits, intervals: Sequence[curves.FitIntervals], widths: Sequence[int]) -> Table:
    """Compare rates: one for all numbers of blocks, as in the paper, and one for each."""
    rows = []
    for b, (shared, own) in enumerate(zip(found["mean"]["shared_rate"], found["mean"]["own_rate"], strict=True)):
        cells = [number(shared and shared[part]) for part in curves.FIT]
        for part in curves.FIT:
            cells += [number(own and own[part]), curves.in_words(intervals[b][part])]
        rows.append((str(b + 1), *cells))
    columns = ("blocks", "γ, shared δ", "shared δ", "γ, own δ", "95 % interval", "own δ", "95 % interval")
    caption = f"{curves.FIT_CAPTION}; n = {widths[0]} to {widths[-1]}"
    return Table(caption=caption, columns=columns, rows=rows)


def order_of(fits: Sequence[Decay | None]) -> str:
    """Say whether rates are in the order of depth; empty if there are too few."""
    rates = [fit["delta"] for fit in fits if fit is not None]
    if len(rates) < max(2, len(fits)):
        return ""
    steps = [later - before for before, later in pairwise(rates)]
    order = ": the deeper, the slower" if max(steps) < 0 else ": the deeper, the faster" if min(steps) > 0 else ""
    return order or ", in no order of depth"


def depths_in_words(fits: Sequence[Decay | None]) -> str:
    """Write the rate of each number of blocks, and whether rates are in the order of depth.

    Example:
        >>> depths_in_words([{"gamma": 1.0, "delta": rate} for rate in (0.05, 0.04, 0.03)])
        '0.05, 0.04, 0.03: the deeper, the slower'
    """
    return ", ".join(number(fit and fit["delta"]) for fit in fits) + order_of(fits)


def _outcomes(sources: Sources) -> tuple[list[float], list[float]]:
    """Return each source's worst error and certificate with the largest number of blocks."""
    return [errors[-1] for errors in sources["worst"]], [bounds[-1] for bounds in sources["certificate"]]


FIGURE = Figure(
    "fig6", Constructions(configure, make_target, run_task, summarize_rows, 10, outcomes=_outcomes), describe
)
