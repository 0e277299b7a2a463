"""The axis of a table with a picture in it: places along it are percentages, so it fits any width."""

import math
from typing import NamedTuple

from strongticket.charts.parts import Comparison, minus

_TICKS = 5  # at most
_LEAST = 1e-300  # a fraction of less may be zero


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


def axis_of(comparison: Comparison) -> Axis:
    """Choose an axis that has room beside what it shows.

    Example:
        >>> from strongticket.charts.parts import Mark, Row
        >>> mark = Mark(mean=0.1, values=[0.0, 0.2], interval=(-1.2, 1.4))
        >>> row = Row(words=(), marks=[mark], numbers=())
        >>> axis_of(Comparison(title="", caption="", words=(), axis="", numbers=(), rows=[row])).low > -1.2
        True
    """
    low, high = comparison.span()
    largest = max(abs(low), abs(high))
    largest = largest if largest > _LEAST else 1.0
    pad = 0.06 * (high - low if high - low > 1e-9 * largest else largest)
    step = (high - low + 2 * pad) / _TICKS
    unit = 10.0 ** math.floor(math.log10(step))
    return Axis(low - pad, high + pad, next(k * unit for k in (1, 2, 5, 10) if k * unit >= step * (1 - 1e-9)))
