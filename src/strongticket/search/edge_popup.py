r"""Put masks over a random module (edge-popup; Ramanujan et al., 2020): redraw it, freeze it, learn what to keep.

The module keeps its class and its forward pass. Each masked weight becomes a parametrization, $w \odot m$, whose only
trainable part is a score for each weight; `Hidden` holds what a training loop and a ticket need of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from strongticket.container import Json
from strongticket.mask import FullMask, PackedMask
from strongticket.models.gpt2 import GPT2, Group
from strongticket.ops.supermask import Refresh, Supermask
from strongticket.rng import Distribution, random_weights
from strongticket.search.draw import draw_scores, weight_distribution
from strongticket.search.policy import Policy, Treatment
from strongticket.search.tensors import ModelTensor, holders_of, tensors_of
from strongticket.ticket import DenseTensor, RandomTensor, Ticket


@dataclass(frozen=True, slots=True)
class HiddenTensor:
    """What became of one tensor."""

    tensor: ModelTensor
    treatment: Treatment
    distribution: Distribution | None  # of its weights; None for one that is constant or trained
    scale: float | None  # of its distribution, or the constant


class Hidden:
    """A module whose weights are masked, frozen or trained as a policy says; `hide` makes it.

    Args:
        model: the module, masks in place.
        policy: what was done with it.
        seed: of its random tensors and of the first scores.
        tensors: what became of each.
        supermasks: by the tensor's name.
    """

    def __init__(
        self,
        model: nn.Module,
        policy: Policy,
        seed: int,
        tensors: Sequence[HiddenTensor],
        supermasks: Mapping[str, Supermask],
    ) -> None:
        self.model, self.policy, self.seed = model, policy, seed
        self.tensors, self.supermasks = tuple(tensors), dict(supermasks)
        self.refresh = Refresh(list(self.supermasks.values()), policy.scope)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Give what an optimizer updates, by name: the scores of masked tensors, and the trained tensors."""
        scores = [(f"{name}.scores", supermask.scores) for name, supermask in self.supermasks.items()]
        trained = [t.tensor.parameter for t in self.tensors if t.treatment == "trained" and t.tensor.piece == 0]
        return scores + [(name, self.model.get_parameter(name)) for name in trained]

    def counts(self) -> dict[Group, int]:
        """Count the nonzero parameters of each group: what masks keep, and all else that is not frozen at 0."""
        counts: dict[Group, int] = {}
        for hidden in self.tensors:
            counts.setdefault(hidden.tensor.group, 0)
            counts[hidden.tensor.group] += self._nonzero(hidden)
        return counts

    def nonzero(self) -> dict[str, int]:
        """Count the nonzero parameters, with and without embeddings."""
        counts = self.counts()
        total = sum(counts.values())
        return {"all": total, "without_embeddings": total - counts.get("embeddings", 0)}

    def densities(self) -> dict[Group, float]:
        """Give the fraction kept of each group's masked tensors."""
        kept: dict[Group, int] = {}
        numel: dict[Group, int] = {}
        for hidden in self.tensors:
            group = hidden.tensor.group
            if hidden.treatment == "masked":
                kept[group] = kept.get(group, 0) + self._nonzero(hidden)
                numel[group] = numel.get(group, 0) + self.supermasks[hidden.tensor.name].mask.numel()
        return {group: kept[group] / numel[group] for group in kept}

    def describe(self) -> list[dict[str, Json]]:
        """Say what became of each tensor: its group and treatment, and how it was drawn."""
        return [
            {
                "name": hidden.tensor.name,
                "group": hidden.tensor.group,
                "treatment": hidden.treatment,
                "shape": list(hidden.tensor.shape),
                "distribution": hidden.distribution or ("as given" if hidden.scale is None else "constant"),
                "scale": hidden.scale,
            }
            for hidden in self.tensors
        ]

    def to_ticket(self, metadata: Mapping[str, Json] | None = None) -> Ticket:
        """Make the ticket of the masks as they are: seed and bits for what is random, numbers for what is not."""
        random = [self._random_tensor(hidden) for hidden in self.tensors if hidden.distribution]
        # A GPT-2 without other numbers has norms of 1 and biases of 0; of other modules nothing is known.
        known = type(self.model) is GPT2
        dense = [
            DenseTensor(name=hidden.tensor.name, value=self._value(hidden), trained=hidden.treatment == "trained")
            for hidden in self.tensors
            if not hidden.distribution and not (known and hidden.treatment == "frozen")
        ]
        return Ticket(seed=self.seed, tensors=random, dense=dense, architecture=self._architecture(), metadata=metadata)

    def _architecture(self) -> dict[str, Json]:
        assert isinstance(self.model, GPT2)
        return {"family": "gpt2", "config": asdict(self.model.config)}

    def _random_tensor(self, hidden: HiddenTensor) -> RandomTensor:
        assert hidden.distribution is not None
        assert hidden.scale is not None
        name, shape = hidden.tensor.name, hidden.tensor.shape
        masked = hidden.treatment == "masked"
        mask = PackedMask.from_bool(self.supermasks[name].mask) if masked else FullMask(shape)
        return RandomTensor(name=name, mask=mask, distribution=hidden.distribution, scale=hidden.scale)

    def _value(self, hidden: HiddenTensor) -> Tensor:
        return hidden.tensor.of(self.model.get_parameter(hidden.tensor.parameter).detach())

    def _nonzero(self, hidden: HiddenTensor) -> int:
        if hidden.treatment == "masked":
            return int(self.supermasks[hidden.tensor.name].mask.sum())
        at_zero = hidden.distribution is None and hidden.scale == 0
        return 0 if at_zero else torch.Size(hidden.tensor.shape).numel()


