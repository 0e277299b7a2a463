"""Reproducible runs: the same command on the same kind of machine, with the same versions, gives the same bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Make torch use kernels that sum in a fixed order, and choose none by timing.

    If torch has no such kernel, a warning names the operation.

    Args:
        asked: if False, change nothing.
    """
    if not asked:
        yield
        return
    from torch._inductor import config as inductor

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    # Required by cuBLAS; read when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # it would only expose mistakes, and takes time
    try:
        # Older versions have no such switch, and fewer choices.
        with inductor.patch(deterministic=True) if hasattr(inductor, "deterministic") else nullcontext():
            yield
    finally:
        memory.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
