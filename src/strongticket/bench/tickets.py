"""Sizes of ticket files by density, and the time to save and load them; one above its limit ends the run.

python -m strongticket.bench.tickets [--weights 100000000]
"""

import math
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from strongticket import PackedMask, RandomTensor, Ticket
from strongticket.bench.measure import WrongAnswerError, percentiles, time_runs
from strongticket.bench.script import Row, run_script

# Bits a weight that a file may take beyond 4 KiB.
LIMITS = {0.5: 1.01, 0.3: 0.90, 0.05: 0.32}


def sizes(*, weights: int, repeats: int) -> Iterator[Row]:
    """Write, read back, compare, time."""
    torch.set_num_threads(1)
    for density, limit in LIMITS.items():
        mask = PackedMask.random((weights,), density, seed=1)
        ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.ticket"
            save = percentiles(time_runs(partial(ticket.save, path), repeats=repeats))
            if Ticket.load(path) != ticket:
                raise WrongAnswerError(f"density {density}: what was read is not what was written")
            load = percentiles(time_runs(partial(Ticket.load, path), repeats=repeats))
            bits = 8 * (path.stat().st_size - 4096) / weights
        if bits > limit:
            raise WrongAnswerError(f"density {density}: {bits:.4f} bits a weight, the limit is {limit}")
        yield {
            "density": density,
            "weights": weights,
            "threads": 1,
            "bits_a_weight": bits,
            # What no code can go below for independent bits.
            "entropy": sum(-p * math.log2(p) for p in (density, 1 - density)),
            "save_s": save["median"],
            "load_s": load["median"],
        }


if __name__ == "__main__":
    run_script(__doc__, sizes, op="ticket", weights=100_000_000, repeats=3)
