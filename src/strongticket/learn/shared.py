"""A search shared by several processes: who joins it, and how it is left."""

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
    """One process among those that `torchrun` started to share a search."""

    rank: int
    world: int  # how many processes
    device: torch.device

    def to_device(self, tensor: Tensor) -> Tensor:
        """Copy from the host without waiting for it."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def gathered(self, mine: Any) -> list[Any]:
        """Give what each process has, in the order of their ranks."""
        if self.world == 1:
            return [mine]
        everybodys: list[Any] = [None] * self.world
        dist.all_gather_object(everybodys, mine)
        return everybodys


def share_of(device: torch.device) -> Share:
    """Give this process's share in the caller's process group, or in none."""
    if dist.is_available() and dist.is_initialized():
        return Share(dist.get_rank(), dist.get_world_size(), device)
    return Share(0, 1, device)


@contextmanager
def shared_search(device: str) -> Iterator[Share]:
    """Join the processes that `torchrun` started, or be alone without it.

    Args:
        device: "cpu" or "cuda"; each process takes the GPU of its local rank.
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
        # DDP must not be the last to let go of the group: it then waits for gloo's threads while it has the
        # interpreter's lock, and they may wait for that lock. A process's first DDP can be part of a cycle.
        gc.collect()
        dist.destroy_process_group()


def _forget_locals(error: BaseException | None) -> None:
    """Let go of what the functions that an error passed through had, a wrapped model for one."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
