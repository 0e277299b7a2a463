"""One token through a signed GPT-2 on a GPU: seven kernels per block.

A kernel of such a network takes three microseconds, whatever it does. So products add biases and the stream themselves
and apply the activation, and attention is one kernel.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor

from strongticket.models.gpt2 import Block
from strongticket.models.gpt2_layers import LayeredAttention, LayeredGPT2
from strongticket.models.gpt2_step import matrices_of
from strongticket.ops.attention.cuda import ALIGNED, attend
from strongticket.ops.planes.cuda import Finish, multiply_few


def fits(model: LayeredGPT2) -> bool:
    """Return whether the kernels take a model whose layers are plain signed ones."""
    return model.config.key_width % ALIGNED == 0


def one_token(model: LayeredGPT2, token: Tensor, place: Tensor, past: list[Tensor]) -> Tensor:
    """Compute the logits of the next token; no call waits for the GPU, so that a graph can be captured.

    Args:
        model: a model whose layers are plain signed ones.
        token: (1, 1).
        place: (1,), its position.
        past: of each block, keys and values (room, 2, H, d / H); those of the token are added.

    Returns:
        (V,).
    """
    heads = model.config.n_heads
    x = model.embed(token, place)[0]  # (1, d)
    for block, kept in zip(cast("list[Block]", model.blocks), past, strict=True):
        attention, mlp = cast(LayeredAttention, block.attention), block.mlp
        qkv = _layer(attention.qkv, block.attention_norm(x))
        mixed = attend(qkv.view(3, heads, -1), kept, place)
        x = _layer(attention.output, mixed.view(1, -1), residual=x)
        hidden = _layer(mlp.up, block.mlp_norm(x), activation=mlp.activation)
        x = _layer(mlp.down, hidden, residual=x)
    return _layer(model.head, model.final_norm(x) * model.config.output_gain)[0]


def _layer(
    layer: Any, x: Tensor, residual: Tensor | None = None, activation: Literal["gelu", "relu"] | None = None
) -> Tensor:
    """Apply a signed layer to one vector, then the activation, and add the residual: (1, in) -> (1, out)."""
    y = torch.empty(1, layer.out_features, device=x.device)
    begin = 0
    for matrix in matrices_of(layer):
        rows = slice(begin, begin + matrix.shape[0])
        bias, added = (None if each is None else each[..., rows] for each in (layer.bias, residual))
        multiply_few(matrix.planes, x, matrix.scale, y[:, rows], Finish(matrix.rows, bias, added, activation))
        begin = rows.stop
    return y
