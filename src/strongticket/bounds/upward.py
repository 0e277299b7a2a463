"""Float64 arithmetic that errs only upwards, so that a bound stays a bound after rounding."""

import decimal
import math
from dataclasses import dataclass

# Libraries compute tanh, exp and log to a few units in the last place, not to half a unit as IEEE 754 requires of
# + - * / and sqrt. Results are increased by eight units, which is enough for the least accurate library.
LIBRARY_SLACK = 1 + 2.0**-49


def next_up(x: float) -> float:
    """Return the smallest float64 above x."""
    return math.nextafter(x, math.inf)


@dataclass(frozen=True, slots=True)
class Up:
    """An upper bound on a nonnegative number; `+` and `*` give upper bounds again.

    Rounding to nearest errs by less than one step between floats, so one step up after each operation is enough.
    Infinity stands for a finite number that is too large or not known: hence 0 times infinity is 0, never NaN.
    """

    value: float

    def __add__(self, other: "Up | float") -> "Up":
        x, y = self.value, _value(other)
        if x == 0 or y == 0:
            return Up(x + y)
        return Up(next_up(x + y))

    def __mul__(self, other: "Up | float") -> "Up":
        x, y = self.value, _value(other)
        if x == 0 or y == 0:
            return Up(0.0)
        return Up(next_up(x * y))

    __radd__ = __add__
    __rmul__ = __mul__


def up_digits(x: float, digits: int = 6) -> float:
    """Return the smallest float64 with this many decimal digits that is not below x; x itself if that overflows.

    The last bits of a norm depend on the machine; its first six digits hardly ever do.

    Example:
        >>> up_digits(0.12345601), up_digits(0.123457), up_digits(123456789.0)
        (0.123457, 0.123457, 123457000.0)
    """
    rounded = _digits(x, digits, decimal.ROUND_CEILING)
    return rounded if math.isfinite(rounded) else x


def down_digits(x: float, digits: int = 6) -> float:
    """Return the largest float64 with this many decimal digits that is not above x.

    Example:
        >>> down_digits(0.12345699), down_digits(1.09672, 3)
        (0.123456, 1.09)
    """
    return _digits(x, digits, decimal.ROUND_FLOOR)


def _digits(x: float, digits: int, rounding: str) -> float:
    with decimal.localcontext(prec=digits, rounding=rounding):
        # `repr` rounds to x, and rounding is monotonic, so a decimal on one side of it does not round to the other.
        return float(+decimal.Decimal(repr(x)))


def up_sqrt(x: float) -> Up:
    """Return the square root, rounded up."""
    return Up(next_up(math.sqrt(x)))


def up_tanh(x: Up) -> Up:
    """Return tanh, rounded up; it never exceeds its argument or 1."""
    return Up(min(x.value, 1.0, math.tanh(x.value) * LIBRARY_SLACK))


def up_expm1(x: Up) -> Up:
    """Return exp(x) - 1, rounded up; infinity on overflow."""
    if x.value == 0:
        return Up(0.0)
    try:
        return Up(next_up(math.expm1(x.value) * LIBRARY_SLACK))
    except OverflowError:
        return Up(math.inf)


def _value(number: "Up | float") -> float:
    return number.value if isinstance(number, Up) else number
