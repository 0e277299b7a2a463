"""The definition of bit planes: unpack them, and multiply in float64.

A weight of 0 is skipped: it adds nothing, even where x is infinite or NaN.
"""

import numpy as np
import torch
from torch import Tensor

from strongticket.ops.philox import reference as philox
from strongticket.ops.planes.planes import LANES, Planes


def unpack(planes: Planes) -> Tensor:
    """Return the matrix as int8, (rows, columns)."""
    rows, columns = planes.rows, planes.columns
    groups, words, count, _ = planes.words.shape
    octets = planes.words.cpu().numpy().view(np.uint8).reshape(groups, words, count, LANES, 4)
    bits = np.unpackbits(octets, axis=4, bitorder="little")  # (groups, words, planes, 32, 32)
    each = bits.transpose(2, 0, 3, 1, 4).reshape(count, groups * LANES, words * 32)[:, :rows, :columns].astype(np.int8)
    magnitudes = sum((each[digit] << digit for digit in range(planes.digits)), np.zeros((rows, columns), np.int8))
    if planes.signs is None:
        signs = 1 - 2 * each[planes.digits]
    else:
        drawn = np.empty(rows * columns, np.float32)
        philox.fill(drawn, 0, planes.signs, "packed-sign", 1.0)
        signs = drawn.astype(np.int8).reshape(rows, columns)
    return torch.from_numpy(magnitudes * signs).to(planes.device)


def multiply(planes: Planes, x: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale * W x in float64: x is (..., columns), the result (..., rows)."""
    weights = unpack(planes).double()
    products = torch.where(weights != 0, weights * x[..., None, :].double(), 0.0)  # (..., rows, columns)
    return scale * products.sum(-1)


def look_up(planes: Planes, indices: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale times the rows of W at `indices`, (...), in float64: (..., columns)."""
    return scale * unpack(planes)[indices].double()
