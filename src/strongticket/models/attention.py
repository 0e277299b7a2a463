r"""Multi-head attention as in section 2.2 of the paper, and the same function with its matrices merged.

Shapes: B batch, T tokens, H heads, $d_1$ `d_model`, $d_2$ `d_out`, $n$ a head's key or value width. A query bias is an
extra row of the query matrix, for the input [x; 1]. There are no key biases: they shift all scores of a row equally,
which does not change the softmax. A value bias is part of the output bias, because attention weights sum to 1.
"""

import functools
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from strongticket.checks import as_count
from strongticket.notebook import card
from strongticket.ops.arrays import Array, as_tensor
from strongticket.ops.ordered import as_divisor, ordered_product

# For float64, with a small margin for the rounding of the bounds themselves.
UNIT_ROUNDOFF = 2.0**-53 * 1.01

_PARTS = ("query", "key", "value", "output")
_Linear = tuple[Tensor, Tensor | None]  # a weight (out, in) and a bias (out,)


class Attention(nn.Module):
    r"""The sum over heads of $\sigma(x^\top W_Q W_K^\top X^\top / \sqrt{n})\, X W_V W_O$, plus a bias.

    Args:
        query: $W_Q$, shape (H, d_1, n), or (H, d_1 + 1, n) with the query bias as last row.
        key: $W_K$, shape (H, d_1, n).
        value: $W_V$, shape (H, d_1, n_V).
        output: $W_O$, shape (H, n_V, d_2).
        output_bias: shape (d_2,), or None.
    """

    def __init__(self, query: Array, key: Array, value: Array, output: Array, output_bias: Array | None = None) -> None:
        super().__init__()
        query, key, value, output = map(as_tensor, _PARTS, (query, key, value, output))
        output_bias = None if output_bias is None else as_tensor("output_bias", output_bias)
        _check_shapes(query, key, value, output, output_bias)
        self.query, self.key = nn.Parameter(query), nn.Parameter(key)
        self.value, self.output = nn.Parameter(value), nn.Parameter(output)
        self.output_bias = nn.Parameter(output_bias) if output_bias is not None else None
        # How far the bias may be from the exact one, entry by entry.
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
        # In a fixed order, because the masks of a ticket depend on every bit of these.
        merged = MergedAttention(ordered_product(q, k) / as_divisor(scale, q), ordered_product(v, o.mT), bias)
        # Each of n products rounds at most n times in the sum; root and quotient round twice more.
        merged.qk_rounding = (k.shape[2] + 3) * UNIT_ROUNDOFF * (q.abs() @ k.abs().mT / scale)
        merged.vo_rounding = (v.shape[2] + 1) * UNIT_ROUNDOFF * (v.abs() @ o.abs())
        merged.bias_rounding = self.bias_rounding
        return merged

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, dtype: torch.dtype | None = None) -> "Attention":
        """Read the weights of a `torch.nn.MultiheadAttention`; its key bias drops out, its value bias moves.

        Args:
            module: self-attention with query, key and value of the same width.
            dtype: converted to first (float64 merges the biases exactly); by default the module's own.
        """
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn add tokens, which the theory does not cover.")
        if not module._qkv_same_embed_dim:
            raise ValueError("query, key and value must have the same width; this module has another kdim or vdim.")
        weights = {name: tensor.detach().to(dtype) for name, tensor in module.state_dict().items()}
        q, k, v = weights["in_proj_weight"].chunk(3)
        q_bias, _, v_bias = weights["in_proj_bias"].chunk(3) if "in_proj_bias" in weights else (None,) * 3
        o, o_bias = weights["out_proj.weight"], weights.get("out_proj.bias")
        return cls._from_projections((q, q_bias), k, (v, v_bias), (o, o_bias), module.num_heads)

    @classmethod
    def from_linears(
        cls,
        query: nn.Linear | Array,
        key: nn.Linear | Array,
        value: nn.Linear | Array,
        output: nn.Linear | Array,
        n_heads: int,
        *,
        dtype: torch.dtype | None = None,
    ) -> "Attention":
        """Read an attention from four linear maps, as in most models; a key bias drops out, a value bias moves.

        Args:
            query: (n_heads * n, d_model): a `torch.nn.Linear`, or a matrix (out, in) as a tensor, an array or a list.
            key: (n_heads * n, d_model), likewise.
            value: (n_heads * m, d_model), likewise.
            output: (d_out, n_heads * m), likewise.
            n_heads: the number of heads, all of the same width. Scores are divided by the square root of n.
            dtype: as in `from_torch`; by default the widest of the four.

        Example:
            >>> query, key, value, output = (nn.Linear(8, 8) for _ in range(4))
            >>> Attention.from_linears(query, key, value, output, n_heads=2)
            Attention(n_heads=2, d_model=8, key_width=4, value_width=4, d_out=8, query_bias, output_bias)
            >>> Attention.from_linears([[1, 0]], [[0, 1]], [[1, 1]], [[1]], n_heads=1)
            Attention(n_heads=1, d_model=2, key_width=1, value_width=1, d_out=1)
        """
        maps = list(map(_weight_and_bias, _PARTS, (query, key, value, output)))
        tensors = [tensor for pair in maps for tensor in pair if tensor is not None]
        wide = dtype or functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        (q, q_bias), (k, _), (v, v_bias), (o, o_bias) = (
            (weight.to(wide), bias if bias is None else bias.to(wide)) for weight, bias in maps
        )
        H = as_count("n_heads", n_heads)
        fits = H and k.shape == q.shape and v.shape[1] == q.shape[1] and o.shape[1] == v.shape[0]
        if not fits or q.shape[0] % H or v.shape[0] % H or 0 in (*q.shape, *v.shape, *o.shape):
            raise ValueError(
                "from_linears needs query and key (n_heads * n, d), value (n_heads * m, d) and output (d_out, n_heads "
                f"* m), each (out, in); got {', '.join(str(tuple(w.shape)) for w in (q, k, v, o))} and n_heads={H}."
            )
        return cls._from_projections((q, q_bias), k, (v, v_bias), (o, o_bias), H)

    @classmethod
    def _from_projections(cls, query: _Linear, k: Tensor, value: _Linear, output: _Linear, H: int) -> "Attention":
        (q, q_bias), (v, v_bias), (o, o_bias) = query, value, output
        # torch stores (out, in); each head's columns become a separate matrix (in, out).
        W_Q, W_K, W_V = (w.reshape(H, -1, w.shape[1]).mT.contiguous() for w in (q, k, v))  # (H, d, n or m)
        W_O = o.T.reshape(H, -1, len(o))  # (H, m, d_out)
        if q_bias is not None:
            W_Q = torch.cat([W_Q, q_bias.reshape(H, 1, -1)], dim=1)
        if v_bias is None:
            return cls(W_Q, W_K, W_V, W_O, o_bias)
        o_bias = torch.zeros_like(o[:, 0]) if o_bias is None else o_bias
        attention = cls(W_Q, W_K, W_V, W_O, o_bias + ordered_product(v_bias[None], o)[0])
        size = o_bias.abs() + (v_bias.reshape(H, 1, -1).abs() @ W_O.abs()).sum(dim=(0, 1))
        attention.bias_rounding = (o.shape[1] + H + 2) * torch.finfo(o.dtype).eps * size.double()
        return attention

    def _sizes(self) -> dict[str, int]:
        # A bias is listed as True, or not at all.
        (H, d, n), (_, m, d_out) = self.key.shape, self.output.shape
        widths = {"n_heads": H, "d_model": d, "key_width": n, "value_width": m, "d_out": d_out}
        return widths | _biases(self.query, d, self.output_bias)

    def extra_repr(self) -> str:
        """Return the sizes that `repr` shows."""
        return _written(self._sizes())

    def _repr_html_(self) -> str:
        facts = {name: "yes" if value is True else f"{value:,}" for name, value in self._sizes().items()}
        return card("Attention", facts)


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
        # How far the merged numbers may be from the exact products; 0 if they are themselves the target.
        self.qk_rounding, self.vo_rounding = torch.zeros_like(qk), torch.zeros_like(vo)
        self.bias_rounding = torch.zeros(vo.shape[2], dtype=torch.float64, device="cpu")

    def forward(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Attend: x (..., T, d_1) -> (..., T, d_2)."""
        return _plus((self.weights(x, attends) @ x.unsqueeze(-3) @ self.vo).sum(dim=-3), self.output_bias)

    def weights(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Return only the attention maps, (..., H, T, T)."""
        x = x.unsqueeze(-3)  # (..., 1, T, d_1)
        return attention_weights(_with_one(x, self.qk.shape[1]) @ self.qk @ x.mT, attends)

    def extra_repr(self) -> str:
        """Return the sizes that `repr` shows."""
        H, d, d_out = self.vo.shape
        return _written({"n_heads": H, "d_model": d, "d_out": d_out} | _biases(self.qk, d, self.output_bias))


def attention_weights(scores: Tensor, attends: Tensor | None) -> Tensor:
    """Apply softmax over the attended tokens; a token that attends to none is an error, as in the paper."""
    if attends is None:
        return scores.softmax(dim=-1)
    if attends.dtype != torch.bool:
        raise ValueError(f"attends must be bool; got {attends.dtype}.")
    if not attends.any(dim=-1).all():
        raise ValueError("every token must attend to at least one; attends has a row without any True.")
    # One mask serves all heads; a batch of masks gets the head axis here.
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


def _biases(query: Tensor, d_model: int, output_bias: Tensor | None) -> dict[str, int]:
    there = {"query_bias": query.shape[1] > d_model, "output_bias": output_bias is not None}
    return {name: True for name, found in there.items() if found}


def _written(sizes: Mapping[str, int]) -> str:
    return ", ".join(name if value is True else f"{name}={value}" for name, value in sizes.items())


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def _weight_and_bias(name: str, linear: nn.Linear | Array) -> _Linear:
    """Return a linear map, (out, in), and its bias if it has one."""
    if isinstance(linear, nn.Linear):
        return linear.weight.detach(), linear.bias.detach() if linear.bias is not None else None
    if isinstance(linear, nn.Module):
        raise ValueError(f"{name} must be a torch.nn.Linear or a matrix (out, in); got {type(linear).__name__}.")
    weight = as_tensor(name, linear).detach()
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(f"{name} must be a float matrix (out, in); got {weight.dtype} {tuple(weight.shape)}.")
    return weight, None


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
