"""Scores for the tests of this folder: many ties, both zeros, denormals, infinities, NaNs of several bit patterns."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

# Bits, not values: a float strategy would give one NaN and few of the smallest denormals.
HARD_BITS = (
    0x00000000, 0x80000000,  # zeros
    0x00000001, 0x80000001, 0x007FFFFF,  # denormals
    0x3F800000, 0xBF800000, 0x3F800001,  # ones, and the next number
    0x7F7FFFFF, 0x7F800000, 0xFF800000,  # the largest, infinities
    0x7FC00000, 0xFFC00000, 0x7F800001,  # NaNs
)  # fmt: skip

densities = st.sampled_from([1.0, 0.3, 0.5, 1e-3, 1e-20, 1 / 3, 1 - 1e-9]) | st.floats(1e-6, 1.0)


def hard_scores() -> Tensor:
    """Every hard pattern, three times over in changing order, so that equal ones lie apart."""
    orders = (HARD_BITS, HARD_BITS[::-1], (*HARD_BITS[1::2], *HARD_BITS[::2]))
    return torch.from_numpy(np.array(orders, np.uint32).view(np.float32)).flatten()


@st.composite
def scores(draw: st.DrawFn, max_size: int = 300) -> Tensor:
    """A float32 tensor of up to `max_size` scores, often of few distinct values."""
    size = draw(st.sampled_from([0, 1, 2, 7, 64]) | st.integers(0, max_size))
    if draw(st.booleans()):
        palette = draw(st.lists(st.sampled_from(HARD_BITS) | st.integers(0, 2**32 - 1), min_size=1, max_size=6))
        bits = draw(hnp.arrays(np.int64, size, elements=st.integers(0, len(palette) - 1), fill=st.nothing()))
        return torch.from_numpy(np.array(palette, np.uint32)[bits].view(np.float32))
    return torch.from_numpy(draw(hnp.arrays(np.uint32, size)).view(np.float32))
