"""Masks that cannot hold an invalid value: one bit per weight, or a rule where the construction fixes them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from strongticket.checks import as_count, as_sizes, check_density
from strongticket.ops.arrays import Array, as_tensor
from strongticket.ops.rng import random_weights
from strongticket.tickets.symbols import Bits, Symbols
from strongticket.tickets.table import KEEP_OR_DROP, Table


@runtime_checkable
class Mask(Protocol):
    """The fate of each weight of one tensor: a code per weight, and a table of what the codes mean."""

    kind: ClassVar[str]

    @property
    def table(self) -> Table:
        """What each code means."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""

    @property
    def symbols(self) -> Symbols | None:
        """What a file stores for it, if anything."""

    def rule(self) -> dict[str, object]:
        """Its fields in a file, apart from its kind."""

    def count(self) -> int:
        """The number of kept weights: those whose code has a nonzero coefficient."""

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """The kept weights, as a bool tensor."""


def density(mask: Mask) -> float:
    """Return the fraction of weights a mask keeps; 0 for an empty mask."""
    numel = math.prod(mask.shape)
    return mask.count() / numel if numel else 0.0


def cells_of(mask: Mask, most: int = 48) -> list[bytes]:
    """Return a small picture of a mask: at most `most` rows and columns of local densities, 0 to 255.

    Example:
        >>> [list(row) for row in cells_of(PackedMask.from_bool(torch.tensor([[True, False, True, True]])), 2)]
        [[128, 255]]
    """
    rows = mask.shape[0] if len(mask.shape) > 1 else 1
    kept = mask.to_bool().reshape(1, rows, -1).float()
    shares = torch.nn.functional.adaptive_avg_pool2d(kept, (min(rows, most), min(kept.shape[2], most)))[0]
    return [bytes(row) for row in (255 * shares).round().int().tolist()]


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PackedMask:
    """A mask in packed bits: element i is bit i % 8 of byte i // 8, and the bits after the last element are 0.

    Example:
        >>> mask = PackedMask.from_bool(torch.tensor([[True, False, True]]))
        >>> mask.count(), mask.density, mask.to_bool().tolist()
        (2, 0.6666666666666666, [[True, False, True]])
    """

    kind: ClassVar[str] = "bits"
    table: ClassVar[Table] = KEEP_OR_DROP
    shape: tuple[int, ...]
    symbols: Symbols  # one per weight, 0 or 1

    def __init__(self, shape: tuple[int, ...], bits: Bits, *, copy: bool = True) -> None:
        """Take packed bits, which must be exactly as long as the shape needs, with zero padding.

        `copy=False` keeps the array itself; use it only if nothing else will write to it.
        """
        object.__setattr__(self, "shape", as_sizes("a shape", shape))
        object.__setattr__(self, "symbols", Symbols(2, math.prod(self.shape), bits, copy=copy))

    @classmethod
    def from_bool(cls, mask: Array) -> "PackedMask":
        """Pack a bool tensor, array or list; any other type is refused, since 0.5 or 2 is not a mask."""
        mask = as_tensor("a mask", mask, torch.bool)
        if mask.dtype != torch.bool:
            raise ValueError(f"a mask needs a bool tensor; got {mask.dtype}. Compare first, as in scores > 0.")
        flat = mask.detach().contiguous().view(torch.uint8).reshape(-1)
        if flat.device.type == "cpu":
            bits = np.packbits(flat.numpy(), bitorder="little")
        else:
            bits = _pack_on_device(flat).cpu().numpy()
        return cls(tuple(mask.shape), bits, copy=False)

    @classmethod
    def random(cls, shape: tuple[int, ...], density: float, *, seed: int, name: str = "mask") -> "PackedMask":
        """Keep each weight with probability `density`: the control for a found mask."""
        check_density(density)
        uniform = random_weights(seed, name, shape)  # on [-1, 1]
        return cls.from_bool(uniform.double() <= 2 * density - 1)

    @property
    def bits(self) -> Bits:
        """The packed bytes, read-only."""
        return self.symbols.packed

    @property
    def density(self) -> float:
        """The fraction kept."""
        return density(self)

    def rule(self) -> dict[str, object]:
        """No fields: the bits are enough."""
        return {}

    def count(self) -> int:
        """Count the kept weights on the packed bits."""
        return int(self.symbols.counts()[1])

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """Unpack into a bool tensor, on `device` itself, so that only bits are transferred."""
        if torch.device(device or "cpu").type == "cpu":
            flat = torch.from_numpy(self.symbols.unpack().view(np.bool_))
        else:
            packed = torch.tensor(self.bits, device=device)
            shifts = torch.arange(8, dtype=torch.uint8, device=device)
            flat = ((packed[:, None] >> shifts) & 1).bool().view(-1)[: self.symbols.count]
        return flat.view(self.shape)

    def __reduce__(self) -> tuple[type["PackedMask"], tuple[tuple[int, ...], Bits]]:
        return PackedMask, (self.shape, self.bits)

    def __repr__(self) -> str:
        return f"PackedMask(shape={self.shape}, density={self.density:.4f})"


