"""Random weights per second against torch.rand and torch.randn, on the same device and threads, in the same run.

python -m strongticket.bench.rng [--device cuda] [--threads 1] [--weights 16777216]
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from strongticket.bench.measure import percentiles, time_alternating
from strongticket.bench.script import Row, run_script
from strongticket.ops.philox import reference
from strongticket.ops.rng import DISTRIBUTIONS, Distribution, random_chunk, random_weights, stream_of

CHECKED = 100_003
PEERS = {"uniform": "torch.rand", "normal": "torch.randn", "sign": "torch.rand", "packed-sign": "torch.rand"}


def check(device: str, distribution: Distribution) -> None:
    """Refuse to time a kernel whose bits are not the reference's."""
    expected = torch.empty(CHECKED)
    reference.fill(expected.numpy(), 5, stream_of(0, "w"), distribution, 0.5)
    actual = random_chunk(0, "w", 5, 5 + CHECKED, distribution, 0.5, device=device)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def rates(*, device: str, threads: int, weights: int, repeats: int) -> Iterator[Row]:
    torch.set_num_threads(threads)
    for kind in DISTRIBUTIONS:
        check(device, kind)
    runs: dict[str, Callable[[], object]] = {
        "torch.rand": partial(torch.rand, weights, device=device),
        "torch.randn": partial(torch.randn, weights, device=device),
    }
    runs |= {kind: partial(random_weights, 0, "w", (weights,), kind, device=device) for kind in DISTRIBUTIONS}
    seconds = time_alternating(runs, warmup=2, repeats=repeats, device=device)
    speeds = {name: percentiles(weights / second for second in times) for name, times in seconds.items()}
    for name, speed in speeds.items():
        against = speed["median"] / speeds[PEERS[name]]["median"] if name in PEERS else None
        # Weights per second, and the ratio of the medians.
        yield {"engine": name, "weights": weights, "threads": threads, **speed, "against_torch": against}


if __name__ == "__main__":
    run_script(__doc__, rates, op="rng", device="cpu", threads=1, weights=1 << 24, repeats=9)
