"""Recompute a certificate from a ticket and its target alone; `verify --target` compares it with the stored one."""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.checks import as_count
from strongticket.construct import certify
from strongticket.construct.attention import plan_attention
from strongticket.construct.certify import PrunedAttention, PrunedBlock, PrunedNetwork
from strongticket.construct.feedforward import plan_network
from strongticket.construct.given import as_merged
from strongticket.construct.linear import plan_linear
from strongticket.construct.plan import Plan, Product, Wanted
from strongticket.construct.product import Miss, Pruned
from strongticket.construct.source import RandomMatrix
from strongticket.errors import StrongTicketError
from strongticket.models.attention import Attention, MergedAttention
from strongticket.models.transformer import FeedForward
from strongticket.ops.ordered import sparse_product
from strongticket.ops.rng import random_weights
from strongticket.tickets.build import check_blocks
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.details import Details
from strongticket.tickets.mask import BlockMask
from strongticket.tickets.owners import OwnerMask
from strongticket.tickets.tensors import Certificate, DenseTensor
from strongticket.tickets.ticket import Ticket

Examined = PrunedNetwork | PrunedAttention | list[PrunedBlock]

# The errors of entries are the same everywhere; LAPACK's norms of them differ, but never by more than this.
TOLERANCE = 1e-9
_MOST_ABOVE = 1.001


class OtherNumbersError(StrongTicketError):
    """The target has the right shapes, but its numbers are not the ticket's."""


def recertify(ticket: Ticket, target: Mapping[str, Tensor]) -> Certificate:
    """Regenerate the masked weights, compare them with the target, and bound the error again.

    Args:
        ticket: a constructed ticket with a certificate, whose `input_norm` is reused.
        target: the target's tensors by name, as in its `state_dict`.

    Raises:
        StrongTicketError: `examine` refuses the ticket, or norms overflow.
    """
    found, digest = examine(ticket, target), digest_of_tensors(target)
    assert ticket.certificate is not None
    alpha = ticket.certificate.input_norm
    try:
        if isinstance(found, PrunedAttention):
            return certify.attention(*found, alpha, digest)
        if isinstance(found, list):
            return certify.transformer(found, alpha, digest)
        if ticket.architecture["family"] == "linear":
            return certify.linear(found.layers, alpha, digest)
        return certify.feedforward(*found, alpha, digest)
    except (ValueError, RuntimeError) as error:
        # The file's errors may have norms that overflow, and LAPACK rejects infinities.
        raise StrongTicketError(str(error)) from error


def examine(ticket: Ticket, target: Mapping[str, Tensor]) -> Examined:
    """Regenerate the masked weights and compare them with the target's, matrix by matrix.

    Raises:
        StrongTicketError: the ticket has no certificate, its family cannot have one, or it was not made from such a
            target. Its tensors must be those the target needs, its architecture must agree with them, and its biases
            must be the target's, because every certificate assumes they are exact.
    """
    if ticket.certificate is None:
        raise StrongTicketError("the ticket has no certificate, so there is nothing to compare with a target.")
    family = ticket.architecture.get("family")
    if not isinstance(family, str) or family not in _FAMILIES:
        raise StrongTicketError(f"tickets of family {family!r} are not constructed from a target.")
    try:
        return _FAMILIES[family](ticket, dict(target))
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        # A file may claim any architecture for any tensors, so any error here is the file's fault.
        raise StrongTicketError(f"the target does not fit a ticket of family {family!r}: {error!r:.200}") from error


def check_heads(ticket: Ticket, n_heads: int | None) -> None:
    """Refuse a target whose number of heads is known and differs from the ticket's."""
    if n_heads is not None and (found := ticket.architecture.get("n_heads")) != n_heads:
        raise StrongTicketError(f"the ticket has {found!s:.20} heads, the target {n_heads}.")


