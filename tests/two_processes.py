"""Two processes that train together, as on two GPUs, but with gloo on CPUs."""

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_two_processes(worker: Callable[[int], Any]) -> list[Any]:
    """Give what `worker` returns for rank 0 and rank 1, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        # Forked, so that the workers need not import torch again; nothing here has touched a GPU.
        both = mp.start_processes(_run, (worker, folder), nprocs=2, join=False, start_method="fork")
        deadline = time.monotonic() + 120
        while not both.join(timeout=1):
            if time.monotonic() > deadline:
                for process in both.processes:
                    process.kill()
                raise AssertionError("two processes that train together did not end")
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(2)]


def _run(rank: int, worker: Callable[[int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    torch.save(worker(rank), f"{folder}/{rank}.pt")
    gc.collect()  # as `shared_search` does, and for its reason
    dist.destroy_process_group()
