"""A module with masks in place: what a training loop and a ticket need of it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from strongticket.files import Json
from strongticket.learn.policy import Policy, Treatment
from strongticket.learn.tensors import ModelTensor
from strongticket.models.gpt2 import Group
from strongticket.ops.rng import Distribution
from strongticket.ops.supermask import Refresh, Supermask
from strongticket.tickets.mask import FullMask, PackedMask
from strongticket.tickets.restore import implied
from strongticket.tickets.tensors import DenseTensor, RandomTensor
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, slots=True)
class HiddenTensor:
    """What became of one tensor."""

    tensor: ModelTensor
    treatment: Treatment
    distribution: Distribution | None  # of its weights; None for one that is constant or trained
    scale: float | None  # of its distribution, or the constant; None for one that is trained
    gain: float = 1.0  # multiplied a trained tensor's first values

    @property
    def name(self) -> str:
        """Its name in the ticket."""
        return self.tensor.name


class Hidden:
    """A module whose weights are masked, frozen or trained as a policy says; `hide` makes it.

    `model` is the module, `supermasks` has its masks by tensor name, and `refresh()` belongs after each optimizer step.
    """

    def __init__(
        self,
        model: nn.Module,
        policy: Policy,
        *,
        seed: int,
        tensors: Sequence[HiddenTensor],
        supermasks: Mapping[str, Supermask],
        buffers: Mapping[str, Tensor],
        architecture: Mapping[str, Json],
    ) -> None:
        self.model, self.policy, self.seed = model, policy, seed
        self.tensors, self.supermasks = tuple(tensors), dict(supermasks)
        self.architecture = architecture
        self._first_buffers = buffers
        self.refresh = Refresh(list(self.supermasks.values()), policy.scope)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Give what an optimizer updates, by name: the scores of masked tensors, and the trained tensors."""
        scores = [(f"{name}.scores", supermask.scores) for name, supermask in self.supermasks.items()]
        trained = dict.fromkeys(h.tensor.parameter for h in self.tensors if h.treatment == "trained")
        return scores + [(name, self.model.get_parameter(name)) for name in trained]

    def counts(self) -> dict[Group, int]:
        """Count the nonzero parameters of each group: what masks keep, and all else that is not frozen at 0."""
        counts: dict[Group, int] = defaultdict(int)
        for hidden in self.tensors:
            counts[hidden.tensor.group] += self._nonzero(hidden)
        return dict(counts)

    def nonzero(self) -> dict[str, int]:
        """Count the nonzero parameters, with and without embeddings."""
        counts = self.counts()
        total = sum(counts.values())
        return {"all": total, "without_embeddings": total - counts.get("embeddings", 0)}

    def densities(self) -> dict[Group, float]:
        """Give the fraction kept of the masked tensors of each group."""
        kept, numel = defaultdict[Group, int](int), defaultdict[Group, int](int)
        for hidden in self.tensors:
            if hidden.treatment == "masked":
                kept[hidden.tensor.group] += self._nonzero(hidden)
                numel[hidden.tensor.group] += hidden.tensor.numel
        return {group: kept[group] / numel[group] for group in numel if numel[group]}

    def describe(self) -> list[dict[str, Json]]:
        """Say what became of each tensor: its group and treatment, and how it was drawn."""
        return [
            {
                "name": hidden.name,
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
        return Ticket(
            seed=self.seed,
            tensors=[self._random_tensor(hidden) for hidden in self.tensors if hidden.distribution],
            dense=[*self._dense_tensors(), *self._dense_buffers()],
            architecture=self.architecture,
            metadata=metadata,
        )

    def _random_tensor(self, hidden: HiddenTensor) -> RandomTensor:
        assert hidden.distribution is not None
        assert hidden.scale is not None
        masked = hidden.treatment == "masked"
        mask = PackedMask.from_bool(self.supermasks[hidden.name].mask) if masked else FullMask(hidden.tensor.shape)
        return RandomTensor(name=hidden.name, mask=mask, distribution=hidden.distribution, scale=hidden.scale)

    def _dense_tensors(self) -> list[DenseTensor]:
        dense = []
        for hidden in self.tensors:
            trained, constant = hidden.treatment == "trained", hidden.scale
            if hidden.distribution or (not trained and constant == implied(self.model, hidden.name)):
                continue
            value = hidden.tensor.of(self.model.get_parameter(hidden.tensor.parameter).detach())
            dense.append(DenseTensor(name=hidden.name, value=value, trained=trained))
        return dense

    def _dense_buffers(self) -> list[DenseTensor]:
        """Running means and their like: if they moved, data moved them."""
        now = {name: self.model.get_buffer(name) for name in self._first_buffers}
        return [
            DenseTensor(name=name, value=now[name], trained=not torch.equal(now[name].cpu(), first))
            for name, first in self._first_buffers.items()
        ]

    def _nonzero(self, hidden: HiddenTensor) -> int:
        if hidden.treatment == "masked":
            return int(self.supermasks[hidden.name].mask.sum())
        at_zero = hidden.distribution is None and hidden.scale == 0
        return 0 if at_zero else hidden.tensor.numel
