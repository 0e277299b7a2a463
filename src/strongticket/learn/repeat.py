"""Runs that repeat: the same command on the same kind of machine, with the same versions, gives the same bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Have torch take kernels that add up in a fixed order, and choose none of them by a stopwatch.

    Where torch has no such kernel, it says so in a warning that names the operation.

    Args:
        asked: or leave everything as it is.
    """
    if not asked:
        yield
        return
    from torch._inductor import config as inductor

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    # What cuBLAS asks for; read when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # it would only show mistakes, and takes time
    try:
        # Older versions have no such switch, and less that is chosen.
        with inductor.patch(deterministic=True) if hasattr(inductor, "deterministic") else nullcontext():
            yield
    finally:
        memory.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
