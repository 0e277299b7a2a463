r"""The loss of a language model from its final features, without keeping the logits.

The logits are by far its largest tensor: 32 sequences of 1024 tokens with GPT-2's vocabulary take 3.3 GB in bfloat16,
and each pass over them counts. On a GPU the gradient is therefore computed with the loss, in place of the logits.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor

# Rows of odd length, such as GPT-2's 50257, are slow on a GPU: columns are padded to a multiple of this.
ALIGNED = 64
SLICE = 1 << 26  # logits held at once on a CPU if only the loss is wanted


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    r"""Mean cross-entropy of the logits $x W^\top$, in nats.

    In bfloat16 on CUDA, with or without autocast, the logits are read once and their gradient written once, and both
    are freed at the end of the forward pass.

    Args:
        x: (N, d).
        weight: $W$, (V, d).
        targets: (N,), int64, below V.

    Example:
        >>> linear_cross_entropy(torch.zeros(1, 2), torch.ones(4, 2), torch.tensor([3])).item()  # log 4
        1.3862943649291992
    """
    if not x.is_cuda:
        trains = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        if trains or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
            return F.cross_entropy(F.linear(x, weight), targets)
        return _in_slices(x, weight, targets)
    padding = -len(weight) % ALIGNED
    padded = F.pad(weight, (0, 0, 0, padding))
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    if dtype == torch.bfloat16:
        return _fused(x.to(dtype), padded.to(dtype), targets, len(weight))
    # Removing the padding would make rows odd again: the softmax sees it and gives it no weight.
    no_token = F.pad(x.new_zeros(len(weight)), (0, padding), value=-math.inf)
    return F.cross_entropy(F.linear(x, padded, no_token), targets)


def _in_slices(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Process a few rows at a time, in one buffer: new memory for all logits takes longer than the softmax."""
    rows = max(1, SLICE // len(weight))
    buffer = x.new_empty(min(rows, len(x)), len(weight))
    losses = []
    for part, wanted in zip(torch.split(x, rows), torch.split(targets, rows), strict=True):
        logits = torch.mm(part, weight.T, out=buffer[: len(part)])
        chosen = logits.gather(1, wanted[:, None]).squeeze(1)
        largest = logits.amax(1)
        total = logits.sub_(largest[:, None]).exp_().sum(1)
        losses.append(total.log_() + largest - chosen)
    return torch.cat(losses).mean()


def _fused(x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int) -> Tensor:
    # Inside the operation, requires_grad is not visible.
    wanted = [torch.is_grad_enabled() and t.requires_grad for t in (x, weight)]
    loss: Tensor = _LinearCrossEntropy.apply(x, weight, targets, vocabulary, *wanted)  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int, of_x: bool, of_weight: bool
    ) -> Tensor:
        made: tuple[Tensor, Tensor, Tensor] = loss_and_gradients(x, weight, targets, vocabulary, of_x, of_weight)
        ctx.save_for_backward(*made[1:])
        ctx.wanted = of_x, of_weight
        return made[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        made = zip(ctx.saved_tensors, ctx.wanted, strict=True)
        return *(gradients[0] * gradient if wanted else None for gradient, wanted in made), None, None, None, None


# One operation for torch.compile: nothing is left to fuse, and its logits are freed at its end.
@torch.library.custom_op("strongticket::linear_cross_entropy", mutates_args=())
def loss_and_gradients(
    x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int, of_x: bool, of_weight: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss and its gradients with respect to x and the weight; an unwanted one is empty.

    Args:
        x: (N, d), bfloat16.
        weight: (V, d), bfloat16, V a multiple of 8; rows from `vocabulary` on are padding.
        targets: (N,), int64.
        vocabulary: the number of tokens.
        of_x: whether the gradient with respect to x is wanted.
        of_weight: likewise.
    """
    # Imported on first use: the GPU tool chain is slow to load.
    from strongticket.ops.cross_entropy.cuda import cross_entropy_

    logits = x @ weight.T  # (N, V)
    losses = cross_entropy_(logits, targets, vocabulary, scale=1 / len(x))
    nothing = x.new_empty(0)
    return losses.mean(), logits @ weight if of_x else nothing, logits.T @ x if of_weight else nothing.clone()


@loss_and_gradients.register_fake
def _(
    x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int, of_x: bool, of_weight: bool
) -> tuple[Tensor, Tensor, Tensor]:
    nothing = x.new_empty(0)
    gradient_of_x, gradient_of_weight = (torch.empty_like(t) for t in (x, weight))
    loss = x.new_empty((), dtype=torch.float32)
    return loss, gradient_of_x if of_x else nothing, gradient_of_weight if of_weight else nothing.clone()
