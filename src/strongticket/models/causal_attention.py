"""Causal attention, by a kernel whose gradient is the same each time where torch is asked for that."""

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody reads
from torch import Tensor

BLOCK = 128  # queries and keys that the kernel takes at a time


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Attend to oneself and to what came before: three tensors (B, H, T, d / H) make one.

    torch's fastest kernel adds up gradients in whatever order threads come. Under `torch.use_deterministic_algorithms`
    it takes one that does not and is slower by a third; a compiled model can have FlexAttention, as fast as the first.
    """
    compiled = q.is_cuda and torch.compiler.is_compiling()
    if compiled and torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled() and dropout == 0:
        return _in_blocks(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


def _in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    # Queries of a block attend to all blocks before it in full, and to their own in part.
    blocks = torch.arange(-(-q.shape[2] // BLOCK), dtype=torch.int32, device=q.device)
    count = len(blocks)
    own = F.pad(blocks[:, None], (0, count - 1))
    # The kernel reads rows of indices side by side, so they must lie there: an expanded row gives wrong numbers.
    before = blocks.expand(count, count).contiguous()
    mask = BlockMask.from_kv_blocks(
        torch.ones_like(blocks)[None, None],
        own[None, None],
        blocks[None, None],
        before[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=lambda batch, head, query, key: query >= key,
        seq_lengths=(q.shape[2], q.shape[2]),
    )
    mixed = flex_attention(q, k, v, block_mask=mask)
    assert isinstance(mixed, Tensor)
    return mixed
