"""From a ticket back into a module that the caller made: masked weights and dense tensors, each to its place."""

from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import Literal

import torch
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, group_of
from strongticket.tickets.content import Content

Role = Literal["query", "key", "value"]

# What a parameter named in an architecture's `fused` holds side by side, along the axis given there.
FUSED: tuple[Role, ...] = ("query", "key", "value")


def load_ticket(model: nn.Module, ticket: Content) -> nn.Module:
    """Put a searched ticket's weights into a fresh module of the class it was found in.

    Args:
        model: as it was made for the search, before anything was hidden in it; changed in place.
        ticket: from a search; every tensor of the module must be in it, in the same shape, and no other.

    Returns:
        The module.
    """
    if any(view.is_meta for view in check_fit(model, ticket).values()):
        raise ValueError("the module has no memory for its weights; make it on cpu or cuda, not on meta.")
    fill(model, ticket)
    return model


@torch.no_grad()
def fill(model: nn.Module, ticket: Content, besides: Collection[str] = ()) -> None:
    """Write a ticket's tensors to their places in a module, all but some."""
    for name, parameter in model.named_parameters():
        if (constant := implied(model, name)) is not None:
            parameter.fill_(constant)
    for name, view in check_fit(model, ticket).items():
        if name not in besides:
            masked = ticket.materialize(device=view.device)
            view.copy_(masked[name] if name in masked else ticket.dense[name].value)


def check_fit(model: nn.Module, ticket: Content) -> dict[str, Tensor]:
    """Give the place in the module of each tensor of the ticket; refuse a module that is not what it was made for."""
    if type(model) is GPT2 and ticket.architecture.get("family") == "gpt2":
        _check_settings(model, ticket)
    shapes: dict[str, tuple[int, ...]] = {name: tensor.shape for name, tensor in ticket.tensors.items()}
    shapes |= {name: tuple(tensor.value.shape) for name, tensor in ticket.unscaling.items()}
    views = {}
    for name, view in _views(model, ticket):
        if name not in shapes and implied(model, name) is not None:
            continue
        if shapes.get(name) != tuple(view.shape):
            there = f"{shapes[name]} in the ticket" if name in shapes else "not in the ticket"
            raise ValueError(
                f"{name} is {tuple(view.shape)} in this {type(model).__name__} and {there}; "
                "make the module as it was made for the search."
            )
        views[name] = view
    if unused := shapes.keys() - views.keys():
        first = next(name for name in shapes if name in unused)
        raise ValueError(f"this {type(model).__name__} has no {first}, which the ticket has.")
    return views


def _views(model: nn.Module, ticket: Content) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and stored float buffer; those that hold several tensors in pieces."""
    fused = ticket.architecture.get("fused", {})
    if not isinstance(fused, dict) or not all(type(axis) is int and 0 <= axis <= 1 for axis in fused.values()):
        raise ValueError(f"the ticket's `fused` must give axis 0 or 1 for each name; got {fused!r:.80}.")
    for name, parameter in model.named_parameters():
        if name not in fused:
            yield name, parameter
        elif parameter.dim() < 2 or parameter.shape[fused[name]] % len(FUSED):
            raise ValueError(f"{name} {tuple(parameter.shape)} does not hold query, key and value side by side.")
        else:
            pieces = parameter.chunk(len(FUSED), dim=fused[name])
            yield from ((f"{name}.{role}", piece) for role, piece in zip(FUSED, pieces, strict=True))
    yield from stored_buffers(model)


def stored_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Give the float buffers that are part of a module's state, running means for instance."""
    stored = model.state_dict().keys()
    return ((name, b) for name, b in model.named_buffers() if name in stored and b.is_floating_point())


def implied(model: nn.Module, name: str) -> float | None:
    """Say what a tensor is if a ticket does not mention it: a GPT-2 has norms of 1 and biases of 0."""
    if type(model) is not GPT2 or group_of(name) not in ("norms", "biases"):
        return None
    return 0.0 if name.endswith("bias") else 1.0


def _check_settings(model: GPT2, ticket: Content) -> None:
    """Compare what shapes do not show."""
    wanted = ticket.architecture.get("config")
    if not isinstance(wanted, dict):
        raise ValueError(f"the ticket's GPT-2 has no settings; got {wanted!r:.80}.")
    for setting, value in asdict(model.config).items():
        if setting != "dropout" and wanted.get(setting) != value:
            raise ValueError(f"the ticket's GPT-2 has {setting}={wanted.get(setting)!r:.40}, this one {value!r}.")
