"""What the figures on text say alike: losses, differences, and which runs there are."""

from collections.abc import Iterable, Sequence

from strongticket.charts.parts import Colour, Mark, minus, signed
from strongticket.files import Json

LOSS = "best validation loss, nats a token"


_SCHEDULES = {
    "short": "The short schedule, about a hundredth of the paper’s 6 billion tokens a run,",
    "paper": "The paper’s schedule, 6 billion tokens a run,",
}


def setting(content: Json) -> str:
    """Say on what the runs of a figure were, and how many there are of those it has planned."""
    runs, missing = int(content["runs"]), len(content["missing"])
    count = f"{runs} of {runs + missing} planned runs" if missing else f"all {runs} runs"
    schedule = _SCHEDULES.get(content["config"]["schedule"], f"The {content['config']['schedule']} schedule")
    return f"{schedule} on {content['text']['data']}, {count}"


def loss(found: Json) -> str:
    """Write a mean loss with its deviation over seeds, if it has one."""
    return f"{found['mean']:.3f}" + ("" if found["std"] is None else f" ± {found['std']:.3f}")


def other_texts(points: Sequence[Json]) -> list[str]:
    """Name the texts beside their own that some runs were measured on."""
    return sorted({name for point in points for name in point.get("also", {})})


def losses_on(texts: Sequence[str], point: Json) -> list[str]:
    """Write the losses on other texts."""
    found = point.get("also", {})
    return [loss(found[name]) if name in found else "–" for name in texts]


def difference(found: Json | None) -> str:
    """Write a mean difference."""
    return "–" if found is None else signed(found["mean"])


def interval(found: Json | None) -> str:
    """Write a 95 % interval; a single pair of runs has none."""
    if found is None or found["interval"] is None:
        return "–"
    low, high = found["interval"]
    return f"{signed(low)} to {signed(high)}"


def ends(found: Json) -> tuple[float, float] | None:
    """Give the interval's two ends."""
    return None if found["interval"] is None else (float(found["interval"][0]), float(found["interval"][1]))


def paired_mark(found: Json, colour: Colour) -> Mark:
    """Draw a mean difference with its interval and each seed's."""
    return Mark(mean=found["mean"], interval=ends(found), values=found["values"], colour=colour)


def seeds(numbers: Iterable[int]) -> str:
    """Say how many seeds some settings have each.

    Example:
        >>> seeds([3, 3]), seeds([1, 1]), seeds([1, 3, 1])
        ('3 seeds each', 'one seed each', 'one to 3 seeds each')
    """
    counts = sorted(set(numbers))
    low, high = ("one" if count == 1 else str(count) for count in (counts[0], counts[-1]))
    return f"{low} seed{'s' * (low != 'one')} each" if low == high else f"{low} to {high} seeds each"


def million(tokens: float) -> str:
    """Write a number of tokens.

    Example:
        >>> million(52_428_800), million(61_440)
        ('52.4M', '0.0614M')
    """
    return minus(f"{tokens / 1e6:.3g}M")


def caution(numbers: Sequence[int]) -> str:
    """Say what differences between runs of so many seeds are worth."""
    if max(numbers) == 1:
        return "Single runs have no interval: a difference smaller than the spread over seeds means nothing."
    few = " Where there is one seed, there is no interval." if min(numbers) == 1 else ""
    return f"Intervals are of the mean over seeds, 95 %; one that holds zero leaves the effect open.{few}"
