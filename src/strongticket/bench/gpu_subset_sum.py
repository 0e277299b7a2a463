"""Check the CUDA subset-sum kernels on a GPU and time them beside torch's sort and searchsorted.

    python -m strongticket.bench.gpu_subset_sum [--items 12,16,20,24] [--out FILE]

Every mask, error and status of the checked rows must equal the CPU's; otherwise nothing is timed and the exit status is
1. Rates are problems per second of wall time, the median of seven runs in turns with the peer, and include allocating
the result and sending unsolved problems to the CPU.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from strongticket.bench.measure import WrongAnswerError, percentiles, time_alternating
from strongticket.bench.peers import torch_sort
from strongticket.bench.script import Row, run_script
from strongticket.ops.subset_sum import SubsetSumResult, cpu, cuda

CHECKED_SUMS = 1 << 27  # the CPU checks about this many sums per number of items
TIMED_SUMS = 1 << 31
PEER_SUMS = 1 << 28
PEER_ITEMS = range(12, 25)  # the peer's memory and patience
OUTPUTS = 4096


def draw(rows: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Targets in U[-0.5, 0.5] and items as products u * v of U[-1, 1] float32 weights, on the GPU."""
    generator = torch.Generator("cuda").manual_seed(n)
    target, u, v = (torch.rand(shape, generator=generator, device="cuda") for shape in ((rows,), (rows, n), (rows, n)))
    return target - 0.5, 2 * u - 1, 2 * v - 1


def check(n: int, actual: SubsetSumResult, targets: Tensor, items: Tensor) -> None:
    """Refuse rows that are not the CPU's in every respect."""
    expected = cpu.solve(targets.cpu(), items.cpu(), "default")
    mask, error, status = (a.cpu() != e for a, e in zip(actual, expected, strict=True))
    if wrong := int((mask.any(dim=1) | error | status).sum()):
        raise WrongAnswerError(f"n = {n}: {wrong} wrong rows of {len(targets)} checked")


def measure(n: int, repeats: int) -> Iterator[Row]:
    """Time rows of problems, products as a construction streams them, and torch's sort."""
    sums = 1 << (n + 1) // 2
    rows = min(1 << 24, TIMED_SUMS // sums // OUTPUTS * OUTPUTS)
    targets, u, v = draw(rows, n)
    items = u.double() * v.double()
    some = max(16, min(50_000, CHECKED_SUMS // sums // n))
    solved = cuda.solve(targets, items, "default")
    check(n, SubsetSumResult(*(x[:some] for x in solved)), targets[:some], items[:some])

    blocks = rows // OUTPUTS
    sizes = torch.full((blocks,), n, device="cuda")
    shared_u, each_v = u.flatten()[: blocks * n].contiguous(), v.view(OUTPUTS, blocks * n)
    products = partial(cuda.solve_products, targets.view(OUTPUTS, blocks), shared_u, each_v, sizes, 1.0, "default")
    few, streamed = min(blocks, some), products()
    first = SubsetSumResult(streamed.mask[0].view(blocks, n)[:few], *(x[0, :few] for x in streamed[1:]))
    check(n, first, targets[:few], (shared_u.double() * each_v[0].double()).view(blocks, n)[:few])

    peer_rows = min(rows, PEER_SUMS // sums)
    runs: dict[str, Callable[[], object]] = {"rows": partial(cuda.solve, targets, items, "default")}
    runs["products"] = products
    if n in PEER_ITEMS:
        runs["torch-sort"] = partial(torch_sort.solve, targets[:peer_rows].double(), items[:peer_rows])
    seconds = time_alternating(runs, warmup=2, repeats=repeats, device="cuda")
    checked = {"rows": some, "products": few}
    for engine, times in seconds.items():
        problems = rows if engine in checked else peer_rows
        speed = percentiles(problems / second for second in times)
        yield {"n": n, "engine": engine, "problems": problems, "checked": checked.get(engine, 0), **speed}


def rates(*, items: tuple[int, ...], repeats: int) -> Iterator[Row]:
    for n in items:
        yield from measure(n, repeats)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    out, items = Path("results/bench/gpu_subset_sum.jsonl"), (8, 12, 13, 16, 20, 24, 28, 32)
    run_script(__doc__, rates, op="subset_sum_gpu", out=out, on="cuda", items=items, repeats=7)
