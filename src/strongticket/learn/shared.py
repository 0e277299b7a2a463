"""A search shared by several processes: how they join and leave it."""

import gc
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Share:
    """One of the processes that `torchrun` started to share a search."""

    rank: int
    world: int  # number of processes
    device: torch.device

    def to_device(self, tensor: Tensor) -> Tensor:
        """Copy from the host without waiting."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def gathered(self, mine: Any) -> list[Any]:
        """Return every process's object, in the order of ranks."""
        if self.world == 1:
            return [mine]
        everybodys: list[Any] = [None] * self.world
        dist.all_gather_object(everybodys, mine)
        return everybodys


def share_of(device: torch.device) -> Share:
    """Return this process's share in the caller's process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        return Share(dist.get_rank(), dist.get_world_size(), device)
    return Share(0, 1, device)


@contextmanager
def shared_search(device: str) -> Iterator[Share]:
    """Join the processes that `torchrun` started; without it there is one process.

    Args:
        device: "cpu" or "cuda"; each process uses the GPU of its local rank.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield share_of(torch.device(device))
        return
    local = torch.device(f"cuda:{os.environ['LOCAL_RANK']}") if device == "cuda" else torch.device(device)
    if local.type == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if local.type == "cuda" else "gloo")
    try:
        yield share_of(local)
    except BaseException as error:
        _forget_locals(error)
        raise
    finally:
        # DDP must not be the last to release the group: it would wait for gloo's threads while holding the
        # interpreter's lock, and they may wait for that lock. A process's first DDP can be part of a cycle.
        gc.collect()
        dist.destroy_process_group()


def _forget_locals(error: BaseException | None) -> None:
    """Release the local variables of the functions that an error passed through, such as a wrapped model."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
