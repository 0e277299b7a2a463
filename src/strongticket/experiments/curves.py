"""What Figures 4 to 6 are described with: errors over sources, shares of them, and fitted curves."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from strongticket.charts.parts import Colour, Dash, Series, View, above_zero, minus, number
from strongticket.experiments import bootstrap
from strongticket.experiments.statistics import PAPER, Decay, formula
from strongticket.files import Json

Statistic = Literal["mean", "median"]
WIDTH = "hidden width n"
HALF_BARS = "On the log scale a bar has no lower half where mean − deviation is below zero."
FIT_CAPTION = (
    f"Fits; intervals: sources of each width drawn again with replacement, {bootstrap.DRAWS} times, the middle 95 %"
)
_STEPS = 60


def of_target(result: Json, target: int) -> list[Json]:
    """Give one target's widths."""
    return [point for point in result["widths"] if point["target"] == target]


def errors(
    name: str, places: Sequence[float], found: Sequence[Json], what: Statistic, *, spread: bool = False, **look: Any
) -> Series:
    """Draw a statistic of the errors at each place; with its spread: quartiles around a median, deviations else."""
    points = list(zip(places, above_zero(error[what] for error in found), strict=False))
    if not spread:
        return Series(name=name, points=points, **look)
    if what == "median":
        low, high = (above_zero(error[quartile] for error in found) for quartile in ("quartile_low", "quartile_high"))
        return Series(name=name, points=points, low=low, high=high, spread="band", **look)
    low, high = ([error["mean"] + sign * error["std"] for error in found] for sign in (-1, 1))
    return Series(name=name, points=points, low=low, high=high, line=False, **look)


def shares(places: Sequence[float], found: Mapping[str, tuple[Colour, Sequence[float]]]) -> View:
    """Draw shares of sources over the width, by name."""
    series = [
        Series(name=name, points=[(x, float(y)) for x, y in zip(places, values, strict=True)], colour=colour)
        for name, (colour, values) in found.items()
    ]
    return View(name="Out of reach", x=WIDTH, y="share", series=series, y_scales=("linear",), percent=True, minor=True)


def curve(name: str, decay: Decay, widths: Sequence[int], colour: Colour, dash: Dash = "solid") -> Series:
    """Draw a decay over the range of the widths, through each of them, so that a pointer there finds its value."""
    low, high = min(widths), max(widths)
    grid = sorted({*map(float, widths), *(low + (high - low) * k / _STEPS for k in range(_STEPS + 1))})
    # Spaces that do not break, so that a formula stays on one line.
    shown = minus(formula(decay)).replace(" ", "\xa0")
    points = [(n, decay.at(n)) for n in grid]
    return Series(name=f"{name}, {shown}", points=points, colour=colour, dash=dash, marks=False)


def paper_curve(widths: Sequence[int]) -> Series:
    """Draw the paper's fit to Figure 4."""
    return curve("the paper’s fit", PAPER, widths, "paper", "dashed")


def redrawn_fits(widths: Sequence[int], drawn: bootstrap.Floats) -> dict[str, bootstrap.Interval]:
    """Give the intervals of a fit's factor and rate over sources drawn again."""
    gamma, delta = bootstrap.fit_many(widths, drawn)
    return {"gamma": bootstrap.interval(gamma), "delta": bootstrap.interval(delta)}


def in_words(found: bootstrap.Interval) -> str:
    """Write an interval."""
    return f"{number(found.low)} to {number(found.high)}"


def norms_in_words(config: Json) -> str:
    """Say how large a target's matrices are."""
    return "norms at most 1" if config["normalize"] else "norms as they come"


def sources_in_words(config: Json) -> str:
    """Say what a target was pruned into, and on what it was tried."""
    length = f"; {config['length']} points and the regression token" if "length" in config else ""
    return f"{config['sources']} sources a width, init {config['init']}{length}"