def failures(ticket: Ticket, target: Mapping[str, Tensor]) -> list[str]:
    """List what is wrong: another target, a ticket no construction makes from it, or an error above the certificate."""
    if ticket.certificate is None:
        return ["the ticket has no certificate, so there is nothing to compare with a target"]
    stored = ticket.certificate
    if (digest := digest_of_tensors(target)) != stored.target_sha256:
        return [_other_target(ticket, target, digest)]
    try:
        recomputed = recertify(ticket, target)
    except StrongTicketError as error:
        return [str(error)]
    if recomputed.error > stored.error * (1 + TOLERANCE):
        return [f"the certificate says {stored.error:.6e}, the masks and the target give {recomputed.error:.6e}"]
    wrong = first_wrong("details", stored.details, recomputed.details)
    return [f"the certificate's {wrong}"] if wrong else []


def _other_target(ticket: Ticket, target: Mapping[str, Tensor], digest: str) -> str:
    """Explain how a target differs from the certificate's: in its shapes, or in something else."""
    assert ticket.certificate is not None
    has = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in target.items())
    try:
        with suppress(OtherNumbersError):
            examine(ticket, target)
    except StrongTicketError:
        sizes = ", ".join(f"{name} {size}" for name, size in ticket.architecture.items() if type(size) is int)
        return f"the target does not fit the ticket: it has {has:.200}; the ticket is for {sizes or 'another network'}"
    return (
        f"the target has the right shapes but other names, types or numbers (SHA-256 {digest:.16}, the certificate is "
        f"for {ticket.certificate.target_sha256:.16}); save the state_dict of the same module the ticket was made from"
    )


def first_wrong(place: str, said: object, found: object, most_above: float = _MOST_ABOVE) -> str | None:
    """Name the first claim in a certificate's details that differs from what was found.

    Args:
        place: where the claims are.
        said: the claims; a file may hold anything.
        found: what they should be.
        most_above: how many times as large as found a bound may be.
    """
    if isinstance(said, Mapping) and isinstance(found, Mapping) and said.keys() == found.keys():
        parts = [(f"{place}.{name}", said[name], found[name]) for name in sorted(said)]
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        parts = [(f"{place}.{i}", *pair) for i, pair in enumerate(zip(said, found, strict=True))]
    elif isinstance(said, float) and isinstance(found, float):
        # Stored numbers are rounded up, and a GPU bounds norms differently.
        fits = found * (1 - TOLERANCE) <= said <= found * most_above
        return None if fits else f"{place} is {said:.6e}, the masks and the target give {found:.6e}"
    else:
        same = type(said) is type(found) and said == found
        return None if same else f"{place} is {said!r:.60}, the masks and the target give {found!r:.60}"
    return next(filter(None, (first_wrong(*part, most_above) for part in parts)), None)


def check_dense(ticket: Ticket, biases: Sequence[DenseTensor], rounding: Mapping[str, Tensor] | None = None) -> None:
    """Refuse a ticket whose dense tensors are not the target's biases.

    Args:
        ticket: any.
        biases: those a construction makes from the target.
        rounding: by name, how far apart two computations of a bias may be, entry by entry; 0 if not given.
    """
    made = {bias.name: bias.value for bias in biases}
    _check_names("dense tensor", ticket.dense.keys(), made.keys(), "has")
    for name, value in made.items():
        stored, room = ticket.dense[name].value, (rounding or {}).get(name, torch.zeros((), device="cpu"))
        if stored.shape != value.shape:
            raise StrongTicketError(f"{name} has shape {tuple(stored.shape)}, the target's {tuple(value.shape)}.")
        off = (stored.double() - value.double()).abs()
        # Written so that NaN fails.
        if not (off <= room.cpu()).all():
            raise OtherNumbersError(f"{name} is not the target's: entries differ by up to {off.max().item():.6e}.")


def _linear(ticket: Ticket, target: dict[str, Tensor]) -> PrunedNetwork:
    _check_target_names(target, {"weight", "bias"})
    weight, bias = target["weight"], target.get("bias")
    plan = plan_linear(weight, _width(ticket, "first", axis=0), "theory", bias=bias)
    _check(ticket, [plan], plan.settings)
    return PrunedNetwork(FeedForward([weight], [bias]), _compare_all(ticket, plan))


def _feedforward(ticket: Ticket, target: dict[str, Tensor]) -> PrunedNetwork:
    network = network_of(target)
    plan = _network_plan(ticket, network, "")
    _check(ticket, [plan], plan.settings)
    return PrunedNetwork(network, _compare_all(ticket, plan))


