"""The plan of a construction: the products that stand for a target's matrices, its settings and its biases."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from strongticket.construct.assignment import Assignment
from strongticket.construct.product import Pruned, prune_product
from strongticket.construct.slots import Signs
from strongticket.construct.source import RandomMatrix
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.tensors import DenseTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    r"""Two random matrices that stand for one: $F B^\top / c$, or two layers $F\,\mathrm{ReLU}(B^\top x)$.

    Args:
        blocked: B, whose units keep one coordinate each.
        free: F, whose mask is searched for.
        width: the name of the argument that sets the number of units.
        divisor: $c$.
        transposed: the matrix they stand for is (block coordinates, free coordinates), not the reverse.
        free_first: the free matrix comes first in a ticket.
        relu: there is a ReLU between them.
        nonnegative_inputs: the inputs come from another ReLU.
    """

    blocked: RandomMatrix
    free: RandomMatrix
    width: str = "hidden_width"
    divisor: float = 1.0
    transposed: bool = False
    free_first: bool = False
    relu: bool = False
    nonnegative_inputs: bool = False

    def matrices(self) -> tuple[RandomMatrix, RandomMatrix]:
        """Return both in ticket order."""
        return (self.free, self.blocked) if self.free_first else (self.blocked, self.free)

    @property
    def signs(self) -> Signs:
        """Which of a coordinate's units make a sum."""
        if not self.relu:
            return Signs.EITHER
        return Signs.POSITIVE if self.nonnegative_inputs else Signs.OWN

    def prune(
        self,
        target: Tensor,
        *,
        seed: int,
        assignment: Assignment,
        effort: Effort = "default",
        device: torch.device | str | None = None,
    ) -> Pruned:
        """Find the masks for a target in float64."""
        found = prune_product(
            target.T if self.transposed else target,
            self.blocked,
            self.free,
            seed=seed,
            assignment=assignment,
            signs=self.signs,
            width=self.width,
            divisor=self.divisor,
            effort=effort,
            device=device,
        )
        blocked, free = found.tensors
        found = replace(found, tensors=(free, blocked)) if self.free_first else found
        return found.transposed() if self.transposed else found


class Wanted(NamedTuple):
    """A product, the target matrix it stands for, and how far rounding may have moved that matrix."""

    product: Product
    target: Tensor
    rounding: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A target, or a part of one, ready to be pruned into or compared with a ticket.

    Args:
        settings: the settings of the architecture that follow from the target and the widths.
        products: by their name in a certificate, in ticket order.
        biases: kept unchanged.
        bias_rounding: by name, how far apart two computations of a bias may be.
    """

    settings: dict[str, object]
    products: dict[str, Wanted]
    biases: list[DenseTensor]
    bias_rounding: dict[str, Tensor]

    def matrices(self) -> Iterator[RandomMatrix]:
        """Yield all random matrices in ticket order."""
        return (matrix for product, *_ in self.products.values() for matrix in product.matrices())

    def prune(
        self, *, seed: int, assignment: Assignment, effort: Effort, device: torch.device | str | None
    ) -> dict[str, Pruned]:
        """Find the masks of every product."""
        found = {}
        for name, (product, target, rounding) in self.products.items():
            pruned = product.prune(target, seed=seed, assignment=assignment, effort=effort, device=device)
            found[name] = pruned if rounding is None else pruned.with_more_rounding(rounding)
        return found
