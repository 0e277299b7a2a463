"""What a figure shows: sections of text, tables and charts, as plain data that knows nothing of how it is drawn.

`picture.py` draws a section as PNG and SVG, `terminal.py` as lines of text, and the page leaves it to the reader's
browser and `assets/chart.js`. That layer is our own, a few hundred lines: a charting library would be a hundred times
larger than everything else on the page, and none of them gives each point to a keyboard and a screen reader.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from strongticket.files import Json

# The roles that colours have on the page; the style sheet gives each of them one in light and one in dark.
Colour = Literal["mean", "median", "paper", "miss", "ink", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
SERIES: tuple[Colour, ...] = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
Scale = Literal["linear", "log"]
Dash = Literal["solid", "dashed", "dotted", "dashdot"]

# Below this an error is rounding, and a logarithmic scale has no place for zero.
SMALLEST = 1e-17
_BEYOND = 1.5  # how far intervals of few seeds may stretch an axis, in spans of the values
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers in rows; every cell is text already."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1  # how many of the first columns are words, which stand left; numbers stand right
    remarks: int = 0  # how many of the last columns are words, which stand left and break lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a chart.

    Args:
        name: for the legend and the reader's pointer.
        points: x and y.
        low: lower ends of a spread, one for each point.
        high: upper ends.
        spread: how it is drawn: bars at the points, or a band.
        colour: a role, not a colour.
        ramp: instead of it a place on a ramp from 0 to 1, for many series in order.
        dash: of the line.
        thin: for a line that goes with a stronger one.
        line: False for points alone.
        marks: whether points are marked; curves have none.
        notes: a few words on each point, for the reader's pointer.
        labels: a word beside each point, always seen.
        each: the values that each point is the mean of, drawn small and faint.
        follows: whether it belongs to the series before: not in the legend, and hidden together with it.
    """

    name: str
    points: Sequence[tuple[float, float]]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    spread: Literal["bars", "band"] = "bars"
    colour: Colour = "ink"
    ramp: float | None = None
    dash: Dash = "solid"
    thin: bool = False
    line: bool = True
    marks: bool = True
    notes: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    each: Sequence[Sequence[float]] | None = None
    follows: bool = False

    def as_json(self) -> dict[str, Json]:
        """Give it as JSON, with every number a finite float."""
        return {
            "name": str(self.name),
            "points": [[float(x), float(y)] for x, y in self.points],
            "low": [float(y) for y in self.low] if self.low is not None else None,
            "high": [float(y) for y in self.high] if self.high is not None else None,
            "spread": self.spread,
            "colour": self.colour,
            "ramp": self.ramp,
            "dash": self.dash,
            "thin": self.thin,
            "line": self.line,
            "follows": self.follows,
            "marks": self.marks,
            "notes": [str(note) for note in self.notes] if self.notes is not None else None,
            "labels": [str(label) for label in self.labels] if self.labels is not None else None,
            "each": [[float(y) for y in values] for values in self.each] if self.each is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One way to look at a chart's data; a chart with several has a switch.

    Args:
        name: on the switch.
        x: what the horizontal axis is.
        y: what the vertical axis is.
        series: lines.
        x_scale: linear or log.
        x_ticks: where labels go on a log axis; chosen by the page where empty.
        y_scales: the first is shown; two give a switch.
        percent: whether y is a share.
        upright: vertical lines, x and name.
        diagonal: whether the line y = x is drawn, and its name.
        zero: whether y is a difference: zero then has a line, and values a sign.
        apart: whether points of several series at one x stand side by side, so that their bars can be told apart.
        y_range: what the linear axis shows at least; bars beyond it are cut. By default all there is.
        note: what has to be said of this view alone, beside its controls.
        printed: the scale of y in a picture, which has no switch; by default the first.
        minor: whether a picture has it small, under the others.
    """

    name: str
    x: str
    y: str
    series: Sequence[Series]
    x_scale: Scale = "linear"
    x_ticks: Sequence[float] = ()
    y_scales: Sequence[Scale] = ("log", "linear")
    percent: bool = False
    upright: Sequence[tuple[float, str]] = ()
    diagonal: str = ""
    zero: bool = False
    apart: bool = False
    y_range: tuple[float, float] | None = None
    note: str = ""
    printed: Scale | None = None
    minor: bool = False

    def as_json(self) -> dict[str, Json]:
        """Give it as JSON."""
        if self.x_scale == "log" and not all(x > 0 for series in self.series for x, _ in series.points):
            raise ValueError(f"{self.x} must be positive on a logarithmic axis")
        return {
            "name": self.name,
            "x": self.x,
            "y": self.y,
            "xScale": self.x_scale,
            "xTicks": [float(x) for x in self.x_ticks],
            "yScales": list(self.y_scales),
            "percent": self.percent,
            "upright": [[float(x), str(name)] for x, name in self.upright],
            "diagonal": self.diagonal,
            "zero": self.zero,
            "apart": self.apart,
            "yRange": [float(y) for y in self.y_range] if self.y_range is not None else None,
            "note": self.note,
            "series": [series.as_json() for series in self.series],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """An interactive figure with the table behind it; a half one leaves room for another beside it."""

    title: str
    caption: str
    views: Sequence[View]
    tables: Sequence[Table]
    half: bool = False

    def as_json(self) -> dict[str, Json]:
        """Give what the browser draws."""
        return {"kind": "chart", "title": self.title, "views": [view.as_json() for view in self.views]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """Attention maps of a target and of sources of growing width, side by side, with a slider.

    Args:
        widths: of the sources.
        target: (samples, T, T) as lists.
        sources: one such for each width.
    """

    title: str
    caption: str
    widths: Sequence[int]
    target: Json
    sources: Sequence[Json]
    tables: Sequence[Table]

    def as_json(self) -> dict[str, Json]:
        """Give what the browser draws."""
        return {"kind": "maps", "widths": list(self.widths), "target": self.target, "sources": list(self.sources)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """A ticket's tensors: pick one, see its mask and the weights it keeps."""

    title: str
    caption: str
    tensors: Sequence[Mapping[str, Json]]
    tables: Sequence[Table]

    def as_json(self) -> dict[str, Json]:
        """Give what the browser draws."""
        return {"kind": "inspector", "tensors": [dict(tensor) for tensor in self.tensors]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A matrix as a picture, one cell an entry."""

    title: str
    caption: str
    values: Sequence[Sequence[float]]
    tables: Sequence[Table]

    def as_json(self) -> dict[str, Json]:
        """Give what the browser draws, to four digits."""
        return {"kind": "matrix", "values": [[float(f"{value:.4g}") for value in row] for row in self.values]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mean with its interval, and the values it is the mean of; for one value without interval, a dot."""

    mean: float
    interval: tuple[float, float] | None = None
    values: Sequence[float] = ()
    colour: Colour = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a comparison: words, then what is drawn, then numbers."""

    words: Sequence[str]
    marks: Sequence[Mark]
    numbers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table with a picture in it: one line for each thing compared, all on one axis.

    Args:
        title: what is compared.
        caption: how to read it.
        words: heads of the columns left of the picture.
        axis: what the picture's axis is.
        numbers: heads of the columns right of it.
        rows: lines.
        zero: whether values are differences: the axis then has zero, with a line.
        key: names of colours, where there are several.
        printed: whether a picture has it, too.
    """

    title: str
    caption: str
    words: Sequence[str]
    axis: str
    numbers: Sequence[str]
    rows: Sequence[Row]
    zero: bool = False
    key: Sequence[tuple[Colour, str]] = ()
    printed: bool = True


Drawn = Chart | Maps | Inspector | Matrix  # by the browser
Block = Drawn | Comparison | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Something the page shows, with where it came from.

    Args:
        anchor: a word for links.
        name: short, for the list of contents.
        title: what it is.
        lead: what there is to see, in one paragraph.
        finding: one line for the top of the page; empty for none.
        blocks: its content.
        origin: facts by name: data file, command, seed, machine, date.
        chapter: sections of one chapter share an entry in the list of contents, which has this name.
    """

    anchor: str
    name: str
    title: str
    lead: str
    blocks: Sequence[Block]
    finding: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)
    chapter: str = ""


def number(value: float | None) -> str:
    """Write a number to three digits as people do: no exponents of computers, one minus sign everywhere.

    Example:
        >>> number(0.25), number(-1.234e-9), number(12345.0), number(None)
        ('0.25', '−1.23 × 10⁻⁹', '12,345', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    digits, e, power = text.partition("e")
    return minus(f"{digits} × 10{str(int(power)).translate(_RAISED)}" if e else digits)


def signed(value: float, digits: int = 3) -> str:
    """Write a difference with its sign.

    Example:
        >>> signed(0.0312), signed(-0.25)
        ('+0.031', '−0.250')
    """
    return minus(f"{value:+.{digits}f}")


def minus(text: str) -> str:
    """Turn a computer's hyphen into a minus sign."""
    return text.replace("-", "−")


def share(value: float) -> str:
    """Write a share as a percentage.

    Example:
        >>> share(0.92), share(0.0005)
        ('92 %', '0.05 %')
    """
    return f"{100 * value:.3g} %"


def span(values: Iterable[float], ends: Iterable[float]) -> tuple[float, float]:
    """Choose what an axis shows: all values, and of their intervals as much as leaves the values apart.

    Example:
        >>> span([0.0, 0.2], [-1.2, 0.4])
        (-0.30000000000000004, 0.4)
    """
    values = list(values)
    low, high = min(values), max(values)
    beyond = _BEYOND * ((high - low) or abs(high) or 1.0)
    ends = list(ends)
    return max(min([low, *ends]), low - beyond), min(max([high, *ends]), high + beyond)


def above_zero(values: Iterable[float]) -> list[float]:
    """Lift zeros to where a logarithmic scale can show them."""
    return [max(float(value), SMALLEST) for value in values]
