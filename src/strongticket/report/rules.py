"""Rows of `bench rules`: how good tickets of each rule are, by their size, and the cost of a step."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from strongticket.charts.parts import SERIES, Chart, Dash, Section, Series, Table, View, grouped, sentence, table_of
from strongticket.learn.rules import RULES
from strongticket.report.origin import origin
from strongticket.report.records import RuleRun, RuleStep, Timed

_TRAINED = "trained"
_DASHES: tuple[Dash, ...] = ("solid", "dashed")
# Published accuracies on MNIST (28 x 28 pixels, 60,000 images) for this network, and how much is kept.
_PUBLISHED_NETWORK = "300-100"
_PUBLISHED = (
    ("bernoulli", "Zhou et al. 2019", "95.3 %", None, "2,000 epochs, SGD; no rescaling, and the mask is a sample"),
    ("signed", "Koster et al. 2022", "97.48 %", 0.0377, "100 epochs, SGD; a threshold, so the density is learned"),
)

Case = tuple[str, float]  # rule and density


def rules_section(path: Path, rows: Sequence[Timed[RuleRun]], steps: Sequence[Timed[RuleStep]]) -> Section:
    """Show wrong answers against bytes, one view per network."""
    latest = {(r.row.network, r.row.rule, r.row.density, r.row.seed): r.row for r in rows}.values()
    networks = {network: _cases(own) for network, own in grouped(latest, lambda row: row.network).items()}
    views, tables = [], []
    for network, cases in networks.items():
        views.append(_view(network, cases))
        tables.append(_table(network, cases))
        if network == _PUBLISHED_NETWORK:
            tables.append(_published_table(cases))
    caption = (
        "Means over seeds; every seed is a small point. A density is left out if another gives the same rule a "
        "smaller and better ticket; the table has all. Bytes are those of the whole file, description included."
    )
    first = _finding(*next(iter(networks.items())))
    title = sentence(first) or "Wrong answers by bytes"
    blocks: list[Chart | Table] = [Chart(title=title, caption=caption, views=tuple(views), tables=tuple(tables))]
    if steps:
        blocks.append(_steps_table([*{(s.row.network, s.row.rule): s.row for s in steps}.values()]))
    seeds = {row.seed for row in latest}
    made = [timed.made for timed in rows] + [timed.made for timed in steps]
    return Section(
        anchor="rules",
        name="Rules",
        title=_title([*networks.values()]),
        lead=f"Every rule at several densities, {len(seeds)} seed{'s' * (len(seeds) != 1)} each, on images of 8 × 8 "
        "pixels. Further left is a smaller file; further down, a better network.",
        finding=first,
        blocks=tuple(blocks),
        origin=origin([path], made, commands=["strongticket bench rules"]),
    )


def _cases(rows: Iterable[RuleRun]) -> dict[Case, list[RuleRun]]:
    """Group runs that differ only in their seeds, in the order of rules and densities."""
    order = (_TRAINED, *RULES)
    in_order = sorted(rows, key=lambda row: (order.index(row.rule), row.density, row.seed))
    return grouped(in_order, lambda row: (row.rule, row.density))


def _view(network: str, cases: dict[Case, list[RuleRun]]) -> View:
    rules = dict.fromkeys(rule for rule, _ in cases if rule != _TRAINED)
    styles = [(colour, dash) for dash in _DASHES for colour in SERIES]
    series = []
    for rule, (colour, dash) in zip(rules, styles, strict=False):
        groups = _best([runs for (name, _), runs in cases.items() if name == rule])
        series.append(
            Series(
                name=rule,
                points=[(_bytes(runs), _errors(runs)) for runs in groups],
                each=[[_errors([row]) for row in runs] for runs in groups],
                notes=[f"density {runs[0].density:g}" for runs in groups],
                colour=colour,
                dash=dash,
            )
        )
    # A horizontal line, since its float32 file is far larger than any ticket.
    for runs in (runs for (rule, _), runs in cases.items() if rule == _TRAINED and series):
        ends = [x for each in series for x, _ in each.points]
        name = f"{_TRAINED}, {_bytes(runs):,.0f} bytes in float32"
        points = [(x, _errors(runs)) for x in (min(ends), max(ends))]
        series.append(Series(name=name, points=points, colour="ink", dash="dotted", marks=False))
    look: dict[str, Any] = {"x": "bytes of the file", "y": "wrong answers, %", "y_scales": ("log", "linear")}
    return View(name=network, says=sentence(_finding(network, cases)), series=series, **look)


def _table(network: str, cases: dict[Case, list[RuleRun]]) -> Table:
    return table_of(
        f"{network}: {cases[next(iter(cases))][0].steps:,} steps, means over seeds",
        cases.items(),
        {
            "rule": lambda case: case[0][0],
            "density": lambda case: f"{case[0][1]:g}",
            "kept": lambda case: f"{_kept(case[1]):.3f}",
            "accuracy %": lambda case: f"{100 * _accuracy(case[1]):.1f}",
            "deviation": lambda case: (
                f"{100 * stdev(row.accuracy for row in case[1]):.1f}" if len(case[1]) > 1 else "–"
            ),
            "seeds": lambda case: str(len(case[1])),
            "bytes": lambda case: f"{_bytes(case[1]):,.0f}",
            "CPU s": lambda case: f"{fmean(row.seconds for row in case[1]):.1f}",
        },
    )


def _published_table(cases: dict[Case, list[RuleRun]]) -> Table:
    """Compare papers with our nearest density, or with our best if a paper does not say how much it keeps."""
    rows = []
    for rule, paper, accuracy, kept, differs in _PUBLISHED:
        ours = [runs for (name, _), runs in cases.items() if name == rule]
        if not ours:
            continue
        runs = max(ours, key=_accuracy) if kept is None else min(ours, key=lambda runs: abs(_kept(runs) - kept))
        rows.append(
            (rule, paper, accuracy, "–" if kept is None else f"{kept:.2%}", f"{_accuracy(runs):.1%}",
             f"{_kept(runs):.1%}", differs)
        )  # fmt: skip
    return Table(
        caption=f"{_PUBLISHED_NETWORK}: published on MNIST, with 784 inputs and 60,000 images; ours has 64 and 1,437",
        columns=("rule", "paper", "accuracy", "kept", "ours", "ours kept", "what else differs"),
        rows=rows,
        words=2,
        remarks=1,
    )


def _steps_table(steps: Sequence[RuleStep]) -> Table:
    return table_of(
        "A step of a search on one CPU thread, in turns with a dense step and with one that sorts all scores",
        steps,
        {
            "network": lambda step: step.network,
            "rule": lambda step: step.rule,
            "batch": lambda step: str(step.batch),
            "dense, ms": lambda step: f"{step.dense_ms:.2f}",
            "time / dense": lambda step: f"{step.over_dense:.2f}",
            "time / sorting": lambda step: f"{step.over_published:.2f}",
        },
        words=2,
    )


def _finding(network: str, cases: dict[Case, list[RuleRun]]) -> str:
    """Name the best ticket and the accuracy of training."""
    tickets = {case: runs for case, runs in cases.items() if case[0] != _TRAINED}
    if not tickets:
        return ""
    (rule, density), runs = max(tickets.items(), key=lambda case: _accuracy(case[1]))
    trained = cases.get((_TRAINED, 1.0))
    beside = f"; training reaches {_percent(trained)}" if trained else ""
    ticket = f"{rule} (density {density:g}) reaches {_percent(runs)} in {_bytes(runs):,.0f} bytes"
    return f"in the {network} network, {ticket}{beside}"


def _title(networks: Sequence[dict[Case, list[RuleRun]]]) -> str:
    """Say how far the best tickets of all networks are ahead of training, and behind it."""
    gaps = [
        _accuracy(cases[_TRAINED, 1.0]) - max(_accuracy(runs) for case, runs in cases.items() if case[0] != _TRAINED)
        for cases in networks
        if (_TRAINED, 1.0) in cases and len(cases) > 1
    ]
    if not gaps:
        return "Rules on handwritten digits"
    ahead, behind = (f"{100 * gap:.1f} points" for gap in (-min(gaps), max(gaps)))
    if max(gaps) <= 0:
        how = "at least as good as training"
    elif min(gaps) >= 0:
        how = f"at most {behind} behind training"
    else:
        how = f"from {ahead} ahead of training to {behind} behind it"
    return f"On handwritten digits, the best tickets are {how}"


def _best(groups: Iterable[list[RuleRun]]) -> list[list[RuleRun]]:
    """Return the groups for which no other is both smaller and better, the smallest file first."""
    best: list[list[RuleRun]] = []
    for runs in sorted(groups, key=lambda runs: (_bytes(runs), _errors(runs))):
        if not best or _errors(runs) < _errors(best[-1]):
            best.append(runs)
    return best


def _accuracy(runs: Sequence[RuleRun]) -> float:
    return math.fsum(row.accuracy for row in runs) / len(runs)


def _percent(runs: Sequence[RuleRun]) -> str:
    return f"{100 * _accuracy(runs):.1f} %"


def _kept(runs: Sequence[RuleRun]) -> float:
    return fmean(row.kept / row.weights for row in runs)


def _errors(runs: Sequence[RuleRun]) -> float:
    """Return wrong answers in per cent: on a log scale, they show how rules differ where nearly all are right."""
    return 100 * (1 - _accuracy(runs))


def _bytes(runs: Sequence[RuleRun]) -> float:
    return fmean(row.bytes for row in runs)
