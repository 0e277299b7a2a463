r"""Multi-head attention as in section 2.2 of the paper, and the same function with its matrices merged.

Shapes: B batch, T tokens, H heads, $d_1$ `d_model`, $d_2$ `d_out`, $n$ a head's key or value width. A query bias is a
row more in the query matrix, for the input [x; 1]. Key biases do not exist here: they shift all scores of a row alike,
which the softmax cannot see. A value bias is part of the output bias, since attention weights sum to 1.
"""

import math

import torch
from torch import Tensor, nn

from strongticket.ops.ordered import as_divisor, ordered_product

# Of float64, with a little room for the rounding of the bounds themselves.
UNIT_ROUNDOFF = 2.0**-53 * 1.01


class Attention(nn.Module):
    r"""The sum over heads of $\sigma(x^\top W_Q W_K^\top X^\top / \sqrt{n})\, X W_V W_O$, plus a bias.

    Args:
        query: $W_Q$, shape (H, d_1, n), or (H, d_1 + 1, n) with the query bias as last row.
        key: $W_K$, shape (H, d_1, n).
        value: $W_V$, shape (H, d_1, n_V).
        output: $W_O$, shape (H, n_V, d_2).
        output_bias: shape (d_2,), or None.
    """

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, output: Tensor, output_bias: Tensor | None = None
    ) -> None:
        super().__init__()
        _check_shapes(query, key, value, output, output_bias)
        self.query, self.key = nn.Parameter(query), nn.Parameter(key)
        self.value, self.output = nn.Parameter(value), nn.Parameter(output)
        self.output_bias = nn.Parameter(output_bias) if output_bias is not None else None
        # How far the bias may be from the one it stands for, entry by entry.
        self.bias_rounding = torch.zeros(output.shape[2], dtype=torch.float64, device="cpu")

    def forward(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Attend.

        Args:
            x: (..., T, d_1).
            attends: bool, broadcastable to (..., T, T): whether token i attends to token j. None: all to all.

        Returns:
            (..., T, d_2).
        """
        x = x.unsqueeze(-3)  # (..., 1, T, d_1)
        q = _with_one(x, self.query.shape[1]) @ self.query  # (..., H, T, n)
        k, v = x @ self.key, x @ self.value  # (..., H, T, n)
        weights = attention_weights(q @ k.mT / math.sqrt(self.key.shape[2]), attends)  # (..., H, T, T)
        return _plus((weights @ v @ self.output).sum(dim=-3), self.output_bias)

    def merged(self) -> "MergedAttention":
        """Multiply the matrices out, in float64."""
        q, k, v, o = (w.detach().double() for w in (self.query, self.key, self.value, self.output))
        bias = self.output_bias.detach().double() if self.output_bias is not None else None
        scale = math.sqrt(k.shape[2])
        # In one order, since the masks of a ticket depend on every bit of these.
        merged = MergedAttention(ordered_product(q, k) / as_divisor(scale, q), ordered_product(v, o.mT), bias)
        # Each of n products rounds n times at most on its way into the sum, the root and the quotient twice more.
        merged.qk_rounding = (k.shape[2] + 3) * UNIT_ROUNDOFF * (q.abs() @ k.abs().mT / scale)
        merged.vo_rounding = (v.shape[2] + 1) * UNIT_ROUNDOFF * (v.abs() @ o.abs())
        merged.bias_rounding = self.bias_rounding
        return merged

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, dtype: torch.dtype | None = None) -> "Attention":
        """Read the weights of a `torch.nn.MultiheadAttention`; its key bias drops out, its value bias moves.

        Args:
            module: self-attention, its query, key and value of one width.
            dtype: to convert to first, so that float64 merges the biases exactly; by default the module's own.
        """
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn add tokens, which the theory does not cover.")
        if not module._qkv_same_embed_dim:
            raise ValueError("query, key and value must have the same width; this module has kdim or vdim of its own.")
        d, H = module.embed_dim, module.num_heads
        weights = {name: tensor.detach().to(dtype) for name, tensor in module.state_dict().items()}
        # torch keeps (out, in); a head's columns become a matrix (in, out) of its own.
        q, k, v = (w.view(H, d // H, d).mT.contiguous() for w in weights["in_proj_weight"].chunk(3))  # (H, d, d / H)
        o = weights["out_proj.weight"].T.reshape(H, d // H, d)
        if module.in_proj_bias is None:
            return cls(q, k, v, o)
        q_bias, _, v_bias = (b.view(H, 1, d // H) for b in weights["in_proj_bias"].chunk(3))
        bias = weights["out_proj.bias"] + ordered_product(v_bias.view(1, d), weights["out_proj.weight"])[0]
        attention = cls(torch.cat([q, q_bias], dim=1), k, v, o, bias)
        size = weights["out_proj.bias"].abs() + (v_bias.abs() @ o.abs()).sum(dim=(0, 1))
        attention.bias_rounding = (d + H + 2) * torch.finfo(bias.dtype).eps * size.double()
        return attention


class MergedAttention(nn.Module):
    r"""Attention by its merged matrices: $\sum_j \sigma([x; 1]^\top W_{QK}^{(j)} X^\top)\, X W_{VO}^{(j)}$ plus a bias.

    Args:
        qk: $W_{QK}$, the scale included, shape (H, d_1, d_1), or (H, d_1 + 1, d_1) with a query bias.
        vo: $W_{VO}$, shape (H, d_1, d_2).
        output_bias: shape (d_2,), or None.
    """

    def __init__(self, qk: Tensor, vo: Tensor, output_bias: Tensor | None = None) -> None:
        super().__init__()
        _check_merged_shapes(qk, vo, output_bias)
        self.qk, self.vo = nn.Parameter(qk), nn.Parameter(vo)
        self.output_bias = nn.Parameter(output_bias) if output_bias is not None else None
        # How far the merged numbers may be from the exact products they stand for; none where they are the target.
        self.qk_rounding, self.vo_rounding = torch.zeros_like(qk), torch.zeros_like(vo)
        self.bias_rounding = torch.zeros(vo.shape[2], dtype=torch.float64, device="cpu")

    def forward(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Attend: x (..., T, d_1) -> (..., T, d_2)."""
        return _plus((self.weights(x, attends) @ x.unsqueeze(-3) @ self.vo).sum(dim=-3), self.output_bias)

    def weights(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Give the attention maps alone, (..., H, T, T)."""
        x = x.unsqueeze(-3)  # (..., 1, T, d_1)
        return attention_weights(_with_one(x, self.qk.shape[1]) @ self.qk @ x.mT, attends)


def attention_weights(scores: Tensor, attends: Tensor | None) -> Tensor:
    """Softmax over the tokens that are attended to; a token that attends to none is an error, as in the paper."""
    if attends is None:
        return scores.softmax(dim=-1)
    if attends.dtype != torch.bool:
        raise ValueError(f"attends must be bool; got {attends.dtype}.")
    if not attends.any(dim=-1).all():
        raise ValueError("every token must attend to at least one; attends has a row without any True.")
    # One mask serves all heads; a batch of them gets the head axis here.
    mask = attends.unsqueeze(-3) if attends.dim() > 2 else attends
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1)


def causal_mask(tokens: int, device: torch.device | str | None = None) -> Tensor:
    """Let token i attend to tokens 0 to i: bool, (T, T)."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def _with_one(x: Tensor, width: int) -> Tensor:
    """Append the constant coordinate 1 where the query matrix has a row for its bias."""
    if width == x.shape[-1]:
        return x
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, output: Tensor, bias: Tensor | None) -> None:
    fits = (
        all(w.dim() == 3 for w in (query, key, value, output))
        and query.shape[1] in (key.shape[1], key.shape[1] + 1)
        and (query.shape[0], query.shape[2]) == (key.shape[0], key.shape[2])
        and value.shape[:2] == key.shape[:2]
        and output.shape[:2] == (value.shape[0], value.shape[2])
        and (bias is None or bias.shape == output.shape[2:])
    )
    if not fits:
        shapes = ", ".join(str(tuple(w.shape)) for w in (query, key, value, output))
        raise ValueError(
            "attention needs query (H, d or d + 1, n), key (H, d, n), value (H, d, m), output (H, m, d_out) and "
            f"a bias (d_out,); got {shapes} and {tuple(bias.shape) if bias is not None else None}."
        )


def _check_merged_shapes(qk: Tensor, vo: Tensor, bias: Tensor | None) -> None:
    fits = (
        qk.dim() == vo.dim() == 3
        and qk.shape[0] == vo.shape[0]
        and qk.shape[2] == vo.shape[1]
        and qk.shape[1] in (vo.shape[1], vo.shape[1] + 1)
        and (bias is None or bias.shape == vo.shape[2:])
    )
    if not fits:
        raise ValueError(
            "merged attention needs qk (H, d or d + 1, d), vo (H, d, d_out) and a bias (d_out,); "
            f"got {tuple(qk.shape)}, {tuple(vo.shape)} and {tuple(bias.shape) if bias is not None else None}."
        )
