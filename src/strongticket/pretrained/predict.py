"""What a construction will take, before it starts: sums, time, the ticket's size and memory."""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from strongticket.errors import StrongTicketError
from strongticket.parallel import one_thread
from strongticket.pretrained.pieces import HeadPiece, LinearPiece, Piece

# Of one piece, for each weight whose mask is searched (drawn, put in order, masks) and for each sum (targets, errors,
# which units may be exchanged), as measured on maps of 512 x 1408 and 1024 x 4096 with 8 and 12 items.
_BYTES_A_WEIGHT, _BYTES_A_SUM = 8, 200
# What a process has beside its piece: Python, torch, numba's code, and rows that are solved together.
_BYTES_OF_A_WORKER = 600 << 20
# A side of the matrix that the speed is measured with, by device.
_SAMPLE = {"cpu": 96, "cuda": 512}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is to be expected."""

    sums: int  # subset sums
    weights: int  # random ones, kept or not
    ticket_bytes: int  # of the file, within a few percent
    piece_bytes: int  # of memory, for the largest piece
    largest: str  # its name


def predict(pieces: Iterable[Piece]) -> Prediction:
    """Say what some pieces will take, from their shapes alone: the model may be on meta."""
    sums = weights = bits = most = 0
    largest = ""
    for piece in pieces:
        sums += piece.sums
        for product in piece.products().values():
            free, blocked = math.prod(product.free.shape), product.blocked
            weights += free + math.prod(blocked.shape)
            # Half of the weights are kept, so a mask takes a bit for each; an owner is a number below `coordinates`.
            bits += free + blocked.units * math.ceil(math.log2(max(2, blocked.coordinates)))
            size = free * _BYTES_A_WEIGHT + free // piece.items * _BYTES_A_SUM
            if size > most:
                most, largest = size, piece.name
    return Prediction(sums, weights, bits // 8, most, largest)


def check_memory(predicted: Prediction, device: str, workers: int = 1) -> None:
    """Refuse work whose largest piece does not fit into the memory that is free, beside those of other workers."""
    if device == "cuda":
        free, needed = torch.cuda.mem_get_info()[0], predicted.piece_bytes
    else:
        free, needed = _free_memory(), workers * (predicted.piece_bytes + _BYTES_OF_A_WORKER)
    if needed > free:
        raise StrongTicketError(
            f"{predicted.largest} needs about {predicted.piece_bytes / 1e9:.1f} GB of memory, with {workers} at work "
            f"{needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. Use fewer workers or items, or a larger machine."
        )


def _free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # elsewhere than on Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def seconds_of(pieces: Iterable[Piece]) -> float:
    """Estimate how long one thread takes, or one GPU, by solving a small piece of each kind as the others would be."""
    sums: Counter[type[Piece]] = Counter()
    example: dict[type[Piece], Piece] = {}
    for piece in pieces:
        sums[type(piece)] += piece.sums
        example[type(piece)] = piece
    return sum(count * _seconds_a_sum(example[kind]) for kind, count in sums.items())


def _seconds_a_sum(piece: Piece) -> float:
    side = _SAMPLE["cuda" if piece.device.startswith("cuda") else "cpu"]
    weight = np.random.default_rng(0).normal(0, 0.05, (side, side)).astype(np.float32)
    if isinstance(piece, HeadPiece):
        piece = replace(piece, query=weight, query_bias=None, key=weight, value=weight, output=weight)
    elif isinstance(piece, LinearPiece):
        piece = replace(piece, weight=weight)
    small = replace(piece, name="sample")
    with one_thread():
        # The first compiles; on a GPU there is a kernel for every number of items.
        (replace(small, items=4) if piece.device == "cpu" else small).solve()
        begin = time.perf_counter()
        small.solve()
        return (time.perf_counter() - begin) / small.sums
