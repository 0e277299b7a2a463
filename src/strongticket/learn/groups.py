"""Assign each parameter of a module to a group, by the types and names of the modules around it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from strongticket.learn.policy import GROUPS
from strongticket.models.gpt2 import Group

# From parameter names to groups: a function that returns None to keep the default, or patterns like "*.wpe.weight".
Groups = Callable[[str], Group | None] | Mapping[str, Group]

_NORM = re.compile(r"norm(\dd)?$", re.IGNORECASE)
_ATTENTION = re.compile(r"(attn|attention)\d*$", re.IGNORECASE)
_HEADS = {"lm_head", "embed_out", "to_logits", "mlp_head", "head", "heads", "classifier", "score", "cls"}
_EMBEDDING = re.compile(r"(^|_)(embed(ding)?s?|tokens?|pos(ition(s|al)?)?|cls|class)(_|$)", re.IGNORECASE)
_BIAS = re.compile(r"(^|_)bias(_|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter lies."""

    name: str
    modules: tuple[nn.Module, ...]  # from the root to the one that holds it

    @property
    def holder(self) -> nn.Module:
        """The module that holds it."""
        return self.modules[-1]

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter."""
        return self.holder.get_parameter(self.attribute)

    @property
    def attribute(self) -> str:
        """Its name in its holder."""
        return self.name.rpartition(".")[2]

    @property
    def path(self) -> list[str]:
        """The names of the modules below the root, down to its holder."""
        return self.name.split(".")[:-1]


def places_of(model: nn.Module) -> dict[str, list[Place]]:
    """Return all places of each parameter, by its first name; a tied one has several.

    A module used twice holds its parameters once.
    """
    first: dict[int, str] = {}
    places: dict[str, list[Place]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        modules = [model]
        for step in name.split(".")[:-1]:
            modules.append(modules[-1].get_submodule(step))
        known = places.setdefault(first.setdefault(id(parameter), name), [])
        place = Place(name, tuple(modules))
        if all((place.holder, place.attribute) != (other.holder, other.attribute) for other in known):
            known.append(place)
    return places


def groups_of(model: nn.Module, wishes: Groups | None = None) -> dict[str, Group]:
    """Return the group of each parameter, by its first name.

    Args:
        model: any module.
        wishes: the caller's groups for some parameters; the others are inferred.
    """
    places, heads = places_of(model), set(_heads(model))
    groups = {name: _shared([_group(place, heads) for place in tied]) for name, tied in places.items()}
    return groups | _wished(list(groups), wishes)


def _shared(groups: list[Group]) -> Group:
    """A tied tensor has one group; an embedding that is the head as well stays an embedding."""
    return "embeddings" if "embeddings" in groups else groups[0]


def _group(place: Place, heads: set[str]) -> Group:
    holder, attribute = place.holder, place.attribute
    if is_norm(holder):
        return "norms"
    if _BIAS.search(attribute):
        return "biases"
    if isinstance(holder, nn.Embedding | nn.EmbeddingBag) or _EMBEDDING.search(attribute):
        return "embeddings"
    # A vector that is not a bias scales something.
    if place.parameter.dim() < 2:
        return "norms"
    if any(map(_ATTENTION.search, [*place.path, *(type(module).__name__ for module in place.modules)])):
        return "attention"
    return "head" if place.name in heads else "mlp"


def is_norm(module: nn.Module) -> bool:
    """Recognize a norm by its class name: torch's own, and the many that models define."""
    return _NORM.search(type(module).__name__) is not None


def _heads(model: nn.Module) -> Iterator[str]:
    """Yield the name of the last matrix of each part called a head; if there is none, of a final linear layer."""
    root, prefix = _unwrapped(model)
    parts = {name: part for name, part in root.named_children() if list(part.parameters())}
    heads = [name for name in parts if name in _HEADS]
    if not heads:
        heads = [name for name in list(parts)[-1:] if isinstance(_end(parts[name]), nn.Linear)]
    for head in heads:
        matrices = [name for name, parameter in parts[head].named_parameters() if parameter.dim() > 1]
        yield from (f"{prefix}{head}.{name}" for name in matrices[-1:])


def _end(module: nn.Module) -> nn.Module:
    """Return the last layer with parameters; only a chain of modules has one."""
    while isinstance(module, nn.Sequential):
        module = [part for part in module if list(part.parameters())][-1]
    return module


def _unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """Descend past modules that only wrap another."""
    prefix = ""
    while not list(model.named_parameters(recurse=False)):
        filled = [(name, child) for name, child in model.named_children() if list(child.parameters())]
        if len(filled) != 1:
            break
        prefix, model = f"{prefix}{filled[0][0]}.", filled[0][1]
    return model, prefix


def _wished(names: list[str], wishes: Groups | None) -> dict[str, Group]:
    found: dict[str, Group | None] = {}
    if callable(wishes):
        found = {name: wishes(name) for name in names}
    elif wishes is not None:
        for pattern in wishes:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(f"no parameter matches {pattern!r}; the first is {next(iter(names), None)!r}.")
        for name in names:
            found[name] = next((group for pattern, group in wishes.items() if fnmatchcase(name, pattern)), None)
    for name, group in found.items():
        if group is not None and group not in GROUPS:
            raise ValueError(f"the group of {name} must be one of {', '.join(GROUPS)}; got {group!r:.40}.")
    return {name: group for name, group in found.items() if group is not None}
