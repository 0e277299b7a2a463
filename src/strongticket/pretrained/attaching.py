"""Put a ticket in place of a model's own matrices."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, get_args

from torch import nn

from strongticket.construct.recertify import check_dense
from strongticket.construct.source import check_option
from strongticket.errors import StrongTicketError
from strongticket.parallel import one_thread
from strongticket.pretrained.families import Parts, What
from strongticket.pretrained.parts import Mode
from strongticket.pretrained.target import FAMILY, Target
from strongticket.pretrained.torch_modules import mirror, opened
from strongticket.tickets.details import Details
from strongticket.tickets.from_bits import Resident, Run, check_resident, check_signed, load_bits
from strongticket.tickets.restore import stored_buffers
from strongticket.tickets.ticket import Ticket


def attach(
    model: nn.Module,
    ticket: Ticket,
    mode: Mode = "merged",
    *,
    run: Run = "dense",
    resident: Resident = "planes",
    progress: Callable[[int], object] | None = None,
) -> nn.Module:
    """Return a copy of a model with a ticket's pruned random matrices in its attention and, if included, its MLPs.

    Args:
        model: the Hugging Face model the ticket was made for. It is not changed; the copy shares the memory of all
            other parameters.
        ticket: from `construct_pretrained` or `strongticket construct`; with `run="bits"`, a ticket of signed constants
            that a search found in a module like this.
        mode: "merged" multiplies the random matrices out once, which takes seconds; "literal" keeps them wide and
            regenerates each from the seed at every use, so that memory stays small but every call is slow.
        run: "bits" keeps signed constants in bit planes; the copy then shares no memory with the module, which may be
            on meta. Constructed tickets are uniform and need "dense".
        resident: with `run="bits"`, "planes" keeps the signs in memory too; "mask" draws them again when needed.
        progress: called with the number of random weights just put in place.

    Returns:
        A model of the same class, in evaluation mode; an `nn.MultiheadAttention` becomes another module with the same
        call signature. `save_pretrained` writes it with the ticket's weights, or refuses if the class has no place for
        them, as with merged heads.
    """
    check_option("mode", mode, get_args(Mode))
    check_option("run", run, get_args(Run))
    check_option("resident", resident, get_args(Resident))
    check_resident(run, resident)
    if run == "bits":
        return _attach_bits(model, ticket, resident)
    check_ticket(model, ticket)
    target = Target(mirror(opened(model)), ticket.architecture["what"], parts_of(ticket))
    try:
        for name, (layer, part) in target.parts.items():
            pieces = target.pieces_of(name, ticket.architecture["items"], ticket.seed)
            with one_thread():  # several threads would only wait for each other: there is little work per number
                part.put(layer, pieces, ticket, mode)
            if progress is not None:
                progress(sum(math.prod(matrix.shape) for piece in pieces for matrix in piece.matrices()))
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        # A file may claim any architecture for any tensors, so any error here is the file's fault.
        raise StrongTicketError(f"the ticket's tensors do not fit the model: {error!r:.200}") from error
    return _saved_if_it_can_be(target.model.eval(), model)


def _saved_if_it_can_be(attached: nn.Module, model: nn.Module) -> nn.Module:
    """Make saving fail if the model's class could not load the result."""
    if hasattr(attached, "save_pretrained") and _layout(attached) != _layout(model):
        attached.save_pretrained = partial(_refuse_to_save, type(model).__name__)  # type: ignore[assignment]
    return attached


def _refuse_to_save(kind: str, *_: object, **__: object) -> NoReturn:
    raise StrongTicketError(
        f"a {kind} has no place for merged or random matrices, so its files could not be loaded. Keep the ticket, "
        "which load_pretrained needs anyway, or use `strongticket export`."
    )


def _layout(model: nn.Module) -> list[Any]:
    """List the kind of every module, and the shapes of its parameters."""
    parts = model.named_modules()
    return [(name, type(part), [tuple(p.shape) for p in part.parameters(recurse=False)]) for name, part in parts]


