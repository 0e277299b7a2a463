"""Benchmark results as tables for people."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from strongticket.bench.pensia import Outcome
from strongticket.bench.subset_sum import OURS, Comparison
from strongticket.charts.parts import Table, table_of
from strongticket.report.records import SearchSteps, SubsetSums

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def comparison_table(comparisons: Sequence[Comparison], title: str) -> Table:
    """Rates, errors and shares of true optima, by number of items."""
    numbers = ("rows", "p20", "median/s", "p80", "median error", "true optima", "ours is faster")
    rows = [(str(each.n), *_cells(measured)) for each in comparisons for measured in each]
    minor = ("p20", "p80", "rows", "true optima")
    return Table(caption=title, columns=("n", "engine", *numbers), rows=rows, words=2, minor=minor)


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    """The same table for a document."""
    lines = ["| n | engine | rows | problems/s (p20 to p80) | median error | true optima | strongticket is faster |"]
    lines.append("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for comparison in comparisons:
        for measured in comparison:
            engine, rows, p20, median, p80, *rest = _cells(measured)
            lines.append(f"| {comparison.n} | {engine} | {rows} | {median} ({p20} to {p80}) | {' | '.join(rest)} |")
    return "\n".join(lines)


def pensia_table(outcome: Outcome) -> Table:
    """Our run beside the published one."""
    on_gpu = outcome.times_less_core_time is None
    rows = [
        ("weights", f"{outcome.weights:,}", f"{outcome.published_weights:,}"),
        ("time", f"{outcome.median:.3g} s", f"{outcome.published_seconds:,} s"),
        ("cores", outcome.device if on_gpu else str(outcome.threads), str(outcome.published_cores)),
    ]
    if outcome.times_less_core_time is not None:
        ours = outcome.median * outcome.threads
        rows.append(("core-seconds", f"{ours:.3g}", f"{outcome.published_seconds * outcome.published_cores:,}"))
        rows.append(("core-seconds per weight, ratio", "1", times(outcome.times_less_core_time)))
    rows += [
        ("seconds per weight, ratio", "1", times(outcome.times_less_time)),
        ("median error", f"{outcome.median_error:.2g}", ""),
        ("worst error (reachable)", f"{outcome.worst_error:.2g}", ""),
        ("unreachable", f"{outcome.unreachable:,}", ""),
    ]
    title = f"One subset sum per weight, {outcome.n} candidates each"
    return Table(caption=title, columns=("", "strongticket", "Pensia et al. (2020), Gurobi"), rows=rows)


def search_table(measured: Sequence[SearchSteps], title: str) -> Table:
    """Step times and memory of the kinds of steps, each beside dense training of the same tensors."""
    columns: dict[str, Callable[[SearchSteps], str]] = {
        "GPT-2": lambda step: step.model,
        "step": lambda step: step.kind,
        "p20 ms": lambda step: f"{1e3 * step.p20:.4g}",
        "median ms": lambda step: f"{1e3 * step.median:.4g}",
        "p80 ms": lambda step: f"{1e3 * step.p80:.4g}",
        "tokens/s": lambda step: short(step.tokens_per_second),
        "time / dense": lambda step: "" if step.time_ratio is None else f"{step.time_ratio:.3f}",
        "peak GB": lambda step: "" if step.peak_bytes is None else f"{step.peak_bytes / 1e9:.2f}",
        "peak / dense": lambda step: "" if step.peak_ratio is None else f"{step.peak_ratio:.3f}",
    }
    return replace(table_of(title, measured, columns, words=2), minor=("p20 ms", "p80 ms", "peak GB"))


def _cells(measured: SubsetSums) -> tuple[str, ...]:
    # Problems stopped by the time limit would have taken longer.
    under, over = ("under ", "over ") if measured.timeouts else ("", "")
    ratio = "" if measured.engine == OURS else over + times(measured.times_slower)
    return (
        measured.label,
        f"{measured.rows:,}",
        short(measured.p20),
        under + short(measured.median),
        short(measured.p80),
        f"{measured.median_error:.1e}",
        f"{100 * measured.optimal_share:.0f} %",
        ratio,
    )


def times(ratio: float) -> str:
    """Three digits, written out: 7.12x, 169,000x."""
    ratio = float(f"{ratio:.3g}")
    return f"{ratio:,.{_decimals(ratio)}f}x"


def short(value: float) -> str:
    """Three digits and a unit: 1.43M, 139k, 7.12, 0.171."""
    value = float(f"{value:.3g}")
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size), (1.0, ""))
    return f"{value / size:.{_decimals(value / size)}f}{unit}"


def _decimals(value: float) -> int:
    """Return the number of decimals that show three digits."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
