"""Items that are products: gathered for a chunk of problems, and the answers written back.

Problems with equally many items are numbered block by block: problem p belongs to output p % outputs of the block
`blocks[p // outputs]`.
"""

import numpy as np
from numpy.typing import NDArray

from strongticket.ops.array_types import F32, F64, I64, U8, Bools
from strongticket.ops.compiled import kernel


@kernel
def gather_products(
    first: int, targets: NDArray[np.floating], u: F32, v: F32, blocks: I64, starts: I64, divisor: float, w: F64, a: F64
) -> None:
    """Write the targets and items of the problems from `first` on, as many as fit."""
    outputs = len(v)
    for row in range(len(w)):
        i, j = (first + row) % outputs, blocks[(first + row) // outputs]
        w[row] = targets[i, j]
        for k in range(a.shape[1]):
            unit = starts[j] + k
            # Exact: two float32 significands fit into one float64. Dividing by 1 changes nothing.
            a[row, k] = np.float64(u[unit]) * np.float64(v[i, unit]) / divisor


@kernel
def scatter_answers(
    first: int, blocks: I64, starts: I64, chosen: Bools, errors: F64, statuses: U8, mask: Bools, error: F64, status: U8
) -> None:
    """Write the answers of the problems from `first` on to their places."""
    outputs = len(mask)
    for row in range(len(errors)):
        i, j = (first + row) % outputs, blocks[(first + row) // outputs]
        error[i, j] = errors[row]
        status[i, j] = statuses[row]
        for k in range(chosen.shape[1]):
            mask[i, starts[j] + k] = chosen[row, k]
