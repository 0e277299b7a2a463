"""A certificate for given samples: tighter than the one for all inputs, and finite through many blocks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from strongticket.bounds.upward import up_digits
from strongticket.checks import as_real
from strongticket.construct.certify import PrunedAttention, PrunedNetwork, as_samples
from strongticket.construct.given import Target, heads_of, tensors_of
from strongticket.construct.norms import row_norms
from strongticket.construct.places import Place, through_attention, through_network
from strongticket.construct.recertify import Examined, check_heads, examine
from strongticket.notebook import card
from strongticket.ops.arrays import Array, as_tensor
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCertificate:
    """What is proved about a constructed ticket on given samples, and on balls around them.

    Args:
        error: a bound on the output error, for every token of every sample.
        radius: the bound also holds if every token is moved by at most this, equally in both networks.
        errors: the bound for each token, float64, in the shape of the samples without their last axis.
        by_block: the bound after each block, the last one being `error`; one number where there are no blocks.
        output_norm: the norm of the target's longest output on the samples, to compare the error with.
        target_sha256: `digest_of_tensors` of the target the error refers to.
    """

    error: float
    radius: float
    errors: Tensor
    by_block: tuple[float, ...]
    output_norm: float
    target_sha256: str

    def as_json(self) -> dict[str, object]:
        """Return its numbers for all inputs together."""
        return {
            "error": self.error,
            "by_block": list(self.by_block),
            "radius": self.radius,
            "inputs": self.errors.numel(),
            "output_norm": self.output_norm,
            "target_sha256": self.target_sha256,
        }

    def __str__(self) -> str:
        moved = f", each moved by at most {self.radius:g}" if self.radius else ""
        error, count = up_digits(self.error, 3), self.errors.numel()
        inputs = f"each of these {count:,} inputs" if count > 1 else "this input"
        useless = ", so the bound says nothing useful at this radius" if 0 < self.output_norm < self.error else ""
        return (
            f"output error at most {error:g} for {inputs}{moved}; "
            f"the target's outputs have norms up to {self.output_norm:.3g}{useless}"
        )

    def __repr__(self) -> str:
        return f"SampleCertificate({self})"

    def _repr_html_(self) -> str:
        facts = {"proved": str(self), "target": f"SHA-256 {self.target_sha256}"}
        if len(self.by_block) > 1:
            facts["after each block"] = ", ".join(f"{up_digits(error, 3):g}" for error in self.by_block)
        return card("Certificate for samples", facts)


def certify(
    ticket: Ticket,
    target: Target,
    samples: Array,
    *,
    radius: float = 0.0,
    attends: Array | None = None,
) -> SampleCertificate:
    """Bound the error of a ticket that is not of a pretrained model; `pretrained.certify` has the arguments."""
    r = as_radius(radius)
    check_heads(ticket, heads_of(target))
    tensors = tensors_of(target)
    found = examine(ticket, tensors)
    centre = as_samples(samples, _width(found))
    sequences = not isinstance(found, PrunedNetwork)
    if sequences and centre.dim() < 2:
        raise ValueError(f"samples must be sequences (..., tokens, {_width(found)}); got {tuple(centre.shape)}.")
    if not sequences and attends is not None:
        raise ValueError("attends is for attentions and transformers; this ticket has none.")
    sure = torch.zeros(centre.shape[:-1], dtype=torch.float64)
    places = list(
        _places(
            Place(centre, sure + r, sure),
            found,
            None if attends is None else as_tensor("attends", attends, torch.bool).cpu(),
        )
    )
    by_block = tuple(float(place.error.max()) for place in places)
    if not math.isfinite(sum(by_block)):
        raise ValueError("the certificate for these samples overflows float64: its numbers are too large.")
    return SampleCertificate(
        error=by_block[-1],
        radius=r,
        errors=places[-1].error,
        by_block=by_block,
        output_norm=longest(places[-1].centre),
        target_sha256=digest_of_tensors(tensors),
    )


def as_radius(radius: float) -> float:
    """Check a radius."""
    r = as_real(radius)
    if not 0 <= r < math.inf:
        raise ValueError(f"radius must be a finite number of at least 0; got {radius!r:.40}.")
    return r


def longest(outputs: Tensor) -> float:
    """Return the largest norm, rounded up; zeros stay zeros."""
    return float(row_norms(outputs).max()) if outputs.any() else 0.0


def _places(place: Place, found: Examined, attends: Tensor | None) -> Iterator[Place]:
    """Yield the place after each block, or the one after the whole map."""
    if isinstance(found, PrunedNetwork):
        yield through_network(place, *found)
    elif isinstance(found, PrunedAttention):
        yield through_attention(place, *found, attends)
    else:
        for block in found:
            place = place.plus(through_attention(place, *block.attention, attends))
            place = place.plus(through_network(place, *block.feedforward))
            yield place


def _width(found: Examined) -> int:
    if isinstance(found, PrunedNetwork):
        return found.network.weights[0].shape[1]
    return (found if isinstance(found, PrunedAttention) else found[0].attention).merged.vo.shape[1]
