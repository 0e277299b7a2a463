r"""Attention as a part of a layer.

By merged matrices it is attention of heads as wide as the model: query $[x; 1]^\top W_{QK}$, keys and values $x$
itself, output $\sum_j$ of heads times $W_{VO}$. The literal source is attention of heads `items` times wider still. So
the model's own attention code runs either form: only its linear maps, the width of a head and the scale are exchanged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.bounds.certificate import AttentionNorms, Envelope, HeadNorms, propagate_attention
from strongticket.construct.certify import describe_head
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.layer import Affine, Layer
from strongticket.pretrained.parts import Mode, Part
from strongticket.pretrained.pieces import HeadPiece, Piece, Solved
from strongticket.pretrained.random_maps import (
    RandomHeads,
    RandomOutput,
    SideBySide,
    exact_bias,
    frozen_linear,
    multiply_out,
    weight_of,
)
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, kw_only=True)
class Heads(Part):
    """Attention, every head of which two products of random matrices stand for: query by key, value by output.

    Its attribute `scaling` multiplies the scores.

    Args:
        maps: the paths of the linear maps for query, key, value and output. The first three may be one fused map, given
            three times; the last is inside the attention or beside it.
        head_size: the attention's attribute for the width of one head.
        all_heads_size: its attribute for the width of all heads, or "" if it has none.
    """

    name: str = "attention"
    maps: tuple[str, str, str, str]
    head_size: str = "attention_head_size"
    all_heads_size: str = ""

    @property
    def fused(self) -> bool:
        """Whether one map makes queries, keys and values, side by side."""
        return len(set(self.maps[:3])) == 1

    def check(self, config: Any) -> None:
        """Refuse a model whose scores no single matrix gives, or whose heads share keys."""
        if reason := why_not_merged(config):
            raise StrongTicketError(f"{config.model_type} {reason}")
        self.input.check(config)

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Name the four maps, the norm before them, and the scale of the scores."""
        named: dict[str, Tensor] = {}
        # The first kind of attention has always been hashed without its name in front.
        prefix = "" if self.name == "attention" else f"{self.name}."
        for name, read in zip(("query", "key", "value", "output"), self._read(layer), strict=True):
            named |= read.named(f"{prefix}{name}")
        named[f"{self.name}.scaling"] = torch.tensor([self._cut(layer)[1]], dtype=torch.float64, device="cpu")
        return named | super().tensors(layer)

    def describe(self, layer: Layer) -> dict[str, Json]:
        """Say how the numbers are cut up."""
        return {"n_heads": self._cut(layer)[0], "d_model": self._read(layer)[0].weight.shape[1]}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """One piece a head; they hold views of the model's numbers, not copies."""
        *inputs, output = self._read(layer)
        n, scaling = self._cut(layer)
        heads = zip(*(part.chunk(n) for part in inputs), output.weight.chunk(n, dim=1), strict=True)
        return [
            HeadPiece(
                name=f"{layer.name}.{self.name}.head.{j}",
                query=query.weight.numpy(),
                query_bias=query.bias.numpy() if query.bias is not None else None,
                key=key.weight.numpy(),
                value=value.weight.numpy(),
                output=out.numpy(),
                scaling=scaling,
                **settings,
            )
            for j, (query, key, value, out) in enumerate(heads)
        ]

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Give the output bias, with the value bias in it."""
        bias, _ = self._output_bias(layer)
        return {} if bias is None else {"output_bias": bias}

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, dict[str, Json]]:
        """Put the norms of all heads together."""
        bias, rounding = self._output_bias(layer)
        size = float(bias.norm()) * (1 + 1e-12) if bias is not None else 0.0
        heads = tuple(HeadNorms(**head.norms) for head in solved)
        attention = AttentionNorms(heads=heads, bias_norm=size, bias_error=rounding)
        error = propagate_attention(Envelope(input_norm), attention).error
        return error, {"heads": [describe_head(head) for head in heads]}

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket, mode: Mode) -> None:
        """Exchange the four maps, the width of a head and the scale."""
        like, d = weight_of(self.output(layer)), self._read(layer)[0].weight.shape[1]
        bias = exact_bias(ticket, f"{layer.name}.{self.name}.output_bias", like)
        inputs: list[nn.Module]
        output: nn.Module
        if mode == "merged":
            products = [piece.products() for piece in pieces]
            qk, vo = ([multiply_out(ticket, p[name], like.device) for p in products] for name in ("qk", "vo"))
            merged = torch.cat([scores.T for scores in qk])  # (H d, d or d + 1)
            query = frozen_linear(merged[:, :d], merged[:, d] if merged.shape[1] > d else None, like)
            # Every head gets the input itself.
            inputs = [query, *(SideBySide([nn.Identity()] * len(pieces)) for _ in ("key", "value"))]
            output = frozen_linear(torch.cat([values.T for values in vo], dim=1), bias, like)
            head_size, scaling = d, 1.0
        else:
            names = zip(*([matrix.name for matrix in piece.matrices()] for piece in pieces), strict=True)
            *rest, outputs = names
            inputs, output = [RandomHeads(ticket, name) for name in rest], RandomOutput(ticket, outputs, bias)
            head_size = pieces[0].items * d
            scaling = 1 / math.sqrt(head_size)
        for path, module in zip(self.maps, [SideBySide(inputs)] * 3 if self.fused else inputs, strict=False):
            layer.put(path, module)
        layer.put(self.maps[3], output)
        attention = layer.module(self.at)
        setattr(attention, self.head_size, head_size)
        if self.all_heads_size:
            setattr(attention, self.all_heads_size, head_size * len(pieces))
        attention.scaling = scaling  # type: ignore[assignment]

    def output(self, layer: Layer) -> nn.Module:
        """Give the map behind the heads."""
        return layer.module(self.maps[3])

    def apply(self, layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """Run the heads, and the map behind them where it stands beside them."""
        result = layer.module(self.at)(*args, **kwargs)
        heads = result[0] if isinstance(result, tuple) else result
        return heads if self.maps[3].startswith(f"{self.at}.") else self.output(layer)(heads)

    def _read(self, layer: Layer) -> tuple[Affine, Affine, Affine, Affine]:
        query, key, value, output = (layer.linear_map(path) for path in self.maps)
        if self.fused:
            query, key, value = query.chunk(3)
        return query, key, value, output

    def _cut(self, layer: Layer) -> tuple[int, float]:
        """Give the number of heads, and what multiplies their scores."""
        attention = layer.module(self.at)
        scaling = getattr(attention, "scaling", None)
        if not isinstance(scaling, float) or not hasattr(attention, self.head_size):
            raise StrongTicketError(
                f"{type(attention).__name__} has no scaling or {self.head_size}: this release of transformers lays "
                f"{layer.config.model_type} out in another way than its family says."
            )
        return len(self._read(layer)[0].weight) // int(getattr(attention, self.head_size)), scaling

    def _output_bias(self, layer: Layer) -> tuple[Tensor | None, float]:
        """Move the value bias behind the heads, as attention weights sum to 1; give the bias and what rounding cost."""
        _, _, (_, value), (weight, output) = self._read(layer)
        if value is None:
            return (output.double() if output is not None else None), 0.0
        weight = weight.double()
        moved = ordered_product(weight, value.double()[None])[:, 0]  # (d_out,)
        size = (weight.abs() @ value.double().abs()) + (output.double().abs() if output is not None else 0.0)
        rounding = (len(value) + 2) * 2.0**-53 * 1.01 * float(size.norm())
        return (moved + output.double() if output is not None else moved), rounding


def why_not_merged(config: Any) -> str:
    """Say why a model's heads cannot be merged into products, or nothing if they can."""

    def has(*names: str) -> bool:
        return any(getattr(config, name, None) for name in names)

    heads, groups = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if None not in (heads, groups) and groups != heads:
        return (
            f"has grouped-query attention: {heads} heads share {groups} keys and values. "
            "The construction gives every head keys and values of its own; describe its maps as linear ones."
        )
    if has("rope_parameters", "rope_theta", "rotary_dim", "rotary_pct"):
        return (
            "has rotary positions, which turn queries and keys by their place: no single matrix W_QK gives its scores, "
            "so there is none to prune into; describe its maps as linear ones."
        )
    if (positions := getattr(config, "position_embedding_type", None) or "absolute") != "absolute":
        return f"has position_embedding_type {positions!r}, which adds to the scores; only 'absolute' is covered."
    if has("relative_attention_num_buckets", "relative_attention"):
        return (
            "has relative position biases, which add to the scores what does not come from the tokens; "
            "only absolute positions are covered."
        )
    if has("add_cross_attention", "is_encoder_decoder"):
        return "has cross-attention, whose keys come from another model; it is not covered."
    return ""