def parts_of(ticket: Ticket) -> Parts:
    """Return the `parts` a ticket was made with."""
    return "linear" if ticket.architecture.get("parts") == "linear" else "merged"


def _attach_bits(model: nn.Module, ticket: Ticket, resident: Resident) -> nn.Module:
    check_signed(ticket)
    device = next((parameter.device for parameter in model.parameters()), None)
    # The original is never written to, because its copy has only shapes.
    shapes: dict[int, Any] = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in model.parameters()}
    shapes |= {id(buffer): buffer.detach().to("meta") for _, buffer in stored_buffers(model)}
    shell = copy.deepcopy(model, shapes)
    place = "cpu" if device is None or device.type == "meta" else device
    return load_bits(shell, ticket, device=place, resident=resident).eval()


def check_ticket(model: nn.Module, ticket: Ticket) -> Target:
    """Refuse a ticket that was not made from this model's numbers, with the same scale and heads; return the target."""
    family = ticket.architecture.get("family")
    if family != FAMILY or ticket.certificate is None:
        raise StrongTicketError(
            f"need a ticket made by `strongticket construct --model`; this one's family is {family!r}."
        )
    recorded: str = ticket.certificate.target_sha256
    what: Any = ticket.architecture.get("what")
    if what not in get_args(What):
        raise StrongTicketError(f"the ticket stands for {what!r:.40}; it must be one of {', '.join(get_args(What))}.")
    target = Target(model, what, parts_of(ticket))
    digest = target.sha256()
    if digest != recorded:
        raise StrongTicketError(
            f"the ticket was made for a {ticket.architecture.get('model_type')} whose weights have SHA-256 {recorded}; "
            f"this {target.model_type} has {digest} (the attention's scaling is included). "
            "Use the model it was made from."
        )
    items = ticket.architecture.get("items")
    if type(items) is not int or ticket.architecture != target.describe(items):
        raise StrongTicketError(f"the ticket's architecture is not that of this {target.model_type}.")
    pieces = [piece for part in target.pieces(items, ticket.seed).values() for piece in part]
    shapes = {matrix.name: matrix.shape for piece in pieces for matrix in piece.matrices()}
    if shapes != {name: tensor.shape for name, tensor in ticket.tensors.items()}:
        raise StrongTicketError(f"the ticket's tensors are not those of a {target.model_type} with {items} items.")
    for name, tensor in ticket.tensors.items():
        # `multiply_out` draws the units' own weights, and supports only this distribution.
        if tensor.distribution != "uniform":
            raise StrongTicketError(f"{name} must be drawn uniformly; the ticket says {tensor.distribution!r}.")
    check_dense(ticket, target.biases())
    _check_parts(ticket.certificate.details, [*target.parts])
    return target


_NUMBERS = ("input_norm", "error", "worst_entry", "worst_reached")


def _check_parts(details: Details, names: Sequence[str]) -> None:
    """Refuse a certificate that does not list the model's parts with their numbers: a file may hold anything."""
    try:
        listed = [str(part["part"]) for part in details["parts"]]
        numbers = [part[name] for part in details["parts"] for name in _NUMBERS]  # type: ignore[literal-required]
        counts = [details["unreachable"]["count"], *(part["unreachable"] for part in details["parts"])]
        if odd := [each for each in numbers if type(each) is not float] + [n for n in counts if type(n) is not int]:
            raise TypeError(f"{odd[0]!r:.40} is not a number of the right kind")
    except (LookupError, TypeError) as error:
        raise StrongTicketError(f"the certificate does not list its parts: {error!r:.80}") from None
    if missing := sorted({*names} - {*listed}):
        raise StrongTicketError(f"the certificate does not mention {missing[0]}")
    if len(listed) > len(names):
        raise StrongTicketError(f"the certificate lists {len(listed)} parts, but the model has {len(names)}")
