"""What figures on text are described with: losses and their differences over seeds, in words, series and lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from strongticket.charts.parts import Colour, Comparison, Mark, Row, Series, Table, minus, number, signed
from strongticket.experiments.text_rows import BEST, FINAL
from strongticket.files import Json

BEST_LOSS, FINAL_LOSS = (f"{which} validation loss, nats a token" for which in ("best", "final"))
DOTS = "Small dots: single seeds; large: their mean, hollow where there is one seed."
_SCHEDULES = {
    "short": "The short schedule, about a hundredth of the paper’s 6 billion tokens a run,",
    "paper": "The paper’s schedule, 6 billion tokens a run,",
}

Ends = tuple[float, float]
# What a line of a comparison is about, and the mean over seeds that it shows.
Line = tuple[tuple[str, ...], Json, Colour]


def setting(result: Json) -> str:
    """Say on what the runs of a figure were, and how many there are of those it has planned."""
    runs, missing = int(result["runs"]), len(result["missing"])
    count = f"{runs} of {runs + missing} planned runs" if missing else f"all {runs} runs"
    schedule = _SCHEDULES.get(result["config"]["schedule"], f"The {result['config']['schedule']} schedule")
    return f"{schedule} on {result['text']['data']}, {count}"


def loss(found: Json | None) -> str:
    """Write a mean loss with its deviation over seeds, if it has one."""
    if found is None:
        return "–"
    return f"{found['mean']:.3f}" + ("" if found["std"] is None else f" ± {found['std']:.3f}")


def difference(found: Json | None) -> str:
    """Write a mean difference."""
    return "–" if found is None else signed(found["mean"])


def interval(found: Json | None) -> str:
    """Write a 95 % interval; a single pair of runs has none."""
    between = ends(found) if found is not None else None
    return "–" if between is None else " to ".join(map(signed, between))


def ends(found: Json) -> Ends | None:
    """Give a difference's interval."""
    return None if found["interval"] is None else (float(found["interval"][0]), float(found["interval"][1]))


def deviations(found: Json) -> Ends | None:
    """Give a loss's mean less and plus its deviation over seeds."""
    return None if found["std"] is None else (found["mean"] - found["std"], found["mean"] + found["std"])


def over_seeds(
    name: str,
    places: Sequence[float],
    found: Sequence[Json],
    reach: Callable[[Json], Ends | None] = deviations,
    **look: Any,
) -> Series:
    """Draw means over seeds with bars and each seed's value; what was run once has neither."""
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


def loss_columns(points: Sequence[Json]) -> dict[str, Callable[[Json], str]]:
    """Give columns of losses: the final one where it is not the best everywhere, and those on other texts."""
    columns = {"best and final loss": BEST}
    if any(point[BEST]["values"] != point[FINAL]["values"] for point in points):
        columns = {"best loss": BEST, "final loss": FINAL}
    own = {name: lambda point, measure=measure: loss(point[measure]) for name, measure in columns.items()}
    texts = sorted({name for point in points for name in point.get("also", {})})
    also = {f"best, on {name}": lambda point, name=name: loss(point.get("also", {}).get(name)) for name in texts}
    return {**own, "seeds": lambda point: str(len(point["seeds"])), **also}


def table(
    caption: str, points: Sequence[Json], columns: Mapping[str, Callable[[Json], str]], words: int = 0, remarks: int = 0
) -> Table:
    """Write points line by line."""
    rows = [[write(point) for write in columns.values()] for point in points]
    return Table(caption=caption, columns=[*columns], rows=rows, words=words, remarks=remarks)


def compare_losses(title: str, words: Sequence[str], axis: str, lines: Iterable[Line], **more: Any) -> Comparison:
    """Show losses line by line, each seed's and their mean."""
    rows = [
        Row(
            words=of,
            marks=(Mark(mean=found["mean"], values=found["values"], colour=colour),),
            numbers=(str(found["n"]), loss(found)),
        )
        for of, found, colour in lines
    ]
    caption = f"{DOTS} The numbers are mean ± standard deviation."
    return Comparison(
        title=title, caption=caption, words=words, axis=axis, numbers=("seeds", "loss"), rows=rows, **more
    )


def compare_pairs(
    title: str,
    caption: str,
    words: Sequence[str],
    axis: str,
    lines: Sequence[Line],
    *,
    standard_error: bool = False,
    **more: Any,
) -> Comparison:
    """Show differences seed by seed with their intervals; without these where there is one seed everywhere."""
    numbers = {"seeds": lambda pair: str(pair["n"]), "mean": difference}
    if any(pair["interval"] for _, pair, _ in lines):
        error = {"standard error": lambda pair: number(pair["standard_error"])} if standard_error else {}
        numbers |= {**error, "95 % interval": interval}
    rows = [
        Row(
            words=of,
            marks=(Mark(mean=pair["mean"], interval=ends(pair), values=pair["values"], colour=colour),),
            numbers=[write(pair) for write in numbers.values()],
        )
        for of, pair, colour in lines
    ]
    return Comparison(
        title=title, caption=caption, words=words, axis=axis, numbers=[*numbers], rows=rows, zero=True, **more
    )


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
