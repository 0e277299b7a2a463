"""One digest of digests, whatever the number of threads; stopped at once, and never silent about an error."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
import torch

from strongticket.ops.rng import random_weights
from strongticket.tickets.weights_digest import Weights, _threads, digest_of_weights

# More than one piece, exactly one, a part of one, none.
TENSORS = [
    Weights("large", (1 << 18) + 7, "uniform", 2.5),
    Weights("one-piece", 1 << 18, "normal", 0.02),
    Weights("small", 5, "sign", 1.0),
    Weights("small", 5, "sign", 1.0, draw=3),
    Weights("empty", 0, "uniform", 1.0),
]


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("tensors", [TENSORS, TENSORS[::-1], TENSORS[:1], []])
def test_it_is_the_digest_of_the_digests_in_order(tensors: list[Weights], threads: int) -> None:
    joined = b""
    for name, numel, distribution, scale, draw in tensors:
        weights = random_weights(9, name, (numel,), distribution, scale, draw=draw)
        joined += hashlib.sha256(weights.numpy().tobytes()).digest()
    with digest_of_weights(9, tensors) as digest:
        assert digest() == hashlib.sha256(joined).hexdigest()


@pytest.mark.parametrize(("device", "most"), [("cpu", 99), ("cuda", 8)])
def test_no_more_threads_than_torch_may_use_or_tensors_need(device: str, most: int, monkeypatch: Any) -> None:
    """Beside a GPU no more than 8, which would wait for each other."""
    for of_torch in (1, 5, 20):
        monkeypatch.setattr(torch, "get_num_threads", lambda of_torch=of_torch: of_torch)
        for tensors in (0, 1, 3, 100):
            assert _threads(torch.device(device), tensors) == max(1, min(of_torch, tensors, most))


def test_progress_is_told_of_every_weight_by_one_thread_at_a_time(threads: int) -> None:
    inside, done = threading.Lock(), []

    def progress(count: int) -> None:
        assert inside.acquire(blocking=False)
        time.sleep(0.01)
        done.append(count)
        inside.release()

    with digest_of_weights(0, TENSORS * 3, progress=progress) as digest:
        digest()
    assert sum(done) == 3 * sum(tensor.numel for tensor in TENSORS)


def test_an_error_of_a_thread_is_raised_where_the_digest_is_asked_for(threads: int) -> None:
    bad = Weights("bad", 3, "uniform", -1.0)
    with digest_of_weights(0, [*TENSORS, bad]) as digest, pytest.raises(ValueError, match="scale"):
        digest()


def test_leaving_the_block_stops_work_of_hours(threads: int) -> None:
    begun = threading.Event()
    tensors = [Weights(f"w{i}", 1 << 36, "uniform", 1.0) for i in range(9)]
    with digest_of_weights(0, tensors, progress=lambda done: begun.set()) as digest:
        assert begun.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("digest of weights")]
    with pytest.raises(CancelledError):
        digest()


def test_no_thread_waits_for_the_compiler() -> None:
    # As if Ctrl-C had left the lock of numba's compiler locked: it is taken to load a kernel from the cache as well.
    program = (
        "from numba.core.compiler_lock import global_compiler_lock\n"
        "from strongticket.tickets.weights_digest import Weights, digest_of_weights\n"
        "tensors = [Weights(name, 9, name, 1.0) for name in ('uniform', 'normal', 'sign')]\n"
        "with global_compiler_lock, digest_of_weights(0, tensors) as digest:\n"
        "    print(digest())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.strip()) == 64
