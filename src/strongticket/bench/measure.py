"""Timing, percentiles and result rows: what every benchmark here shares."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypedDict, TypeVar

import numpy as np

from strongticket.errors import StrongTicketError
from strongticket.files import append_line

Name = TypeVar("Name")


class WrongAnswerError(StrongTicketError):
    """An engine computes the wrong result, so its speed means nothing."""


def time_runs(run: Callable[[], object], **how: Any) -> list[float]:
    """Time one function as `time_alternating` does, and return the seconds of each repeat.

    Example:
        >>> len(time_runs(lambda: sum(range(1000)), repeats=3))
        3
    """
    return time_alternating({0: run}, **how)[0]


def time_alternating(
    runs: Mapping[Name, Callable[[], object]],
    *,
    warmup: int = 1,
    repeats: int = 5,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Time several functions in turn, so that a slow moment of the machine affects all of them alike.

    Args:
        runs: the functions, by name; their results are discarded.
        warmup: untimed calls first (compilation, caches, clocks).
        repeats: timed calls.
        device: where they work; the work they leave on a GPU is waited for.
        clock: returns seconds; see `clock_for`.

    Returns:
        The seconds of each repeat, by name; ratios between names are reliable even if the seconds are not.
    """
    wait: Callable[[], object] = lambda: None  # noqa: E731
    if device.startswith("cuda"):
        import torch

        wait = torch.cuda.synchronize
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    for repeat in range(-warmup, repeats):
        for name, run in runs.items():
            wait()
            start = clock()
            run()
            wait()
            if repeat >= 0:
                seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Sequence[float], to: Sequence[float]) -> float:
    """Return the median over turns of how many times as long as another function one took."""
    return median(own / other for own, other in zip(seconds, to, strict=True))


def clock_for(threads: int, device: str = "cpu") -> tuple[str, Callable[[], float]]:
    """Return the name, for the result row, and the function of the clock that measures an engine's cost.

    One thread on the CPU is charged CPU time: on an idle core that is the wall time, and on a shared one it does not
    depend on other processes. Several threads and GPUs are charged wall time, since waiting counts there.
    """
    alone = threads == 1 and not device.startswith("cuda")
    return ("cpu", time.process_time) if alone else ("wall", time.perf_counter)


class Percentiles(TypedDict):
    """The median of some values, and their spread; fields of every row."""

    p20: float
    median: float
    p80: float


def percentiles(values: Iterable[float]) -> Percentiles:
    """Summarise values by their 20th, 50th and 80th percentile.

    Example:
        >>> percentiles([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        {'p20': 2.0, 'median': 3.5, 'p80': 5.0}
    """
    low, middle, high = np.percentile(np.fromiter(values, dtype=np.float64), [20, 50, 80])
    return {"p20": float(low), "median": float(middle), "p80": float(high)}


def append_row(path: Path, /, **fields: object) -> None:
    """Append one result to a JSON-lines file, creating its folder if needed.

    NaN and infinity are refused: other JSON readers could not open the file.

    Example:
        append_row(Path("results.jsonl"), op="subset_sum", n=16, **percentiles(rates), **environment())
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # One unbuffered write in append mode, so that rows of concurrent runs cannot mix.
    with path.open("ab", buffering=0) as file:
        append_line(file, fields)
