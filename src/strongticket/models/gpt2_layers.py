"""A GPT-2 that calls its layers and never reads their weights, so that other kinds of layers can replace them."""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Attention, Block
from strongticket.models.signed import SignedEmbedding, SignedLinear, stacked
from strongticket.models.transformer import linear_of

LOGITS_AT_ONCE = 1 << 24  # if only the loss is needed


class LayeredAttention(Attention):
    """Attention whose query, key and value come from one layer, `qkv`."""

    def __init__(self, attention: Attention) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.dropout = attention.n_heads, attention.dropout
        self.qkv = side_by_side([attention.query, attention.key, attention.value])
        self.output = attention.output

    def inputs(self, x: Tensor) -> Tensor:
        """Return query, key and value concatenated: (B, T, d) -> (B, T, 3 d)."""
        out: Tensor = self.qkv(x)
        return out


class LayeredGPT2(GPT2):
    """A GPT-2 for inference with layers of any kind: the same function, without gradients and dropout.

    Args:
        model: its layers, some of which may have been replaced, are moved here.
    """

    @torch.no_grad()
    def __init__(self, model: GPT2) -> None:
        nn.Module.__init__(self)
        self.config = model.config
        for name, part in model.named_children():
            self.add_module(name, part)
        tokens: Any = model.tokens  # without a head, its memory is shared
        tied = SignedLinear(tokens.matrix) if isinstance(tokens, SignedEmbedding) else linear_of(tokens.weight, None)
        self.head: nn.Module = model.head or tied  # type: ignore[assignment]
        for block in cast("list[Block]", self.blocks):
            block.attention = LayeredAttention(block.attention)
        self.requires_grad_(False).eval()

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of normalised features, (..., d) -> (..., V)."""
        out: Tensor = self.head(x)
        return out

    @torch.no_grad()
    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Predict the next token at each position, as `GPT2` does."""
        self.check_length(tokens.shape[1])
        x = self.embed(tokens, torch.arange(tokens.shape[1], device=tokens.device))  # (B, T, d)
        for block in self.blocks:
            x = block(x)
        x = self.final_norm(x) * self.config.output_gain
        if targets is None:
            return self.logits(x)
        rows = max(1, LOGITS_AT_ONCE // self.config.vocabulary)
        parts = zip(torch.split(x.flatten(0, 1), rows), torch.split(targets.flatten(), rows), strict=True)
        losses = [F.cross_entropy(self.logits(part).float(), wanted, reduction="sum") for part, wanted in parts]
        return torch.stack(losses).sum() / targets.numel()


def plain_layers(model: nn.Module) -> None:
    """Replace subclasses of torch's linear layer in a module by the layer itself, with shared memory."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and type(child) is not nn.Linear:
                layer: Any = child
                module.add_module(name, linear_of(layer.weight, layer.bias))


def side_by_side(layers: Sequence[nn.Module]) -> nn.Module:
    """Make one layer of several, with concatenated outputs."""
    biases = [cast(Tensor, layer.bias) for layer in layers if layer.bias is not None]
    bias = nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None
    signed = [layer for layer in layers if isinstance(layer, SignedLinear)]
    if len(signed) == len(layers):
        return SignedLinear(stacked([layer.matrix for layer in signed]), bias)
    return linear_of(nn.Parameter(torch.cat([cast(Tensor, layer.weight) for layer in layers])), bias)
