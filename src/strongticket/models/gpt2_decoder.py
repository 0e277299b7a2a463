"""GPT-2 fed token by token: keys and values of the tokens before are kept, so that each is computed once."""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody reads
from torch import Tensor

from strongticket.models.gpt2 import GPT2, Attention, Block


class Decoder:
    """A text on its way through a GPT-2; gives the logits the model itself would give, rounding aside.

    Args:
        model: its dropout is not applied.

    Example:
        >>> from strongticket.models.gpt2 import gpt2_config
        >>> decoder = Decoder(GPT2(gpt2_config("nano")))
        >>> decoder.feed([72, 101]).shape, decoder.feed([121]).shape, decoder.length
        (torch.Size([256]), torch.Size([256]), 3)
    """

    def __init__(self, model: GPT2) -> None:
        self.model = model
        self.length = 0  # tokens seen
        self._past: list[tuple[Tensor, Tensor]] = []  # keys and values of each block, (1, H, length, d / H)

    @torch.no_grad()
    def feed(self, tokens: list[int]) -> Tensor:
        """Add a whole prompt at first, then one token at a time; gives the logits of the next token, (V,)."""
        model, T = self.model, len(tokens)
        if self.length + T > model.config.context or not tokens or (self.length and T > 1):
            raise ValueError(
                f"a decoder takes a prompt and then single tokens, {model.config.context} in all; "
                f"got {T} after {self.length}."
            )
        table, positions = model.tokens.weight, model.positions.weight[self.length : self.length + T]
        x = table[torch.tensor(tokens, device=table.device)][None] + positions  # (1, T, d)
        for index, block in enumerate(cast("list[Block]", model.blocks)):
            x = x + self._attend(index, block.attention, block.attention_norm(x))
            x = x + block.mlp(block.mlp_norm(x))
        self.length += T
        last = model.final_norm(x[0, -1]) * model.config.output_gain
        return F.linear(last, table if model.head is None else model.head.weight)

    def _attend(self, index: int, layer: Attention, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(2, (layer.n_heads, -1)).transpose(1, 2) for part in (layer.query, layer.key, layer.value)
        )  # (1, H, T, d / H)
        if index < len(self._past):
            k, v = (torch.cat(pair, dim=2) for pair in zip(self._past[index], (k, v), strict=True))
            self._past[index] = k, v
        else:
            self._past.append((k, v))
        # A single token may look at all there is; only a prompt has tokens that come later.
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        out: Tensor = layer.output(mixed.transpose(1, 2).flatten(2))
        return out
