"""Bytes of masks against their entropy (more than 2 % above is an error), and the time to code, save and load them.

python -m strongticket.bench.tickets [--weights 100000000]
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from strongticket import PackedMask, RandomTensor, Ticket, coded_mask, owner_mask
from strongticket.bench.measure import WrongAnswerError, percentiles, time_runs
from strongticket.bench.script import Row, run_script
from strongticket.ops.rng import random_weights
from strongticket.tickets.coding import decode, encode
from strongticket.tickets.mask import Mask
from strongticket.tickets.symbols import Symbols
from strongticket.tickets.table import Table

LIMIT = 1.02  # times the entropy of independent symbols, beyond 64 bytes of table and states
COATS: Table = ((0.0, 0), (1.0, 0), (2.0, 0), (3.0, 0))
# Codes of the search rules at density 0.5: their table, and how often each occurs.
CODES: dict[str, tuple[Table, tuple[float, ...]]] = {
    "signed": (((0.0, 0), (1.0, 0), (-1.0, 0)), (0.5, 0.25, 0.25)),
    "multicoated, 3 coats": (COATS, (0.5, 0.3, 0.12, 0.08)),
    "IteRand, 15 draws": (
        ((0.0, 0), *((1.0, draw) for draw in range(15))),
        (0.5, *(0.5 * share for share in np.diff(1 - 0.5 ** np.arange(16)) / (1 - 0.5**15))),
    ),
    "16 levels alike": (tuple((float(level), 0) for level in range(16)), (1 / 16,) * 16),
}


def masks(weights: int) -> Iterator[tuple[str, Mask]]:
    for density in (0.5, 0.3, 0.05, 0.001):
        yield f"bits, density {density}", PackedMask.random((weights,), density, seed=1)
    for name, (table, shares) in CODES.items():
        edges = torch.tensor(2 * np.cumsum(shares)[:-1] - 1, dtype=torch.float32)
        yield name, coded_mask(torch.bucketize(random_weights(1, name, (weights,)), edges, out_int32=True), table)
    # Equally many units for each of 768 coordinates, in any order; in the second, every third keeps nothing.
    for name, none in (("owners, 768 x 16", 0), ("owners and none", 6_144)):
        units = torch.cat([torch.arange(768).repeat(16), torch.full((none,), -1)])
        order = random_weights(1, name, (len(units),)).argsort()
        yield name, owner_mask((len(units), 768), 0, units[order])


def sizes(*, weights: int, repeats: int) -> Iterator[Row]:
    """Write, read back, compare, time."""
    torch.set_num_threads(1)
    for name, mask in masks(weights):
        symbols, ticket = mask.symbols, Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)])
        assert symbols is not None
        coding, pieces = encode(symbols)
        data = b"".join(pieces)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.ticket"
            save = percentiles(time_runs(partial(ticket.save, path), repeats=repeats))
            if Ticket.load(path) != ticket:
                raise WrongAnswerError(f"{name}: the mask read differs from the one written")
            load = percentiles(time_runs(partial(Ticket.load, path), repeats=repeats))
        encoding = percentiles(time_runs(partial(encode, symbols), repeats=repeats))
        decoding = percentiles(time_runs(partial(_decode, coding, data, symbols), repeats=repeats))
        bits, entropy = 8 * len(data) / symbols.count, _entropy(symbols)
        if len(data) - 64 > LIMIT * entropy * symbols.count / 8:
            raise WrongAnswerError(f"{name}: {bits:.4f} bits per symbol, the limit is {LIMIT * entropy:.4f}")
        over = 100 * (bits / entropy - 1)
        coded, decoded = (symbols.count / each["median"] for each in (encoding, decoding))
        yield {
            "mask": name,
            "symbols": symbols.count,
            "bits_a_symbol": bits,
            "entropy": entropy,  # the lower limit for codes of independent symbols
            "over": over,  # bits above it, in percent
            "encoded_a_second": coded,  # symbols
            "decoded_a_second": decoded,
            "save_s": save["median"],  # the whole ticket, weights drawn for their digest
            "load_s": load["median"],
        }


def _decode(coding: str, data: bytes, symbols: Symbols) -> Symbols:
    return decode(coding, iter([data]), len(data), alphabet=symbols.alphabet, count=symbols.count)


def _entropy(symbols: Symbols) -> float:
    shares = symbols.counts() / symbols.count
    return float(-(shares[shares > 0] @ np.log2(shares[shares > 0])))


if __name__ == "__main__":
    run_script(__doc__, sizes, op="ticket", weights=100_000_000, repeats=3)
