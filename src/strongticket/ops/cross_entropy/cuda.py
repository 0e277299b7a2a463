"""Cross-entropy of bfloat16 logits on CUDA, with its gradient in place: `cross_entropy.cu`, compiled at run time."""

import ctypes

import torch
from torch import Tensor

from strongticket.ops import nvrtc

THREADS = 512
LOADS = 7  # 16-byte loads in flight per thread; GPT-2's rows then take two rounds
ALIGNED = 8  # logits per load


def cross_entropy_(logits: Tensor, targets: Tensor, vocabulary: int, scale: float) -> Tensor:
    """Return the loss of each row and replace its logits by their gradient.

    Args:
        logits: (rows, columns), bfloat16, contiguous, columns a multiple of `ALIGNED`; overwritten by the gradient of
            `scale` times the sum of the losses.
        targets: (rows,), int64. The loss of a row whose target is not a token is NaN.
        vocabulary: columns from here on are padding and have no weight.
        scale: positive.

    Returns:
        (rows,), float32, in nats.
    """
    rows, columns = logits.shape
    assert (logits.dtype, targets.dtype) == (torch.bfloat16, torch.int64)
    assert logits.is_contiguous()
    assert columns % ALIGNED == 0
    assert len(targets) == rows
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows == 0:
        return losses
    options = (f"-DTHREADS={THREADS}", f"-DLOADS={LOADS}", "--use_fast_math")
    kernel = nvrtc.kernel(nvrtc.source(__file__, "cross_entropy.cu"), "cross_entropy", options, device=logits.device)
    sizes = ctypes.c_uint32(columns), ctypes.c_uint32(vocabulary), ctypes.c_float(scale)
    kernel.launch(rows, THREADS, logits, targets.contiguous(), losses, *sizes, shared_bytes=2 * 4 * THREADS // 32)
    return losses
