"""Parts of the descriptions of Figures 4 to 6: errors over sources, shares of sources, and fitted curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar

from strongticket.charts.parts import SMALLEST, Colour, Dash, Series, View, above_zero, minus, number
from strongticket.experiments import bootstrap
from strongticket.experiments.bootstrap import Statistic
from strongticket.experiments.statistics import Decay, Summary, decay_at
from strongticket.experiments.targets import TargetConfig
from strongticket.experiments.tasks import Rows, SourceConfig

STATISTICS: tuple[Statistic, ...] = ("mean", "median")
WIDTH = "hidden width n"
FIT_CAPTION = (
    f"Fits; intervals: sources of each width resampled with replacement, {bootstrap.DRAWS} times, the middle 95 %"
)
FIT: tuple[Literal["gamma", "delta"], ...] = ("gamma", "delta")
MUCH = 10  # times lower: from here on, the paper's mean is attributed to its fixed assignment of units
ADAPTIVE = (
    " Adaptive units: the input of each hidden unit is chosen by its weights. All other lines: equal blocks, as in the"
    " paper."
)
_STEPS = 60

FitIntervals = dict[Literal["gamma", "delta"], bootstrap.Interval]
# Shares of sources, by name; None where a share is undefined.
Shares = Mapping[str, tuple[Colour | float, Sequence[float | None]]]


class Width(Rows):
    """What every figure stores about the sources of one target and width."""

    violations: int  # of certificates


W = TypeVar("W", bound=Width)


class Found(TypedDict, Generic[W]):
    """What Figures 4 to 6 find with one assignment of units."""

    metric: str
    rounding: float
    violations: int
    widths: list[W]


def of_target(widths: Sequence[W], target: int) -> list[W]:
    """Select one target's widths."""
    return [point for point in widths if point["target"] == target]


def gain_in_words(equal: Sequence[W], adaptive: Sequence[W], mean: Callable[[W], float]) -> str:
    """Say where adaptive units lower the mean error most, and what follows."""
    pairs = [(mean(theirs), mean(ours), theirs["width"]) for theirs, ours in zip(equal, adaptive, strict=True)]
    before, after, n = max(pairs, key=lambda pair: pair[0] / max(pair[1], SMALLEST))
    if before <= after:
        return "With adaptive units the mean is lower at no width."
    gain = f"With adaptive units the mean is lower, most at width {n}: {number(after)} instead of {number(before)}"
    cause = "the slow mean comes from fixing each unit’s input before looking at its weights, not from random networks"
    return f"{gain}, from the same random weights." + f" So {cause}." * (before >= MUCH * after)


def errors(
    name: str, places: Sequence[float], found: Sequence[Summary], what: Statistic, *, spread: bool = False, **look: Any
) -> Series:
    """Draw a statistic of the errors at each place; its spread is quartiles for a median, deviations for a mean."""
    points = list(zip(places, above_zero(error[what] for error in found), strict=False))
    if not spread:
        return Series(name=name, points=points, **look)
    if what == "median":
        low, high = map(above_zero, zip(*map(quartiles, found), strict=True))
        return Series(name=name, points=points, low=low, high=high, spread="band", **look)
    low, high = ([error["mean"] + sign * error["std"] for error in found] for sign in (-1, 1))
    return Series(name=name, points=points, low=low, high=high, line=False, **look)


def quartiles(found: Summary) -> tuple[float, float]:
    """Return the lower and upper quartile."""
    return found["quartile_low"], found["quartile_high"]


def coloured(colour: Colour | float) -> dict[str, Any]:
    """Return the look of a series: its colour, or its place on the ramp."""
    return {"ramp": colour} if isinstance(colour, float) else {"colour": colour}


def half_bars(places: Sequence[float], found: Sequence[Summary]) -> str:
    """Say at which widths a log scale cannot show the lower half of a bar; empty if there are none.

    Example:
        >>> half_bars([8, 16], [{"mean": 1.0, "std": 0.5}, {"mean": 1.0, "std": 2.0}])
        'On the log scale the bar at n = 16 has no lower half: mean − deviation is below zero there.'
    """
    cut = [f"{place:g}" for place, error in zip(places, found, strict=True) if error["mean"] <= error["std"]]
    if not cut:
        return ""
    bars = "the bar at n = {} has" if len(cut) == 1 else "the bars at n = {} have"
    return f"On the log scale {bars.format(', '.join(cut))} no lower half: mean − deviation is below zero there."


def shares(places: Sequence[float], found: Shares, says: str) -> View:
    """Draw shares of sources against the width, by name, each in a colour or at a place on the ramp."""
    series = [
        Series(
            name=name,
            points=[(x, float(y)) for x, y in zip(places, values, strict=True) if y is not None],
            **coloured(colour),
        )
        for name, (colour, values) in found.items()
    ]
    look: dict[str, Any] = {"y_scales": ("linear",), "percent": True, "minor": True}
    return View(name="Out of reach", says=says, x=WIDTH, y="share", series=series, **look)


def reach_in_words(widths: Sequence[int], missed: Sequence[float]) -> str:
    """Say from which width on every source reaches every entry.

    Example:
        >>> reach_in_words([8, 16, 24], [0.5, 0.0, 0.0]), reach_in_words([8], [0.5])
        ('From width 16 on, every source reaches every entry', 'Some sources miss some entry even at width 8')
    """
    some = [place for place, share in enumerate(missed) if share > 0]
    if not some:
        return "Every source reaches every entry"
    if some[-1] == len(widths) - 1:
        return f"Some sources miss some entry even at width {widths[-1]}"
    return f"From width {widths[some[-1] + 1]} on, every source reaches every entry"


def curve(
    name: str, decay: Decay | None, widths: Sequence[int], colour: Colour | float, dash: Dash = "solid"
) -> list[Series]:
    """Draw a decay over the range of the widths, with a point at each width for a pointer to find."""
    if decay is None:
        return []
    low, high = min(widths), max(widths)
    grid = sorted({*map(float, widths), *(low + (high - low) * k / _STEPS for k in range(_STEPS + 1))})
    # Non-breaking spaces keep the formula on one line.
    formula = minus(f"{decay['gamma']:.2g}\xa0exp({-decay['delta']:.2g}\xa0n)")
    points = [(n, decay_at(decay, n)) for n in grid]
    return [Series(name=f"{name}, {formula}", points=points, dash=dash, marks=False, **coloured(colour))]


def redrawn_fits(widths: Sequence[int], drawn: bootstrap.Floats) -> FitIntervals:
    """Return the intervals of a fit's factor and rate over resampled sources."""
    return {
        part: bootstrap.interval(values) for part, values in zip(FIT, bootstrap.fit_many(widths, drawn), strict=True)
    }


def in_words(found: bootstrap.Interval) -> str:
    """Write an interval."""
    return " to ".join(map(number, found))


def target_in_words(config: TargetConfig) -> str:
    """Describe a target and the norms of its matrices."""
    return f"Target {config.kind}, norms {'at most 1' if config.normalize else 'not rescaled'}"


def sources_in_words(config: SourceConfig, length: int | None = None) -> str:
    """Describe the sources and, in figures of one length, the test inputs."""
    points = "" if length is None else f"; {length} points and the regression token"
    return f"{config.sources} random networks per width, {drawn_in_words(config.init)}{points}"


def drawn_in_words(init: str) -> str:
    """Say how the random weights were drawn."""
    return "drawn as in the theory" if init == "theory" else f"drawn by {init}"
