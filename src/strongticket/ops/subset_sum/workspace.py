"""The memory in which a register's worth of problems is solved; see `lockstep`."""

from typing import Any, NamedTuple

import numpy as np

from strongticket.ops.array_types import Records
from strongticket.ops.subset_sum.lanes import lane_buffer
from strongticket.ops.subset_sum.network import Buffer

MIN_ITEMS = 8  # the network lists the sums of at least four items
# A row with more close pairs is left to `bisection`. Random rows have at most 11 of up to 26 items, and 30 of 28, for
# which 32 bits are almost too few.
FEW_PAIRS, MANY_PAIRS = 12, 32

# The state of the problem in each lane.
LANE = np.dtype(
    [
        ("row", np.int64),  # its row in the chunk
        ("scale", np.float64),  # fixed point = scale times value
        ("bound", np.float64),  # how far a gap may be from the true doubled error, in fixed point
        ("aim", np.int64),  # W
        ("total_first", np.int64),  # the sum of the first half of the items
        ("total_second", np.int64),
        ("flipped", np.bool_),  # whether the target is negative; the lists are then read mirrored
        ("pairs", np.int64),  # number recorded; more than fit means too many
        ("judged", np.bool_),  # whether the next pair is to be judged
    ],
    align=True,
)
PAIR = np.dtype([("gap", np.int64), ("first", np.int64), ("second", np.int64), ("out", np.int64)])

# The indices of single vectors in `Workspace.vectors`; of what is wanted and found, there is one for each half of the
# items. The last two never change: the largest integer a lane holds, and the 0 of lists.
CENTRE, TARGET, LIMIT, WANTED, FOUND, LARGEST, ZERO, VECTORS = 0, 1, 2, 3, 5, 7, 8, 9


class Workspace(NamedTuple):
    """The memory one thread needs for n items; h = n // 2 of them are in each half."""

    items: Buffer  # (n, lanes), fixed point
    first: Buffer  # (2^(h-1), lanes), the upper half of the signed sums of the first half of the items
    second: Buffer  # (2^(h-1), lanes)
    merged: Buffer  # (2^(h+1), lanes)
    least: Buffer  # (2^(h-2), lanes), least odd gap of every eight
    lows: Buffer  # (2^(h//2), lanes), subset sums of a quarter of the items
    highs: Buffer  # (2^(h-h//2), lanes), of the next quarter
    vectors: Buffer  # (VECTORS, lanes)
    lanes: Records  # (lanes,) LANE
    pairs: Records  # (lanes, FEW_PAIRS or MANY_PAIRS) PAIR, by gap


def make_workspace(n: int, dtype: type[np.signedinteger[Any]]) -> Workspace:
    """Allocate memory for n items in lanes of int32 or int64."""
    h = n // 2
    sizes = n, 1 << h - 1, 1 << h - 1, 2 << h, 1 << h - 2, 1 << h // 2, 1 << h - h // 2, VECTORS
    buffers = [lane_buffer(size, dtype) for size in sizes]
    lanes = buffers[0].shape[1]
    pairs = MANY_PAIRS if dtype is np.int32 and n > 26 else FEW_PAIRS
    work = Workspace._make([*buffers, np.zeros(lanes, LANE), np.zeros((lanes, pairs), PAIR)])
    work.vectors[LARGEST], work.vectors[ZERO] = np.iinfo(dtype).max, zero_of(dtype)
    return work


def zero_of(dtype: type[np.signedinteger[Any]]) -> int:
    """Return the 0 of lists: smaller positive integers have the bits of denormal floats."""
    return np.iinfo(dtype).max // (128 if dtype is np.int32 else 1024)
