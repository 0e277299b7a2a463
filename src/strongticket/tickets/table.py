r"""What a code $q_i$ means: the weight $w_i = c_{q_i} \cdot \text{draw}_{k_{q_i}}(\text{seed}, \text{name}, i)$."""

import math

import numpy as np

from strongticket.checks import as_count, as_real
from strongticket.ops.rng import MAX_DRAW

Table = tuple[tuple[float, int], ...]  # (coefficient, draw) of each code
KEEP_OR_DROP: Table = ((0.0, 0), (1.0, 0))

MAX_CODES = 16
# So that no product of a coefficient and a weight overflows: weights are below 2^103.
LARGEST = 2.0**24


def as_table(table: Table) -> Table:
    """Round every coefficient to float32, as used and stored; refuse a table that no ticket can hold.

    A code with coefficient 0 drops a weight; its draw is written as 0.
    """
    if not 1 <= len(table) <= MAX_CODES:
        raise ValueError(f"a table has 1 to {MAX_CODES} codes; got {len(table)}.")
    entries = [(_coefficient(coefficient), _draw(draw)) for coefficient, draw in table]
    return tuple((coefficient, draw if coefficient else 0) for coefficient, draw in entries)


def draws_of(table: Table) -> tuple[int, ...]:
    """Return the draws that a table uses, in order."""
    return tuple(sorted({draw for _, draw in table}))


def _coefficient(value: float) -> float:
    number = as_real(value)
    rounded = float(np.float32(number)) if abs(number) <= LARGEST else math.nan
    if not (rounded == 0 or 1 / LARGEST <= abs(rounded) <= LARGEST):
        raise ValueError(f"a coefficient is 0, or from 2^-24 to 2^24 with either sign; got {value!r:.40}.")
    return rounded or 0.0  # never -0.0


def _draw(value: int) -> int:
    if (number := as_count("draws", value)) > MAX_DRAW:
        raise ValueError(f"a draw is a whole number in 0 .. 2^32 - 1; got {value!r:.40}.")
    return number
