"""Exact top-density masks on CUDA, for all tensors of a model at once: `supermask.cu`, compiled at run time."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strongticket.ops import nvrtc

# A key's 32 bits are found from the top: (bits found so far, bits found next) per pass.
PASSES = ((0, 11), (11, 11), (22, 10))
THREADS = 256
LOADS = 8  # 16-byte loads per thread and chunk, all in flight together
_BINS = 1 << max(wanted for _, wanted in PASSES)


def selection(
    scores: Sequence[Sequence[Tensor]], masks: Sequence[Sequence[Tensor]], signed: bool
) -> Callable[[Sequence[int]], None]:
    """Prepare a refresh: a function that queues the kernels that update the masks, and does not wait.

    Its argument is how many of each group's scores to drop.

    Args:
        scores: contiguous float32 tensors, grouped; a group's scores are ranked together, in this order.
        masks: contiguous bool tensors like the scores, written in place.
        signed: rank by the score, not by its absolute value.
    """
    pairs = [pair for group, kept in zip(scores, masks, strict=True) for pair in zip(group, kept, strict=True)]
    assert all(s.is_contiguous() and m.is_contiguous() for s, m in pairs)
    device = pairs[0][0].device
    chunks, groups = _tables([[s.numel() for s in group] for group in scores])
    if not len(chunks):
        return lambda dropped: None
    tensors = torch.tensor([(s.data_ptr(), m.data_ptr(), s.numel()) for s, m in pairs])
    return _Refresh(pairs, tensors.to(device), chunks.to(device), groups, signed)


def _tables(sizes: list[list[int]]) -> tuple[Tensor, np.ndarray[Any, np.dtype[np.uint32]]]:
    """Return the kernels' `Chunk` and `Group` tables, a row of four words each, without the numbers to drop."""
    chunk, tensor = 4 * LOADS * THREADS, 0
    chunks: list[tuple[int, ...]] = []
    groups: list[tuple[int, ...]] = []
    for group, group_sizes in enumerate(sizes):
        first = len(chunks)
        for size in group_sizes:
            chunks += [(tensor, place, group, 0) for place in range(-(-size // chunk))]
            tensor += 1
        groups.append((first, len(chunks) - first, 0, 0))
    # Counts reach 2^32 - 1; torch cannot make unsigned words from lists.
    chunk_table, group_table = (np.array(table, np.uint32).reshape(-1, 4) for table in (chunks, groups))
    return torch.from_numpy(chunk_table.view(np.int32)), group_table


class _Refresh:
    def __init__(
        self,
        pairs: list[tuple[Tensor, Tensor]],
        tensors: Tensor,
        chunks: Tensor,
        groups: np.ndarray[Any, np.dtype[np.uint32]],
        signed: bool,
    ) -> None:
        self._pairs = pairs  # whose addresses the table holds
        self._tensors, self._chunks, self._group_table = tensors, chunks, groups
        self._groups = torch.empty(groups.shape, dtype=torch.int32, device=chunks.device)
        self._dropped: list[int] = []  # as on the device
        self._count, self._signed = ctypes.c_uint32(len(chunks)), ctypes.c_int(signed)
        # One buffer, so that one fill clears it: a histogram per group and pass, then a word per chunk.
        self._work = torch.empty(
            len(PASSES) * len(groups) * _BINS + len(chunks), dtype=torch.int32, device=chunks.device
        )
        *self._histograms, self._ties = torch.split(self._work, [len(groups) * _BINS] * len(PASSES) + [len(chunks)])
        self._states = torch.zeros(len(groups), 4, dtype=torch.int32, device=chunks.device)

    def __call__(self, dropped: Sequence[int]) -> None:
        if self._dropped != list(dropped):
            self._set(list(dropped))
        walk, settle = (self._tensors, self._chunks, self._count, self._states), (self._groups, self._states)
        self._work.zero_()
        for (found, wanted), histogram in zip(PASSES, self._histograms, strict=True):
            digits = ctypes.c_uint32(found), ctypes.c_uint32(wanted)
            self._launch("count_digits", *walk, histogram, *digits, self._signed)
            self._launch("pick_digit", *settle, histogram, *digits)
        self._launch("count_ties", *walk, self._ties, self._signed)
        self._launch("cut_ties", *settle, self._ties)
        self._launch("write_masks", *walk, self._signed)

    def _set(self, dropped: list[int]) -> None:
        self._dropped = dropped
        self._group_table[:, 2] = dropped
        words = torch.from_numpy(self._group_table.view(np.int32).copy())
        # A copy from pinned memory does not wait.
        self._groups.copy_(words.pin_memory() if self._groups.is_cuda else words, non_blocking=True)

    def _launch(self, name: str, *args: Tensor | ctypes.c_uint32 | ctypes.c_int) -> None:
        kernel = _kernel(name, self._chunks.device)
        shared_bytes = 4 * max(_BINS, THREADS)
        blocks = len(self._groups) if name in ("pick_digit", "cut_ties") else _resident_blocks(kernel, shared_bytes)
        kernel.launch(blocks, THREADS, *args, shared_bytes=shared_bytes)


def _kernel(name: str, device: torch.device) -> nvrtc.Kernel:
    return nvrtc.kernel(
        nvrtc.source(__file__, "supermask.cu"), name, (f"-DTHREADS={THREADS}", f"-DLOADS={LOADS}"), device=device
    )


@cache
def _resident_blocks(kernel: nvrtc.Kernel, shared_bytes: int) -> int:
    return kernel.resident_blocks(THREADS, shared_bytes)
