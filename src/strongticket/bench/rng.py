"""Random weights against torch.rand and torch.randn: the same device, the same number of threads, the same run.

python -m strongticket.bench.rng [--device cuda] [--threads 1] [--weights 16777216]
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from strongticket.bench.measure import append_row, percentiles, time_alternating
from strongticket.environment import environment
from strongticket.ops.philox import reference
from strongticket.ops.rng import DISTRIBUTIONS, Distribution, random_chunk, random_weights, stream_of

RESULTS = Path("results/bench/results.jsonl")
CHECKED = 100_003


def check(device: str, distribution: Distribution) -> None:
    """Refuse to time a kernel whose bits are not the reference's."""
    expected = torch.empty(CHECKED)
    reference.fill(expected.numpy(), 5, stream_of(0, "w"), distribution, 0.5)
    actual = random_chunk(0, "w", 5, 5 + CHECKED, distribution, 0.5, device=device)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def main() -> None:
    """Check, time, print a table and append the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--weights", type=int, default=1 << 24)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    n, device = arguments.weights, arguments.device
    torch.set_num_threads(arguments.threads)
    runs: dict[str, Callable[[], object]] = {
        kind: partial(random_weights, 0, "w", (n,), kind, device=device) for kind in DISTRIBUTIONS
    }
    for kind in DISTRIBUTIONS:
        check(device, kind)
    runs |= {"torch.rand": lambda: torch.rand(n, device=device), "torch.randn": lambda: torch.randn(n, device=device)}
    wait = torch.cuda.synchronize if device.startswith("cuda") else None
    rates = {
        name: percentiles(n / second for second in seconds)
        for name, seconds in time_alternating(runs, warmup=2, repeats=arguments.repeats, synchronize=wait).items()
    }
    peers = {"uniform": "torch.rand", "normal": "torch.randn", "sign": "torch.rand"}
    print(f"{'':12} {'weights/s':>10}   against")
    for name, rate in rates.items():
        peer = peers.get(name)
        against = f"{rate['median'] / rates[peer]['median']:.2f} x {peer}" if peer else ""
        print(f"{name:12} {rate['median'] / 1e9:8.2f} G   {against}")
        append_row(
            arguments.out, op="rng", engine=name, weights=n, threads=arguments.threads, **rate, **environment(device)
        )


if __name__ == "__main__":
    main()
