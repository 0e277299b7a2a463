"""What a subset-sum solver returns."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Effort = Literal["default", "high"]

_SHOWN = 32  # bits of a mask to print


class Status(IntEnum):
    """How good a row's answer is; `SubsetSumResult.status` holds these as uint8."""

    OPTIMAL = 0  # proved: no subset is closer, and no smaller mask is as close
    NEAR = 1  # close, not proved optimal
    UNREACHABLE = 2  # the target lies outside the interval of possible sums; the closest end is returned


class SubsetSumResult(NamedTuple):
    """The chosen subsets, their errors, and whether they are proved optimal."""

    mask: Tensor  # bool, the shape of the items
    error: Tensor  # float64, |target - sum of the chosen items|, summed in item order
    status: Tensor  # uint8, `Status`

    def __repr__(self) -> str:
        # Few answers in full; for many, the number of each status and the range of errors.
        mask, error, status = self.mask, self.error, self.status
        if mask.numel() <= _SHOWN and error.numel():
            errors = _written(error.tolist(), lambda number: f"{number:.4g}")
            names = _written(status.tolist(), lambda number: Status(number).name)
            return f"SubsetSumResult(mask={mask.int().tolist()}, error={errors}, status={names})"
        counts = torch.bincount(status.flatten().int(), minlength=len(Status)).tolist()
        statuses = " + ".join(f"{counts[each]:,} {each.name}" for each in Status if counts[each]) or "none"
        reach = "none" if not error.numel() else f"{error.min().item():.2g} to {error.max().item():.2g}"
        return f"SubsetSumResult(mask={tuple(mask.shape)}, error={tuple(error.shape)} of {reach}, status={statuses})"


def _written(values: Any, write: Callable[[Any], str]) -> str:
    """Format a number, or numbers in nested lists."""
    return f"[{', '.join(_written(each, write) for each in values)}]" if isinstance(values, list) else write(values)


def empty_result(mask_shape: torch.Size, shape: torch.Size, device: torch.device | str) -> SubsetSumResult:
    """Allocate a result. The device is explicit: a caller may have changed torch's default."""
    kinds = (mask_shape, torch.bool), (shape, torch.float64), (shape, torch.uint8)
    return SubsetSumResult(*(torch.empty(size, dtype=dtype, device=device) for size, dtype in kinds))
