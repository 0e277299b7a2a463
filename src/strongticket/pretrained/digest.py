"""The digest of all random weights, worked out beside the subset sums: it depends on the seed and the shapes alone."""

import hashlib
import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from strongticket.construct.source import RandomMatrix
from strongticket.rng import random_chunk

# Weights hashed at a time: 64 MiB on a GPU, where every piece costs a launch and a copy.
_PIECE = {"cpu": 1 << 20, "cuda": 1 << 24}


class WeightsDigest:
    """A digest that a thread of its own computes; `result` waits for it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._digest: str | None = None
        self._error: BaseException | None = None

    @contextmanager
    def running(self, seed: int, matrices: Iterable[RandomMatrix], device: str) -> Iterator["WeightsDigest"]:
        """Compute while the block runs; leaving it early stops the thread."""

        def work() -> None:
            try:
                self._digest = self._compute(seed, matrices, torch.device(device))
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work, name="digest of weights")
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def result(self) -> str:
        """Wait for the digest."""
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._digest is not None
        return self._digest

    def _compute(self, seed: int, matrices: Iterable[RandomMatrix], device: torch.device) -> str | None:
        digest = hashlib.sha256()
        pieces: Iterator[Tensor]
        if device.type == "cpu":
            pieces = (_draw(seed, matrix, start, stop, device) for matrix, start, stop in _pieces(matrices, device))
        else:
            pieces = _drawn_ahead(seed, matrices, device)
        for piece in pieces:
            if self._stop.is_set():
                return None
            digest.update(piece.numpy().astype("<f4", copy=False).data)
        return digest.hexdigest()


def _drawn_ahead(seed: int, matrices: Iterable[RandomMatrix], device: torch.device) -> Iterator[Tensor]:
    """Draw on a GPU, one piece ahead of what is being hashed, and on a stream that waits for no subset sum."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead: tuple[Tensor, torch.cuda.Event] | None = None
    hosts: list[Tensor] = []
    for turn, (matrix, start, stop) in enumerate(_pieces(matrices, device)):
        if len(hosts) < 2:
            hosts.append(torch.empty(_PIECE["cuda"], dtype=torch.float32, pin_memory=True))
        host = hosts[turn % 2][: stop - start]
        with torch.cuda.stream(stream):
            host.copy_(_draw(seed, matrix, start, stop, device), non_blocking=True)
            event = stream.record_event()
        if ahead is not None:
            ahead[1].synchronize()
            yield ahead[0]
        ahead = host, event
    if ahead is not None:
        ahead[1].synchronize()
        yield ahead[0]


def _draw(seed: int, matrix: RandomMatrix, start: int, stop: int, device: torch.device) -> Tensor:
    return random_chunk(seed, matrix.name, start, stop, "uniform", matrix.scale, device=device)


def _pieces(matrices: Iterable[RandomMatrix], device: torch.device) -> Iterator[tuple[RandomMatrix, int, int]]:
    step = _PIECE[device.type]
    for matrix in matrices:
        numel = math.prod(matrix.shape)
        yield from ((matrix, start, min(start + step, numel)) for start in range(0, numel, step))
