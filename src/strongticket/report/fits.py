"""Fitted curves as series and tables: the result file's own values, the paper's, and intervals from its sources."""

from collections.abc import Sequence

from strongticket.charts.parts import Colour, Dash, Series, Table, minus, number
from strongticket.experiments.statistics import PAPER, Decay, decay_of, formula
from strongticket.files import Json
from strongticket.report import bootstrap

_STEPS = 60


def curve(name: str, decay: Decay, widths: Sequence[int], colour: Colour, dash: Dash = "solid") -> Series:
    """Draw a decay over the range of the widths, through each of them, so that a pointer there finds its value."""
    low, high = min(widths), max(widths)
    grid = sorted({*map(float, widths), *(low + (high - low) * k / _STEPS for k in range(_STEPS + 1))})
    # Spaces that do not break, so that a formula stays on one line.
    shown = minus(formula(decay)).replace(" ", "\xa0")
    return Series(
        name=f"{name}, {shown}",
        points=[(n, decay.at(n)) for n in grid],
        colour=colour,
        dash=dash,
        marks=False,
    )


def paper_curve(widths: Sequence[int]) -> Series:
    """Draw the paper's fit to Figure 4."""
    return curve("the paper’s fit", PAPER, widths, "paper", "dashed")


def width_fits(fits: Json, points: Sequence[Json]) -> Table:
    """Set Figure 4's fits beside the paper's and the theory's, with bootstrap intervals."""
    widths = [point["width"] for point in points]
    sources = [point["sources"]["error"] for point in points]
    means, medians = (bootstrap.redraw(sources, of) for of in (bootstrap.mean_of_rows, bootstrap.median_of_rows))
    rows = []
    for name, what, drawn, paper in (("mean", "mean", means, PAPER), ("median", "median", medians, None)):
        fit = decay_of(fits[what])
        gamma, delta = bootstrap.fit_many(widths, drawn)
        for symbol, value, values, theirs in (
            ("γ", fit.gamma if fit else None, gamma, paper.gamma if paper else None),
            ("δ", fit.delta if fit else None, delta, paper.delta if paper else None),
        ):
            label = f"{name}: {symbol} of γ exp(−δ n), least squares"
            rows.append((label, number(value), _interval(values), number(theirs)))
    slope = fits["median_slope"]
    low, high = slope["widths"]
    inside = [place for place, n in enumerate(widths) if low <= n <= high]
    if len(inside) > 1:
        values = bootstrap.slopes_in_logs([widths[place] for place in inside], medians[:, inside])
        name = f"median: rate of its logarithm, n = {low} to {high} (theory: ln 2 / 2 = {slope['predicted']:.4f})"
        rows.append((name, number(slope["slope"]), _interval(values), "–"))
    return Table(caption=_CAPTION, columns=("fit", "value", "95 % interval", "the paper"), rows=rows)


def block_fits(fits: Json, points: Sequence[Json]) -> Table:
    """Set Figure 6's rates side by side: one for all numbers of blocks, as in the paper, or each its own."""
    widths, rows = [point["width"] for point in points], []
    for b, (shared, own) in enumerate(zip(fits["mean"]["shared_rate"], fits["mean"]["own_rate"], strict=True)):
        sources = [[errors[b] for errors in point["sources"]["error"]] for point in points]
        gamma, delta = bootstrap.fit_many(widths, bootstrap.redraw(sources, bootstrap.mean_of_rows))
        one, each = decay_of(shared), decay_of(own)
        rows.append(
            (
                str(b + 1),
                number(one.gamma if one else None),
                number(one.delta if one else None),
                number(each.gamma if each else None),
                _interval(gamma),
                number(each.delta if each else None),
                _interval(delta),
            )
        )
    columns = ("blocks", "γ, shared δ", "shared δ", "γ, own δ", "95 % interval", "own δ", "95 % interval")
    return Table(caption=_CAPTION, columns=columns, rows=rows)


_CAPTION = (
    f"Fits; intervals: sources of each width drawn again with replacement, {bootstrap.DRAWS} times, the middle 95 %"
)


def _interval(values: bootstrap.Floats) -> str:
    found = bootstrap.interval(values)
    return f"{number(found.low)} to {number(found.high)}"
