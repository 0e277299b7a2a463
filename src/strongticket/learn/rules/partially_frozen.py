r"""Partially frozen sources (Otsuka et al., 2025): the seed decides about most weights, edge-popup about the rest.

A random map fixes some weights as kept and some as dropped before the search; only the others have scores, and only
they take bits. As published, these are ranked all together (`scope="global"`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from strongticket.learn.policy import Policy
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Table, straight_through, within
from strongticket.learn.tensors import HiddenTensor
from strongticket.ops.supermask import Supermask


class Rest(Supermask):
    """A supermask over the weights at some places, with the fate of all others fixed."""

    always: Tensor  # (weights,): which are kept whatever happens
    places: Tensor  # (scores,): which have scores
    scaled: bool

    def chosen(self, kept: Tensor) -> tuple[Tensor, Tensor | float]:
        """Give what is kept of all weights, flattened, and what they are multiplied by."""
        full = self.always.to(kept.dtype).index_copy(0, self.places, kept)
        return full, (full.numel() / full.detach().sum().clamp(min=1)).sqrt() if self.scaled else 1.0

    def forward(self, weight: Tensor) -> Tensor:
        """Give the weights that are kept."""
        full, factor = self.chosen(straight_through(self.ranked, self.mask))
        return factor * weight * full.view_as(weight)


@dataclass
class PartiallyFrozen(EdgePopup):
    """Freeze a part of every tensor, some of it as kept, the rest as dropped."""

    frozen: float = within(0.7, 0, 0.999)
    kept: float | None = within(None, 0, 1)  # of the frozen part; none: as much as the density
    scale: bool = False  # kept weights times 1 / sqrt(the tensor's density)

    name = "partially-frozen"

    def check(self, densities: Mapping[str, float], policy: Policy) -> None:
        """Refuse a density that the frozen part alone exceeds, or that the rest cannot reach."""
        super().check(densities, policy)
        for name, density in densities.items():
            always, never = self._parts(density)
            if not always <= density <= 1 - never:
                raise ValueError(
                    f"{name} cannot keep {density:g}: of its weights the rule {self.name} always keeps {always:g} and "
                    f"always drops {never:g}. Change density, frozen or kept."
                )

    def over(self, tensor: HiddenTensor, scores: Tensor) -> Rest:
        """Draw the map: its lowest numbers on [-1, 1] are always kept, its highest always dropped."""
        chances, (always, never) = tensor.uniform("frozen").flatten(), self._parts(tensor.density)
        kept, dropped = chances < 2 * always - 1, chances >= 1 - 2 * never
        places = (~(kept | dropped)).nonzero().squeeze(1)
        rest = Rest(scores.flatten()[places], self.density_at(tensor, 0), signed=self.policy.signed)
        rest.register_buffer("always", kept, persistent=False)
        rest.register_buffer("places", places, persistent=False)
        rest.scaled = self.scale
        return rest

    def density_at(self, tensor: HiddenTensor, step: int) -> float:
        """Leave to the rest what the frozen part has not: exactly the density, if that part has the same."""
        density, kept = super().density_at(tensor, step), tensor.density if self.kept is None else self.kept
        return min(1.0, max(1e-9, density + (density - kept) * self.frozen / (1 - self.frozen)))

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Give the whole mask."""
        mask, factor = tensor.module.chosen(tensor.module.mask)
        return mask.view(tensor.shape), ((0.0, 0), (float(factor), 0))

    def _parts(self, density: float) -> tuple[float, float]:
        kept = density if self.kept is None else self.kept
        return self.frozen * kept, self.frozen * (1 - kept)
