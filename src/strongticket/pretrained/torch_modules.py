"""`torch.nn`'s transformers in the form of Hugging Face's: four linear maps per attention, and a configuration.

`nn.MultiheadAttention` multiplies by the rows of one parameter, or leaves even that to a kernel for the whole layer, so
there is no module to replace. Here it is opened: the same numbers, in the same memory, as modules.
"""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.pretrained.random_maps import frozen_linear


def mirror(model: nn.Module) -> nn.Module:
    """Copy a model with shared memory; moving, casting or replacing parts of one does not affect the other."""
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    shared |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    return copy.deepcopy(model, shared)


def opened(model: nn.Module) -> nn.Module:
    """Open every `nn.MultiheadAttention` of a model and add a configuration; return other models unchanged."""
    if hasattr(model, "config") or not isinstance(model, nn.Module):
        return model
    if isinstance(model, nn.MultiheadAttention):
        return _with_config(
            OpenAttention(model), SimpleNamespace(model_type="MultiheadAttention", hidden_size=model.embed_dim)
        )
    kinds = (nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer)
    if type(model) not in kinds:
        raise ValueError(
            f"need a Hugging Face model, which has a config, or a transformer of torch.nn; got {type(model).__name__}."
        )
    inside = mirror(model)
    for place, module in [*inside.named_modules()]:
        if isinstance(module, nn.MultiheadAttention):
            inside.set_submodule(place, OpenAttention(module))
    return _with_config(inside, _config(inside))


def _with_config(model: nn.Module, config: SimpleNamespace) -> nn.Module:
    model.config = config  # type: ignore[assignment]
    return model.eval()


def _config(model: nn.Module) -> SimpleNamespace:
    across = {nn.TransformerEncoderLayer: False, nn.TransformerDecoderLayer: True}
    lists = {
        place: across[type(module[0])]
        for place, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) and type(module[0]) in across
    }
    layers: list[Any] = [layer for place in lists for layer in model.get_submodule(place).children()]
    first = layers[0] if layers else None
    if first is None or any(layer.norm_first != first.norm_first for layer in layers):
        raise StrongTicketError(f"this {type(model).__name__} has no layers, or layers of different kinds.")
    activation = first.activation
    return SimpleNamespace(
        model_type=type(model).__name__,
        hidden_size=first.norm1.normalized_shape[0],
        hidden_act=(getattr(activation, "__name__", None) or type(activation).__name__).lower(),
        norm_first=first.norm_first,
        lists=lists,
        has_encoder=getattr(getattr(model, "encoder", None), "norm", None) is not None,
    )


class OpenAttention(nn.Module):
    """`nn.MultiheadAttention` as four linear maps, with the same call signature."""

    def __init__(self, inside: nn.MultiheadAttention) -> None:
        super().__init__()
        if inside.bias_k is not None or inside.add_zero_attn or inside.in_proj_weight is None:
            raise StrongTicketError(
                "a MultiheadAttention with add_bias_kv, add_zero_attn, kdim or vdim is not supported."
            )
        biases = (None,) * 3 if inside.in_proj_bias is None else inside.in_proj_bias.detach().chunk(3)
        weights = inside.in_proj_weight.detach().chunk(3)
        self.q_proj, self.k_proj, self.v_proj = (frozen_linear(w, b, w) for w, b in zip(weights, biases, strict=True))
        self.out_proj = frozen_linear(inside.out_proj.weight, inside.out_proj.bias, inside.out_proj.weight)
        self.head_dim, self.scaling = inside.head_dim, inside.head_dim**-0.5
        self.num_heads, self.embed_dim, self.batch_first = inside.num_heads, inside.embed_dim, inside.batch_first
        # These tell a torch.nn layer that it cannot bypass the attention with its own kernel.
        self.in_proj_weight = self.in_proj_bias = None
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as `nn.MultiheadAttention` does: return outputs, and attention maps on request."""
        batched, tokens_first = query.dim() == 3, query.dim() == 3 and not self.batch_first
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        rows = (x.transpose(0, 1) if tokens_first else x for x in projected)
        q, k, v = (x.view(*x.shape[:-1], self.num_heads, -1).transpose(-3, -2) for x in rows)  # (..., H, T, d_k)
        scores = q @ k.mT * self.scaling
        if attn_mask is not None:
            # One mask for all, or one per sequence and head.
            each = batched and attn_mask.dim() == 3
            scores = scores + _added(attn_mask.view(scores.shape) if each else attn_mask, scores)
        if key_padding_mask is not None:
            scores = scores + _added(key_padding_mask[..., None, None, :], scores)
        weights = scores.softmax(dim=-1)
        out = self.out_proj((weights @ v).transpose(-3, -2).flatten(-2))
        shown = (weights.mean(dim=-3) if average_attn_weights else weights) if need_weights else None
        return (out.transpose(0, 1) if tokens_first else out), shown


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return what a mask adds to the scores: True forbids attention."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask
