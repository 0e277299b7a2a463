"""Checks that all functions of this package apply to their arguments."""

import math
from typing import Literal, get_args

Variant = Literal["paper", "tight"]


def check_variant(variant: str) -> None:
    """Refuse anything but the two variants."""
    if variant not in get_args(Variant):
        raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}; got {variant!r}.")


def check_counts(**counts: int) -> None:
    """Refuse dimensions and counts below 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1; got {count}.")


def check_positive(**numbers: float) -> None:
    """Refuse anything but a positive finite number."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be positive and finite; got {number}.")


def check_norms(**norms: float) -> None:
    """Refuse what cannot be a norm; infinity is allowed and means that nothing is known."""
    for name, norm in norms.items():
        if not norm >= 0:
            raise ValueError(f"{name} must be a norm, 0 or more; got {norm}.")
