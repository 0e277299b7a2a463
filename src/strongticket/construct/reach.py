"""How many units it takes until every weight of an input is in reach of both signs, compiled."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@njit(nogil=True, cache=True)
def first_in_reach(own: F32, free: F32, column: F64, size: int, slack: float) -> int:
    """Give the first number of units, from `size` on, with which both halves reach all of a column; 0 if none does.

    An interval only grows with its items, so that each weight goes on where the one before was content. Plain sums in
    order: every machine finds the same.
    """
    lowest, highest = np.empty(2), np.empty(2)  # the sums of all negative and of all positive items, by half
    for i in range(column.size):
        lowest[:], highest[:], k = 0.0, 0.0, 0
        while k < size or lowest.max() > column[i] + slack or highest.min() < column[i] - slack:
            if k == own.size:
                return 0
            half, item = int(own[k] < 0), np.float64(own[k]) * np.float64(free[i, k])
            lowest[half] += min(item, 0.0)
            highest[half] += max(item, 0.0)
            k += 1
        size = k
    return size
