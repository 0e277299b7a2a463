r"""Figure 5: the error of tickets within a single-head attention against the length T of its input.

The targets and sources are those of Figure 4, at a few widths. A source is measured by its regression token, whose
output is the prediction, at every length, and by its worst token up to a length at which measuring all tokens is still
cheap. Its certificate does not depend on T: it is drawn as a horizontal line. As in Figure 4, each source is used
twice: with equal blocks of units, as in the paper, and with adaptive units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from strongticket.charts.parts import SMALLEST, Chart, Colour, Section, Series, Table, View, number, ramp_of
from strongticket.construct import construct_attention
from strongticket.data.angular import draw_angular, with_token
from strongticket.experiments import curves, tasks
from strongticket.experiments.bootstrap import Statistic
from strongticket.experiments.constructions import Constructions, following
from strongticket.experiments.figure import Figure, Options
from strongticket.experiments.statistics import Summary, summarize
from strongticket.experiments.targets import D_MODEL, Made, Target, TargetConfig, make_target, token_output
from strongticket.experiments.tasks import Rows, SourceConfig, Sources, Task
from strongticket.files import Json
from strongticket.models.attention import MergedAttention
from strongticket.settings import read_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SourceConfig):
    """Everything the numbers depend on."""

    varied: ClassVar[Mapping[str, str]] = {
        "widths": "widths",
        "lengths": "lengths",
        "heads": "target.n_heads",
        "inputs": "inputs",
    }

    target: TargetConfig = field(default_factory=TargetConfig)
    widths: tuple[int, ...] = (16, 32, 48, 64)
    lengths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    inputs: int = 256  # of the test split, for the regression token
    all_tokens_up_to: int = 256  # the length up to which every token is measured, at quadratic cost
    all_tokens_inputs: int = 32


class Line(curves.Width):
    """One target's sources of one width, length by length."""

    certificate: Summary
    lengths: list[int]
    token: list[Summary]
    all_tokens: list[Summary]  # up to `all_tokens_up_to`
    unreachable_sources: float


class Result(curves.Found[Line]):
    """What `result.json` holds; what is at the top is for equal blocks, as in the paper."""

    config: Json
    targets: list[Made]
    adaptive: curves.Found[Line]


class Inputs(NamedTuple):
    """Sequences of one length, and the target's outputs."""

    length: int
    x: Tensor
    token: Tensor  # the regression token's output, (N, d_2)
    all_tokens: Tensor | None  # every token's, for the first inputs, (M, T + 1, d_2)


def configure(options: Options) -> Config:
    """Apply the options; `--quick` only means fewer sources, widths, lengths and inputs."""
    target = TargetConfig(kind=options.target or "trained", normalize=options.normalize or False)
    fewer: dict[str, Any] = {"sources": 10, "widths": (16, 32, 48), "lengths": (4, 16, 64, 256, 1024)}
    return following(Config(target=target), options, coordinates=D_MODEL, **fewer, inputs=64, all_tokens_inputs=16)


def run_task(task: Task[Config, Made]) -> Rows:
    """Prune each source into the target and measure it at every length."""
    target = Target.from_json(task.target)
    merged = target.attention.merged().requires_grad_(False)
    inputs = _prepare(task.config, target, merged)
    rows = []
    for source in task.sources():
        ticket = construct_attention(merged, input_norm=target.input_norm(), **source)
        found = ticket.build("merged", dtype=torch.float64)
        assert isinstance(found, MergedAttention)
        rows.append({**tasks.describe_ticket(ticket), **_measure_lengths(found, inputs)})
    return {"target": task.target["index"], "width": task.width, "sources": tasks.columns(rows)}


