"""What the operations may be asked for, and the refusal of anything else.

Without torch, so that settings can be checked, and a command's help shown, before it is there.
"""

import operator
from typing import Literal, SupportsIndex

Scope = Literal["tensor", "global"]

MAX_SEED = 2**64 - 1


def as_seed(seed: SupportsIndex) -> int:
    """Take a seed, NumPy's whole numbers included, as a plain one."""
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not 0 <= operator.index(seed) <= MAX_SEED:
        raise ValueError(f"seed must be a whole number in 0 .. 2^64 - 1; got {seed!r:.40}.")
    return operator.index(seed)


def check_density(density: float) -> None:
    """Refuse a density that is no fraction kept."""
    if not 0 < density <= 1:
        raise ValueError(f"density must be in (0, 1]; got {density:g}. It is the fraction kept, not removed.")