def _attention(ticket: Ticket, target: dict[str, Tensor]) -> PrunedAttention:
    merged = _merged(ticket, target, "")
    plan = _attention_plan(ticket, merged, "")
    _check(ticket, [plan], plan.settings)
    return PrunedAttention(merged, _compare_all(ticket, plan))


def _transformer(ticket: Ticket, target: dict[str, Tensor]) -> list[PrunedBlock]:
    blocks = []
    for b, (attention, feedforward) in enumerate(blocks_of(target)):
        at, ff = f"block.{b}.attention.", f"block.{b}.feedforward."
        merged, network = _merged(ticket, attention, at), network_of(feedforward)
        blocks.append((merged, network, _attention_plan(ticket, merged, at), _network_plan(ticket, network, ff)))
    settings = [{"attention": first.settings, "feedforward": second.settings} for *_, first, second in blocks]
    _check(ticket, [plan for *_, first, second in blocks for plan in (first, second)], {"blocks": settings})
    return [
        PrunedBlock(
            PrunedAttention(merged, _compare_all(ticket, first, f"block.{b}.")),
            PrunedNetwork(network, _compare_all(ticket, second, f"block.{b}.")),
        )
        for b, (merged, network, first, second) in enumerate(blocks)
    ]


# Only shapes are taken from a plan's random matrices, which are the same for every initialisation.
def _network_plan(ticket: Ticket, network: FeedForward, prefix: str) -> Plan:
    widths = [_width(ticket, f"{prefix}layer.{i}.first", axis=0) for i in range(len(network.weights))]
    return plan_network(network, widths, "theory", prefix=prefix)


def _attention_plan(ticket: Ticket, merged: MergedAttention, prefix: str) -> Plan:
    n_k, n_v = (_width(ticket, f"{prefix}head.0.{part}", axis=1) for part in ("key", "value"))
    return plan_attention(merged, n_k, n_v, "theory", prefix=prefix)


def _width(ticket: Ticket, name: str, axis: int) -> int:
    """Read the number of hidden units from a tensor's shape."""
    if name not in ticket.tensors:
        raise StrongTicketError(f"the ticket has no tensor {name}, but the target needs one.")
    return ticket.tensors[name].shape[axis]


def _check(ticket: Ticket, plans: Sequence[Plan], settings: dict[str, object]) -> None:
    """Refuse a ticket whose tensors, settings or biases are not those a construction makes from the target."""
    shapes = {name: tensor.shape for name, tensor in ticket.tensors.items()}
    made = {matrix.name: matrix.shape for plan in plans for matrix in plan.matrices()}
    _check_names("tensor", shapes.keys(), made.keys(), "needs")
    for name, shape in made.items():
        if shapes[name] != shape:
            raise StrongTicketError(f"{name} has shape {shapes[name]}; for this target it must be {shape}.")
    # `init` and the side of the blocks show in the tensors themselves.
    said = {name: ticket.architecture.get(name) for name in settings}
    if wrong := first_wrong("architecture", said, settings):
        raise StrongTicketError(f"the ticket's {wrong}")
    rounding = {name: room for plan in plans for name, room in plan.bias_rounding.items()}
    check_dense(ticket, [bias for plan in plans for bias in plan.biases], rounding)


def _check_names(what: str, said: Set[str], made: Set[str], verb: str) -> None:
    """Refuse names of a ticket's tensors that are not those of the target's."""
    if odd := min(said ^ made, default=None):
        raise StrongTicketError(
            f"the ticket has no {what} {odd}, but the target {verb} one."
            if odd in made
            else f"the ticket has a {what} {odd:.80}, but the target has none of that name."
        )


def _compare_all(ticket: Ticket, plan: Plan, prefix: str = "") -> dict[str, Pruned]:
    """Compare all products with the target; find the entries out of reach, and how far off they are."""
    said: Details = ticket.certificate.details if ticket.certificate else {"unreachable": {"count": 0, "worst": []}}
    examined = {}
    for name, wanted in plan.products.items():
        found, (surely, perhaps) = _compare(ticket, wanted), _out_of_reach(ticket, wanted)
        # Where rounding decides, the solver's word is taken.
        places = {(row, column) for row, column in surely.nonzero().tolist()}
        places |= {place for place in _said_to_be_missed(said, prefix + name) if perhaps[place]}
        misses = [Miss(row, column, float(found.error[row, column].abs())) for row, column in places]
        assigned = assignment_of(ticket, prefix + name, wanted.product.blocked.name)
        examined[name] = replace(found, unreachable=misses, assigned=assigned)
    return examined


