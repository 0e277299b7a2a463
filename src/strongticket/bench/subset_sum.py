"""Rates of the subset-sum engine and its peers, on the same problems, after checking every answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.bench import instances, measure
from strongticket.bench import peers as milp
from strongticket.bench.instances import Problems
from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.peers import horowitz_sahni, torch_sort
from strongticket.bench.settings import SubsetSumSettings as Settings
from strongticket.ops.subset_sum import reference, subset_sum
from strongticket.parallel import one_thread
from strongticket.report.records import SubsetSums

# (targets, items) -> mask, all tensors on one device.
Solver = Callable[[Tensor, Tensor], Tensor]
Progress = Callable[[str], None]

OURS = "strongticket"
RUN_SECONDS = 0.5  # a batched engine gets as many rows as it solves in about this time
GROUPS = 5  # runs that the rows of a one-at-a-time peer are divided into


class Engine(NamedTuple):
    """Description of an engine in a row."""

    engine: str
    label: str
    device: str
    threads: int
    clock: str  # "cpu" or "wall", see `measure.clock_for`


class Sample(NamedTuple):
    """One engine's rates and answers on the first rows of the problems."""

    of: Engine
    rates: NDArray[np.float64]  # (runs,) problems per second
    masks: NDArray[np.bool_]  # (rows, n); from one run of a batched engine, from all of a one-at-a-time peer
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All engines at one number of items, ours first."""

    n: int
    drawn: int  # problems
    unreachable: int  # problems whose items cannot reach the target
    measurements: list[SubsetSums]
    notes: list[str]  # peers that ended early, and why

    def __iter__(self) -> Iterator[SubsetSums]:
        return iter(self.measurements)


def run(settings: Settings, *, progress: Progress = lambda step: None) -> Iterator[Comparison]:
    """Compare all engines, one number of items after another.

    Raises:
        WrongAnswerError: an answer of ours is worse than that of the reference or of a peer.
    """
    use_threads(settings.threads)
    for n in settings.items:
        yield _compare(n, settings, progress)


def count_steps(settings: Settings) -> int:
    """Count the calls of `progress`."""
    return len(settings.items) * (2 + len(milp.choose(settings.peers)))


def use_threads(threads: int) -> None:
    """Limit numba and torch to a number of threads."""
    available: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba starts
    if not 1 <= threads <= available:
        raise ValueError(f"threads must be between 1 and the {available} cores this process may use; got {threads}.")
    numba.set_num_threads(threads)
    torch.set_num_threads(threads)


def default_rows(n: int, device: str) -> int:
    """Rows that keep a device busy long enough to be timed."""
    return 1 << ((27 if device.startswith("cuda") else 22) - n // 4)


def rows_to_check(n: int) -> int:
    """Rows the reference solves in about ten seconds: by brute force up to 12 items, then 2^(n/2) sums per row."""
    return 1 << (14 if n <= 12 else min(12, 22 - (n + 1) // 2))


def solve_ours(targets: Tensor, items: Tensor) -> Tensor:
    """Run the engine under test, on the device of its tensors."""
    return subset_sum(targets, items).mask


def least_errors(problems: Problems) -> NDArray[np.float64]:
    """Find the optimum of each row with the reference."""
    # In parts, since brute force holds every sum of every row.
    parts = (problems[start : start + 1024].to("cpu") for start in range(0, len(problems), 1024))
    return torch.cat([reference.subset_sum(*part).error for part in parts]).numpy()


def refuse_if_worse(n: int, other: str, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> None:
    """Stop if any row of ours is worse than another solver's; both are errors of the same rows.

    Raises:
        WrongAnswerError: naming the first such row.
    """
    worse = np.flatnonzero(ours > theirs)
    if len(worse):
        row = int(worse[0])
        raise WrongAnswerError(
            f"{len(worse)} of {len(theirs)} answers at n = {n} are worse than those of {other}; first row {row}: "
            f"error {ours[row]:.17g}, {other} {theirs[row]:.17g}. No speed is reported."
        )


def _compare(n: int, settings: Settings, progress: Progress) -> Comparison:
    problems = instances.draw(settings.rows or default_rows(n, settings.device), n, seed=settings.seed)
    checked = problems[: rows_to_check(n)]
    tensors = problems.to(settings.device)

    progress(f"n = {n}: checking answers")
    ours = problems.errors(solve_ours(*tensors).cpu().numpy())
    optima = least_errors(checked)
    refuse_if_worse(n, "the reference", ours[: len(checked)], optima)

    progress(f"n = {n}: timing the batched engines")
    samples, notes = _time_batched(tensors, settings), []
    rows = len(samples[0].masks)
    timed = problems[:rows].errors(samples[0].masks)
    refuse_if_worse(n, "the same engine before it was timed", timed, ours[:rows])
    for peer in milp.choose(settings.peers):
        progress(f"n = {n}: {peer.label}, about {settings.budget:.0f} s")
        answers = milp.solve_apart(
            peer, checked.targets, checked.items, threads=settings.threads, budget=settings.budget
        )
        if answers.failure:
            notes.append(f"{peer.label} at n = {n} ended after {len(answers.seconds)} rows: {answers.failure}")
        if len(answers.seconds):
            samples.append(as_sample(peer, answers, settings))
    for sample in samples[1:]:
        rows = len(sample.masks)
        refuse_if_worse(n, sample.of.label, ours[:rows], problems[:rows].errors(sample.masks))
    measurements = [_measure(sample, samples[0], checked, optima) for sample in samples]
    return Comparison(n, len(problems), int(problems.unreachable().sum()), measurements, notes)


def _batched_engines(settings: Settings, clock: str) -> dict[Engine, Solver]:
    """Ours first, then plain numba on a CPU or torch operations on a GPU; with several threads, also ours on one."""

    def engine(name: str, label: str, threads: int = 1) -> Engine:
        return Engine(name, label, settings.device, threads, clock)

    threads = settings.threads
    found: dict[Engine, Solver] = {engine(OURS, "strongticket", threads): solve_ours}
    if settings.device.startswith("cuda"):
        return found | {engine("torch-sort", "torch sort + searchsorted", threads): torch_sort.solve}
    if threads > 1:
        found[engine("strongticket-1", "strongticket, one thread")] = _solve_on_one_thread
    return found | {engine("horowitz-sahni", "plain numba Horowitz-Sahni"): _horowitz_sahni}


def _solve_on_one_thread(targets: Tensor, items: Tensor) -> Tensor:
    with one_thread():
        return solve_ours(targets, items)


def _horowitz_sahni(targets: Tensor, items: Tensor) -> Tensor:
    return torch.from_numpy(horowitz_sahni.solve(targets.numpy(), items.numpy()))


def _time_batched(tensors: tuple[Tensor, Tensor], settings: Settings) -> list[Sample]:
    clock_name, clock = measure.clock_for(settings.threads, settings.device)
    runs, masks = {}, {}
    for engine, solve in _batched_engines(settings, clock_name).items():
        rows = _rows_in_time(solve, *tensors)
        runs[engine] = partial(solve, tensors[0][:rows], tensors[1][:rows])
        masks[engine] = runs[engine]().cpu().numpy()
    seconds = measure.time_alternating(runs, repeats=settings.repeats, device=settings.device, clock=clock)
    return [Sample(of, len(masks[of]) / np.array(times), masks[of]) for of, times in seconds.items()]


def _rows_in_time(solve: Solver, targets: Tensor, items: Tensor) -> int:
    """Return how many rows an engine solves in RUN_SECONDS, estimated by a pilot run."""
    pilot = max(1, len(targets) // 256)
    run = partial(solve, targets[:pilot], items[:pilot])
    seconds = min(measure.time_runs(run, repeats=2, device=targets.device.type))
    return max(pilot, min(len(targets), int(pilot * RUN_SECONDS / seconds)))


def as_sample(peer: milp.Peer, answers: milp.Answers, settings: Settings) -> Sample:
    """Divide the rows into a few runs: times of single problems vary too much for their median to be a rate."""
    groups = min(GROUPS, len(answers.seconds))
    rates = np.array([len(run) / run.sum() for run in (answers.seconds[i::groups] for i in range(groups))])
    label = f"{peer.label}, on the CPU" if settings.device.startswith("cuda") else peer.label
    clock, _ = measure.clock_for(settings.threads)
    engine = Engine(peer.name, label, "cpu", settings.threads, clock)
    return Sample(engine, rates, answers.masks, int(answers.timed_out.sum()))


def _measure(sample: Sample, ours: Sample, checked: Problems, optima: NDArray[np.float64]) -> SubsetSums:
    rows = min(len(sample.masks), len(checked))
    errors = checked[:rows].errors(sample.masks[:rows])
    speed = measure.percentiles(sample.rates)
    return SubsetSums(
        **sample.of._asdict(),
        n=checked.items.shape[1],
        rows=len(sample.masks),
        **speed,
        times_slower=float(np.median(ours.rates)) / speed["median"],
        median_error=float(np.median(errors)),
        optimal_share=float((errors <= optima[:rows]).mean()),
        checked=rows,
        timeouts=sample.timeouts,
    )
