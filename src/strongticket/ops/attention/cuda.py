"""Attention of one token on CUDA: `attention.cu`, compiled at run time."""

import torch
from torch import Tensor

from strongticket.ops import nvrtc

THREADS = 512
IN_FLIGHT = 256  # columns of keys, and of values, that eight lanes load at a time: as many as fit in registers
ALIGNED = 4  # columns per load: a head's width must be a multiple


def attend(qkv: Tensor, past: Tensor, place: Tensor) -> Tensor:
    """Do what the reference does, in float32.

    Args:
        qkv: (3, H, w).
        past: (room, 2, H, w), changed.
        place: (1,), int64, below `room`.

    Returns:
        (H, w).
    """
    _, heads, width = qkv.shape
    assert (qkv.dtype, past.dtype, place.dtype) == (torch.float32, torch.float32, torch.int64)
    assert past.shape[1:] == (2, heads, width)
    assert qkv.is_contiguous()
    assert past.is_contiguous()
    assert width % ALIGNED == 0
    mixed = torch.empty(heads, width, device=qkv.device)
    together = max(1, IN_FLIGHT // width)
    options = f"-DWIDTH={width}u", f"-DTHREADS={THREADS}", f"-DTOGETHER={together}u"
    kernel = nvrtc.kernel(nvrtc.source(__file__, "attention.cu"), "attend", options, device=qkv.device)
    # Of each warp: its part of the values, their weight, and the largest score.
    kernel.launch(heads, THREADS, qkv, past, place, mixed, shared_bytes=4 * (THREADS // 32) * (width + 2))
    return mixed
