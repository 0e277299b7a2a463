"""Recompute the certificates of a pretrained model's ticket from the ticket and the model, for `verify --target`."""

import sys
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from strongticket.bounds.upward import up_digits
from strongticket.construct.recertify import TOLERANCE, assignment_of, first_wrong
from strongticket.errors import StrongTicketError
from strongticket.parallel import one_thread
from strongticket.pretrained.attaching import check_ticket
from strongticket.pretrained.construct import certify_parts
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.tickets.details import Details
from strongticket.tickets.ticket import Ticket

# A part's fields that are compared by themselves, or not at all.
_APART = ("input_norm", "error", "worst_entry", "worst_reached", "unreachable")
# The solver and we add up an entry's products in different orders.
_ROUNDING = 2.0**-40


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
            examined = {name: [_examine(piece, ticket) for piece in pieces] for name, pieces in work.items()}
    except (ValueError, RuntimeError) as error:
        # A file may have any mask for any tensor.
        return [f"the ticket's masks are not those of a construction: {error!r:.200}"]
    said = {part["part"]: part for part in stored.details["parts"]}

    def claimed(name: str, bound: float) -> float:
        # On another machine the bound may differ in its last bits and round up differently; accept no larger claim.
        return max(bound, min(up_digits(bound * (1 + TOLERANCE)), said[name]["input_norm"]))

    again = certify_parts(target, examined, stored.target_sha256, claimed)
    found = {part["part"]: part for part in again.details["parts"]}
    errors = [(name, part["error"], found[name]["error"]) for name, part in said.items()]
    norms = [(name, part["input_norm"], found[name]["input_norm"]) for name, part in said.items()]
    errors.append(("the worst part", stored.error, again.error))
    norms.append(("all parts", stored.input_norm, again.input_norm))
    # Written so that NaN fails.
    return (
        [
            f"the certificate says {claim:.6e} for {name}, the masks and the model give {truth:.6e}"
            for name, claim, truth in errors
            if not truth <= claim * (1 + TOLERANCE)
        ]
        + [
            f"the certificate covers inputs of norm {claim:.6e} for {name}, the model gives {truth:.6e}"
            for name, claim, truth in norms
            if not claim <= truth * (1 + TOLERANCE)
        ]
        + [f"the certificate's {wrong}" for wrong in _wrong_details(stored.details, again.details) if wrong]
    )


def _examine(piece: Piece, ticket: Ticket) -> Solved:
    """Compute the norms of a piece's errors, and how its units were assigned."""
    ways = {
        f"{piece.name}.{of}": assignment_of(ticket, f"{piece.name}.{of}", product.blocked.name)
        for of, product in piece.products.items()
    }
    return replace(piece.examine(ticket), assigned=ways)


def _wrong_details(said: Details, found: Details) -> Iterator[str | None]:
    """Name what no construction claims of these masks; which entries no subset reaches is not searched for again."""
    yield first_wrong("fields", sorted(said), sorted(found))
    for name in ("scope", "assignment"):
        yield first_wrong(name, said.get(name), found.get(name))
    counts = [part["unreachable"] for part in said["parts"]]
    yield first_wrong("unreachable.count", said["unreachable"]["count"], sum(map(abs, counts)))
    theirs = {part["part"]: part for part in said["parts"]}
    for part in found["parts"]:
        name, claimed = part["part"], theirs[part["part"]]
        own, claims = ({key: value for key, value in each.items() if key not in _APART} for each in (part, claimed))
        # Stored norms include the rounding of what they were computed from, which may be most of a tiny error.
        yield first_wrong(name, claims, own, sys.float_info.max)
        norms = [part.get("norm", 0.0)]
        norms += [norm for head in part.get("heads", ()) for norm in (head["qk_norm"], head["vo_norm"])]
        worst, reached = claimed["worst_entry"], claimed["worst_reached"]
        if not part["worst_entry"] <= worst + _ROUNDING * max(norms):
            yield f"{name}.worst_entry is {worst:.6e}, the masks and the model give {part['worst_entry']:.6e}"
        if not (reached <= worst if claimed["unreachable"] else reached == worst):
            yield f"{name}.worst_reached is {reached:.6e}, with a worst entry of {worst:.6e}"
