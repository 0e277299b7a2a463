"""The certificates of a pretrained model's ticket again, from the ticket and the model: what `verify --target` does."""

import math

import torch
from torch import Tensor, nn

from strongticket.bounds.upward import up_digits
from strongticket.construct.certify import head_norms
from strongticket.construct.product import Pruned, PrunedHead, spectral_norm
from strongticket.construct.recertify import TOLERANCE
from strongticket.errors import StrongTicketError
from strongticket.pretrained.adapters import Target
from strongticket.pretrained.attach import check_ticket, multiply_out
from strongticket.pretrained.construct import certify_parts
from strongticket.pretrained.parts import HeadPart, MapPart, Part, Solved, parts_of, solved_from
from strongticket.tickets.ticket import Ticket


def failures(ticket: Ticket, model: nn.Module) -> list[str]:
    """List what does not hold: another model, or parts that err more, or take smaller inputs, than is certified."""
    try:
        check_ticket(model, ticket)
    except StrongTicketError as error:
        return [str(error)]
    assert ticket.certificate is not None
    target, settings, stored = Target(model), ticket.architecture, ticket.certificate
    parts = parts_of(target, settings["what"], settings["items"], ticket.seed, "cpu")
    try:
        examined = {part.name: _examine(part, ticket) for part in parts}
    except (ValueError, RuntimeError) as error:
        # A file may have any mask for any tensor.
        return [f"the ticket's masks are not those of a construction: {error!r:.200}"]
    try:
        said = [
            (str(part["part"]), float(part["error"]), float(part["input_norm"])) for part in stored.details["parts"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return [f"the certificate does not list its parts: {error!r:.80}"]
    claims = {name: norm for name, _, norm in said}

    def claimed(name: str, bound: float) -> float:
        # Elsewhere the bound may have other last bits, and then be rounded up to another number; no claim goes beyond.
        largest = up_digits(bound * (1 + TOLERANCE))
        return max(bound, min(largest, claims.get(name, bound)))

    again = certify_parts(target, settings["what"], examined, stored.target_sha256, claimed)
    found = {part["part"]: part for part in again.details["parts"]}
    names = [name for name, _, _ in said]
    if missing := sorted(found.keys() - names):
        return [f"the certificate says nothing of {missing[0]}"]
    if len(names) > len(found):
        return [f"the certificate lists {len(names)} parts, and the model has {len(found)}"]
    errors = [(name, error, found[name]["error"]) for name, error, _ in said]
    norms = [(name, norm, found[name]["input_norm"]) for name, _, norm in said]
    errors.append(("the worst part", stored.error, again.error))
    norms.append(("all parts", stored.input_norm, again.input_norm))
    # Written so that NaN fails.
    return [
        f"the certificate says {claim:.6e} of {name}, the masks and the model give {truth:.6e}"
        for name, claim, truth in errors
        if not truth <= claim * (1 + TOLERANCE)
    ] + [
        f"the certificate speaks of inputs of norm {claim:.6e} to {name}, the model gives {truth:.6e}"
        for name, claim, truth in norms
        if not claim <= truth * (1 + TOLERANCE)
    ]


def _examine(part: Part, ticket: Ticket) -> Solved:
    """Take the norms of a part's errors from the masks themselves; unreachable entries are not looked for again."""
    if isinstance(part, HeadPart):
        qk, vo = part.merged()
        width = part.items * part.key.shape[1]
        scores = multiply_out(ticket, f"{part.name}.key", f"{part.name}.query", "cpu", divisor=math.sqrt(width))
        values = multiply_out(ticket, f"{part.name}.value", f"{part.name}.output", "cpu", free_unit_axis=0).T
        head = PrunedHead(_compared(scores, qk), _compared(values, vo))
        return solved_from(part.name, (), {"qk": head.qk, "vo": head.vo}, head_norms(qk, vo, head))
    assert isinstance(part, MapPart)
    weight = torch.tensor(part.weight).double()
    halves = [
        multiply_out(ticket, f"{part.name}.first", f"{part.name}.second", "cpu", own=own)
        for own in (lambda u: u.clamp(min=0), lambda u: u.clamp(max=0))
    ]
    both = _compared(torch.cat(halves, dim=1), torch.cat([weight, weight], dim=1))
    return solved_from(part.name, (), {"map": both}, {"norm": spectral_norm(weight), "error": both.norm()})


def _compared(product: Tensor, target: Tensor) -> Pruned:
    """Take the error as it is: the certificate allows for rounding, and to allow for it again would fail good ones."""
    error = product - target
    return Pruned((), error, torch.zeros_like(error), [])
