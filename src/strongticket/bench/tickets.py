"""Sizes of ticket files by density, and the time to save and load them.

python -m strongticket.bench.tickets [--weights 100000000]
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch

from strongticket import PackedMask, RandomTensor, Ticket
from strongticket.bench.measure import append_row, percentiles, time_runs
from strongticket.environment import environment

RESULTS = Path("results/bench/results.jsonl")
# Bits a weight that a file may take beyond 4 KiB.
LIMITS = {0.5: 1.01, 0.3: 0.90, 0.05: 0.32}


def entropy(density: float) -> float:
    """Bits a weight that no code can go below for independent bits."""
    return sum(-p * math.log2(p) for p in (density, 1 - density))


def main() -> None:
    """Write, read back, compare, then print a table and append the rows; a file above its limit is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("density   bits a weight   limit   entropy   save s   load s")
    for density, limit in LIMITS.items():
        mask = PackedMask.random((arguments.weights,), density, seed=1)
        ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.ticket"
            save = percentiles(time_runs(lambda: ticket.save(path), repeats=arguments.repeats))  # noqa: B023 (used at once)
            if Ticket.load(path) != ticket:
                raise SystemExit(f"density {density}: what was read is not what was written")
            load = percentiles(time_runs(lambda: Ticket.load(path), repeats=arguments.repeats))  # noqa: B023 (used at once)
            bits = 8 * (path.stat().st_size - 4096) / arguments.weights
        if bits > limit:
            raise SystemExit(f"density {density}: {bits:.4f} bits a weight, the limit is {limit}")
        print(
            f"{density:7}   {bits:13.4f}   {limit:5.2f}   {entropy(density):7.4f}   "
            f"{save['median']:6.2f}   {load['median']:6.2f}"
        )
        row = {"density": density, "bits_a_weight": bits, "save_s": save["median"], "load_s": load["median"]}
        append_row(arguments.out, op="ticket", weights=arguments.weights, threads=1, **row, **environment())


if __name__ == "__main__":
    main()
