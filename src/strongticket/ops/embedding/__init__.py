"""Look up rows of a table, with a gradient that is the same to the last bit each time.

On a GPU torch sums the gradient of a token in the arbitrary order of its threads. Here it is summed in the order of the
text, equally fast.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor


def embedding(tokens: Tensor, table: Tensor) -> Tensor:
    """Look up tokens.

    Args:
        tokens: (...), integers below V.
        table: (V, d).

    Returns:
        (..., d).

    Example:
        >>> embedding(torch.tensor([1, 1, 0]), torch.tensor([[2.0], [3.0]])).tolist()
        [[3.0], [3.0], [2.0]]
    """
    if not table.is_cuda or table.dtype != torch.float32:
        return F.embedding(tokens, table)
    rows: Tensor = _Embedding.apply(tokens, table)  # type: ignore[no-untyped-call]
    return rows


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.vocabulary = len(table)
        return F.embedding(tokens, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (tokens,) = ctx.saved_tensors
        gradient: Tensor = summed_by_token(tokens.flatten(), gradients[0].flatten(0, -2), ctx.vocabulary)
        return None, gradient


@torch.library.custom_op("strongticket::summed_by_token", mutates_args=())
def summed_by_token(tokens: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    """Sum the rows of each token, in the order of the text.

    Args:
        tokens: (N,), integers below `vocabulary`, on CUDA.
        rows: (N, d), float32.
        vocabulary: V.

    Returns:
        (V, d), zeros for a token that does not occur.
    """
    # Imported on first use: the GPU tool chain is slow to load.
    from strongticket.ops.embedding.cuda import sum_by_token

    ordered, order = tokens.to(torch.int32).sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(vocabulary + 1, dtype=torch.int32, device=tokens.device))
    return sum_by_token(rows.contiguous(), order, ordered, starts)


@summed_by_token.register_fake
def _(tokens: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return rows.new_empty(vocabulary, rows.shape[1])
