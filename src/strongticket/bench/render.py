"""Benchmark results as tables for people."""

import math
from collections.abc import Sequence

from rich.table import Table

from strongticket.bench.pensia import Outcome
from strongticket.bench.subset_sum import OURS, Comparison
from strongticket.report.records import SearchSteps, SubsetSums

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def comparison_table(comparisons: Sequence[Comparison], title: str) -> Table:
    """Rates, errors and shares of true optima: one section for each number of items."""
    numbers = ("rows", "p20", "median/s", "p80", "median error", "true optima", "ours is faster")
    table = _table(title, ("n", "engine"), numbers)
    for comparison in comparisons:
        for place, measured in enumerate(comparison.measurements):
            table.add_row("" if place else str(comparison.n), *_cells(measured))
        table.add_section()
    return table


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    """The same table for a document."""
    lines = ["| n | engine | rows | problems/s (p20 to p80) | median error | true optima | strongticket is faster |"]
    lines.append("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for comparison in comparisons:
        for measured in comparison.measurements:
            engine, rows, p20, median, p80, *rest = _cells(measured)
            lines.append(f"| {comparison.n} | {engine} | {rows} | {median} ({p20} to {p80}) | {' | '.join(rest)} |")
    return "\n".join(lines)


def pensia_table(outcome: Outcome) -> Table:
    """Our run beside the published one."""
    title = f"One subset sum a weight, {outcome.n} candidates each"
    table = _table(title, ("",), ("strongticket", "Pensia et al. (2020), Gurobi"))
    on_gpu = outcome.times_less_core_time is None
    table.add_row("weights", f"{outcome.weights:,}", f"{outcome.published_weights:,}")
    table.add_row("time", f"{outcome.median:.3g} s", f"{outcome.published_seconds:,} s")
    table.add_row("cores", outcome.device if on_gpu else str(outcome.threads), str(outcome.published_cores))
    if outcome.times_less_core_time is not None:
        ours = outcome.median * outcome.threads
        table.add_row("core-seconds", f"{ours:.3g}", f"{outcome.published_seconds * outcome.published_cores:,}")
        table.add_row("core-seconds a weight, ratio", "1", times(outcome.times_less_core_time))
    table.add_row("seconds a weight, ratio", "1", times(outcome.times_less_time))
    table.add_row("median error", f"{outcome.median_error:.2g}", "")
    table.add_row("worst error (reachable)", f"{outcome.worst_error:.2g}", "")
    table.add_row("unreachable", f"{outcome.unreachable:,}", "")
    return table


def search_table(measured: Sequence[SearchSteps], title: str) -> Table:
    """Step times and memory of the kinds of steps, each beside dense training of the same tensors."""
    numbers = ("p20 ms", "median ms", "p80 ms", "tokens/s", "time / dense", "peak GB", "peak / dense")
    table = _table(title, ("GPT-2", "step"), numbers)
    for step in measured:
        table.add_row(
            step.model,
            step.kind,
            *(f"{1e3 * seconds:.4g}" for seconds in (step.p20, step.median, step.p80)),
            short(step.tokens_per_second),
            "" if step.time_ratio is None else f"{step.time_ratio:.3f}",
            "" if step.peak_bytes is None else f"{step.peak_bytes / 1e9:.2f}",
            "" if step.peak_ratio is None else f"{step.peak_ratio:.3f}",
            end_section=step.kind == "gpt2",
        )
    return table


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(measured: SubsetSums) -> tuple[str, ...]:
    # Problems cut off by the time limit would have taken longer still.
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
    """How many decimals show three digits."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
