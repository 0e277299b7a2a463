"""Theorem 6: a transformer without normalisation layers inside a wider random one."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from strongticket.checks import as_seed
from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.attention import plan_attention
from strongticket.construct.certify import PrunedAttention, PrunedBlock, PrunedNetwork
from strongticket.construct.feedforward import plan_network, spread_widths
from strongticket.construct.given import as_feedforward, as_merged, sizes_of
from strongticket.construct.plan import Plan
from strongticket.construct.source import USUAL_ITEMS, Blocks, Init
from strongticket.models.attention import MergedAttention
from strongticket.models.transformer import Block, FeedForward, Transformer
from strongticket.ops.arrays import Array
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor, RandomTensor
from strongticket.tickets.ticket import Ticket


def construct_transformer(
    target: Transformer,
    *,
    key_width: int | Sequence[int] | None = None,
    value_width: int | Sequence[int] | None = None,
    hidden_width: int | Sequence[int] | None = None,
    seed: int = 0,
    init: Init = "theory",
    blocks: Blocks = "input",
    assignment: Assignment = "adaptive",
    input_norm: float | None = None,
    samples: Array | None = None,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Ticket:
    r"""Prune a random transformer into a given one, block by block (Theorem 6).

    Args:
        target: blocks of attention and a ReLU network, without norms.
        key_width: $n_K$ per head, one for all blocks or one for each; by default 20 items per entry.
        value_width: $n_V$, likewise.
        hidden_width: $n_{FC}$, likewise; the same for all layers of a block's network; by default at least 20 items
            per entry.
        seed: seed of the random weights.
        init: as in `construct_attention`.
        blocks: as in `construct_attention`.
        assignment: as in `construct_linear`.
        input_norm: as in `construct_attention`.
        samples: as in `construct_attention`.
        effort: for the subset sums; "high" comes closer with 40 or more items per entry, at milliseconds each.
        device: where the subset sums are solved.

    Returns:
        A ticket with tensors `block.0.attention.head.0.query`, `block.0.feedforward.layer.0.first` and so on.
    """
    planned, seed = plan_blocks(target, key_width, value_width, hidden_width, init, blocks), as_seed(seed)
    d_model = sizes_of(planned[0].network)[0]
    alpha = certify.input_norm_of(input_norm, samples, width=d_model, default=math.sqrt(d_model))
    tensors: list[RandomTensor] = []
    dense: list[DenseTensor] = []
    described, pruned = [], []
    for merged, network, plans in planned:
        heads, layers = (
            plan.prune(seed=seed, assignment=assignment, effort=effort, device=device) for plan in plans.values()
        )
        tensors += [tensor for product in (*heads.values(), *layers.values()) for tensor in product.tensors]
        dense += [bias for plan in plans.values() for bias in plan.biases]
        described.append({name: plan.settings for name, plan in plans.items()})
        pruned.append(PrunedBlock(PrunedAttention(merged, heads), PrunedNetwork(network, layers)))
    return Ticket(
        seed=seed,
        tensors=tensors,
        dense=dense,
        architecture={"family": "transformer", "blocks": described, "init": init, "assignment": blocks},
        certificate=certify.as_stored(certify.transformer(pruned, alpha, digest_of_tensors(target.state_dict()))),
    )


class PlannedBlock(NamedTuple):
    """The parts of a target's block, and the plan of each: `attention` and `feedforward`."""

    attention: MergedAttention
    network: FeedForward
    plans: dict[str, Plan]


def plan_blocks(
    target: Transformer,
    key_width: int | Sequence[int] | None,
    value_width: int | Sequence[int] | None,
    hidden_width: int | Sequence[int] | None,
    init: Init,
    blocks: Blocks = "input",
) -> list[PlannedBlock]:
    """Plan the attention and the network of every block."""
    parts = parts_of(target)
    sizes = [sizes_of(network) for _, network in parts]
    heads = [USUAL_ITEMS * own[0] for own in sizes]
    # All layers of a network have the same width, which all their inputs divide; the first has items for either sign.
    layers = [USUAL_ITEMS * max(2 * own[0], math.lcm(*own[:-1])) for own in sizes]
    given = {
        "key_width": (key_width, heads),
        "value_width": (value_width, heads),
        "hidden_width": (hidden_width, layers),
    }
    widths = zip(
        *(spread_widths(name, usual if own is None else own, len(parts)) for name, (own, usual) in given.items()),
        strict=True,
    )
    return [
        PlannedBlock(
            merged,
            network,
            {
                "attention": plan_attention(merged, n_k, n_v, init, blocks, f"block.{b}.attention."),
                "feedforward": plan_network(network, [n_fc] * len(network.weights), init, f"block.{b}.feedforward."),
            },
        )
        for b, ((merged, network), (n_k, n_v, n_fc)) in enumerate(zip(parts, widths, strict=True))
    ]


def parts_of(target: Transformer) -> list[tuple[MergedAttention, FeedForward]]:
    """Return the attention and the network of every block."""
    return [_parts_of(block, b) for b, block in enumerate(_blocks_of(target))]


def _blocks_of(target: Transformer) -> list[Block]:
    blocks = list(target.blocks) if isinstance(target, Transformer) else []
    for b, block in enumerate(blocks):
        if not isinstance(block, Block):
            raise ValueError(f"construct_transformer needs Block modules; block {b} is a {type(block).__name__}.")
    if not blocks:
        raise ValueError(
            f"construct_transformer needs a Transformer with blocks; got {type(target).__name__}. "
            "construct_pretrained takes torch.nn and Hugging Face transformers."
        )
    return [block for block in blocks if isinstance(block, Block)]


def _parts_of(block: Block, b: int) -> tuple[MergedAttention, FeedForward]:
    """Return a block's attention and network; the residuals need both to keep the width."""
    merged, network = as_merged(block.attention), as_feedforward(block.feedforward)  # type: ignore[arg-type]
    (_, d_model, d_out), sizes = merged.vo.shape, sizes_of(network)
    if not d_model == d_out == sizes[0] == sizes[-1]:
        raise ValueError(
            f"a block must keep its width for the residuals; in block {b} the attention maps {d_model} to {d_out} "
            f"and the network {sizes[0]} to {sizes[-1]}."
        )
    return merged, network
