"""Is every answer of the CPU kernel the optimum, ties included? `make bench-exact` tries 100,000 seeded problems.

Three judges, of which only bisection uses the sorting network, for other numbers:
    the reference itself, on all rows up to 12 items and on some up to 20;
    bisection in float64, exact by the monotony of rounding, on every row: masks must be equal, ties included;
    plain float64 Horowitz-Sahni, on every row: no error may be larger than its.
Four in five rows are products of two U[-1, 1] float32 weights; the fifth has weights in eighths, full of ties.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.peers import horowitz_sahni
from strongticket.bench.script import run_script
from strongticket.ops.subset_sum import Status, SubsetSumResult, reference, subset_sum
from strongticket.ops.subset_sum.bisection import make_room, solve_by_bisection
from strongticket.ops.subset_sum.exact import exact_workspace

SEED = 3
REFERENCE_ROWS = 200  # beyond 12 items
ITEMS = range(8, 29)


# Fields of a row that count as misses.
MISSES = ("unlike_reference", "unlike_bisection", "worse_than_horowitz_sahni")


def draw(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(SEED + n)
    rows = 8_000 if n <= 16 else 5_000 if n <= 20 else 1_500 if n <= 24 else 500
    weights = torch.rand(2, rows, n, generator=generator) * 2 - 1
    targets = (torch.rand(rows, generator=generator) * 2 - 1).double()
    weights[:, ::5] = (weights[:, ::5] * 8).round() / 8
    targets[::10] = (targets[::10] * 64).round() / 64
    return targets, weights[0].double() * weights[1].double()


def judge(n: int) -> dict[str, Any]:
    targets, items = draw(n)
    start = time.perf_counter()
    result = subset_sum(targets, items)
    seconds = time.perf_counter() - start
    reached = result.status == Status.OPTIMAL
    return {
        "n": n,
        "rows": len(targets),
        "unreachable": int((~reached).sum()),
        "unlike_reference": unlike_reference(targets, items, result),
        "unlike_bisection": unlike_bisection(targets[reached], items[reached], result.mask[reached]),
        "worse_than_horowitz_sahni": worse_than_peer(targets[reached], items[reached], result.error[reached]),
        "median_error": float(result.error[reached].median()),
        "seconds": seconds,
    }


def unlike_reference(targets: Tensor, items: Tensor, result: SubsetSumResult) -> int:
    n = items.shape[1]
    rows = len(items) if n <= reference.BRUTE_FORCE_ITEMS else REFERENCE_ROWS if n <= 20 else 0
    unlike = 0
    for start in range(0, rows, 1000):  # brute force holds every sum of every row
        part = slice(start, min(start + 1000, rows))
        expected = reference.subset_sum(targets[part], items[part])
        same = (expected.mask == result.mask[part]).all(dim=1) & (expected.error == result.error[part])
        unlike += int((~(same & (expected.status == result.status[part]))).sum())
    return unlike


def unlike_bisection(targets: Tensor, items: Tensor, mask: Tensor) -> int:
    n = items.shape[1]
    weights = 2 ** torch.arange(n)
    found, error = np.empty(len(items), np.int64), np.empty(len(items))
    room = make_room(n, exact_workspace(n).merged)
    solve_by_bisection(np.arange(len(items)), targets.numpy(), items.numpy(), room, error, found)
    return int(((mask * weights).sum(dim=1) != torch.from_numpy(found)).sum())


def worse_than_peer(targets: Tensor, items: Tensor, error: Tensor) -> int:
    mask = torch.from_numpy(horowitz_sahni.solve(targets.numpy(), items.numpy()))
    return int((error > reference.error_of(targets, items, mask)).sum())


def verdicts() -> Iterator[dict[str, Any]]:
    found = []
    for n in ITEMS:
        found.append(judge(n))
        yield found[-1]
    rows, misses = (sum(row[name] for row in found for name in names) for names in (("rows",), MISSES))
    print(f"{rows:,} problems, {misses} misses.")
    if misses:
        raise WrongAnswerError(f"{misses} of {rows:,} answers are not the optimum")


if __name__ == "__main__":
    run_script(__doc__, verdicts, op="exact", out=None)
