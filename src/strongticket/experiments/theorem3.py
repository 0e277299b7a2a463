r"""Theorem 3, measured: how often a random attention fails to contain a given one, against its width $n_K = n_V$.

The target has matrices of spectral norm 1, as the theorem assumes. A source fails if its certificate, for all inputs of
norm at most $\alpha$, is above the tolerance. The counted share, with its Clopper-Pearson interval, is compared with
two numbers that need no source: the chance that some entry is out of reach of equal blocks, computed for this target,
and the width that the theorem requires for any target.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import ClassVar, TypedDict

import torch

from strongticket.bounds import attention_bound
from strongticket.charts.parts import Chart, Colour, Section, Series, Table, View, above_zero, number, share, table_of
from strongticket.construct import construct_attention
from strongticket.construct.attention import plan_attention
from strongticket.construct.chance import chance_some_is_out_of_reach, count_failures, expected_out_of_reach
from strongticket.experiments import curves, tasks
from strongticket.experiments.constructions import Constructions, following
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import Summary, summarize
from strongticket.experiments.targets import Weights, draw_of_norm_one, draw_tokens, read_attention, weights_of
from strongticket.experiments.tasks import Indexed, Rows, SourceConfig, Task, derive_seed
from strongticket.files import Json
from strongticket.models.attention import Attention
from strongticket.ops.subset_sum import Effort
from strongticket.settings import read_settings

TOKENS = 5
FEW = 0.05  # of sources: a width at which no more fail is called enough
_COLOURS: dict[str, Colour] = {"equal blocks": "mean", "adaptive units": "s1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    varied: ClassVar[Mapping[str, str]] = {
        "widths": "widths",
        "heads": "n_heads",
        "d_model": "d_model",
        "tol": "tol",
        "input_norm": "input_norm",
        "inputs": "inputs",
    }

    effort: Effort = "default"
    sources: int = 300
    widths: tuple[int, ...] = (32, 40, 48, 56, 64, 72, 80, 88, 96)
    d_model: int = 4  # d_1 = d_2
    n_heads: int = 2
    key_width: int = 4  # d_K and d_V of the target
    input_norm: float = 2.0  # the theorem requires at least sqrt(d_1)
    tol: float = 0.01
    inputs: int = 100  # random, of that norm, to check certificates


class Counted(TypedDict):
    """How many sources failed, and the interval of the chance to fail."""

    count: int
    sources: int
    low: float
    high: float


class Point(curves.Width):
    """One target's sources of one width."""

    failures: Counted
    certificate: Summary
    out_of_reach: float  # share of sources with such an entry
    predicted: tuple[float, float]  # lower and upper bound of that chance with equal blocks


class Made(Weights, Indexed):
    """A target as the result file has it."""


class Required(TypedDict):
    """The width that one variant of the theorem requires, and what it is computed from."""

    width: int
    failure: float
    constants: Mapping[str, float]


class Counts(TypedDict):
    """What is found with one assignment of units."""

    theorem: dict[str, Required]  # by variant
    violations: int
    chances: list[Point]


class Result(Counts):
    """What `result.json` holds; what is at the top is for equal blocks, as in the paper."""

    config: Json
    targets: list[Made]
    adaptive: Counts


def configure(options: Options) -> Config:
    """Apply the options; `--quick` only means fewer sources and widths."""
    if options.target == "trained" or options.normalize is False:
        raise ValueError(
            "theorem3 has untrained targets of norm 1, as the theorem assumes; leave out --target and --no-normalize."
        )
    least = math.sqrt(options.d_model or 0)  # as the theorem requires
    config = Config(input_norm=max(Config().input_norm, least))
    coordinates = options.d_model or config.d_model
    return following(config, options, coordinates=coordinates, sources=40, widths=(32, 48, 64, 80))


def make_target(config: Config, index: int) -> Made:
    """Draw an attention whose matrices have spectral norm 1."""
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "attention", index))
    d, n = config.d_model, config.key_width
    shapes = {"query": (d, n), "key": (d, n), "value": (d, n), "output": (n, d)}
    weights = {part: draw_of_norm_one(generator, config.n_heads, *shape) for part, shape in shapes.items()}
    return {"index": index, **weights_of(Attention(**weights))}


