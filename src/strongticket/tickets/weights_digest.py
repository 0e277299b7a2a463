"""The digest of a ticket's random weights: every tensor is redrawn and hashed, several at a time."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strongticket.ops.rng import Distribution, random_chunk

# Weights drawn and hashed at a time. On a CPU 1 MiB: it stays in the cache, and `rng` draws so few on one thread. On a
# GPU 16 MiB, since every piece costs a launch and a copy.
_PIECE = {"cpu": 1 << 18, "cuda": 1 << 22}
# While a GPU is working, more would only wait for Python's lock, which its launches also need.
_MOST_THREADS_ON_CUDA = 8


class Weights(NamedTuple):
    """What one draw of a random tensor depends on, except the seed."""

    name: str
    numel: int
    distribution: Distribution
    scale: float
    draw: int = 0


@contextmanager
def digest_of_weights(
    seed: int,
    tensors: Sequence[Weights],
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] | None = None,
) -> Iterator[Callable[[], str]]:
    """Compute, while the block runs, the SHA-256 of every tensor's weights, and that of these digests in order.

    Each tensor is hashed by one thread, so the largest one can set the time.

    Args:
        seed: of the random weights.
        tensors: in the order of the ticket.
        device: where they are drawn; they are hashed on the CPU.
        progress: called with the number of weights done since the last call, from other threads, one at a time.

    Yields:
        A function that waits for the digest and returns it, in hex. Leaving the block cancels the rest.
    """
    place, stop, lock = torch.device(device), threading.Event(), threading.Lock()
    drawing = _DrawOnCpu() if place.type == "cpu" else _DrawOnGpu(place)
    draw, step = drawing.draw, _PIECE[place.type]
    # Kernels are compiled here, once: another thread could wait forever for numba's lock, which Ctrl-C during another
    # compilation leaves locked.
    for distribution in {tensor.distribution for tensor in tensors}:
        draw(0, "", 0, 1, distribution, 1.0)

    def digest_of_one(tensor: Weights) -> bytes:
        digest = hashlib.sha256()
        for start in range(0, tensor.numel, step):
            if stop.is_set():
                raise CancelledError
            end = min(start + step, tensor.numel)
            piece = draw(seed, tensor.name, start, end, tensor.distribution, tensor.scale, draw=tensor.draw)
            digest.update(piece.numpy().astype("<f4", copy=False).data)
            if progress:
                with lock:
                    progress(end - start)
        return digest.digest()

    with ThreadPoolExecutor(_threads(place, len(tensors)), "digest of weights") as pool:
        each = [pool.submit(digest_of_one, tensor) for tensor in tensors]
        try:
            yield lambda: hashlib.sha256(b"".join(one.result() for one in each)).hexdigest()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _threads(device: torch.device, tensors: int) -> int:
    """Return torch's number of threads; hashing and drawing hold no lock."""
    most = torch.get_num_threads()
    if device.type == "cuda":
        most = min(most, _MOST_THREADS_ON_CUDA)
    return max(1, min(most, tensors))


class _DrawOnCpu(threading.local):
    """Per thread, memory for its weights: if every piece had its own, the C library would keep 20 MB of them."""

    def __init__(self) -> None:
        self._memory = torch.empty(_PIECE["cpu"], dtype=torch.float32, device="cpu")

    def draw(self, *what: Any, draw: int = 0) -> Tensor:
        """Draw a piece, into memory that the next call reuses."""
        return random_chunk(*what, draw=draw, out=self._memory)


class _DrawOnGpu(threading.local):
    """Per thread, a stream that does not wait for subset sums, and pinned memory for its weights."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._host = torch.empty(_PIECE["cuda"], dtype=torch.float32, device="cpu", pin_memory=True)

    def draw(self, seed: int, name: str, start: int, stop: int, *how: Any, draw: int = 0) -> Tensor:
        """Draw a piece, into memory that the next call reuses."""
        host = self._host[: stop - start]
        with torch.cuda.stream(self._stream):
            host.copy_(random_chunk(seed, name, start, stop, *how, draw=draw, device=self._device), non_blocking=True)
        self._stream.synchronize()
        return host
