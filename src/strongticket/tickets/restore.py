"""Load a ticket into a module of the caller: masked weights and dense tensors, each in its place."""

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, group_of
from strongticket.tickets.content import Content
from strongticket.tickets.fused import Cut

CONFIG = "config"  # in the metadata of a ticket found in a Hugging Face model
# Entries of a configuration about files and versions.
_PASSING = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")


def settings_of(config: Any, *, full: bool = False) -> dict[str, object] | None:
    """Return the settings of a Hugging Face configuration, all or only non-default ones; None for anything else."""
    if not hasattr(config, "to_json_string"):
        return None
    settings: dict[str, object] = json.loads(config.to_json_string(use_diff=not full))
    return {key: value for key, value in settings.items() if key not in _PASSING}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor of a ticket goes: a parameter or buffer, or a part of one."""

    holder: Tensor
    cut: Cut | None = None
    part: str = ""

    @property
    def value(self) -> Tensor:
        """Its present value."""
        return self.holder if self.cut is None else self.cut.of(self.holder, self.part)

    def put(self, value: Tensor) -> None:
        """Write a value."""
        if self.cut is None:
            self.holder.copy_(value)
        else:
            self.cut.put(self.holder, self.part, value)


def load_ticket(model: nn.Module, ticket: Content) -> nn.Module:
    """Put a searched ticket's weights into a fresh module of the class it was found in.

    Args:
        model: as created for the search, before `hide`; changed in place.
        ticket: from a search; it must have exactly the module's tensors, in the same shapes.

    Returns:
        The module.
    """
    check_is_ticket(ticket)
    if any(slot.holder.is_meta for slot in check_fit(model, ticket).values()):
        raise ValueError("the module has no memory for its weights; create it on cpu or cuda, not on meta.")
    fill(model, ticket)
    return model


def check_is_ticket(ticket: object) -> None:
    """Refuse anything else, such as the path of a ticket."""
    if not isinstance(ticket, Content):
        raise ValueError(f"ticket must be a Ticket; got {ticket!r:.60}. Read a file by Ticket.load(path).")


@torch.no_grad()
def fill(model: nn.Module, ticket: Content, besides: Collection[str] = ()) -> None:
    """Write a ticket's tensors to their places in a module, except those in `besides`."""
    for name, parameter in model.named_parameters():
        if (constant := implied(model, name)) is not None:
            parameter.fill_(constant)
    for name, slot in check_fit(model, ticket).items():
        if name not in besides:
            masked = ticket.materialize(device=slot.holder.device)
            slot.put(masked[name] if name in masked else ticket.dense[name].value)


def check_fit(model: nn.Module, ticket: Content) -> dict[str, Slot]:
    """Return the place of each of the ticket's tensors in the module; refuse a module that does not match."""
    if type(model) is GPT2 and ticket.architecture.get("family") == "gpt2":
        _check_settings(model, ticket)
    shapes: dict[str, tuple[int, ...]] = {name: tensor.shape for name, tensor in ticket.tensors.items()}
    shapes |= {name: tuple(tensor.value.shape) for name, tensor in ticket.unscaling.items()}
    slots = {}
    for name, slot in _slots(model, ticket):
        if name not in shapes and implied(model, name) is not None:
            continue
        if shapes.get(name) != (shape := tuple(slot.value.shape)):
            there = f"{shapes[name]} in the ticket" if name in shapes else "not in the ticket"
            raise ValueError(
                f"{name} is {shape} in this {type(model).__name__} and {there}; create the module as for the search."
            )
        slots[name] = slot
    if unused := shapes.keys() - slots.keys():
        first = next(name for name in shapes if name in unused)
        raise ValueError(f"this {type(model).__name__} has no {first}, which the ticket has.")
    return slots


def _slots(model: nn.Module, ticket: Content) -> Iterator[tuple[str, Slot]]:
    """Yield every parameter and stored float buffer; those that hold several tensors, in pieces."""
    fused = ticket.architecture.get("fused", {})
    if not isinstance(fused, dict):
        raise ValueError(f"the ticket's `fused` must have an axis or a cut for each name; got {fused!r:.80}.")
    for name, parameter in model.named_parameters():
        if name not in fused:
            yield name, Slot(parameter)
            continue
        try:
            cut = Cut.from_json(fused[name], parameter.shape)
        except ValueError as error:
            raise ValueError(f"{name}: {error}.") from None
        yield from ((f"{name}.{part}", Slot(parameter, cut, part)) for part in cut.names())
    yield from ((name, Slot(buffer)) for name, buffer in stored_buffers(model))


def stored_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the float buffers in a module's state, such as running means."""
    stored = model.state_dict().keys()
    return ((name, b) for name, b in model.named_buffers() if name in stored and b.is_floating_point())


def implied(model: nn.Module, name: str) -> float | None:
    """Return the value of a tensor that a ticket omits: a GPT-2 has norms of 1 and biases of 0."""
    if type(model) is not GPT2 or group_of(name) not in ("norms", "biases"):
        return None
    return 0.0 if name.endswith("bias") else 1.0


def _check_settings(model: GPT2, ticket: Content) -> None:
    """Compare the settings that shapes do not show."""
    wanted = ticket.architecture.get("config")
    if not isinstance(wanted, dict):
        raise ValueError(f"the ticket's GPT-2 has no settings; got {wanted!r:.80}.")
    for setting, value in asdict(model.config).items():
        if setting != "dropout" and wanted.get(setting) != value:
            raise ValueError(f"the ticket's GPT-2 has {setting}={wanted.get(setting)!r:.40}, this one {value!r}.")
