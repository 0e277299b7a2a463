"""What a figure shows: sections of text, tables and charts, as plain data that knows nothing of how it is drawn.

`picture.py` draws a section as PNG and SVG, `terminal.py` as lines of text, and the page leaves it to the reader's
browser and `assets/chart.js`. That layer is our own, a few hundred lines: a charting library would be a hundred times
larger than everything else on the page, and none of them gives each point to a keyboard and a screen reader.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal, NotRequired, TypedDict, TypeVar

from strongticket.files import Json

T = TypeVar("T")
# The roles that colours have; `colours.py` gives each of them one in light and one in dark.
Colour = Literal["mean", "median", "paper", "miss", "ink", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
SERIES: tuple[Colour, ...] = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
Scale = Literal["linear", "log"]
Dash = Literal["solid", "dashed", "dotted", "dashdot"]

# Below this an error is rounding, and a logarithmic scale has no place for zero.
SMALLEST = 1e-17
MOST_BANDS = 2
_BEYOND = 1.5  # how far intervals of few seeds may stretch an axis, in spans of the values
_NOT_DRAWN = ("caption", "tables", "half", "printed", "minor")  # which the page has as text, or are for paper alone
_FLOATS = ("points", "low", "high", "each", "x_ticks", "y_range", "values")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers in rows; every cell is text already."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1  # how many of the first columns are words, which stand left; numbers stand right
    remarks: int = 0  # how many of the last columns are words, which stand left and break lines
    minor: Sequence[str] = ()  # columns that a narrow terminal leaves out first


def table_of(
    caption: str, of: Iterable[T], columns: Mapping[str, Callable[[T], str]], words: int = 1, remarks: int = 0
) -> Table:
    """Write a line for each of some things, by columns that say what stands in them."""
    rows = [[write(each) for write in columns.values()] for each in of]
    return Table(caption=caption, columns=[*columns], rows=rows, words=words, remarks=remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str  # for the legend and the reader's pointer
    points: Sequence[tuple[float, float]]
    low: Sequence[float] | None = None  # lower ends of a spread, one for each point
    high: Sequence[float] | None = None
    spread: Literal["bars", "band"] = "bars"  # how it is drawn: bars at the points, or a band
    colour: Colour = "ink"  # a role, not a colour
    ramp: float | None = None  # instead of it a place on a ramp from 0 to 1, for series in an order
    dash: Dash = "solid"  # points are round on solid lines, squares on dashed ones, and point down on dotted ones
    thin: bool = False  # for a line that goes with a stronger one
    line: bool = True  # False for points alone
    marks: bool = True  # whether points are marked; curves have none
    notes: Sequence[str] | None = None  # a few words on each point, for the reader's pointer
    labels: Sequence[str] | None = None  # a word beside each point, always seen
    # The values each point is the mean of, drawn small and faint; a point that has none is a single run, and hollow.
    each: Sequence[Sequence[float]] | None = None
    follows: bool = False  # whether it belongs to the series before: not in the legend, and hidden together with it


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One way to look at a chart's data; a chart with several has a switch."""

    name: str  # on the switch
    says: str = ""  # what it shows, in a sentence: its title; where empty, the chart's
    x: str  # what the horizontal axis is
    y: str
    series: Sequence[Series]
    x_scale: Scale = "linear"
    x_ticks: Sequence[float] = ()  # where labels go on a log axis; chosen by what draws it where empty
    y_scales: Sequence[Scale] = ("log", "linear")  # the first is shown; two give a switch
    percent: bool = False  # whether y is a share
    upright: Sequence[tuple[float, str]] = ()  # vertical lines, x and name
    diagonal: str = ""  # the name of the line y = x, where it is drawn
    zero: bool = False  # whether y is a difference: zero then has a line, and values a sign
    y_range: tuple[float, float] | None = None  # what the linear axis shows at least; bars beyond it are cut
    note: str = ""  # what has to be said of this view alone
    key: Sequence[Series] = ()  # what dashes mean that many lines share: names and looks, no points
    printed: Scale | None = None  # the scale of y in a picture, which has no switch; by default the first
    minor: bool = False  # whether a picture has it small, under the others

    def __post_init__(self) -> None:
        if self.x_scale == "log" and not all(x > 0 for series in self.series for x, _ in series.points):
            raise ValueError(f"{self.x} must be positive on a logarithmic axis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """An interactive figure with the table behind it; a half one leaves room for another beside it."""

    title: str  # what it shows, in a sentence
    caption: str
    views: Sequence[View]
    tables: Sequence[Table]
    half: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """Attention maps of a target and of sources of growing width, side by side, with a slider."""

    title: str
    caption: str
    widths: Sequence[int]  # of the sources
    target: Sequence[Sequence[Sequence[float]]]  # (samples, T, T)
    sources: Sequence[Sequence[Sequence[Sequence[float]]]]  # one such for each width
    tables: Sequence[Table]


class Cells(TypedDict):
    """A mask as a picture: densities of one byte each, row by row, in base64."""

    rows: int
    columns: int
    cells: str


class Histogram(TypedDict):
    """Weights counted by value from `-reach` to `reach`: all of them, and those kept."""

    reach: float
    all: list[int]
    kept: list[int]
    of: int  # how many were counted
    numel: int


class DrawnTensor(TypedDict):
    """A tensor of a ticket; without a picture, `note` says why."""

    name: str
    shape: str
    drawn: str
    kind: str
    kept: int
    density: float
    note: NotRequired[str]
    grid: NotRequired[Cells]
    histogram: NotRequired[Histogram]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """A ticket's tensors: pick one, see its mask and the weights it keeps."""

    title: str
    caption: str
    tensors: Sequence[DrawnTensor]
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A matrix as a picture, one cell an entry."""

    title: str
    caption: str
    values: Sequence[Sequence[float]]
    tables: Sequence[Table]


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
    """A table with a picture in it: one line for each thing compared, all on one axis."""

    title: str  # what is compared
    caption: str  # how to read it
    words: Sequence[str]  # heads of the columns left of the picture
    axis: str  # what the picture's axis is
    numbers: Sequence[str]  # heads of the columns right of it
    rows: Sequence[Row]
    zero: bool = False  # whether values are differences: the axis then has zero, with a line
    key: Sequence[tuple[Colour, str]] = ()  # names of colours, where there are several
    printed: bool = True  # whether a picture has it, too

    def span(self) -> tuple[float, float]:
        """Choose what the axis shows."""
        marks = [mark for row in self.rows for mark in row.marks]
        values = [float(value) for mark in marks for value in (mark.mean, *mark.values)]
        if not all(map(math.isfinite, values)):
            raise ValueError("a comparison needs finite numbers")
        return span(values + [0.0] * self.zero, [float(end) for mark in marks for end in mark.interval or ()])


Drawn = Chart | Maps | Inspector | Matrix  # by the browser
Block = Drawn | Comparison | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Something the page shows, with where it came from."""

    anchor: str  # a word for links
    name: str  # short, for the list of contents
    title: str  # what it is
    lead: str  # what there is to see, in one paragraph
    blocks: Sequence[Block]
    finding: str = ""  # one line for the summary; empty for none
    plain: str = ""  # the same for somebody who knows nothing of this, for the top of the page; empty for none
    origin: Mapping[str, str] = field(default_factory=dict)  # facts by name: data file, command, seed, machine, date
    chapter: str = ""  # sections of one chapter share an entry in the list of contents, which has this name


def drawn_json(part: Json) -> Json:
    """Give what the browser draws of a block, as plain JSON; words where numbers should be do not get through."""
    if is_dataclass(part):
        own = {each.name: getattr(part, each.name) for each in fields(part) if each.name not in _NOT_DRAWN}
        return {name: _floats(value) if name in _FLOATS else drawn_json(value) for name, value in own.items()}
    return [*map(drawn_json, part)] if isinstance(part, list | tuple) else part


def _floats(values: Json) -> Json:
    if values is None:
        return None
    return [*map(_floats, values)] if isinstance(values, list | tuple) else float(values)


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


def sentence(text: str) -> str:
    """Begin with a capital.

    Example:
        >>> sentence("loss 4.2 as a ticket")
        'Loss 4.2 as a ticket'
    """
    return text[:1].upper() + text[1:]


def changes(name: str, points: Sequence[tuple[float, float]], x: str) -> str:
    """Say how a line goes from its first point to its last.

    Example:
        >>> changes("the error", [(8, 0.5), (16, 0.25)], "n")
        'The error falls from 0.5 to 0.25 between n = 8 and 16'
    """
    (first, before), (last, after) = points[0], points[-1]
    goes = "falls" if after < before else "rises" if after > before else "stays"
    way = f"from {number(before)} to {number(after)}" if after != before else f"at {number(after)}"
    return sentence(f"{name} {goes} {way} between {x} = {number(first)} and {number(last)}")


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


def ramp_of(place: int, count: int) -> float:
    """Give the place on the ramp of one of some series in order.

    Example:
        >>> [ramp_of(place, 3) for place in range(3)], ramp_of(0, 1)
        ([0.0, 0.5, 1.0], 1.0)
    """
    return place / (count - 1) if count > 1 else 1.0


def many_bands(series: Sequence[Series]) -> bool:
    """Say whether bands would hide each other: then the page shows one at a time, and a picture none."""
    return sum(each.spread == "band" and each.low is not None for each in series) > MOST_BANDS


def above_zero(values: Iterable[float]) -> list[float]:
    """Lift zeros to where a logarithmic scale can show them."""
    return [max(float(value), SMALLEST) for value in values]
