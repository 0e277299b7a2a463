r"""The definition of `subset_sum`, in plain torch and float64: every kernel must agree with it, bit for bit.

For a target $w$ and items $a_0, \dots, a_{n-1}$ the error of a mask $m$ is $|w - s|$, where $s$ starts at 0 and
each chosen item is added in item order, rounded to float64 after every addition. The answer is the mask of least
error; among equal errors the smallest one read as an integer, item 0 being the lowest bit.

A target outside [sum of the negative items, sum of the positive items] is unreachable; its answer is that end.
"""

import torch
from torch import Tensor

from strongticket.ops.subset_sum.result import Status, SubsetSumResult

BRUTE_FORCE_ITEMS = 12  # brute force holds 2^n sums per row; beyond this meet-in-the-middle is faster


def subset_sum(targets: Tensor, items: Tensor) -> SubsetSumResult:
    """Return the best subset of each row of `items` (rows, n) for its target (rows,); n up to about 32."""
    targets, items = targets.double(), items.double()
    n = items.shape[1]
    search = brute_force if n <= BRUTE_FORCE_ITEMS else meet_in_the_middle
    bits = search(targets, items)  # (rows,)
    mask = (bits[:, None] >> torch.arange(n)) & 1 == 1  # (rows, n)

    low, high = reach(items)
    below, above = targets < low, targets > high
    mask = torch.where(below[:, None], items < 0, torch.where(above[:, None], items > 0, mask))
    status = torch.where(below | above, Status.UNREACHABLE, Status.OPTIMAL).to(torch.uint8)
    return SubsetSumResult(mask, error_of(targets, items, mask), status)


def subset_sum_products(
    targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, *, divisor: float = 1.0
) -> SubsetSumResult:
    """Problem (i, j) has target `targets[i, j]` and, as items, u_k v_ik / divisor for the units k of block j."""
    items = u.double() * v.double() / divisor  # (outputs, units)
    blocks = torch.split(items, sizes.tolist(), dim=1)
    solved = [subset_sum(w, block) for w, block in zip(targets.T, blocks, strict=True)]
    if not solved:
        return SubsetSumResult(items.bool(), targets.double(), targets.to(torch.uint8))
    masks, errors, statuses = zip(*solved, strict=True)
    return SubsetSumResult(torch.cat(masks, dim=1), torch.stack(errors, dim=1), torch.stack(statuses, dim=1))


def error_of(targets: Tensor, items: Tensor, mask: Tensor) -> Tensor:
    """|target - sum of the chosen items| for each row, the items added one by one in item order."""
    return (targets.double() - _sum_in_order(items.double() * mask)).abs()


def reach(items: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of the interval of possible sums: all negative items, all positive items."""
    return _sum_in_order(items.clamp(max=0)), _sum_in_order(items.clamp(min=0))


def brute_force(targets: Tensor, items: Tensor) -> Tensor:
    """Try all 2^n masks; return the best as integers (rows,)."""
    # argmin returns the first of equals, which is the smallest mask.
    return (targets[:, None] - all_sums(items)).abs().argmin(dim=1)


def meet_in_the_middle(targets: Tensor, items: Tensor) -> Tensor:
    """Try all masks of the second half of the items, each with a bisection over the sums of the first half."""
    bits = [_meet_in_the_middle(w, a) for w, a in zip(targets, items, strict=True)]
    return torch.tensor(bits, dtype=torch.int64)


def all_sums(items: Tensor) -> Tensor:
    """Return the sum of every subset of each row, (rows, 2^n), indexed by its mask as an integer."""
    sums = items.new_zeros(len(items), 1)
    for item in items.unbind(dim=1):
        sums = torch.cat([sums, sums + item[:, None]], dim=1)
    return sums


def _meet_in_the_middle(w: Tensor, a: Tensor) -> int:
    """Return the best mask of one problem.

    Rounding is monotone: adding the same later items to a larger sum never gives a smaller result. So for a fixed
    choice of later items the end result grows with the sum it starts from, and the closest result to w is one of
    the two neighbours of w. This holds in floating point as it stands, so no tolerance is needed anywhere.
    """
    first, second = a[: len(a) // 2], a[len(a) // 2 :]
    starts = all_sums(first[None])[0]  # (2^first,), by mask
    choices = torch.arange(2 ** len(second))  # masks of the second half

    def finish(start: Tensor, choice: Tensor) -> Tensor:
        for k, item in enumerate(second):
            start = torch.where(choice >> k & 1 == 1, start + item, start)
        return start

    ordered = starts.sort().values
    # For each choice: how many starts finish at w or below.
    count, step = torch.zeros_like(choices), len(ordered)
    while step:
        tried = (count + step).clamp(max=len(ordered))
        count = torch.where(finish(ordered[tried - 1], choices) <= w, tried, count)
        step //= 2
    under = (w - finish(ordered[(count - 1).clamp(min=0)], choices)).abs()
    over = (w - finish(ordered[count.clamp(max=len(ordered) - 1)], choices)).abs()

    # The second half holds the high bits, so the smallest mask has the smallest choice, then the smallest start.
    choice = torch.minimum(under, over).argmin()
    start = (w - finish(starts, choice)).abs().argmin()
    return int(choice) << len(first) | int(start)


def _sum_in_order(terms: Tensor) -> Tensor:
    total = terms.new_zeros(len(terms))
    for term in terms.unbind(dim=1):
        total = total + term
    return total
