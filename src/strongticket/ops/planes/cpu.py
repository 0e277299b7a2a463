"""Products with bit planes on the CPU."""

from torch import Tensor

from strongticket.ops.planes import reference
from strongticket.ops.planes.planes import Planes


def multiply(planes: Planes, x: Tensor, scale: float) -> Tensor:
    """Give scale * W x; x is (vectors, columns)."""
    return reference.multiply(planes, x, scale).float()


def look_up(planes: Planes, indices: Tensor, scale: float) -> Tensor:
    """Give rows of W, times a scale."""
    return reference.look_up(planes, indices, scale).float()
