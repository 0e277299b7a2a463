"""The slowest rows known for `subset_sum` up to 32 items: how many times as long as random rows do they take?

Every kind of row is solved in turns with random rows, on one thread, in CPU time; the ratio is the median over the
turns. Before that, no error may be worse than Horowitz-Sahni's, nor any answer unlike the reference's up to 20 items.
"""

import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numba
import torch
from torch import Tensor

from strongticket.bench.exact import unlike_reference, worse_than_peer
from strongticket.bench.instances import draw
from strongticket.bench.measure import WrongAnswerError, ratio, time_alternating
from strongticket.bench.script import run_script
from strongticket.ops.subset_sum import Status, subset_sum


def slow_rows(n: int, rows: int) -> dict[str, Tensor]:
    """Rows of items (rows, n) whose subsets tie, or nearly tie, by the thousand; by name."""
    normal = torch.randn(rows, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    sign, place = normal.sign(), torch.arange(n, dtype=torch.float64)
    slow = {f"1 +- {spread:g}": 1 + spread * normal for spread in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-13)}
    slow |= {f"+-1 +- {spread:g}": sign + spread * normal for spread in (1e-5, 1e-7, 1e-9, 1e-11)}
    slow |= {"equal": torch.full_like(normal, 0.3), "+-1": sign, "+-0.1": 0.1 * sign}
    slow |= {f"grid of 1/{k}": (normal * k / 3).round() / k for k in (10, 256, 10_000)}
    slow |= {f"powers of {base}": (base**place).expand(rows, n).clone() for base in (2.0, 1.5, 1.1, 0.9)}
    slow["random, then equal"] = torch.where(place < n // 2, normal, 0.3)
    slow["equal, then random"] = torch.where(place < n // 2, 0.3, normal)
    slow["1, then tiny"] = torch.where(place < n // 2, 1.0, 1e-8 * normal)
    slow["one huge"] = torch.where(place == n // 2, 1e15, normal)
    for huge in (1, 2):
        ends = torch.where(place < huge, 1e13 * sign, torch.where(place >= n - huge, -1e13 * sign.flip(1), normal))
        slow[f"{2 * huge} huge, cancelling"] = ends
    slow["four huge, then equal"] = torch.where(place < 4, 1e15 * normal.half().double(), 0.3)
    for start in (n // 2 + 1, n - 2):
        huge_there = (place == start) | (place == start + 1)
        slow[f"1 +- 1e-05, huge at {start}"] = torch.where(huge_there, 1e13 * (-1) ** place, 1 + 1e-5 * normal)
    slow["pairs"] = normal.repeat_interleave(2, dim=1)[:, :n]
    slow["cancelling pairs"] = slow["pairs"] * (-1) ** place
    slow["float16"] = normal.half().double()
    return slow


def targets_for(items: Tensor) -> Iterator[Tensor]:
    """Targets (rows,): the sum of every other item, just beside, a little farther, half of all, near 0, all but one."""
    largest = items.abs().amax(dim=1)
    for beside in (0.0, 1e-12, 1e-3):
        yield items[:, ::2].sum(dim=1) + beside * largest
    yield items.sum(dim=1) / 2
    yield 1e-9 * largest
    yield items[:, 1:].sum(dim=1)


def check(targets: Tensor, items: Tensor) -> None:
    """Raise `WrongAnswerError` if an answer is not the optimum."""
    result = subset_sum(targets, items)
    reached = result.status == Status.OPTIMAL
    worse = worse_than_peer(targets[reached], items[reached], result.error[reached])
    if wrong := worse + unlike_reference(targets, items, result):
        raise WrongAnswerError(f"{wrong} of {len(items)} answers are not the optimum")


def measure(items: tuple[int, ...], repeats: int) -> Iterator[dict[str, Any]]:
    """Give the slowest kind of rows for each number of items."""
    numba.set_num_threads(1)
    for n in items:
        rows = max(16, (1 << 18) >> n // 2)
        usual = draw(8 * rows, n).to("cpu")
        found = []
        for kind, a in slow_rows(n, rows).items():
            for w in targets_for(a):
                check(w[:2], a[:2])
                runs = {"slow": partial(subset_sum, w, a), "usual": partial(subset_sum, *usual)}
                times = time_alternating(runs, repeats=repeats, clock=time.process_time)
                found.append((8 * ratio(*times.values()), kind, median(times["slow"]) / rows * 1e6))
        slowest, kind, microseconds = max(found)
        yield {"n": n, "times random rows": slowest, "microseconds per row": microseconds, "kind": kind}


if __name__ == "__main__":
    run_script(__doc__, measure, op="worst_rows", out=None, items=tuple(range(12, 33)), repeats=5)
