"""The axis of a table with a picture in it: places are percentages, so that it fits any width."""

import math
from typing import NamedTuple

from strongticket.charts.parts import Comparison, minus

_TICKS = 5  # at most
_LEAST = 1e-300  # fractions of smaller numbers may round to zero


class Axis(NamedTuple):
    """Maps values to places from 0 to 100 %."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> str:
        """Return a value's place, such as "12.50%"; values outside are placed at the ends."""
        return f"{min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low))):.2f}%"

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values of ticks and their labels."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        return [(k * self.step, minus(f"{k * self.step:.{digits}f}")) for k in range(first, last + 1)]


def axis_of(comparison: Comparison) -> Axis:
    """Choose an axis with some room at both ends.

    Example:
        >>> from strongticket.charts.parts import Row
        >>> row = Row(words=(), mean=0.1, values=[0.0, 0.2], interval=(-1.2, 1.4), numbers=())
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