def assignment_of(ticket: Ticket, product: str, blocked: str) -> str:
    """Return how the units of a product's blocked tensor were assigned: "adaptive" or "equal"."""
    if isinstance(ticket.tensors[blocked].mask, OwnerMask):
        return "adaptive"
    # An adaptive choice may happen to equal the equal blocks, but not the reverse.
    claimed: Any = ticket.certificate.details.get("assignment") if ticket.certificate else None
    equal = claimed.get("equal") if isinstance(claimed, dict) else None
    return "adaptive" if isinstance(equal, list) and product not in equal else "equal"


def _said_to_be_missed(said: Details, product: str) -> list[tuple[int, int]]:
    listed = (miss for miss in said["unreachable"]["worst"] if miss["matrix"] == product)
    return [(as_count("row", miss["row"]), as_count("column", miss["column"])) for miss in listed]


def _compare(ticket: Ticket, wanted: Wanted) -> Pruned:
    """Compare a ticket's product with the target."""
    (product, target, rounding), weights = wanted, ticket.materialize()
    blocked, free = (_by_units(matrix, weights[matrix.name]) for matrix in (product.blocked, product.free))
    if product.relu:
        check_blocks(ticket, product.blocked.name)
        halves = [_product(free, half.T, target) for half in _parts_of_sums(product, blocked)]
        return Pruned((), torch.cat([h.error for h in halves], 1), torch.cat([h.rounding for h in halves], 1), [])
    left, right = (blocked, free) if product.transposed else (free, blocked)
    found = _product(left, right.T, target, product.divisor)
    return found if rounding is None else found.with_more_rounding(rounding)


def _out_of_reach(ticket: Ticket, wanted: Wanted) -> tuple[Tensor, Tensor]:
    """Tell which entries no mask of the free matrix reaches: surely, and perhaps, where rounding decides."""
    product, target, rounding = wanted
    one, other, transposed = product.blocked, product.free, product.transposed
    if isinstance(ticket.tensors[other.name].mask, BlockMask | OwnerMask):  # the side of the blocks shows in the masks
        one, other, transposed = other, one, not transposed
    drawn = ticket.tensors[other.name]
    free = random_weights(ticket.seed, drawn.name, drawn.shape, drawn.distribution, drawn.scale)
    free, blocked = _by_units(other, free).double(), _by_units(one, ticket.materialize()[one.name]).double()
    w, found = target.detach().double(), []
    for part in _parts_of_sums(product, blocked):
        total, size = (
            sparse_product(left, right.T, product.divisor) for left, right in ((free, part), (free.abs(), part.abs()))
        )
        if transposed:
            total, size = total.T, size.T
        # The items add up to `total`, so the positive ones to half of `size + total`.
        beyond = (w - total / 2).abs() - size / 2
        terms = (part != 0).sum(dim=1).max().item() if part.numel() else 0
        found.append((beyond, (terms + 3) * 2.0**-53 * 1.01 * (size + w.abs())))
    beyond, slack = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    if rounding is not None:
        slack += rounding
    return beyond > slack, beyond > -slack


def _by_units(matrix: RandomMatrix, weights: Tensor) -> Tensor:
    """Return a matrix with its units as columns: (coordinates, units)."""
    return weights.T if matrix.unit_axis == 0 else weights


def _parts_of_sums(product: Product, blocked: Tensor) -> list[Tensor]:
    """Split a blocked matrix into those whose units make a sum for each entry; behind a ReLU nothing is negative."""
    if not product.relu:
        return [blocked]
    return [blocked.clamp(min=0), *([] if product.nonnegative_inputs else [blocked.clamp(max=0)])]


