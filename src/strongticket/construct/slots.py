"""Slots, to which the units of a product are assigned: coordinates or, behind a ReLU, one sign of a coordinate."""

from enum import IntEnum

import torch
from torch import Tensor


class Signs(IntEnum):
    """Which of a coordinate's units make a sum.

    `EITHER`: all of them. `POSITIVE`: only those with u > 0; behind a ReLU the others are silent on inputs that are
    never negative. `OWN`: those with u > 0 make one sum and those with u < 0 another, for positive and negative inputs.
    """

    EITHER = 0
    POSITIVE = 1
    OWN = 2

    @property
    def slots(self) -> int:
        """How many sums each entry of the target has."""
        return 2 if self is Signs.OWN else 1


def slots_of(owners: Tensor, own: Tensor, signs: Signs) -> Tensor:
    """Return each unit's slot, from its coordinate and its weight; -1 for one that is part of no sum.

    Example:
        >>> owners, own = torch.tensor([0, 0, 1]), torch.tensor([0.5, -0.5, 0.5])
        >>> slots_of(owners, own, Signs.OWN).tolist(), slots_of(owners, own, Signs.POSITIVE).tolist()
        ([0, 1, 2], [0, -1, 1])
    """
    owners = owners.to(own.device)
    if signs is Signs.EITHER:
        return owners
    if signs is Signs.POSITIVE:
        return torch.where(own > 0, owners, -1)
    return torch.where(owners < 0, -1, 2 * owners + (own < 0))


def grouped(slot: Tensor, slots: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the units that have a slot, sorted by slot with their order kept, and the number of units per slot.

    Example:
        >>> order, sizes = grouped(torch.tensor([1, 0, -1, 1]), 3)
        >>> order.tolist(), sizes
        ([1, 0, 3], (1, 2, 0))
    """
    used = (slot >= 0).nonzero().squeeze(1)
    return used[torch.argsort(slot[used], stable=True)], tuple(torch.bincount(slot[used], minlength=slots).tolist())
