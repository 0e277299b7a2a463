"""How far a ticket is from its target: errors over inputs, the certificate beside them, and entries out of reach."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from strongticket.files import Json
from strongticket.tickets.ticket import Ticket

# A certificate speaks of real arithmetic. Both networks are evaluated in float64 on values of order 1, and their
# difference is off by less than this.
ROUNDING = 1e-13


def token_errors(module: nn.Module, expected: Tensor, x: Tensor) -> Tensor:
    """Give each input's largest error norm over its tokens, (N,)."""
    with torch.inference_mode():
        worst: Tensor = (module(x) - expected).norm(dim=-1).amax(dim=-1)
    return worst


def describe_ticket(ticket: Ticket) -> dict[str, Json]:
    """Say what is certified of a ticket, and what was out of reach."""
    certificate = ticket.certificate
    assert certificate is not None
    out_of_reach = certificate.details["unreachable"]
    worst = out_of_reach["worst"]
    return {
        "seed": ticket.seed,
        "certificate": certificate.error,
        "unreachable": out_of_reach["count"],
        "missed": worst[0]["missed"] if worst else 0.0,
    }


def violated(certificate: float, worst: float) -> bool:
    """Tell whether an error exceeds what was certified by more than rounding explains."""
    return worst > certificate + ROUNDING


def columns(rows: list[dict[str, Json]]) -> dict[str, list[Json]]:
    """Turn rows with the same fields into one list for each field.

    Example:
        >>> columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
        {'a': [1, 3], 'b': [2, 4]}
    """
    return {name: [row[name] for row in rows] for name in rows[0]}


def sources_of(rows: Sequence[Json], target: int, width: int) -> dict[str, list[Json]]:
    """Put the columns of all chunks of one target and width one below another."""
    parts = [row["sources"] for row in rows if (row["target"], row["width"]) == (target, width)]
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def worst_and_certified(sources: dict[str, list[Json]]) -> tuple[list[float], list[float]]:
    """Give each source's worst error and its certificate, whichever figure it is from."""
    if "token_worst" in sources:
        columns = zip(sources["token_worst"], sources["all_tokens_worst"], strict=True)
        return [max(*token, *every) for token, every in columns], sources["certificate"]
    if sources["worst"] and isinstance(sources["worst"][0], list):  # by number of blocks: the deepest
        return [errors[-1] for errors in sources["worst"]], [bounds[-1] for bounds in sources["certificate"]]
    return sources["worst"], sources["certificate"]
