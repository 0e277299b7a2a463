"""The certificate again, from a ticket and its target alone: what `verify --target` holds against the stored one."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from strongticket.construct import certify
from strongticket.construct.attention import PrunedHead, as_merged, exact_output_bias
from strongticket.construct.feedforward import exact_biases
from strongticket.construct.product import Pruned
from strongticket.container import Json
from strongticket.errors import StrongTicketError
from strongticket.models.attention import Attention, MergedAttention
from strongticket.models.transformer import FeedForward
from strongticket.ticket import Certificate, DenseTensor, MaskedWeights, Ticket, digest_of_tensors

# The stored bound and the recomputed one differ by the order of additions, never by more than this.
TOLERANCE = 1e-9


def recertify(ticket: Ticket, target: Mapping[str, Tensor]) -> Certificate:
    """Regenerate the masked weights, compare them with the target, and bound the error anew.

    Args:
        ticket: a constructed one, with a certificate; its `input_norm` is used again.
        target: the target's tensors by name, as its `state_dict` gives them.

    Raises:
        StrongTicketError: the ticket's family cannot be certified, or the ticket is not one that is made from such a
            target: its biases are exact in every certificate, so they must be the target's.
    """
    if ticket.certificate is None:
        raise StrongTicketError("the ticket has no certificate, so there is nothing to hold against a target.")
    family = ticket.architecture.get("family")
    if not isinstance(family, str) or family not in _FAMILIES:
        raise StrongTicketError(f"tickets of family {family!r} are not constructed from a target.")
    try:
        return _FAMILIES[family](ticket, dict(target), ticket.certificate.input_norm)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        # A file may claim any architecture for any tensors, so whatever goes wrong here is the file's doing.
        raise StrongTicketError(f"the target does not fit a ticket of family {family!r}: {error!r:.200}") from error


def failures(ticket: Ticket, target: Mapping[str, Tensor]) -> list[str]:
    """List what does not hold: another target, what no construction makes of it, or an error above the certified."""
    if ticket.certificate is None:
        return ["the ticket has no certificate, so there is nothing to hold against a target"]
    stored = ticket.certificate
    if (digest := digest_of_tensors(target)) != stored.target_sha256:
        return [f"the target has SHA-256 {digest}, the certificate is for {stored.target_sha256}"]
    try:
        recomputed = recertify(ticket, target)
    except StrongTicketError as error:
        return [str(error)]
    if recomputed.error > stored.error * (1 + TOLERANCE):
        return [f"the certificate says {stored.error:.6e}, the masks and the target give {recomputed.error:.6e}"]
    return []


def check_dense(ticket: Ticket, biases: Sequence[DenseTensor], rounding: Mapping[str, Tensor] | None = None) -> None:
    """Refuse a ticket whose dense tensors are not the target's biases.

    Args:
        ticket: any.
        biases: those a construction makes of the target.
        rounding: by name, how far two computations of a bias may be apart, entry by entry; 0 where it is not given.
    """
    made = {bias.name: bias.value for bias in biases}
    if odd := sorted(made.keys() ^ ticket.dense.keys()):
        raise StrongTicketError(
            f"the ticket has no dense tensor {odd[0]}, and the target has one."
            if odd[0] in made
            else f"the ticket has a dense tensor {odd[0]:.80}, and the target makes none of that name."
        )
    for name, value in made.items():
        stored, room = ticket.dense[name].value, (rounding or {}).get(name, torch.zeros(()))
        if stored.shape != value.shape:
            raise StrongTicketError(f"{name} has shape {tuple(stored.shape)}, the target's {tuple(value.shape)}.")
        off = (stored.double() - value.double()).abs()
        # Written so that NaN fails.
        if not (off <= room.cpu()).all():
            raise StrongTicketError(f"{name} is not the target's: entries differ by up to {off.max().item():.6e}.")


def _linear(ticket: Ticket, target: dict[str, Tensor], alpha: float) -> Certificate:
    check_dense(ticket, [])
    weights = ticket.materialize()
    pruned = _product(weights["second"], weights["first"], target["weight"])
    return certify.linear(pruned, alpha, digest_of_tensors(target))


def _feedforward(ticket: Ticket, target: dict[str, Tensor], alpha: float) -> Certificate:
    network = _network(target)
    check_dense(ticket, exact_biases(network, ""))
    layers = _layers(ticket.materialize(), network, "")
    return certify.feedforward(network, layers, alpha, digest_of_tensors(target))


def _attention(ticket: Ticket, target: dict[str, Tensor], alpha: float) -> Certificate:
    merged = _merged(target, ticket.architecture)
    check_dense(ticket, exact_output_bias(merged, ""), {"output_bias": merged.bias_rounding})
    heads = _heads(ticket.materialize(), merged, ticket.architecture, "")
    return certify.attention(merged, heads, alpha, digest_of_tensors(target))


def _transformer(ticket: Ticket, target: dict[str, Tensor], alpha: float) -> Certificate:
    weights, blocks = ticket.materialize(), []
    dense: list[DenseTensor] = []
    rounding: dict[str, Tensor] = {}
    for b, settings in enumerate(ticket.architecture["blocks"]):
        merged = _merged(_below(target, f"blocks.{b}.attention."), settings["attention"])
        network = _network(_below(target, f"blocks.{b}.feedforward."))
        at, ff = f"block.{b}.attention.", f"block.{b}.feedforward."
        dense += exact_output_bias(merged, at) + exact_biases(network, ff)
        rounding[f"{at}output_bias"] = merged.bias_rounding
        heads = _heads(weights, merged, settings["attention"], at)
        layers = _layers(weights, network, ff)
        blocks.append(certify.PrunedBlock(merged, network, heads, layers))
    check_dense(ticket, dense, rounding)
    return certify.transformer(blocks, alpha, digest_of_tensors(target))


def _heads(weights: MaskedWeights, merged: MergedAttention, settings: dict[str, Json], prefix: str) -> list[PrunedHead]:
    heads = []
    for j in range(settings["n_heads"]):
        q, k, v, o = (weights[f"{prefix}head.{j}.{part}"] for part in ("query", "key", "value", "output"))
        qk = _product(q, k.T, merged.qk[j], math.sqrt(settings["key_width"]))
        vo = _product(v, o, merged.vo[j])
        heads.append(
            PrunedHead(qk.with_more_rounding(merged.qk_rounding[j]), vo.with_more_rounding(merged.vo_rounding[j]))
        )
    return heads


def _layers(weights: MaskedWeights, network: FeedForward, prefix: str) -> list[Pruned]:
    layers = []
    for i, weight in enumerate(network.weights):
        first, second = (weights[f"{prefix}layer.{i}.{part}"] for part in ("first", "second"))
        halves = [_product(second, first.clamp(min=0), weight)]
        # Behind a ReLU nothing is negative.
        if i == 0:
            halves.append(_product(second, first.clamp(max=0), weight))
        layers.append(
            Pruned((), torch.cat([h.error for h in halves], 1), torch.cat([h.rounding for h in halves], 1), [])
        )
    return layers


def _product(left: Tensor, right: Tensor, target: Tensor, divisor: float = 1.0) -> Pruned:
    """Compare a product of masked matrices with a target; unreachable entries are not looked for again."""
    left, right, target = left.double(), right.double(), target.detach().double()
    # Adding zeros is exact, so only the terms that are kept can round.
    terms = ((left != 0).double() @ (right != 0).double()).max().item() if left.numel() and right.numel() else 0.0
    size = left.abs() @ right.abs() / divisor + target.abs()
    return Pruned((), left @ right / divisor - target, (terms + 3) * 2.0**-53 * 1.01 * size, [])


def _merged(target: dict[str, Tensor], settings: dict[str, Json]) -> MergedAttention:
    """Take the target's attention in any of the forms `construct_attention` takes it."""
    if "qk" in target:
        return MergedAttention(target["qk"], target["vo"], target.get("output_bias"))
    if "in_proj_weight" in target:
        d, bias = target["in_proj_weight"].shape[1], "in_proj_bias" in target
        module = nn.MultiheadAttention(d, settings["n_heads"], bias=bias, dtype=target["in_proj_weight"].dtype)
        module.load_state_dict(target)
        return as_merged(module)
    q, k, v, o = (target[part] for part in ("query", "key", "value", "output"))
    return as_merged(Attention(q, k, v, o, target.get("output_bias")))


def _network(target: dict[str, Tensor]) -> FeedForward:
    if "weight" in target:
        return FeedForward([target["weight"]], [target.get("bias")])
    depth = sum(name.endswith(".weight") for name in target)
    weights = [target[f"layers.{i}.weight"] for i in range(depth)]
    return FeedForward(weights, [target.get(f"layers.{i}.bias") for i in range(depth)])


def _below(target: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in target.items() if name.startswith(prefix)}


_FAMILIES: dict[str, Callable[[Ticket, dict[str, Tensor], float], Certificate]] = {
    "linear": _linear,
    "feedforward": _feedforward,
    "attention": _attention,
    "transformer": _transformer,
}
