"""A table with a picture in it, as HTML: dots and intervals on one axis, the numbers beside them.

Nothing in it needs a script: places along the axis are percentages, so it fits any width.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from strongticket.charts.parts import Comparison, Mark, Row, minus

_HEIGHT = 30  # of a line, in pixels
_TICKS = 5  # at most
_LEAST = 1e-300  # of a span: a fraction of less may be zero
_WORDY = 60  # characters of words in a line that leave the picture and the numbers too little room, unless they wrap
_BEYOND = 1.5  # how far intervals may stretch the axis, in spans of the values


class Axis(NamedTuple):
    """Where values stand, from 0 to 100 %."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> float:
        """Give a value's place in percent; what lies outside stands at the end."""
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[tuple[float, str]]:
        """Give places and labels."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        return [(self.at(k * self.step), minus(f"{k * self.step:.{digits}f}")) for k in range(first, last + 1)]


def axis_of(marks: Sequence[Mark], *, zero: bool) -> Axis:
    """Choose an axis that shows every value, and of the intervals as much as leaves the values apart.

    Example:
        >>> axis_of([Mark(mean=0.1, values=[0.0, 0.2], interval=(-1.2, 1.4))], zero=True).low > -1.2
        True
    """
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


def render_comparison(block: Comparison) -> str:
    """Give the whole figure."""
    axis = axis_of([mark for row in block.rows for mark in row.marks], zero=block.zero)
    heads = "".join(
        (
            *(f'<th scope="col">{escape(text)}</th>' for text in block.words),
            f'<th scope="col" class="picture">{escape(block.axis)}</th>',
            *(f'<th scope="col" class="n">{escape(text)}</th>' for text in block.numbers),
        )
    )
    body = "".join(_row(row, axis, block) for row in block.rows)
    ticks = "".join(f'<text x="{at:.2f}%" y="12">{label}</text>' for at, label in axis.ticks())
    foot = (
        f'<tfoot aria-hidden="true"><tr><td colspan="{len(block.words)}"></td>'
        f'<td class="picture"><svg height="18">{ticks}</svg></td><td colspan="{len(block.numbers)}"></td></tr></tfoot>'
    )
    key = "".join(f'<li><i class="is-{colour}"></i>{escape(name)}</li>' for colour, name in block.key)
    wordy = " class=wordy" if max((sum(map(len, row.words)) for row in block.rows), default=0) > _WORDY else ""
    return (
        f'<figure class="comparison"><div class="figure-title">{escape(block.title)}</div>'
        + (f'<ul class="key">{key}</ul>' if key else "")
        + f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(block.title)}">'
        f"<table{wordy}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody>{foot}</table></div>"
        f"<figcaption>{escape(block.caption)}</figcaption></figure>"
    )


def _row(row: Row, axis: Axis, block: Comparison) -> str:
    # On a phone there are no columns, so each cell has its head with it; the first is what the line is about.
    first, *others = row.words
    words = f"<td>{escape(first)}</td>" + "".join(
        f'<td data-head="{escape(head)}">{escape(text)}</td>'
        for head, text in zip(block.words[1:], others, strict=True)
    )
    numbers = "".join(
        f'<td class="n" data-head="{escape(head)}">{escape(text)}</td>'
        for head, text in zip(block.numbers, row.numbers, strict=True)
    )
    inside = "".join(_grid(axis, block.zero)) + "".join(
        "".join(_mark(mark, axis, _HEIGHT * (place + 1) / (len(row.marks) + 1))) for place, mark in enumerate(row.marks)
    )
    picture = f'<td class="picture"><svg height="{_HEIGHT}" aria-hidden="true">{inside}</svg></td>'
    return f"<tr>{words}{picture}{numbers}</tr>"


def _grid(axis: Axis, zero: bool) -> Iterator[str]:
    for at, _ in axis.ticks():
        yield f'<line class="grid" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'
    if zero:
        at = axis.at(0)
        yield f'<line class="base" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'


def _mark(mark: Mark, axis: Axis, y: float) -> Iterator[str]:
    yield f'<g class="is-{mark.colour}">'
    if mark.interval is not None:
        low, high = (axis.at(end) for end in mark.interval)
        yield f'<line class="whisker" x1="{low:.2f}%" x2="{high:.2f}%" y1="{y:.1f}" y2="{y:.1f}"/>'
    if len(mark.values) > 1:
        yield from (f'<circle class="one" cx="{axis.at(value):.2f}%" cy="{y:.1f}" r="2.5"/>' for value in mark.values)
    yield f'<circle class="mark-dot" cx="{axis.at(mark.mean):.2f}%" cy="{y:.1f}" r="4.5"/></g>'
