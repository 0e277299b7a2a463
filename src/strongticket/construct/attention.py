"""Theorem 3: any multi-head attention inside a wider random one."""

import math
from typing import get_args

import torch
from torch import Tensor, nn

from strongticket.checks import as_seed
from strongticket.construct import certify
from strongticket.construct.product import PrunedHead, prune_product
from strongticket.construct.source import (
    Blocks,
    Init,
    RandomMatrix,
    as_width,
    check_option,
    check_target,
    equal_blocks,
    plain_scale,
    query_key_scale,
)
from strongticket.models.attention import Attention, MergedAttention
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor
from strongticket.tickets.ticket import Ticket


def construct_attention(
    target: Attention | MergedAttention | nn.MultiheadAttention,
    *,
    key_width: int,
    value_width: int,
    seed: int = 0,
    init: Init = "theory",
    blocks: Blocks = "input",
    input_norm: float | None = None,
    samples: Tensor | None = None,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Ticket:
    r"""Prune a random attention of the same number of heads into a given one (Theorem 3).

    Args:
        target: in any of three forms. Biases are exact: a key bias drops out of the softmax, a query bias is one more
            row of the query matrix, value and output bias become one dense tensor.
        key_width: $n_K$ of a head, a multiple of d_model: n_K / d_model items meet each entry of $W_{QK}$.
        value_width: $n_V$ of a head, likewise for $W_{VO}$.
        seed: of the random weights.
        init: "theory" (section 3.1), "printed" (section 4.1) or "xavier" (appendix B.1); see `docs/reproduction.md`.
        blocks: hidden units are shared out on the "input" side, as in the paper, or on the "smaller" side of each
            merged matrix, which leaves more items a sum where d_out < d_model.
        input_norm: $\alpha$: the certificate holds for inputs of at most this norm. By default the largest norm of
            `samples`, or the square root of d_model, as in the theorem: `construct_linear` and `construct_feedforward`
            have another default, so compare certificates only at one `input_norm`.
        samples: inputs (..., d_model) to take $\alpha$ from.
        effort: of the subset sums; "high" comes closer where more than 32 items meet an entry, at milliseconds each.
        device: where the subset sums are solved.

    Returns:
        A ticket with tensors `head.0.query`, `head.0.key`, `head.0.value`, `head.0.output` and so on.

    Example:
        >>> target = nn.MultiheadAttention(4, 2)
        >>> ticket = construct_attention(target, key_width=64, value_width=64, input_norm=1.0)
        >>> sorted(ticket.dense), len(ticket.tensors)
        (['output_bias'], 8)
    """
    merged, seed = as_merged(target), as_seed(seed)
    key_width, value_width = as_width("key_width", key_width), as_width("value_width", value_width)
    d_model = merged.vo.shape[1]
    alpha = certify.input_norm_of(input_norm, samples, width=d_model, default=math.sqrt(d_model))
    heads = prune_heads(
        merged, key_width, value_width, seed=seed, init=init, blocks=blocks, prefix="", effort=effort, device=device
    )
    return Ticket(
        seed=seed,
        tensors=[tensor for head in heads for tensor in head.tensors()],
        dense=exact_output_bias(merged, ""),
        architecture={
            "family": "attention",
            **describe(merged, key_width, value_width),
            "init": init,
            "blocks": blocks,
        },
        certificate=certify.as_stored(certify.attention(merged, heads, alpha, digest_of_tensors(target.state_dict()))),
    )


def prune_heads(
    merged: MergedAttention,
    key_width: int,
    value_width: int,
    *,
    seed: int,
    init: Init,
    blocks: Blocks,
    prefix: str,
    effort: Effort,
    device: torch.device | str | None,
) -> list[PrunedHead]:
    """Prune every head by two products: $W_Q W_K^T / sqrt(n_K)$ and $W_V W_O$."""
    check_option("blocks", blocks, get_args(Blocks))
    check_target("the target's W_QK", merged.qk.detach())
    check_target("the target's W_VO", merged.vo.detach())
    if merged.output_bias is not None:
        check_target("the target's output bias", merged.output_bias.detach())
    qk, vo = merged.qk.detach().double(), merged.vo.detach().double()  # (H, d or d + 1, d) and (H, d, d_out)
    heads = [
        prune_head(
            qk[j],
            vo[j],
            f"{prefix}head.{j}",
            key_width,
            value_width,
            seed=seed,
            init=init,
            blocks=blocks,
            effort=effort,
            device=device,
        )
        for j in range(len(qk))
    ]
    return [
        PrunedHead(head.qk.with_more_rounding(merged.qk_rounding[j]), head.vo.with_more_rounding(merged.vo_rounding[j]))
        for j, head in enumerate(heads)
    ]


def prune_head(
    qk: Tensor,
    vo: Tensor,
    name: str,
    key_width: int,
    value_width: int,
    *,
    seed: int,
    init: Init,
    blocks: Blocks = "input",
    effort: Effort = "default",
    device: torch.device | str | None,
) -> PrunedHead:
    """Prune one head, whose tensors are `name` with `.query`, `.key`, `.value` and `.output` after it."""
    (rows, d1), d2 = qk.shape, vo.shape[1]
    n_k, n_v = key_width, value_width
    query, key, value, output = head_matrices(name, rows, d1, d2, n_k, n_v, init)
    # Scores are divided by sqrt(n_K) as the literal network does, so the items are too.
    pruned_qk = prune_product(
        qk,
        key,
        query,
        equal_blocks("key_width", n_k, d1),
        seed=seed,
        divisor=math.sqrt(n_k),
        effort=effort,
        device=device,
    )
    if blocks == "smaller" and d2 < d1:
        sizes = equal_blocks("value_width", n_v, d2)
        pruned_vo = prune_product(vo, output, value, sizes, seed=seed, effort=effort, device=device)
    else:
        sizes = equal_blocks("value_width", n_v, d1)
        pruned_vo = prune_product(vo.T, value, output, sizes, seed=seed, effort=effort, device=device).transposed()
    return PrunedHead(pruned_qk, pruned_vo)


def head_matrices(
    name: str, query_rows: int, d_model: int, d_out: int, key_width: int, value_width: int, init: Init
) -> tuple[RandomMatrix, RandomMatrix, RandomMatrix, RandomMatrix]:
    """Describe the random query, key, value and output matrix of one head."""
    d1, d2, n_k, n_v = d_model, d_out, key_width, value_width
    qk_scale = query_key_scale(init, d1, n_k)
    return (
        RandomMatrix(name=f"{name}.query", coordinates=query_rows, units=n_k, unit_axis=1, scale=qk_scale),
        RandomMatrix(name=f"{name}.key", coordinates=d1, units=n_k, unit_axis=1, scale=qk_scale),
        RandomMatrix(name=f"{name}.value", coordinates=d1, units=n_v, unit_axis=1, scale=plain_scale(init, d1, n_v)),
        RandomMatrix(name=f"{name}.output", coordinates=d2, units=n_v, unit_axis=0, scale=plain_scale(init, n_v, d2)),
    )


def as_merged(target: Attention | MergedAttention | nn.MultiheadAttention) -> MergedAttention:
    """Merge any of the forms a target may come in."""
    if isinstance(target, MergedAttention):
        return target
    if isinstance(target, nn.MultiheadAttention):
        for name, tensor in target.state_dict().items():
            check_target(f"the target's {name}", tensor)
        target = Attention.from_torch(target, dtype=torch.float64)
    if isinstance(target, Attention):
        return target.merged()
    raise ValueError(
        f"construct_attention needs an Attention, a MergedAttention or a torch.nn.MultiheadAttention; "
        f"got {type(target).__name__}."
    )


def exact_output_bias(merged: MergedAttention, prefix: str) -> list[DenseTensor]:
    """Keep the output bias, into which the value bias went, as it is."""
    if merged.output_bias is None:
        return []
    return [DenseTensor(name=f"{prefix}output_bias", value=merged.output_bias.detach())]


def describe(merged: MergedAttention, key_width: int, value_width: int) -> dict[str, int | bool]:
    """Give the settings that build the source attention."""
    n_heads, d_model, d_out = merged.vo.shape
    return {
        "d_model": d_model,
        "d_out": d_out,
        "n_heads": n_heads,
        "key_width": key_width,
        "value_width": value_width,
        "query_bias": merged.qk.shape[1] == d_model + 1,
        "output_bias": merged.output_bias is not None,
    }
