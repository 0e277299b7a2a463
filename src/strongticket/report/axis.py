"""The axis of a table with a picture in it: places along it are percentages, so it fits any width."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from strongticket.charts.parts import Row, minus

_TICKS = 5  # at most
_LEAST = 1e-300  # of a span: a fraction of less may be zero
_BEYOND = 1.5  # how far intervals may stretch the axis, in spans of the values


class Axis(NamedTuple):
    """Where values stand, from 0 to 100 %."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> str:
        """Give a value's place, such as "12.50%"; what lies outside stands at the end."""
        return f"{min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low))):.2f}%"

    def ticks(self) -> list[tuple[float, str]]:
        """Give values and their labels."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        return [(k * self.step, minus(f"{k * self.step:.{digits}f}")) for k in range(first, last + 1)]


def axis_of(rows: Sequence[Row], *, zero: bool) -> Axis:
    """Choose an axis that shows every value, and of the intervals as much as leaves the values apart.

    Example:
        >>> from strongticket.charts.parts import Mark
        >>> mark = Mark(mean=0.1, values=[0.0, 0.2], interval=(-1.2, 1.4))
        >>> axis_of([Row(words=(), marks=[mark], numbers=())], zero=True).low > -1.2
        True
    """
    marks = [mark for row in rows for mark in row.marks]
    values = [float(value) for mark in marks for value in (mark.mean, *mark.values)]
    if not all(map(math.isfinite, values)):
        raise ValueError("a comparison needs finite numbers")
    low, high = min(values + [0.0] * zero), max(values + [0.0] * zero)
    span = max((high - low) or abs(high) or 1.0, _LEAST)
    ends = [float(end) for mark in marks for end in mark.interval or ()]
    low = max(min([low, *ends]), low - _BEYOND * span)
    high = min(max([high, *ends]), high + _BEYOND * span)
    pad = 0.06 * (high - low if high - low > 1e-9 * span else span)
    return Axis(low - pad, high + pad, _step(high - low + 2 * pad))


def _step(span: float) -> float:
    rough = span / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(k * unit for k in (1, 2, 5, 10) if k * unit >= rough * (1 - 1e-9))
