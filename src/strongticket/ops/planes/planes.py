"""A matrix of small whole numbers as bit planes: one plane per binary digit of the magnitudes, and one for signs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from strongticket.ops.philox.reference import Stream

MOST_LEVELS = 15
LANES = 32  # rows whose words are adjacent, so that a vector holds the same columns of many rows
STEP = 128  # columns are padded to a multiple of this, the size of a block of the sign stream


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """The matrix W, whole numbers from -levels to levels, in words of 32 columns.

    Args:
        words: int32, (groups, columns / 32, planes, 32), padded with zeros. Bit c of `words[g, k, p, i]` belongs to row
            32 g + i and column 32 k + c. Plane p is digit p of the magnitude; signs, if stored, are the last plane.
        rows: of W.
        columns: of W.
        levels: the largest magnitude allowed, 1 to 15.
        signs: the source of signs that are not stored: this stream's packed signs, in row-major order.
    """

    words: Tensor
    rows: int
    columns: int
    levels: int
    signs: Stream | None = None

    @property
    def digits(self) -> int:
        """The number of planes for magnitudes."""
        return self.levels.bit_length()

    @property
    def device(self) -> torch.device:
        """The device of the words."""
        return self.words.device

    @property
    def nbytes(self) -> int:
        """The memory of the words."""
        return self.words.nbytes

    def to(self, device: torch.device | str) -> "Planes":
        """Return the same matrix on another device."""
        return replace(self, words=self.words.to(device))


def pack(codes: Tensor, signs: Stream | None = None) -> Planes:
    """Pack a matrix of small whole numbers.

    Args:
        codes: int8, (rows, columns), from -15 to 15; the planes are on its device.
        signs: store no signs, but draw them from this stream (`stream_of(seed, name)`) when needed: the numbers of
            the distribution "packed-sign". Codes are then magnitudes, 0 to 15.

    Example:
        >>> pack(torch.tensor([[1, 0, -1]], dtype=torch.int8)).levels
        1
    """
    if codes.dtype != torch.int8 or codes.dim() != 2:
        raise ValueError(f"codes must be int8 (rows, columns); got {codes.dtype} {tuple(codes.shape)}.")
    rows, columns = codes.shape
    matrix = codes.cpu().numpy()
    least, most = (int(matrix.min()), int(matrix.max())) if matrix.size else (0, 0)
    if max(-least, most) > MOST_LEVELS:
        raise ValueError(f"codes must be from -{MOST_LEVELS} to {MOST_LEVELS}; got {least} to {most}.")
    if signs is not None and least < 0:
        raise ValueError(f"codes must be magnitudes if signs are drawn; got {least}. Omit signs to store them.")
    levels = max(1, -least, most)
    magnitudes = np.abs(matrix)
    planes = [(magnitudes >> digit) & 1 for digit in range(levels.bit_length())]
    if signs is None:
        planes.append(matrix < 0)
    groups, width = -(-rows // LANES), -(-columns // STEP) * STEP // 32
    words = np.empty((groups, width, len(planes), LANES), np.int32)
    for place, plane in enumerate(planes):
        padded = np.zeros((groups * LANES, 4 * width), np.uint8)
        padded[:rows, : -(-columns // 8)] = np.packbits(plane, axis=1, bitorder="little")
        words[:, :, place] = padded.view("<i4").reshape(groups, LANES, width).swapaxes(1, 2)
    return Planes(torch.from_numpy(words).to(codes.device), rows, columns, levels, signs)


def stack(parts: Sequence[Planes]) -> Planes:
    """Stack matrices with equally many columns; all but the last must have a multiple of 32 rows.

    Example:
        >>> ones = pack(torch.ones(32, 3, dtype=torch.int8))
        >>> stack([ones, pack(-torch.ones(1, 3, dtype=torch.int8))]).rows
        33
    """
    columns, signs = parts[0].columns, parts[0].signs
    if any((part.columns, part.signs) != (columns, signs) for part in parts) or any(p.rows % LANES for p in parts[:-1]):
        raise ValueError(
            f"a stack needs parts of equally many columns, a multiple of {LANES} rows, and the same signs."
        )
    levels = max(part.levels for part in parts)
    words = [_with_digits(part, levels.bit_length()) for part in parts]
    return Planes(torch.cat(words), sum(part.rows for part in parts), columns, levels, signs)


def _with_digits(planes: Planes, digits: int) -> Tensor:
    """Return the words with this many planes for magnitudes; added ones are 0."""
    if planes.digits == digits:
        return planes.words
    magnitudes, signs = planes.words[:, :, : planes.digits], planes.words[:, :, planes.digits :]
    further = magnitudes.new_zeros(*magnitudes.shape[:2], digits - planes.digits, LANES)
    return torch.cat([magnitudes, further, signs], dim=2)
