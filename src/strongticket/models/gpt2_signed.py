"""GPT-2 whose matrices stay in bit planes."""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody reads
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Attention, Block
from strongticket.models.signed import Matrix, SignedEmbedding, SignedLinear

LOGITS_AT_ONCE = 1 << 24  # where only the loss is wanted


class SignedAttention(Attention):
    """Attention whose query, key and value are one product where they can be."""

    def __init__(self, attention: Attention) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.dropout = attention.n_heads, attention.dropout
        layers = [cast(SignedLinear, layer) for layer in (attention.query, attention.key, attention.value)]
        matrices = [cast("Matrix", matrix) for layer in layers for matrix in layer.matrices]
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        self.qkv = SignedLinear(matrices, nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None)
        self.output = attention.output

    def inputs(self, x: Tensor) -> Tensor:
        """Give query, key and value side by side: (B, T, d) -> (B, T, 3 d)."""
        out: Tensor = self.qkv(x)
        return out


class SignedGPT2(GPT2):
    """A GPT-2 some of whose layers are signed: the same function, without gradients.

    Args:
        model: whose layers were exchanged; it gives them up.
    """

    def __init__(self, model: GPT2) -> None:
        nn.Module.__init__(self)
        self.config = model.config
        for name, part in model.named_children():
            self.add_module(name, part)
        self.head: nn.Module | None = model.head  # type: ignore[assignment]
        if self.head is None and isinstance(self.tokens, SignedEmbedding):
            self.head = SignedLinear([self.tokens.matrix])  # the same memory
        for block in cast("list[Block]", self.blocks):
            layers = (block.attention.query, block.attention.key, block.attention.value)
            if all(isinstance(layer, SignedLinear) for layer in layers):
                block.attention = SignedAttention(block.attention)

    def logits(self, x: Tensor) -> Tensor:
        """Give the logits of normalised features, (..., d) -> (..., V)."""
        return super().logits(x) if self.head is None else self.head(x)

    @torch.no_grad()
    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Predict the next token at each place, as `GPT2` does."""
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
