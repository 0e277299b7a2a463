"""Parts of the descriptions of figures on text: losses and their differences over seeds, in words and series."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from strongticket.charts.parts import Colour, Comparison, Row, Series, View, minus, number, signed
from strongticket.experiments.paired import Pair, Spread
from strongticket.experiments.text_rows import BEST, FINAL, Losses, Measure, TextResult

BEST_LOSS, FINAL_LOSS = (f"{which} validation loss, nats per token" for which in ("best", "final"))
DOTS = "Small dots: single seeds; large: their mean, hollow where there is one seed."
_SCHEDULES = {
    "short": "The short schedule, about a hundredth of the paper’s 6 billion tokens per run,",
    "paper": "The paper’s schedule, 6 billion tokens per run,",
}

Ends = tuple[float, float]
# The words of a line of a comparison, its values over seeds, and its colour.
Over = TypeVar("Over", bound=Spread)
L = TypeVar("L", bound=Losses)
Line = tuple[tuple[str, ...], Over, Colour]


def setting(result: TextResult) -> str:
    """Describe the schedule and the text of a figure's runs, and how many of the planned runs are done."""
    runs, missing = int(result["runs"]), len(result["missing"])
    count = f"{runs} of {runs + missing} planned runs" if missing else f"all {runs} runs"
    schedule = _SCHEDULES.get(result["config"]["schedule"], f"The {result['config']['schedule']} schedule")
    return f"{schedule} on {result['text']['data']}, {count}"


def loss(found: Spread | None) -> str:
    """Write a mean loss with its deviation over seeds, if it has one."""
    if found is None:
        return "–"
    return f"{found['mean']:.3f}" + ("" if found["std"] is None else f" ± {found['std']:.3f}")


def interval(found: Pair) -> str:
    """Write a 95 % interval; a single pair of runs has none."""
    return " to ".join(map(signed, ends(found) or ())) or "–"


def ends(found: Pair) -> Ends | None:
    """Return a difference's interval."""
    return None if found["interval"] is None else (float(found["interval"][0]), float(found["interval"][1]))


def deviations(found: Spread) -> Ends | None:
    """Return the mean loss minus and plus its deviation over seeds."""
    return None if found["std"] is None else (found["mean"] - found["std"], found["mean"] + found["std"])


def over_seeds(
    name: str,
    places: Sequence[float],
    found: Sequence[Over],
    reach: Callable[[Over], Ends | None] = deviations,
    **look: Any,
) -> Series:
    """Draw means over seeds with bars and each seed's value; a single run has neither."""
    bars = [reach(each) or (each["mean"], each["mean"]) for each in found]
    look = {"notes": [f"{each['n']} seed{'s' * (each['n'] > 1)}" for each in found]} | look
    return Series(
        name=name,
        points=[(x, each["mean"]) for x, each in zip(places, found, strict=True)],
        low=[low for low, _ in bars],
        high=[high for _, high in bars],
        each=[each["values"] if each["n"] > 1 else () for each in found],
        **look,
    )


def view(x: str, series: Sequence[Series], **more: Any) -> View:
    """Show best losses against something on a log scale."""
    look: dict[str, Any] = {"name": "Loss", "y": BEST_LOSS, "x_scale": "log", "y_scales": ("linear",)}
    return View(x=x, series=series, **look | more)


def loss_columns(points: Sequence[L]) -> dict[str, Callable[[L], str]]:
    """Return columns of losses: best, final unless it is always the best, and those on other texts."""
    differ = any(point[BEST]["values"] != point[FINAL]["values"] for point in points)
    columns: dict[str, Measure] = {"best loss": BEST, "final loss": FINAL} if differ else {"best and final loss": BEST}
    own = {name: lambda point, measure=measure: loss(point[measure]) for name, measure in columns.items()}
    texts = sorted({name for point in points for name in _also(point)})
    also = {f"best, on {name}": lambda point, name=name: loss(_also(point).get(name)) for name in texts}
    return {**own, "seeds": lambda point: str(len(point["seeds"])), **also}


def _also(point: Losses) -> dict[str, Spread]:
    return point.get("also", {})


def compare_losses(lines: Iterable[Line[Spread]], **more: Any) -> Comparison:
    """Show losses line by line, each seed's and their mean."""
    caption = f"{DOTS} The numbers are mean ± standard deviation."
    return _compare(lines, {"loss": loss}, caption=caption, **more)


def compare_pairs(lines: Sequence[Line[Pair]], *, standard_error: bool = False, **more: Any) -> list[Comparison]:
    """Show differences seed by seed, if there are any, with intervals unless all have one seed."""
    numbers: dict[str, Callable[[Pair], str]] = {"mean": lambda pair: signed(pair["mean"])}
    if any(pair["interval"] for _, pair, _ in lines):
        if standard_error:
            numbers["standard error"] = lambda pair: number(pair["standard_error"])
        numbers["95 % interval"] = interval
    return [_compare(lines, numbers, ends, zero=True, **more)] if lines else []


def _compare(
    lines: Iterable[Line[Over]],
    numbers: Mapping[str, Callable[[Over], str]],
    reach: Callable[[Over], Ends | None] = lambda found: None,
    **more: Any,
) -> Comparison:
    rows = [
        Row(
            words=of,
            mean=found["mean"],
            interval=reach(found),
            values=found["values"],
            colour=colour,
            numbers=[str(found["n"]), *(write(found) for write in numbers.values())],
        )
        for of, found, colour in lines
    ]
    return Comparison(numbers=["seeds", *numbers], rows=rows, **more)


def seeds(numbers: Iterable[int]) -> str:
    """Say how many seeds each setting has.

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
    """Say how far differences can be trusted, given the numbers of seeds."""
    if max(numbers, default=1) == 1:
        return "Single runs have no interval: a difference smaller than the spread over seeds means nothing."
    few = " Where there is one seed, there is no interval." if min(numbers) == 1 else ""
    return f"Intervals: 95 %, of the mean over seeds; if one contains zero, the effect is uncertain.{few}"
