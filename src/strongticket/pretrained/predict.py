"""Predict what a construction needs before it starts: sums, time, ticket size and memory."""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from strongticket.errors import StrongTicketError
from strongticket.parallel import one_thread
from strongticket.pretrained.pieces import Piece

# Memory of one piece, per weight whose mask is searched for (as drawn, and by unit), per weight of the other matrix if
# it is kept to choose from, and per sum (targets, errors, norms, units to exchange): 48 to 110 bytes were measured.
_BYTES_PER_WEIGHT, _BYTES_TO_CHOOSE, _BYTES_PER_SUM = 8, 4, 110
# What a file says of a tensor: names, shapes, hashes, its share of a certificate. 386 to 592 bytes were measured.
_BYTES_OF_DESCRIPTION = 450
# What a process needs besides its piece: Python, torch, numba's code, and rows that are solved together.
_BYTES_PER_WORKER = 600 << 20
# The side of the matrix used to measure the speed, by device.
_SAMPLE = {"cpu": 96, "cuda": 512}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The expected work, sizes and memory."""

    sums: int  # subset sums
    weights: int  # random weights, kept or not
    ticket_bytes: int  # file size, within a few percent; of a file of some kB, within a quarter
    piece_bytes: int  # memory for the largest piece
    largest: str  # the name of that piece


def predict(pieces: Iterable[Piece]) -> Prediction:
    """Predict what pieces need from their shapes alone: the model may be on meta."""
    sums = weights = bits = tensors = most = 0
    largest = ""
    for piece in pieces:
        sums += piece.sums
        for product in piece.products.values():
            free, blocked = math.prod(product.free.shape), product.blocked
            weights += free + math.prod(blocked.shape)
            tensors += 2
            # Half of the weights are kept, so a mask takes one bit each; an owner is a number below `coordinates`.
            bits += free + blocked.units * math.ceil(math.log2(max(2, blocked.coordinates)))
            size = free * _BYTES_PER_WEIGHT + blocked.kept * math.prod(blocked.shape) * _BYTES_TO_CHOOSE
            size += free // piece.items * _BYTES_PER_SUM
            if size > most:
                most, largest = size, piece.name
    return Prediction(sums, weights, bits // 8 + tensors * _BYTES_OF_DESCRIPTION, most, largest)


def in_bytes(count: float) -> str:
    """Write a size to two digits or more.

    Example:
        >>> in_bytes(0), in_bytes(56_320), in_bytes(4.48e6), in_bytes(12.3e9)
        ('0 kB', '56 kB', '4.5 MB', '12 GB')
    """
    unit, size = next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6)) if count >= size), ("kB", 1e3))
    return f"{count / size:,.{1 if 0 < count < 9.95 * size else 0}f} {unit}"


def check_memory(predicted: Prediction, device: str, workers: int = 1) -> None:
    """Refuse work whose largest piece, once per worker, does not fit into free memory beside the ticket."""
    if device == "cuda":
        free, needed = torch.cuda.mem_get_info()[0], predicted.piece_bytes
    else:
        free = _free_memory()
        needed = predicted.ticket_bytes + workers * (predicted.piece_bytes + _BYTES_PER_WORKER)
    if needed > free:
        raise StrongTicketError(
            f"{predicted.largest} needs about {in_bytes(predicted.piece_bytes)} of memory, or {in_bytes(needed)} "
            f"with {workers} at work; {in_bytes(free)} are free. Use fewer workers or items, or a larger machine."
        )


def _free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not on Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def seconds_of(pieces: Iterable[Piece]) -> float:
    """Estimate how long one thread or one GPU takes, by solving a small piece of each kind."""
    sums: Counter[object] = Counter()
    example: dict[object, Piece] = {}
    for piece in pieces:
        kind = tuple((name, product.signs) for name, product in piece.products.items())
        sums[kind] += piece.sums
        example[kind] = piece
    return sum(count * _seconds_per_sum(example[kind]) for kind, count in sums.items())


def _seconds_per_sum(piece: Piece) -> float:
    on_cpu = not piece.device.startswith("cuda")
    side = _SAMPLE["cpu" if on_cpu else "cuda"]
    small = piece.sample(side, piece.items)
    with one_thread():
        # The first call compiles; a GPU has a separate kernel for each number of items.
        (piece.sample(side, 4) if on_cpu else small).solve()
        start = time.perf_counter()
        small.solve()
        return (time.perf_counter() - start) / small.sums