def summarize_rows(config: Config, targets: Sequence[Made], rows: Sequence[Rows]) -> curves.Found[Line]:
    """Gather the chunks and describe each width at each length."""
    lines = [_describe_width(config, t["index"], n, rows) for t in targets for n in config.widths]
    return {
        "metric": "token: error norm of the regression token; all_tokens: largest error norm of a token; each averaged "
        "over the inputs. worst: the largest over the inputs",
        "rounding": tasks.ROUNDING,
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


def _measure_lengths(found: MergedAttention, inputs: list[Inputs]) -> dict[str, list[float]]:
    """Return the mean and the largest error over the inputs, for each length."""
    measured: dict[str, list[float]] = {name: [] for name in ("token", "token_worst", "all_tokens", "all_tokens_worst")}
    with torch.inference_mode():
        for _, x, token, all_tokens in inputs:
            errors = {"token": (token_output(found.qk, found.vo, x) - token).norm(dim=-1)}
            if all_tokens is not None:
                errors["all_tokens"] = tasks.token_errors(found, all_tokens, x[: len(all_tokens)])
            for name, values in errors.items():
                measured[name].append(values.mean().item())
                measured[f"{name}_worst"].append(values.max().item())
    return measured


def _outcomes(sources: Sources) -> tuple[list[float], list[float]]:
    """Return each source's worst error at any length, and its certificate."""
    columns = zip(sources["token_worst"], sources["all_tokens_worst"], strict=True)
    return [max(*token, *every) for token, every in columns], sources["certificate"]


def _describe_width(config: Config, target: int, width: int, rows: Sequence[Rows]) -> Line:
    sources = tasks.sources_of(rows, target, width)
    largest, certified = _outcomes(sources)
    return {
        "target": target,
        "width": width,
        "certificate": summarize(sources["certificate"]),
        "lengths": list(config.lengths),
        "token": [summarize(errors) for errors in zip(*sources["token"], strict=True)],
        "all_tokens": [summarize(errors) for errors in zip(*sources["all_tokens"], strict=True)],
        "unreachable_sources": sum(n > 0 for n in sources["unreachable"]) / len(largest),
        "violations": sum(map(tasks.violated, certified, largest)),
        "sources": sources,
    }


def describe(result: Result) -> Section:
    """Show error against length for the mean and the median source, with certificates."""
    config = read_settings(result["config"], Config)
    targets = [curves.of_target(result["widths"], target["index"]) for target in result["targets"]]
    lines, adaptive = targets[0], curves.of_target(result["adaptive"]["widths"], result["targets"][0]["index"])
    ends, lengths = lines[-1]["token"], lines[-1]["lengths"]
    widths, missed = [line["width"] for line in lines], [line["unreachable_sources"] for line in lines]
    shares: dict[str, tuple[Colour, list[float]]] = {
        "sources with an entry out of reach": ("miss", missed),
        "with adaptive units": ("s1", [line["unreachable_sources"] for line in adaptive]),
    }
    tables = [_length_table(own, what) for own in targets for what in reversed(curves.STATISTICS)]
    tables += [_length_table(adaptive, what, ", adaptive units") for what in reversed(curves.STATISTICS)]
    gain = curves.gain_in_words(lines, adaptive, lambda line: line["token"][0]["mean"])
    chart = Chart(
        title="Error of tickets against the length of the input",
        caption=f"{curves.target_in_words(config.target)}; {curves.sources_in_words(config)}. The regression token on "
        f"{config.inputs:,} inputs, the worst of all tokens on {config.all_tokens_inputs:,}; a certificate holds for "
        f"every length.{curves.ADAPTIVE}",
        views=(
            _length_view(lines, adaptive, "median"),
            _length_view(lines, adaptive, "mean"),
            curves.shares(widths, shares, curves.reach_in_words(widths, missed)),
        ),
        tables=tables,
    )
    return Section(
        anchor="fig5",
        name="Figure 5",
        title="Figure 5: one ticket for inputs of any length",
        lead="Is a ticket worse on longer inputs, or better because attention averages over more tokens? One "
        f"certificate holds for every length. From T = {lengths[0]} to {lengths[-1]:,} the median error of the "
        f"regression token {lengths_in_words(lines)}. {gain}",
        finding=f"at width {lines[-1]['width']} the median error is {number(ends[0]['median'])} at length "
        f"{lengths[0]} and {number(ends[-1]['median'])} at {lengths[-1]:,}",
        blocks=(chart,),
    )


def _length_view(lines: Sequence[Line], adaptive: Sequence[Line], what: Statistic) -> View:
    series: list[Series] = []
    for place, (line, ours) in enumerate(zip(lines, adaptive, strict=True)):
        ramp = ramp_of(place, len(lines))
        name, lengths, bound = f"n = {line['width']}", line["lengths"], max(line["certificate"][what], SMALLEST)
        certified = [(length, float(bound)) for length in lengths]
        follows: dict[str, Any] = {"ramp": ramp, "marks": False, "follows": True}
        series += [
            curves.errors(name, lengths, line["token"], what, spread=what == "median", ramp=ramp),
            curves.errors(f"{name}, worst token", lengths, line["all_tokens"], what, dash="dashed", **follows),
            Series(name=f"{name}, certificate", points=certified, dash="dotted", **follows),
            curves.errors(f"{name}, adaptive", lengths, ours["token"], what, thin=True, **follows),
        ]
    look: dict[str, Any] = {"points": (), "marks": False}
    key = [
        Series(name="regression token", **look),
        Series(name="worst of all tokens", dash="dashed", **look),
        Series(name="certificate", dash="dotted", **look),
        Series(name="regression token, adaptive units", thin=True, **look),
    ]
    ends = f"From length {lines[0]['lengths'][0]} to {lines[0]['lengths'][-1]:,}"
    return View(
        name=what.capitalize(),
        says=f"{ends} the {what} error {lengths_in_words(lines, what)}",
        x="length T",
        y="error",
        series=series,
        x_scale="log",
        x_ticks=lines[0]["lengths"][::2],
        key=key,
    )


def _length_table(lines: Sequence[Line], what: Statistic, how: str = "") -> Table:
    rows = [
        (f"{length:,}", *(number(line["token"][place][what]) for line in lines))
        for place, length in enumerate(lines[0]["lengths"])
    ]
    rows.append(("certificate", *(number(line["certificate"][what]) for line in lines)))
    caption = f"{what.capitalize()} error of the regression token{how}, target {lines[0]['target']}"
    return Table(caption=caption, columns=("T", *(f"n = {line['width']}" for line in lines)), rows=rows)


def lengths_in_words(lines: Sequence[Line], what: Statistic = "median") -> str:
    """Say at which widths the error rises or falls from the shortest length to the longest."""
    changes: dict[str, list[str]] = {}
    for line in lines:
        first, last = (float(line["token"][place][what]) for place in (0, -1))
        change = "rises" if last > first else "falls" if last < first else "stays the same"
        changes.setdefault(change, []).append(str(line["width"]))
    if len(changes) == 1:
        return f"{next(iter(changes))} at every width"
    return ", and ".join(f"{change} at n = {', '.join(widths)}" for change, widths in changes.items())


def _make_target(config: Config, index: int) -> Made:
    return make_target(config.target, config.seed, index)


FIGURE = Figure(
    "fig5", Constructions(configure, _make_target, run_task, summarize_rows, 10, outcomes=_outcomes), describe
)
