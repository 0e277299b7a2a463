"""The work of experiment 1 in Pensia et al. (2020): every weight of an MNIST network as one subset sum."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from strongticket.bench import instances, measure, subset_sum
from strongticket.bench.settings import PUBLISHED_WEIGHTS, PensiaSettings

CANDIDATES = 21
LOW, HIGH = -0.464, 0.541  # the range of the trained weights
PUBLISHED_SECONDS = 77_266  # of Gurobi, from the log published with the paper
PUBLISHED_CORES = 36


class Outcome(NamedTuple):
    """Our run beside theirs."""

    weights: int
    n: int
    device: str
    threads: int
    p20: float  # seconds
    median: float
    p80: float
    median_error: float
    worst_error: float  # of reachable targets
    unreachable: int
    worst_unreachable_error: float  # 0.0 if there is none
    checked: int  # weights compared with the reference
    times_less_time: float  # their seconds per weight over ours
    times_less_core_time: float | None  # the same in core-seconds; a GPU has no cores to compare
    published_weights: int = PUBLISHED_WEIGHTS
    published_seconds: int = PUBLISHED_SECONDS
    published_cores: int = PUBLISHED_CORES
    unit: str = "s"
    engine: str = subset_sum.OURS
    op: str = "subset_sum_pensia"


def count_steps(settings: PensiaSettings) -> int:
    """Count the calls of `progress`."""
    return 2


def run(settings: PensiaSettings, *, progress: Callable[[str], None] = lambda step: None) -> Iterator[list[Outcome]]:
    """Solve problems of the published size and range, compiled beforehand, and compare the times.

    Raises:
        WrongAnswerError: an answer is worse than the reference's.
    """
    weights, threads, device = settings.weights, settings.threads, settings.device
    subset_sum.use_threads(threads)
    problems = instances.draw(weights, CANDIDATES, low=LOW, high=HIGH, seed=settings.seed)
    tensors = problems.to(device)

    progress("checking answers")
    errors = problems.errors(subset_sum.solve_ours(*tensors).cpu().numpy())
    checked = problems[: subset_sum.rows_to_check(CANDIDATES)]
    subset_sum.refuse_if_worse(CANDIDATES, "the reference", errors[: len(checked)], subset_sum.least_errors(checked))

    progress(f"timing {weights:,} weights, {settings.repeats} times")
    solve = partial(subset_sum.solve_ours, *tensors)
    seconds = measure.percentiles(measure.time_runs(solve, repeats=settings.repeats, device=device))
    outside = problems.unreachable()
    times = PUBLISHED_SECONDS / PUBLISHED_WEIGHTS / (seconds["median"] / weights)
    outcome = Outcome(
        weights=weights,
        n=CANDIDATES,
        device=device,
        threads=threads,
        **seconds,
        median_error=float(np.median(errors)),
        worst_error=float(errors[~outside].max(initial=0.0)),
        unreachable=int(outside.sum()),
        worst_unreachable_error=float(errors[outside].max(initial=0.0)),
        checked=len(checked),
        times_less_time=times,
        times_less_core_time=None if device.startswith("cuda") else times * PUBLISHED_CORES / threads,
    )
    yield [outcome]
