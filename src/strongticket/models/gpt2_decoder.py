"""GPT-2 decoding token by token: the keys and values of earlier tokens are kept, so that each is computed once."""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor

from strongticket.models.gpt2 import GPT2, Attention, Block
from strongticket.models.gpt2_step import OneToken, is_plain


class Decoder:
    """Decode a text with GPT-2; the logits are those of the model itself, up to rounding.

    On a GPU the step for a single token is a CUDA graph: launched as one, it does not wait for Python.

    Args:
        model: its dropout is not applied.
        room: the maximum number of tokens, by default the context; memory is reserved for their keys and values.
        static: do the same work at every position, as graphs and compilers require; by default only on a GPU.

    Example:
        >>> from strongticket.models.gpt2 import gpt2_config
        >>> decoder = Decoder(GPT2(gpt2_config("nano")))
        >>> decoder.feed([72, 101]).shape, decoder.feed([121]).shape, decoder.length
        (torch.Size([256]), torch.Size([256]), 3)
    """

    def __init__(self, model: GPT2, room: int | None = None, static: bool | None = None) -> None:
        self.model, self.blocks = model, cast("list[Block]", [*model.blocks])
        self.length = 0  # tokens seen
        self.room = min(room or model.config.context, model.config.context)
        self.device = model.final_norm.weight.device
        self.static = self.device.type == "cuda" if static is None else static
        compiled = self.device.type == "cpu" and not self.static
        self._one = OneToken(model) if compiled and is_plain(model) else None
        self._past: list[Tensor] = []  # keys and values of each block, (room, 2, H, d / H)
        self._graph: tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor] | None = None

    @torch.no_grad()
    def feed(self, tokens: list[int]) -> Tensor:
        """Add a whole prompt first, then one token at a time; return the logits of the next token, (V,)."""
        start, T = self.length, len(tokens)
        if start + T > self.room or not tokens or (start and T > 1):
            raise ValueError(
                f"a decoder takes a prompt and then single tokens, {self.room} in all; got {T} after {start}."
            )
        self.length += T
        if start and self._one:
            return self._one(tokens[0], start, self._past)
        if start and self.device.type == "cuda":
            return self._replay(tokens[0], start)
        inputs, places = torch.tensor([tokens]), torch.arange(start, start + T)
        return self.step(inputs.to(self.device), places.to(self.device))

    def step(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Compute the logits of the next token, (V,), from tokens (1, T) at positions (T,)."""
        model = self.model
        x = model.embed(tokens, places)  # (1, T, d)
        for index, block in enumerate(self.blocks):
            x = x + self._attend(index, block.attention, block.attention_norm(x), places)
            x = x + block.mlp(block.mlp_norm(x))
        return model.logits(model.final_norm(x[:, -1]) * model.config.output_gain)[0]

    def _attend(self, index: int, layer: Attention, x: Tensor, places: Tensor) -> Tensor:
        _, T, d = x.shape
        qkv = layer.inputs(x).view(T, 3, layer.n_heads, -1)  # (T, 3, H, d / H)
        if index == len(self._past):
            # Zeros if all of it is read, as 0 times NaN is NaN; otherwise only the used part takes memory.
            make = qkv.new_zeros if self.static else qkv.new_empty
            self._past.append(make((self.room, 2, *qkv.shape[2:])))
        past = self._past[index]
        if self.static and T == 1:
            past.index_copy_(0, places, qkv[:, 1:])
            mask = (torch.arange(self.room, device=x.device) <= places)[None]  # (1, room)
        else:
            past[self.length - T : self.length] = qkv[:, 1:]
            past, mask = past[: self.length], None
        k, v = past.permute(1, 2, 0, 3)[:, None]  # (1, H, tokens, d / H) each
        q = qkv[None, :, 0].transpose(1, 2)  # (1, H, T, d / H)
        # A single token may attend to all tokens so far; only a prompt has later tokens to hide.
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=T > 1)
        out: Tensor = layer.output(mixed.transpose(1, 2).reshape(1, T, d))
        return out

    def _replay(self, token: int, place: int) -> Tensor:
        """Run the step for one token as a CUDA graph, which is captured the first time."""
        if self._graph is None:
            tokens, places = (torch.tensor([number], device=self.device) for number in (token, place))
            step = self._kernels() or self.step
            logits = step(tokens[None], places)  # once without a graph, to load every kernel
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = step(tokens[None], places)
            self._graph = graph, tokens, places, captured
            return logits
        graph, tokens, places, logits = self._graph
        tokens.fill_(token)  # unlike a copy, this does not wait for the token before
        places.fill_(place)
        graph.replay()
        return logits.clone()

    def _kernels(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return the step of a network that runs from bits, of kernels for one token."""
        if not is_plain(self.model):
            return None
        # Imported on first use: only a GPU needs it.
        from strongticket.models.gpt2_step_cuda import fits, one_token

        return partial(one_token, self.model, past=self._past) if fits(self.model) else None
