"""What a subset-sum solver returns."""

from enum import IntEnum
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Effort = Literal["default", "high"]


class Status(IntEnum):
    """How good a row's answer is; `SubsetSumResult.status` holds these as uint8."""

    OPTIMAL = 0  # proved: no subset comes closer, and no smaller mask comes as close
    NEAR = 1  # close, not proved optimal
    UNREACHABLE = 2  # the target lies outside the interval of possible sums; the closest end is returned


class SubsetSumResult(NamedTuple):
    """The chosen subsets, how far they miss, and whether that is proved to be the best possible."""

    mask: Tensor  # bool, the shape of the items
    error: Tensor  # float64, |target - sum of the chosen items|, summed in item order
    status: Tensor  # uint8, `Status`


def empty_result(mask_shape: torch.Size, shape: torch.Size, device: torch.device | str) -> SubsetSumResult:
    """Room for a result, not yet written. The device is named: a caller may have set another as torch's default."""
    kinds = (mask_shape, torch.bool), (shape, torch.float64), (shape, torch.uint8)
    return SubsetSumResult(*(torch.empty(size, dtype=dtype, device=device) for size, dtype in kinds))
