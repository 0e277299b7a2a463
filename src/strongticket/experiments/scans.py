r"""How the error of tickets depends on the parameters of the theorems: $d$, the heads $H$, $\alpha$, the layers $L$.

One setting is varied at a time, and every source has its own target, whose matrices have spectral norm 1. Networks of
L layers are hidden in 2 L random layers, as in the paper, and in L + 1 (Burkholz 2022), where every random unit copies
one of the target's and there is no extra layer between two layers; these are also compared by their width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from strongticket.bounds import attention_bound, feedforward_bound
from strongticket.charts.parts import Chart, Section, Series, Table, View, changes, number, table_of
from strongticket.construct import construct_attention, construct_feedforward
from strongticket.experiments import curves, tasks
from strongticket.experiments.constructions import Constructions, following
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import Summary, summarize
from strongticket.experiments.targets import draw_of_norm_one, draw_tokens
from strongticket.experiments.tasks import Indexed, Rows, SourceConfig, Sources, Task, derive_seed
from strongticket.files import Json
from strongticket.models.attention import Attention
from strongticket.models.transformer import FeedForward
from strongticket.ops.subset_sum import Effort, subset_sum_products
from strongticket.settings import read_settings

Scan = Literal["d", "H", "alpha", "L", "units"]
NAMES: dict[Scan, str] = {
    "d": "inputs d",
    "H": "heads H",
    "alpha": "norm of inputs α",
    "L": "layers L",
    "units": "hidden units per input",
}
NETWORKS: tuple[Scan, ...] = ("L", "units")  # scans of a ReLU network; the others are of an attention
# The value of each setting while another is varied.
USUAL: dict[Scan, float] = {"d": 8, "H": 1, "alpha": 1, "L": 2, "units": 20}
SCANNED: dict[Scan, tuple[float, ...]] = {
    "d": (2, 4, 8, 16, 32),
    "H": (1, 2, 4, 8),
    "alpha": (0.5, 1, 2, 4, 8),
    "L": (1, 2, 3, 4),
    "units": (12, 20, 28, 36, 44),
}
CELLS = [(scan, value) for scan, values in SCANNED.items() for value in values]
SYMBOLS: dict[Scan, str] = {"alpha": "α"}
TOKENS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    varied: ClassVar[Mapping[str, str]] = {"items": "widths", "inputs": "inputs"}

    effort: Effort = "default"
    sources: int = 30
    widths: tuple[int, ...] = (int(USUAL["units"]),)  # per input, except where units are varied
    inputs: int = 100  # of norm alpha


class Value(TypedDict):
    """One value of a scan."""

    scan: Scan
    value: float


class Cell(Value, Indexed):
    """A value of a scan with its place among the targets, which are drawn with the sources."""


class Point(Value):
    """The sources of one cell: a scan at one value."""

    error: Summary
    certificate: Summary
    shallow: Summary | None  # of L + 1 layers
    theorem: float  # the theorem's error bound, also above 1, where the theorem does not apply
    sources: Sources


class Cells(TypedDict):
    """What is found with one assignment of units."""

    violations: int
    cells: list[Point]


class Result(Cells):
    """What `result.json` holds; what is at the top is for equal blocks, as in the paper."""

    config: Json
    adaptive: Cells


def configure(options: Options) -> Config:
    """Apply the options; `--quick` only means fewer sources."""
    if options.target == "trained" or options.normalize is False or options.targets > 1:
        raise ValueError(
            "scans has an untrained target of norm 1 for each source; leave out --target, --targets and --no-normalize."
        )
    return replace(following(Config(), options, sources=3), targets=len(CELLS))


def make_target(config: Config, index: int) -> Cell:
    """Describe a cell; its targets are drawn with the sources."""
    scan, value = CELLS[index]
    return {"index": index, "scan": scan, "value": value}


def draw_target(scan: Scan, sizes: dict[Scan, float], seed: int) -> Attention | FeedForward:
    """Draw an attention or, for scans of networks, a ReLU network."""
    generator = torch.Generator().manual_seed(seed)
    d, H = int(sizes["d"]), int(sizes["H"])
    if scan in NETWORKS:
        return FeedForward([draw_of_norm_one(generator, d, d) for _ in range(int(sizes["L"]))]).requires_grad_(False)
    return Attention(*(draw_of_norm_one(generator, H, d, d) for _ in range(4))).requires_grad_(False)


def run_task(task: Task[Config, Cell]) -> Rows:
    """Draw a target for each source, prune the source into it, and measure it."""
    scan = task.target["scan"]
    sizes = USUAL | {"units": task.width} | {scan: task.target["value"]}
    d, alpha, rows = int(sizes["d"]), float(sizes["alpha"]), []
    items = int(sizes["units"])
    n = items * d
    for source in task.sources():
        chosen, seed = {name: source[name] for name in ("init", "assignment", "effort", "seed")}, source["seed"]
        target = draw_target(scan, sizes, derive_seed(seed, "target"))
        x = draw_tokens(task.config.inputs, TOKENS, d, alpha, derive_seed(seed, "inputs"))
        expected = target(x)
        if isinstance(target, Attention):
            ticket = construct_attention(target, key_width=n, value_width=n, input_norm=alpha, **chosen)
        else:
            ticket = construct_feedforward(target, hidden_width=n, input_norm=alpha, **chosen)
        errors = tasks.token_errors(ticket.build("merged", dtype=torch.float64), expected, x)
        row = {**tasks.describe_ticket(ticket), "error": errors.mean().item(), "worst": errors.max().item()}
        if isinstance(target, FeedForward) and task.assignment == "equal":
            shallow = prune_shallow(target, items, derive_seed(seed, "shallow"))
            row["shallow"] = tasks.token_errors(shallow, expected, x).mean().item()
        rows.append(row)
    return {"target": task.target["index"], "width": task.width, "sources": tasks.columns(rows)}


def prune_shallow(target: FeedForward, items: int, seed: int) -> FeedForward:
    r"""Prune a random ReLU network of L + 1 layers into one of L layers, and return the pruned network.

    Units of the first layer keep one input each, in equal blocks, as in 2 L layers. Every later unit copies one of the
    target's, with `items` copies of each, and approximates its weights by its own subset sums: over products $u v$ in
    the first layer of the target, over the copies' weights $v$ in later layers.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.rand(*shape, generator=generator) - 1

    d = target.weights[0].shape[1]
    # Units of an input that carry positive values come first: their order does not matter.
    u = draw(d, items).sort(dim=1, descending=True).values
    positive = (u > 0).sum(dim=1)
    sizes = torch.stack([positive, items - positive], dim=1).flatten()
    carried, layers = u.flatten(), [(torch.eye(d)[:, None] * u[..., None]).flatten(0, 1).double()]
    for place, weight in enumerate(target.weights):
        copies = 1 if place == len(target.weights) - 1 else items
        wanted = (
            weight.detach().repeat_interleave(copies, dim=0).repeat_interleave(len(sizes) // weight.shape[1], dim=1)
        )
        v = draw(len(wanted), len(carried))
        layers.append((v * subset_sum_products(wanted, carried, v, sizes).mask).double())
        sizes = torch.full((len(weight),), items)
        carried = torch.ones(len(wanted))
    return FeedForward(layers).requires_grad_(False)


def summarize_rows(config: Config, targets: Sequence[Cell], rows: Sequence[Rows]) -> Cells:
    """Describe each cell."""
    cells, violations = [], 0
    for cell in targets:
        sources = tasks.sources_of(rows, cell["index"], config.widths[0])
        violations += sum(map(tasks.violated, sources["certificate"], sources["worst"]))
        cells.append(
            Point(
                scan=cell["scan"],
                value=cell["value"],
                error=summarize(sources["error"]),
                certificate=summarize(sources["certificate"]),
                shallow=summarize(sources["shallow"]) if "shallow" in sources else None,
                theorem=promised(cell["scan"], cell["value"], config.widths[0]),
                sources=sources,
            )
        )
    return {"violations": violations, "cells": cells}


def promised(scan: Scan, value: float, units: int) -> float:
    """Return a theorem's error bound by the tighter lemmas, also above 1, where the theorem does not apply."""
    sizes = USUAL | {"units": units} | {scan: value}
    d, alpha = int(sizes["d"]), float(sizes["alpha"])
    if scan in NETWORKS:
        parts = feedforward_bound([d] * (int(sizes["L"]) + 1), input_norm=alpha, variant="tight").parts
    else:
        bound = attention_bound(d_model=d, d_out=d, n_heads=int(sizes["H"]), input_norm=alpha, variant="tight")
        parts = (bound,)
    lines = [line for part in parts for line in part.requirements]
    return max(math.exp(line.log_scale - sizes["units"] / line.constant) for line in lines)


def describe(result: Result) -> Section:
    """Show one view per varied setting."""
    config, adaptive = read_settings(result["config"], Config), result["adaptive"]["cells"]
    views = [_view(scan, _of(result["cells"], scan), _of(adaptive, scan)) for scan in NAMES]
    usual = ", ".join(f"{SYMBOLS.get(scan, scan)} = {value:g}" for scan, value in USUAL.items() if scan != "units")
    chart = Chart(
        title="Error against what the theorems depend on",
        caption=f"Medians and quartiles of {config.sources} sources, each with its own target; norms 1, "
        f"{curves.drawn_in_words(config.init)}. Unless stated otherwise, {usual} and {config.widths[0]} hidden "
        "units per input, of an attention, or of a ReLU network where layers or units are varied. An error is the "
        f"largest error norm of a token, averaged over {config.inputs} inputs of norm α. Dashed: the change the "
        f"theorem predicts, from the first point on.{curves.ADAPTIVE}",
        views=views,
        tables=[_table(scan, _of(result["cells"], scan), _of(adaptive, scan)) for scan in NAMES],
    )
    gains = [theirs["error"]["median"] / ours["error"]["median"] for theirs, ours in _pairs(result["cells"], adaptive)]
    factors = f"{_times(min(gains))} to {_times(max(gains))}"
    gained = f"choosing each unit’s input after seeing its weights lowers the median error by a factor of {factors}"
    return Section(
        anchor="scans",
        name="Scans",
        title="Adaptive units lower the error at every size, norm and depth"
        if min(gains) > 1
        else "Error against size, heads, norm and depth",
        lead="What does the error of a ticket depend on? "
        f"{growth_in_words(result['cells'])} {gained.capitalize()}. "
        f"{shallow_in_words(_of(result['cells'], 'units'), _of(adaptive, 'units'))}",
        finding=gained,
        blocks=(chart,),
    )


def _of(cells: Sequence[Point], scan: Scan) -> list[Point]:
    return [point for point in cells if point["scan"] == scan]


def _pairs(equal: Sequence[Point], adaptive: Sequence[Point]) -> list[tuple[Point, Point]]:
    return [*zip(equal, adaptive, strict=True)]


def _view(scan: Scan, equal: Sequence[Point], adaptive: Sequence[Point]) -> View:
    values = [point["value"] for point in equal]

    def line(name: str, found: Sequence[Summary], **look: Any) -> Series:
        return curves.errors(name, values, found, "median", **look)

    series = [
        line("equal blocks", [point["error"] for point in equal], spread=True, colour="mean"),
        line("adaptive units", [point["error"] for point in adaptive], spread=True, colour="s1"),
    ]
    shallow = [point["shallow"] for point in equal if point["shallow"]]
    if shallow:
        series[0], series[1] = (replace(each, name=f"2L random layers, {each.name}") for each in series)
        series.append(line("L + 1 random layers, equal blocks", shallow, spread=True, colour="median"))
    certified = {"mean": equal, "s1": adaptive}
    for colour, points in certified.items():
        bounds = [point["certificate"] for point in points]
        name = f"certificate, {'equal blocks' if points is equal else 'adaptive units'}"
        series.append(line(name, bounds, colour=colour, dash="dotted", marks=False))
    first = equal[0]
    grown = [
        (x, first["error"]["median"] * p["theorem"] / first["theorem"]) for x, p in zip(values, equal, strict=True)
    ]
    series.append(Series(name="the theorem", points=grown, dash="dashed", marks=False))
    says = changes("median error", series[0].points, SYMBOLS.get(scan, scan))
    return View(name=NAMES[scan], says=says, x=NAMES[scan], y="error", series=series, x_scale="log", x_ticks=values)


def _table(scan: Scan, equal: Sequence[Point], adaptive: Sequence[Point]) -> Table:
    columns = {
        SYMBOLS.get(scan, scan): lambda pair: f"{pair[0]['value']:g}",
        "median error, equal": lambda pair: number(pair[0]["error"]["median"]),
        "adaptive": lambda pair: number(pair[1]["error"]["median"]),
        "largest, equal": lambda pair: number(pair[0]["error"]["max"]),
        "adaptive, largest": lambda pair: number(pair[1]["error"]["max"]),
        "median certificate, equal": lambda pair: number(pair[0]["certificate"]["median"]),
        "certificate, adaptive": lambda pair: number(pair[1]["certificate"]["median"]),
    }
    if scan in NETWORKS:
        columns["median error, L + 1 layers"] = lambda pair: number(pair[0]["shallow"]["median"])
    return table_of(f"Errors by {NAMES[scan]}", _pairs(equal, adaptive), columns, words=0)


def growth_in_words(cells: Sequence[Point]) -> str:
    """Say by what factor the median error changes from each scan's start to its end, and what the theorem says."""
    factors = []
    for scan in NAMES:
        first, *_, last = _of(cells, scan)
        grown, allowed = last["error"]["median"] / first["error"]["median"], last["theorem"] / first["theorem"]
        way = f"{SYMBOLS.get(scan, scan)} = {first['value']:g} to {last['value']:g}"
        if scan == "units":
            way = f"{first['value']:g} to {last['value']:g} {NAMES[scan]}"
        factors.append(f"{_grown(grown)} from {way} ({_grown(allowed)})")
    return f"With equal blocks (and by the theorem) it becomes {', '.join(factors[:-1])} and {factors[-1]}."


def _grown(ratio: float) -> str:
    """Say how many times larger or smaller something has become."""
    return f"{_times(ratio)} times larger" if ratio >= 1 else f"{_times(1 / ratio)} times smaller"


def _times(ratio: float) -> str:
    """Write a ratio to two digits."""
    return number(float(f"{ratio:.2g}"))


def shallow_in_words(equal: Sequence[Point], adaptive: Sequence[Point]) -> str:
    """Compare L + 1 layers with 2 L, at the greatest width."""
    last, shallow = equal[-1], equal[-1]["shallow"]
    assert shallow is not None
    deep, ours = (number(point["error"]["median"]) for point in (last, adaptive[-1]))
    return (
        f"With {last['value']:g} units per input, the error is {number(shallow['median'])} in L + 1 random layers, "
        f"{deep} in 2 L with equal blocks, and {ours} in 2 L with adaptive units."
    )


def _place(task: Task[Config, Cell]) -> str:
    return f"{task.target['scan']} = {task.target['value']:g}"


FIGURE = Figure(
    "scans",
    Constructions(configure, make_target, run_task, summarize_rows, sources_per_task=10, place=_place),
    describe,
)
