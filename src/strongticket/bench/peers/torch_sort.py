"""Meet in the middle with torch operations alone: what a GPU does without our kernels."""

import torch
from torch import Tensor

from strongticket.ops.subset_sum.reference import all_sums

# Sums held at once per list; the sort and the search make a few copies of this size.
SUMS_IN_FLIGHT = 2**26


def solve(targets: Tensor, items: Tensor, *, sums_in_flight: int = SUMS_IN_FLIGHT) -> Tensor:
    """Pick the closest subset of each row by one batched sort and one batched searchsorted, in float64.

    Args:
        targets: (rows,) float64.
        items: (rows, n) float64, on the same device.
        sums_in_flight: sums of half a row's items held at once, over all rows.

    Returns:
        mask (rows, n) bool. Sums are rounded in tree order, so a near-tie may go the other way.
    """
    n = items.shape[1]
    rows = max(1, sums_in_flight >> (n - n // 2))
    mask = torch.empty_like(items, dtype=torch.bool)
    for start in range(0, len(items), rows):
        part = slice(start, start + rows)
        mask[part] = _solve_part(targets[part], items[part])
    return mask


def _solve_part(w: Tensor, a: Tensor) -> Tensor:
    h = a.shape[1] // 2
    left, order = all_sums(a[:, :h]).sort(dim=1)  # (rows, 2^h)
    wanted = w[:, None] - all_sums(a[:, h:])  # (rows, 2^(n - h))
    above = torch.searchsorted(left, wanted).clamp_(max=left.shape[1] - 1)
    below = (above - 1).clamp_(min=0)
    gap_above = (left.gather(1, above) - wanted).abs_()
    gap_below = (left.gather(1, below) - wanted).abs_()
    place = torch.where(gap_below <= gap_above, below, above)
    second = torch.minimum(gap_below, gap_above).argmin(dim=1, keepdim=True)  # (rows, 1)
    first = order.gather(1, place.gather(1, second))
    subset = first | second << h
    return (subset >> torch.arange(a.shape[1], device=a.device)) & 1 == 1
