"""Check the CUDA subset-sum kernels on a GPU and time them beside torch's sort and searchsorted.

    python -m strongticket.bench.gpu_subset_sum [--items 12,16,20,24] [--out FOLDER]

Every mask, error and status of the checked rows has to be the CPU's; otherwise nothing is timed and the exit status is
1. Rates are problems a second of wall time, median of seven runs in turns with the peer, and include allocating the
result and bringing problems left open to the CPU. A row for each line of the table goes to FOLDER/gpu_subset_sum.jsonl.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from strongticket.bench.measure import append_row, percentiles, time_alternating
from strongticket.bench.peers import torch_sort
from strongticket.environment import environment
from strongticket.ops.subset_sum import SubsetSumResult, cpu, cuda

CHECKED_SUMS = 1 << 27  # the CPU sees about this many sums for each number of items
TIMED_SUMS = 1 << 31
PEER_SUMS = 1 << 28
PEER_ITEMS = (12, 24)  # the peer's memory and patience
OUTPUTS = 4096


def draw(rows: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Targets in U[-0.5, 0.5] and items as products u * v of U[-1, 1] float32 weights, on the GPU."""
    generator = torch.Generator("cuda").manual_seed(n)
    target, u, v = (torch.rand(shape, generator=generator, device="cuda") for shape in ((rows,), (rows, n), (rows, n)))
    return target - 0.5, 2 * u - 1, 2 * v - 1


def differing(actual: SubsetSumResult, expected: SubsetSumResult) -> int:
    """Rows that are not the CPU's in every respect."""
    mask, error, status = (a.cpu() != e for a, e in zip(actual, expected, strict=True))
    return int((mask.any(dim=1) | error | status).sum())


def measure(n: int, repeats: int) -> dict[str, float | int]:
    """One line of the table; `wrong` rows end it early."""
    sums = 1 << (n + 1) // 2
    rows = min(1 << 24, TIMED_SUMS // sums // OUTPUTS * OUTPUTS)
    targets, u, v = draw(rows, n)
    items = u.double() * v.double()
    checked = max(16, min(50_000, CHECKED_SUMS // sums // n))
    solved = SubsetSumResult(*(x[:checked] for x in cuda.solve(targets, items, "default")))
    wrong = differing(solved, cpu.solve(targets[:checked].cpu(), items[:checked].cpu(), "default"))

    blocks = rows // OUTPUTS
    sizes = torch.full((blocks,), n, device="cuda")
    shared_u, each_v = u.flatten()[: blocks * n].contiguous(), v.view(OUTPUTS, blocks * n)
    products = partial(cuda.solve_products, targets.view(OUTPUTS, blocks), shared_u, each_v, sizes, 1.0, "default")
    checked_blocks = min(blocks, checked)
    some = products()
    first = SubsetSumResult(some.mask[0].view(blocks, n)[:checked_blocks], *(x[0, :checked_blocks] for x in some[1:]))
    first_items = (shared_u.double() * each_v[0].double()).view(blocks, n)[:checked_blocks]
    wrong += differing(first, cpu.solve(targets[:checked_blocks].cpu(), first_items.cpu(), "default"))
    if wrong:
        return {"n": n, "checked": checked, "wrong": wrong}

    peer_rows = min(rows, PEER_SUMS // sums)
    runs: dict[str, Callable[[], object]] = {
        "rows": partial(cuda.solve, targets, items, "default"),
        "products": products,
    }
    if PEER_ITEMS[0] <= n <= PEER_ITEMS[1]:
        runs["peer"] = partial(torch_sort.solve, targets[:peer_rows].double(), items[:peer_rows])
    seconds = time_alternating(runs, warmup=2, repeats=repeats, synchronize=torch.cuda.synchronize)
    solved_rows = {"rows": rows, "products": rows, "peer": peer_rows}
    rates = {name: percentiles(solved_rows[name] / s for s in runs_seconds) for name, runs_seconds in seconds.items()}
    line: dict[str, float | int] = {"n": n, "checked": checked + checked_blocks, "wrong": 0, "problems": rows}
    line |= {f"{name}_{key}": value for name, summary in rates.items() for key, value in summary.items()}
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default="8,12,13,16,20,24,28,32")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; millions of problems a second")
    print(" n  checked      rows  products  torch sort  ratio")
    for n in map(int, arguments.items.split(",")):
        line = measure(n, arguments.repeats)
        append_row(arguments.out / "gpu_subset_sum.jsonl", op="subset_sum", **line, **environment("cuda"))
        if line["wrong"]:
            print(f"{n:2d}  {line['wrong']} wrong rows of {line['checked']} checked")
            return 1
        peer = line.get("peer_median")
        beside = f"{peer / 1e6:10.2f} {line['rows_median'] / peer:6.1f}" if peer else ""
        rates = f"{line['rows_median'] / 1e6:9.1f} {line['products_median'] / 1e6:9.1f}"
        print(f"{n:2d} {line['checked']:8d} {rates}  {beside}", flush=True)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
