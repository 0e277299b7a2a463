"""What Figures 4 to 6 are described with: errors over sources, shares of them, and fitted curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

from strongticket.charts.parts import SMALLEST, Colour, Dash, Series, View, above_zero, minus, number
from strongticket.experiments import bootstrap
from strongticket.experiments.bootstrap import Statistic
from strongticket.experiments.statistics import Decay, Summary, decay_at
from strongticket.files import Json

STATISTICS: tuple[Statistic, ...] = ("mean", "median")
WIDTH = "hidden width n"
FIT_CAPTION = (
    f"Fits; intervals: sources of each width drawn again with replacement, {bootstrap.DRAWS} times, the middle 95 %"
)
FIT: tuple[Literal["gamma", "delta"], ...] = ("gamma", "delta")
MUCH = 10  # times lower: then the paper's mean is called a matter of how it shares units out
ADAPTIVE = (
    " Adaptive units: the input of each hidden unit is chosen by its weights; all else has equal blocks, as the paper."
)
_STEPS = 60

FitIntervals = dict[Literal["gamma", "delta"], bootstrap.Interval]
# Of sources, by name; None where there is no such share.
Shares = Mapping[str, tuple[Colour | float, Sequence[float | None]]]


class Width(TypedDict):
    """What every figure says of the sources of one target and width."""

    target: int
    width: int
    violations: int  # of certificates
    sources: dict[str, list[Json]]


W = TypeVar("W", bound=Width)


class Result(TypedDict, Generic[W]):
    """What `result.json` holds, as far as every figure shows it; at the top the paper's way to share units out."""

    config: Json
    targets: list[Json]
    widths: list[W]
    adaptive: NotRequired[Json]  # ours: the same fields again; not in files from before there was this


def of_target(widths: Sequence[W], target: int) -> list[W]:
    """Give one target's widths."""
    return [point for point in widths if point["target"] == target]


def adaptive_widths(result: Result[W], target: int) -> list[W]:
    """Give one target's widths with adaptive units; nothing where a file has none."""
    return of_target(result["adaptive"]["widths"], target) if "adaptive" in result else []


def gain_in_words(equal: Sequence[W], adaptive: Sequence[W], mean: Callable[[W], float]) -> str:
    """Say where adaptive units lower the mean error most, and what that means for the paper's; nothing without them."""
    pairs = [(mean(theirs), mean(ours), theirs["width"]) for theirs, ours in zip(equal, adaptive, strict=False)]
    if not pairs:
        return ""
    before, after, n = max(pairs, key=lambda pair: pair[0] / max(pair[1], SMALLEST))
    if before <= after:
        return "With adaptive units the mean is nowhere lower."
    said = f"With adaptive units the mean is lower, most so at width {n}: {number(after)} in place of {number(before)}"
    meant = "the slow mean comes from fixing each unit’s input before looking at its weights, not from random networks"
    return f"{said}, from the same random weights." + f" So {meant}." * (before >= MUCH * after)


def errors(
    name: str, places: Sequence[float], found: Sequence[Summary], what: Statistic, *, spread: bool = False, **look: Any
) -> Series:
    """Draw a statistic of the errors at each place; with its spread: quartiles around a median, deviations else."""
    points = list(zip(places, above_zero(error[what] for error in found), strict=False))
    if not spread:
        return Series(name=name, points=points, **look)
    if what == "median":
        low, high = map(above_zero, zip(*map(quartiles, found), strict=True))
        return Series(name=name, points=points, low=low, high=high, spread="band", **look)
    low, high = ([error["mean"] + sign * error["std"] for error in found] for sign in (-1, 1))
    return Series(name=name, points=points, low=low, high=high, line=False, **look)


def quartiles(found: Summary) -> tuple[float, float]:
    """Give the middle half's ends."""
    return found["quartile_low"], found["quartile_high"]


def coloured(colour: Colour | float) -> dict[str, Any]:
    """Give a series its colour, or its place on the ramp."""
    return {"ramp": colour} if isinstance(colour, float) else {"colour": colour}


def half_bars(places: Sequence[float], found: Sequence[Summary]) -> str:
    """Say at which widths a logarithmic scale has no place for the lower half of a bar; nothing where there is none.

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
    """Draw shares of sources over the width, by name, each in a colour or at a place of the ramp."""
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
    """Draw a decay over the range of the widths, through each of them, so that a pointer there finds its value."""
    if decay is None:
        return []
    low, high = min(widths), max(widths)
    grid = sorted({*map(float, widths), *(low + (high - low) * k / _STEPS for k in range(_STEPS + 1))})
    # Spaces that do not break, so that a formula stays on one line.
    formula = minus(f"{decay['gamma']:.2g}\xa0exp({-decay['delta']:.2g}\xa0n)")
    points = [(n, decay_at(decay, n)) for n in grid]
    return [Series(name=f"{name}, {formula}", points=points, dash=dash, marks=False, **coloured(colour))]


def redrawn_fits(widths: Sequence[int], drawn: bootstrap.Floats) -> FitIntervals:
    """Give the intervals of a fit's factor and rate over sources drawn again."""
    return {
        part: bootstrap.interval(values) for part, values in zip(FIT, bootstrap.fit_many(widths, drawn), strict=True)
    }


def in_words(found: bootstrap.Interval) -> str:
    """Write an interval."""
    return " to ".join(map(number, found))


def norms_in_words(config: Json) -> str:
    """Say how large a target's matrices are."""
    return "norms at most 1" if config["normalize"] else "norms as they come"


def sources_in_words(config: Json) -> str:
    """Say what a target was pruned into, and on what it was tried."""
    length = f"; {config['length']} points and the regression token" if "length" in config else ""
    return f"{config['sources']} sources per width, init {config['init']}{length}"
