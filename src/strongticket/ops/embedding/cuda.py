"""Sums of the rows of each token on CUDA: `embedding.cu`, compiled at run time."""

import ctypes

import torch
from torch import Tensor

from strongticket.ops import nvrtc

THREADS = 256
PIECE = 32  # rows in flight per thread


def sum_by_token(rows: Tensor, order: Tensor, tokens: Tensor, starts: Tensor) -> Tensor:
    """Sum the rows of each token.

    Args:
        rows: (N, d), float32, contiguous.
        order: (N,), int64: indices into `rows`, sorted by token.
        tokens: (N,), int32: their tokens, ascending.
        starts: (V + 1,), int64: where each token starts in `tokens`.

    Returns:
        (V, d), float32, zeros for a token without rows.
    """
    assert rows.dtype == torch.float32
    assert rows.is_contiguous()
    assert (order.dtype, tokens.dtype, starts.dtype) == (torch.int64, torch.int32, torch.int64)
    (count, columns), vocabulary = rows.shape, len(starts) - 1
    sums = torch.empty(vocabulary, columns, dtype=torch.float32, device=rows.device)
    if sums.numel() == 0:
        return sums
    pieces, threads, width = -(-count // PIECE), min(THREADS, -(-columns // 32) * 32), ctypes.c_uint32(columns)
    parts = torch.empty(2 * pieces, columns, dtype=torch.float32, device=rows.device)
    if count:
        add = _kernel("sum_pieces", rows.device)
        add.launch(pieces, threads, rows, order, tokens, starts, sums, parts, ctypes.c_uint32(count), width)
    _kernel("join_pieces", rows.device).launch(vocabulary, threads, starts, parts, sums, width)
    return sums


def _kernel(name: str, device: torch.device) -> nvrtc.Kernel:
    return nvrtc.kernel(nvrtc.source(__file__, "embedding.cu"), name, (f"-DPIECE={PIECE}u",), device=device)