@dataclass(frozen=True, slots=True)
class FullMask:
    """A mask that keeps everything: a random tensor that is frozen rather than pruned."""

    kind: ClassVar[str] = "ones"
    table: ClassVar[Table] = KEEP_OR_DROP
    symbols: ClassVar[None] = None
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes("a shape", self.shape))

    def rule(self) -> dict[str, object]:
        """No fields: its kind is enough."""
        return {}

    def count(self) -> int:
        """Count every weight."""
        return math.prod(self.shape)

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """Return a tensor of True."""
        return torch.ones(self.shape, dtype=torch.bool, device=device or "cpu")


@dataclass(frozen=True, slots=True)
class BlockMask:
    """Lemma 7's first mask: each hidden unit keeps only the weight to its own coordinate.

    Consecutive units form one block for each coordinate; units after the last block keep nothing.

    Args:
        shape: of the weight matrix, two dimensions.
        unit_axis: the axis the hidden units lie on, 0 or 1; coordinates lie on the other.
        sizes: the number of units each coordinate owns; one number if all are equal.

    Example:
        >>> BlockMask(shape=(2, 4), unit_axis=1, sizes=(2, 1)).to_bool().int().tolist()
        [[1, 1, 0, 0], [0, 0, 1, 0]]
    """

    kind: ClassVar[str] = "blocks"
    table: ClassVar[Table] = KEEP_OR_DROP
    symbols: ClassVar[None] = None
    shape: tuple[int, ...]
    unit_axis: int
    sizes: int | tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes("a shape", self.shape))
        object.__setattr__(self, "unit_axis", as_count("unit_axis", self.unit_axis))
        many = isinstance(self.sizes, Iterable)
        sizes = as_sizes("block sizes", self.sizes) if many else as_count("block sizes", self.sizes)  # type: ignore[arg-type]
        object.__setattr__(self, "sizes", sizes)
        if len(self.shape) != 2 or self.unit_axis not in (0, 1):
            raise ValueError(
                f"a block mask needs a matrix and unit_axis 0 or 1; got shape {self.shape}, unit_axis {self.unit_axis}."
            )
        if not isinstance(self.sizes, int) and len(self.sizes) == self._coordinates and len(set(self.sizes)) <= 1:
            object.__setattr__(self, "sizes", self.sizes[0] if self.sizes else 0)
        if self._coordinates == 0 and isinstance(self.sizes, int):
            object.__setattr__(self, "sizes", 0)
        fits = isinstance(self.sizes, int) or len(self.sizes) == self._coordinates
        if not fits or self.count() > self.shape[self.unit_axis]:
            raise ValueError(
                f"a block mask of shape {self.shape} with unit_axis {self.unit_axis} needs {self._coordinates} sizes "
                f"of at most {self.shape[self.unit_axis]} units in all; got {self.sizes!s:.60}."
            )

    @property
    def _coordinates(self) -> int:
        return self.shape[1 - self.unit_axis]

    def rule(self) -> dict[str, object]:
        """Return the number of units each coordinate owns, and their axis."""
        return {"sizes": self.sizes if isinstance(self.sizes, int) else list(self.sizes), "unit_axis": self.unit_axis}

    def count(self) -> int:
        """Count one weight for each unit that has a block."""
        return self.sizes * self._coordinates if isinstance(self.sizes, int) else sum(self.sizes)

    def owners(self) -> Tensor:
        """Return each unit's coordinate, or -1, as int64 on the CPU."""
        sizes = torch.tensor(self.sizes, dtype=torch.int64, device="cpu").expand(self._coordinates)
        owners = torch.repeat_interleave(torch.arange(self._coordinates, device="cpu"), sizes)
        return torch.nn.functional.pad(owners, (0, self.shape[self.unit_axis] - len(owners)), value=-1)

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """Return the mask that the rule describes."""
        return keep_own(self.owners(), self.shape, self.unit_axis, device)


def keep_own(owners: Tensor, shape: tuple[int, ...], unit_axis: int, device: torch.device | str | None) -> Tensor:
    """Keep, for each hidden unit, the weight to its owner; nothing if that is -1."""
    mask = torch.zeros(shape, dtype=torch.bool, device=device or "cpu")
    units = (owners >= 0).nonzero().squeeze(1)
    places = units.to(mask.device), owners[units].to(mask.device)
    mask[places if unit_axis == 0 else places[::-1]] = True
    return mask


def _pack_on_device(flat: Tensor) -> Tensor:
    """Pack zeros and ones on their device, so that only bits are transferred."""
    eights = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    packed = torch.zeros_like(eights[:, 0])
    for place in range(8):
        packed |= eights[:, place] << place
    return packed
