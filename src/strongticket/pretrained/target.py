"""A model as described by its family: its layers, their parts, and all numbers a construction depends on."""

from typing import Any, NotRequired

import torch
from torch import Tensor, nn

from strongticket.construct.assignment import Assignment
from strongticket.construct.source import check_target
from strongticket.errors import StrongTicketError
from strongticket.pretrained.families import Parts, What, family_of
from strongticket.pretrained.layer import Layer, submodule
from strongticket.pretrained.parts import Part, PartSettings
from strongticket.pretrained.pieces import Piece
from strongticket.pretrained.torch_modules import opened
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor

FAMILY = "pretrained"


class Architecture(PartSettings):
    """A ticket's settings: those of the model, and those of its parts."""

    family: str
    model_type: str
    what: What
    items: int
    n_layers: int
    init: str
    parts: NotRequired[Parts]  # missing if the family has only one choice


class Target:
    """The model that a ticket is made from, or put into.

    Args:
        model: any Hugging Face model of a known family, with or without a head on top, or a transformer of `torch.nn`.
        what: the parts to use.
        parts: as in `construct_pretrained`.
    """

    def __init__(self, model: nn.Module, what: What = "attention", parts: Parts = "merged") -> None:
        self.model = model = opened(model)
        config: Any = model.config
        self.family = family_of(config, parts)
        self.config, self.what, self.asked = config, what, parts
        self.model_type: str = config.model_type
        self.backbone: nn.Module = getattr(model, "base_model", model)
        self.n_layers = 0
        # Every part and its layer, by the part's name in a ticket, in ticket order.
        self.parts: dict[str, tuple[Layer, Part]] = {}
        chosen = self.family.chosen(what, parts)
        for path, listed in chosen.items():
            n_layers = len(submodule(self.backbone, path, config)) if path else 1  # type: ignore[arg-type]
            prefix, own = ("layer" if len(chosen) == 1 else path), _nearest_config(self.backbone, path, config)
            for i in range(n_layers):
                layer = Layer(f"{prefix}.{i}", path, i, self.backbone, own)
                self.parts |= {f"{layer.name}.{part.name}": (layer, part) for part in listed}
            self.n_layers += n_layers
        if not self.n_layers:
            raise StrongTicketError(f"this {self.model_type} has no layers, so there is nothing to prune into.")
        for group in what.split("+"):
            if not any(part.in_mlp == (group == "mlp") for _, part in self.parts.values()):
                advice = "; use --what attention" if group == "mlp" else ""
                raise StrongTicketError(f"the family {self.model_type} lists no part of its {group}{advice}.")

    def pieces(
        self, items: int, seed: int, assignment: Assignment = "adaptive", device: str = "cpu"
    ) -> dict[str, list[Piece]]:
        """Split the parts into pieces of work, by part; to examine an existing ticket, any assignment will do."""
        return {name: self.pieces_of(name, items, seed, assignment, device) for name in self.parts}

    def pieces_of(
        self, name: str, items: int, seed: int, assignment: Assignment = "adaptive", device: str = "cpu"
    ) -> list[Piece]:
        """Split one part into pieces of work."""
        layer, part = self.parts[name]
        return [*part.pieces(layer, items=items, seed=seed, assignment=assignment, device=device)]

    def biases(self) -> list[DenseTensor]:
        """Return the biases that a ticket keeps exactly."""
        return [
            DenseTensor(name=f"{name}.{which}", value=bias)
            for name, (layer, part) in self.parts.items()
            for which, bias in part.biases(layer).items()
        ]

    def sha256(self) -> str:
        """Hash every tensor a construction depends on, named alike for all families: this identifies the target."""
        return digest_of_tensors(self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor a construction depends on, by name; refuse tensors with NaN or infinity."""
        found: dict[str, Tensor] = {}
        for layer, part in self.parts.values():
            for name, tensor in part.tensors(layer).items():
                check_target(f"{layer.name.replace('.', ' ')}'s {name}", tensor)
                # Parts may share a norm; of two different tensors with one name, the hash would omit one.
                if not torch.equal(found.setdefault(f"{layer.name}.{name}", tensor), tensor):
                    raise ValueError(f"two parts of {layer.name} have different {name}; rename one of the parts.")
        return found

    def describe(self, items: int) -> Architecture:
        """Return the settings `attach` needs, as a ticket's architecture."""
        settings: Architecture = {
            "family": FAMILY,
            "model_type": self.model_type,
            "what": self.what,
            "items": items,
            "n_layers": self.n_layers,
            "init": "theory",
        }
        if self.asked == "linear" and self.family.chosen(self.what) != self.family.chosen(self.what, "linear"):
            settings["parts"] = "linear"
        described = [part.describe(layer) for layer, part in self.parts.values()]
        for each in reversed(described):  # a number is taken from the first layer; names of parts are collected
            settings = {**settings, **each}
        if linear := [name for each in described for name in each.get("linear", ())]:
            settings["linear"] = [*dict.fromkeys(linear)]
        return settings

    def most_tokens(self) -> int | None:
        """Return how many tokens the model can take, or None if there is no limit."""
        if not self.family.positions:
            return None
        table = submodule(self.backbone, self.family.positions, self.config)
        if not isinstance(table, nn.Embedding):
            raise StrongTicketError(
                f"expected an Embedding at {self.family.positions}, but the model has a {type(table).__name__}."
            )
        # RoBERTa reserves a position for padding and counts on from there.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def _nearest_config(backbone: nn.Module, path: str, config: Any) -> Any:
    """Return the configuration of the module around some layers: a tower or a decoder may have its own."""
    for name in filter(None, path.split(".")):
        backbone = getattr(backbone, name)
        config = getattr(backbone, "config", config)
    return config
