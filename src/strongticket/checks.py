"""Checks of callers' arguments, with errors that name the argument.

Without torch, so that settings can be checked and a command's help shown before torch is loaded.
"""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Literal, SupportsIndex

Scope = Literal["tensor", "global"]
Init = Literal["theory", "printed", "xavier"]

MAX_SEED = 2**64 - 1


def as_seed(seed: SupportsIndex) -> int:
    """Convert a seed, NumPy's integers included, to an int."""
    if type(seed) is int and 0 <= seed <= MAX_SEED:  # some rules derive a stream per tensor and step
        return seed
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not 0 <= operator.index(seed) <= MAX_SEED:
        raise ValueError(f"seed must be a whole number in 0 .. 2^64 - 1; got {seed!r:.40}.")
    return operator.index(seed)


def as_real(value: object) -> float:
    """Convert a real number, NumPy's included, to a float; anything else becomes NaN, which is in no range."""
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.nan


def check_density(density: float, name: str = "density") -> None:
    """Refuse a density outside (0, 1]."""
    if not 0 < density <= 1:
        raise ValueError(f"{name} must be in (0, 1]; got {density:g}. It is the fraction kept, not removed.")


def as_sizes(what: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Convert whole numbers of at least 0, NumPy's included, to a tuple of ints."""
    if not isinstance(values, Iterable):
        raise ValueError(f"{what} must be a sequence of whole numbers; got {values!r:.60}.")
    return tuple(as_count(what, value) for value in values)


def as_count(what: str, value: object) -> int:
    """Convert one whole number of at least 0 to an int; refuse bools and floats."""
    if type(value) is int and value >= 0:  # files hold many, and `isinstance` takes microseconds for a protocol
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < 0:
        raise ValueError(f"{what} must be whole numbers of at least 0; got {value!r:.60}.")
    return operator.index(value)
