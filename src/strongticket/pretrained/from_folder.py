"""Load a ticket's model in the form its own library uses."""

from os import PathLike
from pathlib import Path

import torch
from torch import nn

from strongticket.errors import StrongTicketError
from strongticket.files import difference
from strongticket.pretrained.attaching import attach, parts_of
from strongticket.pretrained.load import load_class, load_config, load_model
from strongticket.pretrained.parts import Mode
from strongticket.pretrained.target import FAMILY
from strongticket.tickets.restore import CONFIG, load_ticket, settings_of
from strongticket.tickets.ticket import Ticket


def load_pretrained(
    ticket: Ticket | str | PathLike[str], base: str | PathLike[str], *, mode: Mode = "merged"
) -> nn.Module:
    """Load a ticket's model, as transformers' `from_pretrained` loads the original.

    A constructed ticket replaces some of the base's matrices; a digest checks that it was made from them. A searched
    ticket contains all numbers: only `config.json` is read from the base, and it must agree with the searched model's.

    Args:
        ticket: a constructed or searched ticket, or its file.
        base: the folder of the model it was made from, or its name on the Hugging Face hub.
        mode: for a constructed ticket, as in `attach`.

    Returns:
        A model in float32 and evaluation mode. `save_pretrained` writes it with the ticket's weights, or refuses if its
        class has no place for them, as with merged heads.
    """
    ticket = ticket if isinstance(ticket, Ticket) else Ticket.load(Path(ticket))
    family = ticket.architecture.get("family")
    if family == FAMILY:
        return attach(load_model(str(base), parts_of(ticket)), ticket, mode)
    if family == "module":
        return _searched(ticket, str(base))
    raise StrongTicketError(f"need a ticket of a pretrained model; for one of family {family!s:.40}, use build().")


def _searched(ticket: Ticket, base: str) -> nn.Module:
    kind = load_class(str(ticket.architecture.get("class")))
    config = load_config(base)
    if not isinstance(config, kind.config_class):
        raise StrongTicketError(
            f"the ticket is for a {kind.__name__}, which needs a {kind.config_class.__name__}; {base} has a "
            f"{type(config).__name__}."
        )
    recorded = ticket.metadata.get(CONFIG)
    if isinstance(recorded, dict) and (ours := _same_keys(recorded, settings_of(config, full=True))) != recorded:
        raise StrongTicketError(
            f'{base} has other settings than the searched model ({difference(recorded, ours)}; "there" is the '
            'ticket, "here" the folder).'
        )
    with torch.random.fork_rng(devices=[]):  # these random numbers are overwritten
        model: nn.Module = kind(config)
    return load_ticket(model.float(), ticket).eval()


def _same_keys(wanted: object, found: object) -> object:
    """Keep only the wanted keys: later releases have more."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return found
    return {key: _same_keys(value, found[key]) for key, value in wanted.items() if key in found}
