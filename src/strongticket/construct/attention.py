"""Theorem 3: any multi-head attention inside a wider random one."""

import math
from typing import get_args

import torch

from strongticket.checks import as_seed
from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.given import AttentionTarget, as_merged
from strongticket.construct.plan import Plan, Product, Wanted
from strongticket.construct.source import (
    USUAL_ITEMS,
    Blocks,
    Init,
    RandomMatrix,
    as_width,
    check_option,
    check_target,
    plain_scale,
    query_key_scale,
)
from strongticket.models.attention import MergedAttention
from strongticket.ops.arrays import Array
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor
from strongticket.tickets.ticket import Ticket


def construct_attention(
    target: AttentionTarget,
    *,
    key_width: int | None = None,
    value_width: int | None = None,
    seed: int = 0,
    init: Init = "theory",
    blocks: Blocks = "input",
    assignment: Assignment = "adaptive",
    input_norm: float | None = None,
    samples: Array | None = None,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Ticket:
    r"""Prune a random attention into a given one with the same number of heads (Theorem 3).

    Args:
        target: a `torch.nn.MultiheadAttention`, or an `Attention`, which `Attention.from_linears` builds from four
            linear maps. A key bias drops out of the softmax, and the value and output biases become one dense tensor:
            both are exact. A query bias is one more row of the query matrix, approximated like the others.
        key_width: $n_K$ per head, a multiple of d_model: each entry of $W_{QK}$ gets n_K / d_model items,
            by default 20.
        value_width: $n_V$ per head, likewise for $W_{VO}$.
        seed: seed of the random weights.
        init: "theory" (section 3.1), "printed" (section 4.1) or "xavier" (appendix B.1); see `docs/figures-4-6.md`.
        blocks: divide the hidden units on the "input" side, as in the paper, or on the "smaller" side of each
            merged matrix, which leaves more items per sum where d_out < d_model.
        assignment: as in `construct_linear`.
        input_norm: $\alpha$: the certificate holds for inputs of at most this norm. By default the largest norm of
            `samples`, or the square root of d_model, as in the theorem. `construct_linear` and `construct_feedforward`
            have another default: compare certificates only at the same `input_norm`.
        samples: inputs (..., d_model) to take $\alpha$ from.
        effort: for the subset sums; "high" comes closer with 40 or more items per entry, at milliseconds each.
        device: where the subset sums are solved.

    Returns:
        A ticket with tensors `head.0.query`, `head.0.key`, `head.0.value`, `head.0.output` and so on.

    Example:
        >>> target = torch.nn.MultiheadAttention(4, 2)
        >>> ticket = construct_attention(target, key_width=64, value_width=64, input_norm=1.0)
        >>> sorted(ticket.dense), len(ticket.tensors)
        (['output_bias'], 8)
        >>> query, key, value, output = (torch.nn.Linear(4, 4) for _ in range(4))
        >>> from strongticket import Attention
        >>> target = Attention.from_linears(query, key, value, output, n_heads=2)
        >>> construct_attention(target, key_width=64, value_width=64, input_norm=1.0).certificate.error < 0.01
        True
    """
    merged, seed = as_merged(target), as_seed(seed)
    _, d_model, d_out = merged.vo.shape
    side = min(d_model, d_out) if blocks == "smaller" else d_model
    key_width = as_width("key_width", USUAL_ITEMS * d_model if key_width is None else key_width)
    value_width = as_width("value_width", USUAL_ITEMS * side if value_width is None else value_width)
    alpha = certify.input_norm_of(input_norm, samples, width=d_model, default=math.sqrt(d_model))
    plan = plan_attention(merged, key_width, value_width, init, blocks)
    pruned = plan.prune(seed=seed, assignment=assignment, effort=effort, device=device)
    return Ticket(
        seed=seed,
        tensors=[tensor for product in pruned.values() for tensor in product.tensors],
        dense=plan.biases,
        architecture={"family": "attention", **plan.settings, "init": init, "blocks": blocks},
        certificate=certify.as_stored(certify.attention(merged, pruned, alpha, digest_of_tensors(target.state_dict()))),
    )


def plan_attention(
    merged: MergedAttention, key_width: int, value_width: int, init: Init, blocks: Blocks = "input", prefix: str = ""
) -> Plan:
    """Plan two products for every head: $W_Q W_K^T / sqrt(n_K)$ and $W_V W_O$."""
    check_option("blocks", blocks, get_args(Blocks))
    check_target("the target's W_QK", merged.qk.detach())
    check_target("the target's W_VO", merged.vo.detach())
    if (bias := merged.output_bias) is not None:
        check_target("the target's output bias", bias.detach())
    qk, vo = merged.qk.detach().double(), merged.vo.detach().double()  # (H, d or d + 1, d) and (H, d, d_out)
    (n_heads, d_model, d_out), rows = vo.shape, qk.shape[1]
    products: dict[str, Wanted] = {}
    for j in range(n_heads):
        name = f"head.{j}"
        scores, values = head_products(f"{prefix}{name}", rows, d_model, d_out, key_width, value_width, init, blocks)
        products[f"{name}.qk"] = Wanted(scores, qk[j], merged.qk_rounding[j])
        products[f"{name}.vo"] = Wanted(values, vo[j], merged.vo_rounding[j])
    name = f"{prefix}output_bias"
    return Plan(
        settings={
            "d_model": d_model,
            "d_out": d_out,
            "n_heads": n_heads,
            "key_width": key_width,
            "value_width": value_width,
            "query_bias": rows == d_model + 1,
            "output_bias": bias is not None,
        },
        products=products,
        # The value bias went into it.
        biases=[DenseTensor(name=name, value=bias.detach())] if bias is not None else [],
        bias_rounding={name: merged.bias_rounding},
    )


def head_products(
    name: str,
    query_rows: int,
    d_model: int,
    d_out: int,
    key_width: int,
    value_width: int,
    init: Init,
    blocks: Blocks = "input",
) -> tuple[Product, Product]:
    """Describe the two products that stand for one head: random query and key, random value and output."""
    d1, d2, n_k, n_v = d_model, d_out, key_width, value_width
    qk_scale = query_key_scale(init, d1, n_k)
    query = RandomMatrix(name=f"{name}.query", coordinates=query_rows, units=n_k, unit_axis=1, scale=qk_scale)
    key = RandomMatrix(name=f"{name}.key", coordinates=d1, units=n_k, unit_axis=1, scale=qk_scale)
    value = RandomMatrix(name=f"{name}.value", coordinates=d1, units=n_v, unit_axis=1, scale=plain_scale(init, d1, n_v))
    output = RandomMatrix(
        name=f"{name}.output", coordinates=d2, units=n_v, unit_axis=0, scale=plain_scale(init, n_v, d2)
    )
    # Scores are divided by sqrt(n_K) as the literal network does, so the items are too.
    qk = Product(blocked=key, free=query, width="key_width", divisor=math.sqrt(n_k), free_first=True)
    if blocks == "smaller" and d2 < d1:
        return qk, Product(blocked=output, free=value, width="value_width", free_first=True)
    return qk, Product(blocked=value, free=output, width="value_width", transposed=True)