def run_task(task: Task[Config, Made]) -> Rows:
    """Prune each source into the target, and measure its worst error on the inputs."""
    config, target = task.config, read_attention(task.target)
    x = draw_tokens(config.inputs, TOKENS, config.d_model, config.input_norm, derive_seed(config.seed, "inputs"))
    expected, rows = target(x), []
    for source in task.sources():
        ticket = construct_attention(target, input_norm=config.input_norm, **source)
        worst = tasks.token_errors(ticket.build("merged", dtype=torch.float64), expected, x).max().item()
        rows.append({**tasks.describe_ticket(ticket), "worst": worst})
    return {"target": task.target["index"], "width": task.width, "sources": tasks.columns(rows)}


def summarize_rows(config: Config, targets: Sequence[Made], rows: Sequence[Rows]) -> Counts:
    """Count failures at each width, and compute the theorem's width."""
    points = [_count(config, target, n, rows) for target in targets for n in config.widths]
    sizes = {"d_model": config.d_model, "d_out": config.d_model, "n_heads": config.n_heads}
    theorem: dict[str, Required] = {}
    for variant in ("tight", "paper"):
        bound = attention_bound(**sizes, input_norm=config.input_norm, variant=variant)
        # One width for keys and values, as in the sources.
        width = max(bound.widths(config.tol).values())
        failure = bound.failure({"key_width": width, "value_width": width})
        theorem[variant] = {"width": width, "failure": failure, "constants": bound.constants}
    return {"theorem": theorem, "violations": sum(point["violations"] for point in points), "chances": points}


def _count(config: Config, target: Made, width: int, rows: Sequence[Rows]) -> Point:
    sources = tasks.sources_of(rows, target["index"], width)
    plan = plan_attention(read_attention(target).merged(), width, width, config.init, config.blocks)
    failures = asdict(count_failures(sources["certificate"], config.tol))
    return {
        "target": target["index"],
        "width": width,
        "failures": Counted(**failures),  # type: ignore[typeddict-item]
        "certificate": summarize(sources["certificate"]),
        "out_of_reach": sum(n > 0 for n in sources["unreachable"]) / len(sources["seed"]),
        "predicted": (chance_some_is_out_of_reach(plan), min(1.0, expected_out_of_reach(plan))),
        "violations": sum(map(tasks.violated, sources["certificate"], sources["worst"])),
        "sources": sources,
    }


def describe(result: Result) -> Section:
    """Show the counted share of failures, the computed chance, and the width that the theorem requires."""
    config, theorem = read_settings(result["config"], Config), result["theorem"]
    found = {"equal blocks": result["chances"], "adaptive units": result["adaptive"]["chances"]}
    first = {name: curves.of_target(points, 0) for name, points in found.items()}
    series = [each for name, points in first.items() for each in _counted(name, points)]
    series.append(_predicted(first["equal blocks"]))
    asked = float(theorem["paper"]["width"])
    ticks = [2.0**k for k in range(5, 10) if 2**k <= asked]
    view = View(
        name="Failures",
        x=curves.WIDTH,
        y="share of sources",
        series=series,
        x_scale="log",
        x_ticks=ticks,
        upright=[(asked, "Theorem 3")],
    )
    enough = {name: _enough(points) for name, points in first.items()}
    least = min((n for n in enough.values() if n is not None), default=None)
    asks = f"Theorem 3 requires width {theorem['paper']['width']}"
    title = asks if least is None else f"{asks}; here {least} is enough for {share(1 - FEW)} of sources"
    chart = Chart(
        title=title,
        caption=f"Target untrained, {config.n_heads} heads, d = {config.d_model}, norms 1; a source fails if its "
        f"certificate for inputs of norm at most {config.input_norm:g} is above {config.tol:g}. "
        f"{curves.sources_in_words(config)}; bars: Clopper-Pearson, 95 %. Pointing down: none "
        "failed; the upper end of the interval. Grey band: the computed chance that an entry is out of reach of equal "
        f"blocks, between a lower and an upper bound.{curves.ADAPTIVE}",
        views=(view,),
        tables=[
            _table(f"{name}, width by width, target {target['index']}", curves.of_target(points, target["index"]))
            for target in result["targets"]
            for name, points in found.items()
        ],
    )
    return Section(
        anchor="theorem3",
        name="Theorem 3",
        title="Theorem 3 requires more width than is needed" if least and least < asked else asks,
        lead=f"The theorem gives one width for all targets of this size: {theorem['paper']['width']} "
        f"({theorem['tight']['width']} by tighter lemmas), if its unknown constant is the least possible. "
        f"For this target, {enough_in_words(enough)}. Where "
        "sums are fine enough for the tolerance, sources fail if some entry is out of reach. The chance of that can be "
        "computed for a given target, and needs no constant.",
        finding=f"the theorem requires width {theorem['paper']['width']}; {enough_in_words(enough)}",
        blocks=(chart,),
    )


