"""Check that a ticket is intact and that its certificate holds for its target, for `strongticket verify`."""

from functools import partial
from os import PathLike

from torch import nn

from strongticket.construct import recertify
from strongticket.construct.given import Target, heads_of, tensors_of
from strongticket.construct.norms import is_divided, undivided
from strongticket.errors import StrongTicketError
from strongticket.pretrained import recertify as recertify_parts
from strongticket.pretrained.load import load_model
from strongticket.tickets.content import Progress
from strongticket.tickets.restore import check_is_ticket
from strongticket.tickets.ticket import Ticket, Verification


def verify(ticket: Ticket, target: Target | None = None, *, progress: Progress | None = None) -> Verification:
    """Check that a ticket is intact, and that its certificate holds for its target.

    Masks and regenerated weights are compared with the file's digests, and the certificate is recomputed from the
    target.

    Args:
        ticket: any ticket.
        target: what it was constructed from, in any form the construction accepts; or its tensors by name, or a
            safetensors file of them. For a pretrained model, the model or its folder. None checks only the digests.
        progress: called with the number of weights regenerated since the last call.

    Returns:
        `ok`, and `failures`: what is wrong, in words.

    Example:
        >>> from strongticket.construct import construct_linear
        >>> ticket = construct_linear([[0.25, -0.5]], hidden_width=48)
        >>> verify(ticket, [[0.25, -0.5]]).ok, verify(ticket, [[0.25, 0.5]]).ok
        (True, False)
    """
    check_is_ticket(ticket)
    failures = ticket.verify(progress).failures
    return Verification((*failures, *target_failures(ticket, target))) if target is not None else Verification(failures)


def target_failures(ticket: Ticket, target: Target) -> list[str]:
    """List what is wrong with a ticket's certificate for a target."""
    if ticket.architecture.get("family") != "pretrained":
        try:
            recertify.check_heads(ticket, heads_of(target))
        except StrongTicketError as error:
            return [str(error)]
        check = partial(recertify.failures, ticket, tensors_of(target))
    else:
        model = load_model(str(target)) if isinstance(target, str | PathLike) else target
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"the ticket is for a pretrained model; pass it or its folder, not a {type(target).__name__}."
            )
        check = partial(recertify_parts.failures, ticket, model)
    failures = check()
    if failures and any(is_divided(tensor.shape) for tensor in ticket.tensors.values()):
        # The first release bounded the norms of wide matrices closer, and its certificates say so.
        with undivided():
            failures = check()
    return failures
