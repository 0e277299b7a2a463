"""Causal attention, with a deterministic gradient if torch is set to deterministic algorithms."""

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor

BLOCK = 128  # queries and keys per step of the kernel


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Let each token attend to itself and earlier ones: three tensors (B, H, T, d / H) give one of the same shape.

    torch's fastest kernel adds up gradients in the order in which threads finish. With
    `torch.use_deterministic_algorithms` torch uses another that does not, but is a third slower; a compiled model can
    use FlexAttention, which is as fast as the first.
    """
    compiled = q.is_cuda and torch.compiler.is_compiling()
    if compiled and torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled() and dropout == 0:
        return _in_blocks(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


def _in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    # The queries of a block attend fully to all earlier blocks, and partly to their own.
    blocks = torch.arange(-(-q.shape[2] // BLOCK), dtype=torch.int32, device=q.device)
    count = len(blocks)
    own = F.pad(blocks[:, None], (0, count - 1))
    # The kernel reads rows of indices as contiguous memory: an expanded row gives wrong numbers.
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
