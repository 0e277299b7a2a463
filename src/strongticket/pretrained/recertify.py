"""The certificates of a pretrained model's ticket again, from the ticket and the model: what `verify --target` does."""

import math

import torch
from torch import Tensor, nn

from strongticket.construct.attention import PrunedHead
from strongticket.construct.certify import head_norms
from strongticket.construct.product import Pruned, spectral_norm
from strongticket.construct.recertify import TOLERANCE
from strongticket.errors import StrongTicketError
from strongticket.pretrained.adapters import Target
from strongticket.pretrained.attach import check_ticket, multiply_out
from strongticket.pretrained.construct import certify_parts
from strongticket.pretrained.parts import HeadPart, MapPart, Part, Solved, parts_of, solved_from
from strongticket.ticket import Ticket


def failures(ticket: Ticket, model: nn.Module) -> list[str]:
    """List what does not hold: another model than the certified one, or parts that err more than is certified."""
    try:
        check_ticket(model, ticket)
    except StrongTicketError as error:
        return [str(error)]
    assert ticket.certificate is not None
    target, settings, stored = Target(model), ticket.architecture, ticket.certificate
    parts = parts_of(target, settings["what"], settings["items"], ticket.seed, "cpu")
    examined = {part.name: _examine(part, ticket) for part in parts}
    again = certify_parts(target, settings["what"], examined, stored.target_sha256)
    try:
        said = {part["part"]: float(part["error"]) for part in stored.details["parts"]}
    except (KeyError, TypeError, ValueError) as error:
        return [f"the certificate does not list its parts: {error!r:.80}"]
    found = {part["part"]: part["error"] for part in again.details["parts"]}
    if missing := sorted(found.keys() - said.keys()):
        return [f"the certificate says nothing of {missing[0]}"]
    over = {name: error for name, error in found.items() if error > said[name] * (1 + TOLERANCE)}
    if max(found.values()) > stored.error * (1 + TOLERANCE):
        over["the worst part"], said["the worst part"] = max(found.values()), stored.error
    return [
        f"the certificate says {said[name]:.6e} of {name}, the masks and the model give {error:.6e}"
        for name, error in over.items()
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