def _counted(name: str, points: Sequence[Point]) -> list[Series]:
    """Draw shares with their intervals; where nothing failed, a log scale can show only the upper end."""
    some = [(point["width"], point["failures"]) for point in points if point["failures"]["count"]]
    none = [(point["width"], point["failures"]["high"]) for point in points if not point["failures"]["count"]]
    counted = Series(
        name=f"{name}: failed",
        points=[(n, failed["count"] / failed["sources"]) for n, failed in some],
        low=[failed["low"] for _, failed in some],
        high=[failed["high"] for _, failed in some],
        colour=_COLOURS[name],
    )
    at_most = Series(
        name=f"{name}: none failed, at most",
        points=none,
        dash="dotted",  # points down
        line=False,
        colour=_COLOURS[name],
        follows=True,
    )
    return [counted, at_most]


def _predicted(points: Sequence[Point]) -> Series:
    """Draw the bounds of the computed chance."""
    widths, chances = [point["width"] for point in points], [above_zero(point["predicted"]) for point in points]
    low, high = zip(*chances, strict=True)
    return Series(
        name="an entry out of reach of equal blocks: computed",
        points=[*zip(widths, low, strict=True)],
        low=low,
        high=high,
        spread="band",
        dash="dashed",
        marks=False,
    )


def _table(caption: str, points: Sequence[Point]) -> Table:
    return table_of(
        caption.capitalize(),
        points,
        {
            "n": lambda point: str(point["width"]),
            "failed": lambda point: f"{point['failures']['count']} of {point['failures']['sources']}",
            "95 % interval": lambda point: f"{share(point['failures']['low'])} to {share(point['failures']['high'])}",
            "out of reach": lambda point: share(point["out_of_reach"]),
            "computed, equal blocks": lambda point: " to ".join(map(share, point["predicted"])),
            "median certificate": lambda point: number(point["certificate"]["median"]),
        },
        words=0,
    )


def _enough(points: Sequence[Point]) -> int | None:
    """Return the smallest width from which few sources fail."""
    few = takewhile(lambda point: point["failures"]["count"] <= FEW * point["failures"]["sources"], reversed(points))
    return min((point["width"] for point in few), default=None)


def enough_in_words(found: dict[str, int | None]) -> str:
    """Say from which width few sources fail.

    Example:
        >>> enough_in_words({"equal blocks": 80, "adaptive units": 56})
        'at most 5 % of sources fail from width 80 on with equal blocks and from 56 on with adaptive units'
        >>> enough_in_words({"equal blocks": None, "adaptive units": 56})
        'at most 5 % of sources fail at no width tried with equal blocks and from width 56 on with adaptive units'
    """
    widths = ["at no width tried" if n is None else f"from {n} on" for n in found.values()]
    where = " and ".join(f"{width} with {name}" for width, name in zip(widths, found, strict=True))
    return f"at most {share(FEW)} of sources fail {where.replace('from ', 'from width ', 1)}"


FIGURE = Figure(
    "theorem3", Constructions(configure, make_target, run_task, summarize_rows, sources_per_task=100), describe
)
