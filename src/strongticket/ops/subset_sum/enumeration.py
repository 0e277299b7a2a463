"""One problem of a few items: list all sums and take the closest. Up to seven items nothing is faster."""

from strongticket.ops.array_types import F64
from strongticket.ops.compiled import part, part_without_nan

MOST_ITEMS = 7


@part_without_nan
def least_error(w: float, a: F64, sums: F64) -> float:
    """Write all subset sums in item order, by mask, into `sums`; return the least error."""
    sums[0] = 0.0
    best = abs(w)
    size = 1
    for item in a:
        for i in range(size):
            total = sums[i] + item
            sums[size + i] = total
            error = abs(w - total)
            best = min(best, error)
        size *= 2
    return best


@part
def solve_by_enumeration(w: float, a: F64, sums: F64) -> tuple[int, float]:
    """Return the mask of least error, the smallest of equals, and that error; `sums` has space for 2^n."""
    best = least_error(w, a, sums)
    mask = 0
    while abs(w - sums[mask]) != best:
        mask += 1
    return mask, best
