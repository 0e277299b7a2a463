"""Recompute the certificates of a pretrained model's ticket from the ticket and the model, for `verify --target`."""

from torch import nn

from strongticket.bounds.upward import up_digits
from strongticket.construct.recertify import TOLERANCE
from strongticket.errors import StrongTicketError
from strongticket.parallel import one_thread
from strongticket.pretrained.attaching import check_ticket
from strongticket.pretrained.construct import certify_parts
from strongticket.tickets.ticket import Ticket


def failures(ticket: Ticket, model: nn.Module) -> list[str]:
    """List what is wrong: another model, or parts with larger errors, or for smaller inputs, than certified."""
    try:
        target = check_ticket(model, ticket)
    except StrongTicketError as error:
        return [str(error)]
    assert ticket.certificate is not None
    stored, work = ticket.certificate, target.pieces(ticket.architecture["items"], ticket.seed)
    try:
        with one_thread():  # as in the construction: on busy cores, several threads take many times the CPU time
            examined = {name: [piece.examine(ticket) for piece in pieces] for name, pieces in work.items()}
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
        # On another machine the bound may differ in its last bits and round up differently; accept no larger claim.
        largest = up_digits(bound * (1 + TOLERANCE))
        return max(bound, min(largest, claims.get(name, bound)))

    again = certify_parts(target, examined, stored.target_sha256, claimed)
    found = {part["part"]: part for part in again.details["parts"]}
    names = [name for name, _, _ in said]
    if missing := sorted(found.keys() - names):
        return [f"the certificate does not mention {missing[0]}"]
    if len(names) > len(found):
        return [f"the certificate lists {len(names)} parts, but the model has {len(found)}"]
    errors = [(name, error, found[name]["error"]) for name, error, _ in said]
    norms = [(name, norm, found[name]["input_norm"]) for name, _, norm in said]
    errors.append(("the worst part", stored.error, again.error))
    norms.append(("all parts", stored.input_norm, again.input_norm))
    # Written so that NaN fails.
    return [
        f"the certificate says {claim:.6e} for {name}, the masks and the model give {truth:.6e}"
        for name, claim, truth in errors
        if not truth <= claim * (1 + TOLERANCE)
    ] + [
        f"the certificate covers inputs of norm {claim:.6e} for {name}, the model gives {truth:.6e}"
        for name, claim, truth in norms
        if not claim <= truth * (1 + TOLERANCE)
    ]
