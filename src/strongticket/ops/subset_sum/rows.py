"""Shared by the CPU solvers: a row's reach, the error of a subset, masks as bits and as booleans."""

from typing import NamedTuple

from strongticket.ops.array_types import F64, Bools
from strongticket.ops.compiled import part

UNIT_ROUNDOFF = 2.0**-53


class Reach(NamedTuple):
    """The sums of the negative and of the positive items in item order: the ends of the reachable interval."""

    low_first: float  # after the first half of the items
    high_first: float
    low_both: float  # after twice as many, without the last item if their number is odd
    high_both: float
    low: float
    high: float


@part
def reach_of(a: F64) -> Reach:
    """Return the reach of the items."""
    half = len(a) // 2
    low, high = 0.0, 0.0
    low_first, high_first, low_both, high_both = low, high, low, high
    for k in range(len(a)):
        low += min(a[k], 0.0)
        high += max(a[k], 0.0)
        if k == half - 1:
            low_first, high_first = low, high
        if k == 2 * half - 1:
            low_both, high_both = low, high
    return Reach(low_first, high_first, low_both, high_both, low, high)


@part
def settle_if_unreachable(w: float, a: F64, reach: Reach, mask: Bools) -> bool:
    """If w lies outside the reach of the items, choose the nearer end and return True."""
    if reach.low <= w <= reach.high:
        return False
    for k in range(len(a)):
        mask[k] = a[k] < 0.0 if w < reach.low else a[k] > 0.0
    return True


@part
def error_of(w: float, a: F64, bits: int) -> float:
    """|w - sum of the chosen items|, added in item order."""
    total = 0.0
    for k in range(len(a)):
        # A branch would be mispredicted half of the time; adding a zero changes nothing.
        total += a[k] * (bits >> k & 1)
    return abs(w - total)


@part
def error_of_mask(w: float, a: F64, mask: Bools) -> float:
    """The same for a mask of booleans, of any length."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * mask[k]
    return abs(w - total)


@part
def write_bits(bits: int, mask: Bools) -> None:
    """Unpack an integer mask, item 0 the lowest bit."""
    for k in range(len(mask)):
        mask[k] = bits >> k & 1