def hide(model: nn.Module, policy: Policy, *, seed: int) -> Hidden:
    """Turn a module into a random one with masks over it, in place.

    Masked and frozen tensors are drawn anew by `strongticket.rng`, whatever they were, so that the seed brings them
    back; trained tensors keep the values they have.

    Args:
        model: a plain module in float32.
        policy: what is masked, frozen and trained.
        seed: of every random tensor and of the first scores.

    Example:
        >>> from strongticket.models.gpt2 import gpt2_config
        >>> hidden = hide(GPT2(gpt2_config("nano", bias=False)), Policy(density=0.25), seed=1)
        >>> hidden.densities()["attention"], hidden.to_ticket().strong
        (0.25, True)
    """
    tensors = [_treated(tensor, policy) for tensor in tensors_of(model)]
    if not any(hidden.treatment == "masked" for hidden in tensors):
        raise ValueError("this policy masks nothing of this module; mask at least one group that has tensors.")
    _set_output_gain(model, policy.output_gain)
    return Hidden(model, policy, seed, tensors, _put_in_place(model, policy, seed, tensors))


def _set_output_gain(model: nn.Module, gain: float) -> None:
    if gain == 1:
        return
    assert isinstance(model, GPT2)
    if model.config.output_gain not in (1, gain):
        raise ValueError(
            f"the model has output_gain {model.config.output_gain:g} and the policy {gain:g}; leave one of them at 1."
        )
    model.config = replace(model.config, output_gain=float(gain))


def _treated(tensor: ModelTensor, policy: Policy) -> HiddenTensor:
    treatment = policy.treatment(tensor.group)
    if treatment == "trained":
        return HiddenTensor(tensor, treatment, None, None)
    if tensor.constant is not None:
        return HiddenTensor(tensor, treatment, None, tensor.constant)
    return HiddenTensor(tensor, treatment, *weight_distribution(tensor, policy))


@torch.no_grad()
def _put_in_place(model: nn.Module, policy: Policy, seed: int, tensors: Sequence[HiddenTensor]) -> dict[str, Supermask]:
    holders, supermasks = holders_of(model), dict[str, Supermask]()
    for name, group in groupby(tensors, lambda hidden: hidden.tensor.parameter):
        parameter, pieces = model.get_parameter(name), list(group)
        for hidden in pieces:
            _set(hidden.tensor.of(parameter.data), hidden, seed)
        treatment = pieces[0].treatment
        parameter.requires_grad_(treatment == "trained")
        if treatment == "masked":
            scores = {h.tensor.name: draw_scores(h.tensor, policy, seed, parameter.device) for h in pieces}
            made = {name: Supermask(s, policy.density, signed=policy.signed) for name, s in scores.items()}
            supermasks |= made
            for module, attribute in holders[name]:
                register_parametrization(module, attribute, _joined(list(made.values()), pieces[0].tensor.axis))
    return supermasks


def _set(view: Tensor, hidden: HiddenTensor, seed: int) -> None:
    if hidden.distribution is not None and hidden.scale is not None:
        name, shape = hidden.tensor.name, hidden.tensor.shape
        view.copy_(random_weights(seed, name, shape, hidden.distribution, hidden.scale, device=view.device))
    elif hidden.scale is not None:
        view.fill_(hidden.scale)


def _joined(supermasks: Sequence[Supermask], axis: int) -> nn.Module:
    return supermasks[0] if len(supermasks) == 1 else JoinedSupermasks(supermasks, axis)


class JoinedSupermasks(nn.Module):
    """The masks of a parameter that holds several tensors side by side, as one parametrization."""

    def __init__(self, supermasks: Sequence[Supermask], axis: int) -> None:
        super().__init__()
        self.pieces, self.axis = nn.ModuleList(supermasks), axis

    def forward(self, weight: Tensor) -> Tensor:
        """Mask each piece by its own mask."""
        views = weight.chunk(len(self.pieces), dim=self.axis)
        return torch.cat([mask(view) for mask, view in zip(self.pieces, views, strict=True)], dim=self.axis)