def _product(left: Tensor, right: Tensor, target: Tensor, divisor: float = 1.0) -> Pruned:
    """Compare a product of masked matrices with a target.

    Terms are added in the order used when the masks were found, so that every machine reproduces a correct certificate.
    """
    left, right, target = left.double(), right.double(), target.detach().double()
    if (left != 0).sum() < (right != 0).sum():
        return _product(right.T, left.T, target.T, divisor).transposed()
    # Adding zeros is exact, so only terms that both matrices keep can round; counting them is exact in any order.
    terms = ((left != 0).double() @ (right != 0).double()).max().item() if left.numel() and right.numel() else 0.0
    size = sparse_product(left.abs(), right.abs(), divisor) + target.abs()
    error = sparse_product(left, right, divisor) - target
    return Pruned((), error, (terms + 3) * 2.0**-53 * 1.01 * size, [])


def _merged(ticket: Ticket, target: dict[str, Tensor], prefix: str) -> MergedAttention:
    """Merge the target's attention, in any form that `construct_attention` accepts."""
    if "qk" in target:
        _check_target_names(target, {"qk", "vo", "output_bias"})
        return MergedAttention(target["qk"], target["vo"], target.get("output_bias"))
    if "in_proj_weight" in target:
        # The tensors of a MultiheadAttention do not show how many heads they are split into; the ticket's do.
        n_heads = sum(name.startswith(f"{prefix}head.") and name.endswith(".query") for name in ticket.tensors)
        weight, bias = target["in_proj_weight"], "in_proj_bias" in target
        d = weight.shape[1]
        if not n_heads or d % n_heads:
            raise StrongTicketError(f"the ticket has {n_heads} heads, which a target of width {d} cannot have.")
        module = nn.MultiheadAttention(d, n_heads, bias=bias, dtype=weight.dtype, device=weight.device)
        module.load_state_dict(target)
        return as_merged(module)
    _check_target_names(target, {"query", "key", "value", "output", "output_bias"})
    q, k, v, o = (target[part] for part in ("query", "key", "value", "output"))
    return as_merged(Attention(q, k, v, o, target.get("output_bias")))


def network_of(target: Mapping[str, Tensor]) -> FeedForward:
    """Build a ReLU network from its tensors."""
    if "weight" in target:
        _check_target_names(target, {"weight", "bias"})
        return FeedForward([target["weight"]], [target.get("bias")])
    layers = _layers(target)
    _check_target_names(target, {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")})
    return FeedForward(
        [target[f"{layer}.weight"] for layer in layers], [target.get(f"{layer}.bias") for layer in layers]
    )


def _layers(target: Mapping[str, Tensor]) -> list[str]:
    """List a network's layers in order: by number, because a file does not keep the order, or else as the target's.

    If names without numbers are in the wrong order, the certificate does not hold, so the error shows.
    """
    layers = [name.removesuffix(".weight") for name in target if name.endswith(".weight")]
    places = {layer: layer.removeprefix("layers.").split(".") for layer in layers}
    if all(part.isdecimal() for parts in places.values() for part in parts):
        layers.sort(key=lambda layer: [int(part) for part in places[layer]])
    return layers


def blocks_of(target: Mapping[str, Tensor]) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Split a transformer's tensors into those of each block's attention and network."""
    depth = len({name.split(".")[1] for name in target if name.startswith("blocks.")})
    prefixes = [(f"blocks.{b}.attention.", f"blocks.{b}.feedforward.") for b in range(depth)]
    known = tuple(prefix for pair in prefixes for prefix in pair)
    _check_target_names(target, {name for name in target if name.startswith(known)})
    return [(_below(target, attention), _below(target, feedforward)) for attention, feedforward in prefixes]


def _check_target_names(target: Mapping[str, Tensor], known: set[str]) -> None:
    """Refuse a target with tensors that would not be compared."""
    if others := sorted(target.keys() - known):
        raise ValueError(f"the target has a tensor {others[0]:.80}, which the ticket does not stand for")


def _below(target: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in target.items() if name.startswith(prefix)}


_FAMILIES: dict[str, Callable[[Ticket, dict[str, Tensor]], Examined]] = {
    "linear": _linear,
    "feedforward": _feedforward,
    "attention": _attention,
    "transformer": _transformer,
}
