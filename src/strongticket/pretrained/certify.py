"""Certificates for given samples, of any constructed ticket; in a pretrained model, from embeddings to outputs."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import torch
from torch import Tensor, nn

from strongticket.construct import samples as constructed
from strongticket.construct.given import Target as Given
from strongticket.construct.norms import row_norms
from strongticket.construct.places import Place, up
from strongticket.construct.product import Pruned
from strongticket.construct.samples import SampleCertificate
from strongticket.errors import StrongTicketError
from strongticket.models.attention import causal_mask
from strongticket.ops.arrays import Array
from strongticket.pretrained.attaching import attach, check_ticket
from strongticket.pretrained.layer import Layer
from strongticket.pretrained.load import load_model
from strongticket.pretrained.parts import Followed, Input, Network, Norm, Part, Rotary, Through, through_norm_of
from strongticket.pretrained.samples import Samples, as_inputs, run, sides, unnamed
from strongticket.pretrained.target import FAMILY, Target
from strongticket.tickets.restore import check_is_ticket
from strongticket.tickets.ticket import Ticket

# Some models compute softmax, norms and rotary positions in float32 whatever their dtype.
_ROUNDING = 1e-4
# What stands in the way of families by name; of others it is how they join their parts.
_UNPROVED = {
    **dict.fromkeys(("gptj", "phi", "gpt_neox", "cohere", "cohere2"), "parts side by side"),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"), "experts"),
    **dict.fromkeys(("dinov2", "dinov2_with_registers", "granite"), "factors on what a part adds"),
    "gemma2": "scores that are capped",
    "gpt_neo": "attention within windows",
    "stablelm": "positions that turn a part of each head",
    "ministral3": "queries that are scaled by position",
    "smollm3": "layers without positions",
    "mpnet": "positions that are added to scores outside of the attention",
    "modernbert": "a first layer without a norm",
}


def certify(
    ticket: Ticket, target: Given, samples: Samples, *, radius: float = 0.0, attends: Array | None = None
) -> SampleCertificate:
    r"""Prove how far a constructed ticket is from its target on given inputs.

    The certificate inside a ticket holds for all inputs up to a norm, and multiplies norms through the blocks. This
    one follows the samples through both networks and uses the values found there, so it grows more slowly.

    Args:
        ticket: from `construct_linear`, `construct_feedforward`, `construct_attention`, `construct_transformer` or
            `construct_pretrained`.
        target: what the ticket was made from, in any form the construction accepts; or its tensors by name, or a
            safetensors file of them; for a pretrained model, the model or its folder. A ticket does not contain its
            target.
        samples: inputs (..., d) of a map, or sequences of any length (..., T, d) for an attention or a transformer, as
            a tensor, an array or a list. For a pretrained model, the vectors that its first layer reads, or integers:
            tokens (..., T), which the model embeds. Of an encoder and a decoder a dict of both; of two towers a dict of
            one.
        radius: $r \ge 0$. The bound then holds for every input whose tokens are within $r$ of a sample's.
        attends: bool, broadcastable to (..., T, T): whether token i attends to token j. None: all to all. Pretrained
            models have their own.

    Returns:
        `error` for all samples, `errors` for each, and what they are relative to. A pretrained model's output is its
        last hidden state, or that of its decoder or tower.

    Example:
        >>> from strongticket.construct import construct_linear
        >>> target = [[0.25, -0.5]]
        >>> found = certify(construct_linear(target, hidden_width=48), target, [[1.0, 0.0], [0.0, 0.1]])
        >>> found.errors.shape, found.error < 1e-4
        (torch.Size([2]), True)
    """
    check_is_ticket(ticket)
    if ticket.architecture.get("family") != FAMILY:
        return constructed.certify(ticket, target, unnamed(samples), radius=radius, attends=attends)
    r = constructed.as_radius(radius)
    if attends is not None:
        raise ValueError("attends is not for pretrained models: they decide themselves which token attends to which.")
    model = load_model(str(target)) if isinstance(target, str | PathLike) else target
    if not isinstance(model, nn.Module):
        raise ValueError(f"the ticket is for a pretrained model; pass it or its folder, not a {type(target).__name__}.")
    return _certify(ticket, model, samples, r)


@torch.no_grad()
def _certify(ticket: Ticket, model: nn.Module, samples: Samples, radius: float) -> SampleCertificate:
    target = check_ticket(model, ticket)
    check_family(target)
    exact = Target(copy.deepcopy(model).cpu().double().eval(), target.what, target.asked)
    given = run(exact, as_inputs(exact, samples))
    by_layer: dict[str, float] = {}
    last: Places | None = None
    for side, read in given.read.items():
        sure = torch.zeros(read.shape[:-1], dtype=torch.float64)
        start, memory = Place(read, sure + radius, sure), last
        for layer, _, last in follow(target, ticket, Places(start, start), given.rotary, side=side, memory=memory):
            by_layer[layer.name] = float(last.target.error.max())
    assert last is not None
    source = Target(attach(exact.model, ticket), target.what, target.asked)
    # The certificate is about what was followed, so that must be what the model computes.
    for name, place, seen in (
        ("the model", last.target, given.output),
        ("the ticket", last.source, run(source, given.read).output),
    ):
        same = place.centre.shape == seen.shape
        if not same or not (place.centre - seen).abs().max() <= _ROUNDING * seen.abs().max():
            _check_size(given.read.values())
            raise StrongTicketError(
                f"following {name} by its family's parts does not give its outputs, so this {target.model_type} cannot "
                "be certified for samples: it computes something that the family does not describe."
            )
    if not math.isfinite(sum(by_layer.values())):
        raise ValueError("the certificate for these samples overflows float64: its numbers are too large.")
    return SampleCertificate(
        error=float(last.target.error.max()),
        radius=radius,
        errors=last.target.error,
        by_block=tuple(by_layer.values()),
        output_norm=constructed.longest(last.target.centre),
        target_sha256=target.sha256(),
    )


def _check_size(samples: Iterable[Tensor]) -> None:
    """Refuse samples whose squares exceed float32, or which it cannot tell from zero."""
    for rows in samples:
        size, limits = rows.abs().max(), torch.finfo(torch.float32)
        if row_norms(rows).max() > math.sqrt(limits.max) or 0 < size < limits.tiny:
            raise ValueError(
                f"the samples' entries, up to {size:.3g}, overflow or vanish in the model's own float32, "
                "so nothing can be certified for them."
            )


def check_family(target: Target) -> None:
    """Refuse a model whose layers join their parts in a way that nothing is proved about."""
    norms = [isinstance(input, Norm) for parts in target.family.layers.values() for _, input in _ends(parts)]
    if target.family.ends is None or not all(norms):
        unproved = _UNPROVED.get(target.model_type, "how its layers join their parts")
        raise StrongTicketError(
            f"this {target.model_type} cannot be certified for samples: nothing is proved about {unproved}. "
            "Leave samples out, or run both on them with strongticket.attach."
        )


class Places(NamedTuple):
    """The same place in both networks."""

    target: Place
    source: Place

    def meet(self) -> "Places":
        """Use that both are known at the samples: the error is at most their distance there, plus both radii."""
        target, source = self
        apart = row_norms(source.centre - target.centre)
        error = up(apart + target.radius + source.radius)
        return Places(Place(target.centre, target.radius, torch.minimum(target.error, error)), source)

    def through(self, branch: Through) -> "Places":
        """Pass a branch."""
        return Places(branch(self.target, "target"), branch(self.source, "source")).meet()

    def plus(self, other: "Places") -> "Places":
        """Add a residual."""
        return Places(self.target.plus(other.target), self.source.plus(other.source)).meet()

    def norm(self, layer: Layer, path: str) -> "Places":
        """Pass a norm, which is the same in both networks."""
        norm = through_norm_of(layer, path)
        return Places(norm(self.target), norm(self.source)).meet()


def follow(
    target: Target,
    ticket: Ticket,
    places: Places,
    rotary: Mapping[str, Rotary] | None = None,
    attends: Tensor | None = None,
    side: str = "",
    memory: Places | None = None,
) -> Iterator[tuple[Layer, Part, Places]]:
    """Yield the place behind each part with its residual and norm; the last is behind the norm that ends the layers.

    Args:
        target: the model.
        ticket: made from it.
        places: what the first layer reads.
        rotary: cosines and sines that turn queries and keys, by the layer's name.
        attends: as in `certify`; by default what the family does.
        side: which list of layers is followed, by the name that `sides` gives.
        memory: the outputs of the encoder, for a decoder.
    """
    path = sides(target)[side]
    end = target.family.end_of(path)
    listed = target.family.chosen("attention+mlp", target.asked)[path]
    if attends is None and target.family.kind == "causal":
        attends = causal_mask(places.target.centre.shape[-2])

    def errors(name: str) -> list[dict[str, Pruned]]:
        if name not in target.parts:
            return []
        return [piece.errors(ticket) for piece in target.pieces_of(name, ticket.architecture["items"], ticket.seed)]

    layers = {layer.index: layer for layer, _ in target.parts.values() if layer.layers == path}
    encoded: Mapping[Network, Place] = {"target": memory.target, "source": memory.source} if memory else {}
    branches = list(_branches(listed))
    added_norms = target.family.branch_norms or [""] * len(branches)
    for index, layer in layers.items():
        for (part, norm, behind), added in zip(branches, added_norms, strict=True):
            followed = Followed(errors, attends, (rotary or {}).get(layer.name), encoded)
            inside = places if behind else places.norm(layer, norm)
            inside = inside.through(part.through(layer, followed))
            places = places.plus(inside.norm(layer, added) if added else inside)
            if behind:
                places = places.norm(layer, norm)
            if index == max(layers) and part is branches[-1][0] and end:
                places = places.norm(layer, f"/{end}")
            yield layer, part, places


def _ends(parts: Sequence[Part]) -> list[tuple[Part, Input]]:
    """Return the parts that are added to the residual, and what their branches read."""
    return [(part, input) for part in parts if (input := part.branch()) is not None]


def _branches(parts: Sequence[Part]) -> Iterator[tuple[Part, str, bool]]:
    """Yield the parts that are added to the residual, with their norms, and whether these are behind the sum."""
    ends = _ends(parts)
    norms = [input.at for _, input in ends if isinstance(input, Norm)]
    # What reads the norm of the layer before has its own norm behind it, where the next part reads it.
    behind = norms[0].startswith("../")
    after = [*norms[1:], norms[0].removeprefix("../")] if behind else norms
    for (part, _), norm in zip(ends, after, strict=True):
        yield part, norm, behind
