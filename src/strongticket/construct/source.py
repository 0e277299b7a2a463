r"""The random side of a construction: matrices by name, their initialisation, and the division of hidden units.

Every construction here multiplies two random matrices over *hidden units*. Both are handled as (coordinates, units),
however they are stored. One of them keeps a single coordinate per unit; the other is free, and its mask is found by
subset sums.
"""

import math
import operator
from dataclasses import dataclass
from typing import Literal, NamedTuple, SupportsIndex, get_args

import numpy as np
import torch
from torch import Tensor

from strongticket.checks import Init as Init
from strongticket.ops.array_types import F32
from strongticket.ops.philox.reference import Stream
from strongticket.ops.rng import random_elements, random_weights, round_scale, stream_of
from strongticket.tickets.mask import BlockMask, Mask, PackedMask
from strongticket.tickets.owners import OwnerMask, owner_mask
from strongticket.tickets.tensors import RandomTensor

Blocks = Literal["input", "smaller"]

# A matrix to choose units from is kept if it has up to this many weights, 512 MiB; weights of others are drawn again.
_KEPT = 1 << 27


class Own(NamedTuple):
    """The weights of each unit to every coordinate: kept, or, of a large matrix, drawn again wherever one is used."""

    kept: F32 | None  # (units, coordinates)
    stream: Stream
    scale: float
    units: int
    coordinates: int
    by_unit: bool  # whether the weights of one unit are neighbours in the stored tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomMatrix:
    """One random matrix between coordinates and hidden units.

    Args:
        name: the tensor's name in the ticket.
        coordinates: its visible side.
        units: its hidden side.
        unit_axis: the axis of the stored tensor that the units lie on, 0 or 1.
        scale: entries are uniform on [-scale, scale].
    """

    name: str
    coordinates: int
    units: int
    unit_axis: int
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """The stored shape."""
        return (self.units, self.coordinates) if self.unit_axis == 0 else (self.coordinates, self.units)

    def draw(self, seed: int, device: torch.device | str | None) -> Tensor:
        """Draw the weights, as (coordinates, units) float32."""
        stored = random_weights(seed, self.name, self.shape, "uniform", self.scale, device=device)
        return stored.T if self.unit_axis == 0 else stored

    def draw_own(self, owners: Tensor, seed: int, device: torch.device | str | None) -> Tensor:
        """Draw only each unit's weight to its own coordinate, u_k; 0 for a unit that has none."""
        coordinate = owners.numpy()
        served = np.flatnonzero(coordinate >= 0)
        of = coordinate[served]
        places = served * self.coordinates + of if self.unit_axis == 0 else of * self.units + served
        own = np.zeros(self.units, np.float32)
        own[served] = random_elements(seed, self.name, places, self.scale)
        return torch.from_numpy(own).to(device or "cpu")

    @property
    def kept(self) -> bool:
        """Whether all of its weights are kept while units are chosen."""
        return self.coordinates * self.units <= _KEPT

    def own(self, seed: int, device: torch.device | str | None) -> Own:
        """Prepare all weights for a choice on the CPU; `device` draws those that are kept."""
        kept = self.draw(seed, device).cpu().T.numpy() if self.kept else None
        by_unit = self.unit_axis == 0
        return Own(kept, stream_of(seed, self.name), round_scale(self.scale), self.units, self.coordinates, by_unit)

    def with_owners(self, owners: Tensor) -> RandomTensor:
        """Mask it so that each unit keeps one coordinate, or none."""
        return self._tensor(owner_mask(self.shape, self.unit_axis, owners))

    def with_bits(self, mask: Tensor) -> RandomTensor:
        """Mask it with bits given as (coordinates, units)."""
        return self._tensor(PackedMask.from_bool(mask.T if self.unit_axis == 0 else mask))

    def _tensor(self, mask: Mask) -> RandomTensor:
        return RandomTensor(name=self.name, mask=mask, distribution="uniform", scale=self.scale)


def owners_of(sizes: tuple[int, ...]) -> Tensor:
    """Return each unit's coordinate j(k), for the units that have a block."""
    return torch.from_numpy(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))


def owners_in(mask: Mask, unit_axis: int) -> Tensor | None:
    """Return each unit's coordinate, -1 for none, if the mask is of a kind that keeps at most one per unit."""
    return mask.owners() if isinstance(mask, BlockMask | OwnerMask) and mask.unit_axis == unit_axis else None


def query_key_scale(init: Init, d_model: int, key_width: int) -> float:
    """Return the half-width of query and key entries: n^(1/4) in section 3.1, its inverse as printed in section 4.1."""
    check_option("init", init, get_args(Init))
    if init == "xavier":
        return xavier_scale(d_model, key_width)
    # Two square roots round the same on every machine; a fourth root may not.
    root = math.sqrt(math.sqrt(key_width))
    return root if init == "theory" else 1 / root


def plain_scale(init: Init, fan_in: int, fan_out: int) -> float:
    """Return the half-width of every other matrix: 1, except with Xavier's initialisation."""
    check_option("init", init, get_args(Init))
    return xavier_scale(fan_in, fan_out) if init == "xavier" else 1.0


def xavier_scale(fan_in: int, fan_out: int) -> float:
    """Return the half-width of Xavier's uniform initialisation."""
    return math.sqrt(6 / (fan_in + fan_out))


def equal_blocks(what: str, width: int, coordinates: int) -> tuple[int, ...]:
    """Divide `width` hidden units equally among the coordinates; refuse widths that do not divide evenly."""
    width = as_width(what, width)
    if width < coordinates:
        raise ValueError(
            f"{what} must be at least {coordinates}, one hidden unit for each coordinate; got {width}. "
            f"Use a multiple of {coordinates}, for example {16 * coordinates} for 16 items per sum."
        )
    if width % coordinates:
        lower = width // coordinates * coordinates
        raise ValueError(
            f"{what} must be a multiple of {coordinates}, the number of coordinates that share the hidden units; "
            f"got {width}. Use {lower} or {lower + coordinates}."
        )
    return (width // coordinates,) * coordinates


def check_option(what: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}; got {value!r}.")


# The default: sums of so many random numbers come within about a millionth of an entry, in microseconds.
USUAL_ITEMS = 20


def as_width(what: str, width: SupportsIndex) -> int:
    """Convert a width, a whole number of at least 1, to an int."""
    if isinstance(width, bool) or not isinstance(width, SupportsIndex) or operator.index(width) < 1:
        raise ValueError(f"{what} must be a whole number of at least 1; got {width!r:.40}.")
    return operator.index(width)


def check_target(what: str, matrix: Tensor) -> None:
    """Refuse a target that is empty or not real floating point; name the first NaN or infinity."""
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        got = matrix.dtype if isinstance(matrix, Tensor) else type(matrix).__name__
        raise ValueError(f"{what} must be a float tensor; got {got}.")
    if matrix.is_meta:
        raise ValueError(f"{what} is on meta, where tensors have shapes but no numbers. Load it on another device.")
    if matrix.layout != torch.strided:
        raise ValueError(f"{what} must have all entries stored; got {matrix.layout}. Convert with .to_dense().")
    if not matrix.numel():
        raise ValueError(f"{what} has no entries: its shape is {tuple(matrix.shape)}.")
    wrong = (~torch.isfinite(matrix)).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise ValueError(f"{what} must be finite; entry {place} is {matrix[place].item()}.")
