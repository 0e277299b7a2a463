"""Masks in which each hidden unit keeps one weight, or none: the first mask of Lemma 7, for any assignment of units."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from strongticket.checks import as_count, as_sizes
from strongticket.ops.arrays import Array, as_tensor
from strongticket.tickets.mask import BlockMask, keep_own
from strongticket.tickets.symbols import Numbers, Symbols
from strongticket.tickets.table import KEEP_OR_DROP, Table


@dataclass(frozen=True, slots=True)
class OwnerMask:
    """Each hidden unit keeps only the weight to its owner, any one coordinate; `owner_mask` makes one.

    Args:
        shape: of the weight matrix, two dimensions.
        unit_axis: the axis the hidden units lie on, 0 or 1; coordinates lie on the other.
        symbols: for each unit, 0 if it keeps nothing, otherwise its owner plus 1.
    """

    kind: ClassVar[str] = "owners"
    table: ClassVar[Table] = KEEP_OR_DROP
    shape: tuple[int, ...]
    unit_axis: int
    symbols: Symbols

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes("a shape", self.shape))
        object.__setattr__(self, "unit_axis", as_count("unit_axis", self.unit_axis))
        units, coordinates = sides(self.shape, self.unit_axis)
        if (self.symbols.alphabet, self.symbols.count) != (coordinates + 1, units):
            raise ValueError(
                f"{units} units of {coordinates} coordinates need {units} symbols below {coordinates + 1}; "
                f"got {self.symbols.count} below {self.symbols.alphabet}."
            )
        if _in_blocks(self.symbols.unpack()):
            raise ValueError("owners in order, one block per coordinate, must be a BlockMask.")

    def rule(self) -> dict[str, object]:
        """Return the axis of the units."""
        return {"unit_axis": self.unit_axis}

    def owners(self) -> Tensor:
        """Return each unit's coordinate, or -1, as int64 on the CPU."""
        return torch.from_numpy(self.symbols.unpack().astype(np.int64) - 1)

    def count(self) -> int:
        """Count one weight for each unit that has an owner."""
        return int(np.count_nonzero(self.symbols.unpack()))

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """Return the mask as a bool tensor."""
        return keep_own(self.owners(), self.shape, self.unit_axis, device)


def owner_mask(shape: tuple[int, ...], unit_axis: int, owners: Array) -> BlockMask | OwnerMask:
    """Let each hidden unit keep only the weight to its owner.

    Args:
        shape: of the weight matrix, two dimensions.
        unit_axis: the axis the hidden units lie on, 0 or 1; coordinates lie on the other.
        owners: for each unit, its coordinate or -1 if it keeps nothing; whole numbers.

    Returns:
        A mask that takes at most log2(d + 1) bits per unit; if the units are in order, one block for each of the d
        coordinates, a `BlockMask`, which takes none. `mask.owners()` returns the owners of either.

    Example:
        >>> mask = owner_mask((2, 4), 1, [1, -1, 0, 1])
        >>> mask.to_bool().int().tolist(), mask.owners().tolist()
        ([[0, 0, 1, 0], [1, 0, 0, 1]], [1, -1, 0, 1])
        >>> owner_mask((2, 4), 1, torch.tensor([0, 0, 1, -1]))
        BlockMask(shape=(2, 4), unit_axis=1, sizes=(2, 1))
    """
    shape, unit_axis = as_sizes("a shape", shape), as_count("unit_axis", unit_axis)
    units, coordinates = sides(shape, unit_axis)
    owners = as_tensor("owners", owners, torch.int64)
    if owners.shape != (units,) or owners.is_floating_point():
        raise ValueError(
            f"{units} units need {units} owners, whole numbers; got {owners.dtype} of shape {tuple(owners.shape)}."
        )
    given = owners.detach().cpu().numpy().astype(np.int64)
    if units and not -1 <= given.min() <= given.max() < coordinates:
        raise ValueError(f"owners must be -1 to {coordinates - 1}; got {given.min()} to {given.max()}.")
    if _in_blocks(given + 1):
        return BlockMask(shape, unit_axis, tuple(np.bincount(given[given >= 0], minlength=coordinates).tolist()))
    return OwnerMask(shape, unit_axis, Symbols.pack(given + 1, coordinates + 1))


def _in_blocks(symbols: Numbers) -> bool:
    """Whether owners never decrease, and units without one come last."""
    owned = int(np.count_nonzero(symbols))
    first = symbols[:owned]
    return bool((first != 0).all() and (first[1:] >= first[:-1]).all())


def sides(shape: tuple[int, ...], unit_axis: int) -> tuple[int, int]:
    """Return the number of units and of coordinates."""
    if len(shape) != 2 or unit_axis not in (0, 1):
        raise ValueError(f"owners need a matrix and unit_axis 0 or 1; got shape {shape}, unit_axis {unit_axis}.")
    return shape[unit_axis], shape[1 - unit_axis]
