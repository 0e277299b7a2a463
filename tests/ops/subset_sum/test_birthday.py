"""The joins of more than 32 items, against plain loops over all pairs."""

from itertools import product

import numba
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from strongticket.ops.subset_sum import birthday
from strongticket.ops.subset_sum.birthday import DIGIT, INDEX_BITS

MOST = 12
numbers = st.lists(st.integers(-20, 20) | st.integers(-(2**60), 2**60), max_size=MOST).map(sorted)


@numba.njit  # type: ignore[untyped-decorator]
def join(a, b, centre, width, work, joined, sources):  # type: ignore[no-untyped-def]
    """`birthday.join` is for compiled code alone."""
    return birthday.join(a, b, centre, width, work, joined, sources)


@given(a=numbers, b=numbers, centre=st.integers(-9, 9), width=st.integers(0, 2**61))
@example(a=[], b=[1], centre=0, width=5)
@example(a=[1], b=[], centre=0, width=5)
@example(a=[0] * MOST, b=[0] * MOST, centre=0, width=1)
@example(a=list(range(MOST)), b=list(range(MOST)), centre=7, width=0)
def test_a_join_lists_the_pairs_within_its_window(a: list[int], b: list[int], centre: int, width: int) -> None:
    # By members of a, then from the largest member of b down, as many as there is room for.
    pairs = [(i, j) for i, j in product(range(len(a)), reversed(range(len(b)))) if abs(a[i] + b[j] - centre) <= width]
    shift = max(0, (2 * width).bit_length() - 2 * DIGIT)
    kept = sorted(pairs[:MOST], key=lambda pair: a[pair[0]] + b[pair[1]] - centre + width >> shift)
    first, second = np.array(a, np.int64), np.array(b, np.int64)
    work, joined, sources = np.empty((4, MOST + 1), np.int64), np.empty(MOST, np.int64), np.empty(MOST, np.int64)
    count = join(first, second, centre, width, work, joined, sources)
    assert count == len(kept)
    assert joined[:count].tolist() == [a[i] + b[j] - centre for i, j in kept]
    assert sources[:count].tolist() == [i << INDEX_BITS | j for i, j in kept]
