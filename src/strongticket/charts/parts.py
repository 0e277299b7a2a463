"""The content of a figure: sections of text, tables and charts, as plain data independent of how they are drawn.

`picture.py` draws a section as PNG and SVG, `terminal.py` as lines of text, and `assets/chart.js` in the reader's
browser. The latter is a few hundred lines of our own: a charting library would be a hundred times larger than the rest
of the page, and none makes each point accessible to keyboards and screen readers.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal, NotRequired, TypedDict, TypeVar

from strongticket.files import Json

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
# Roles of colours; `colours.py` has a light and a dark colour for each.
Colour = Literal["mean", "median", "paper", "miss", "ink", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
SERIES: tuple[Colour, ...] = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
Scale = Literal["linear", "log"]
Dash = Literal["solid", "dashed", "dotted", "dashdot"]

# Errors below this are rounding; a log scale cannot show zero.
SMALLEST = 1e-17
MOST_BANDS = 2
_BEYOND = 1.5  # how far intervals of few seeds may extend an axis, in spans of the values
_NOT_DRAWN = ("caption", "tables", "printed", "minor")  # text on the page, or for pictures only
_FLOATS = ("points", "low", "high", "each", "x_ticks", "y_range", "values")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers in rows; every cell is already text."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1  # how many of the first columns are words, aligned left; numbers are aligned right
    remarks: int = 0  # how many of the last columns are words, aligned left and wrapped
    minor: Sequence[str] = ()  # columns that a narrow terminal leaves out first

    def numbers(self) -> range:
        """Return which columns are numbers."""
        return range(self.words, len(self.columns) - self.remarks)


def table_of(
    caption: str, of: Iterable[T], columns: Mapping[str, Callable[[T], str]], words: int = 1, remarks: int = 0
) -> Table:
    """Make a table with one row per thing; `columns` maps headings to functions that write the cells."""
    rows = [[write(each) for write in columns.values()] for each in of]
    return Table(caption=caption, columns=[*columns], rows=rows, words=words, remarks=remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str  # for the legend and the reader's pointer
    points: Sequence[tuple[float, float]]
    low: Sequence[float] | None = None  # lower ends of a spread, one per point
    high: Sequence[float] | None = None
    spread: Literal["bars", "band"] = "bars"
    colour: Colour = "ink"  # a role, not a colour
    ramp: float | None = None  # for ordered series: a place on the ramp, from 0 to 1, instead of a colour
    dash: Dash = "solid"  # points are circles on solid lines, squares on dashed ones, triangles on dotted ones
    thin: bool = False  # for a line that accompanies a stronger one
    line: bool = True  # False for points only
    marks: bool = True  # whether points are marked; curves have no marks
    notes: Sequence[str] | None = None  # a few words about each point, for the reader's pointer
    labels: Sequence[str] | None = None  # a word beside each point, always visible
    # The values each point is the mean of, drawn small and faint; a point without them is a single run, drawn hollow.
    each: Sequence[Sequence[float]] | None = None
    follows: bool = False  # belongs to the series before: not in the legend, and hidden together with it


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One way to look at a chart's data; a chart with several has a switch."""

    name: str  # on the switch
    says: str = ""  # its title, a sentence that says what it shows; if empty, the chart's
    x: str  # name of the horizontal axis
    y: str
    series: Sequence[Series]
    x_scale: Scale = "linear"
    x_ticks: Sequence[float] = ()  # places of labels on a log axis; chosen when drawn if empty
    y_scales: Sequence[Scale] = ("log", "linear")  # the first is shown; two give a switch
    percent: bool = False  # whether y is a share
    upright: Sequence[tuple[float, str]] = ()  # vertical lines, x and name
    diagonal: str = ""  # name of the line y = x; empty for no line
    zero: bool = False  # y is a difference: draw a line at zero, and write values with a sign
    y_range: tuple[float, float] | None = None  # smallest range of the linear axis; bars beyond it are cut
    note: str = ""  # a remark about this view only
    key: Sequence[Series] = ()  # explains dashes shared by many lines: names and looks, no points
    printed: Scale | None = None  # scale of y in a picture, which has no switch; by default the first
    minor: bool = False  # drawn small in a picture, below the others

    def __post_init__(self) -> None:
        if self.x_scale == "log" and not all(x > 0 for series in self.series for x, _ in series.points):
            raise ValueError(f"{self.x} must be positive on a log axis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What the browser draws, with tables of its numbers."""

    title: str  # what it shows, in a sentence
    caption: str
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Drawn):
    """An interactive figure."""

    views: Sequence[View]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps(Drawn):
    """Attention maps of a target and of sources of growing width, side by side, with a slider."""

    widths: Sequence[int]  # of the sources
    target: Sequence[Sequence[Sequence[float]]]  # (samples, T, T)
    sources: Sequence[Sequence[Sequence[Sequence[float]]]]  # the same for each width


class Cells(TypedDict):
    """A mask as a picture: densities, one byte each, row by row, in base64."""

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
class Inspector(Drawn):
    """A ticket's tensors: pick one to see its mask and the weights it keeps."""

    tensors: Sequence[DrawnTensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(Drawn):
    """A matrix as a picture, one cell per entry."""

    values: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a comparison: words; a mean with its interval and its values, as a picture; numbers."""

    words: Sequence[str]
    mean: float
    interval: tuple[float, float] | None = None
    values: Sequence[float] = ()
    colour: Colour = "mean"
    numbers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table with a picture in it: one line per thing compared, all on one axis."""

    title: str  # what is compared
    caption: str  # how to read it
    words: Sequence[str]  # headings left of the picture
    axis: str  # name of the picture's axis
    numbers: Sequence[str]  # headings right of the picture
    rows: Sequence[Row]
    zero: bool = False  # values are differences: include zero in the axis, with a line
    key: Sequence[tuple[Colour, str]] = ()  # names of the colours, if there are several
    printed: bool = True  # also drawn in a picture

    def span(self) -> tuple[float, float]:
        """Choose the range of the axis."""
        values = [float(value) for row in self.rows for value in (row.mean, *row.values)]
        if not all(map(math.isfinite, values)):
            raise ValueError("a comparison needs finite numbers")
        return span(values + [0.0] * self.zero, [float(end) for row in self.rows for end in row.interval or ()])


Block = Drawn | Comparison | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page, and where it came from."""

    anchor: str  # a word for links
    name: str  # short, for the list of contents
    title: str  # what it is
    lead: str  # what it shows; empty lines separate paragraphs
    blocks: Sequence[Block]
    finding: str = ""  # one line for the summary; empty for none
    plain: str = ""  # the same for a newcomer, for the top of the page; empty for none
    origin: Mapping[str, str] = field(default_factory=dict)  # facts by name: data file, command, seed, machine, date
    chapter: str = ""  # sections of one chapter share an entry of this name in the list of contents


def grouped(things: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Group things, in the order in which groups first appear."""
    groups: dict[Key, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def drawn_json(part: object) -> object:
    """Return what the browser draws of a block, as plain JSON; numbers must be numbers."""
    if is_dataclass(part):
        own = {each.name: getattr(part, each.name) for each in fields(part) if each.name not in _NOT_DRAWN}
        return {name: _floats(value) if name in _FLOATS else drawn_json(value) for name, value in own.items()}
    return [*map(drawn_json, part)] if isinstance(part, list | tuple) else part


def _floats(values: Json) -> Json:
    if values is None:
        return None
    return [*map(_floats, values)] if isinstance(values, list | tuple) else float(values)


def number(value: float | None) -> str:
    """Write a number to three digits for readers: powers of ten and true minus signs.

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


def signed(value: float) -> str:
    """Write a difference with its sign and three decimals.

    Example:
        >>> signed(0.0312), signed(-0.25)
        ('+0.031', '−0.250')
    """
    return minus(f"{value:+.3f}")


def sentence(text: str) -> str:
    """Capitalize the first letter.

    Example:
        >>> sentence("loss 4.2 as a ticket")
        'Loss 4.2 as a ticket'
    """
    return text[:1].upper() + text[1:]


def changes(name: str, points: Sequence[tuple[float, float]], x: str) -> str:
    """Say how a line changes from its first point to its last; a longer name of `x` is a unit.

    Example:
        >>> changes("the error", [(8, 0.5), (16, 0.25)], "n")
        'The error falls from 0.5 to 0.25 between n = 8 and 16'
        >>> changes("the error", [(8, 0.5), (16, 0.25)], "items")
        'The error falls from 0.5 to 0.25 between 8 and 16 items'
    """
    (first, before), (last, after) = points[0], points[-1]
    goes = "falls" if after < before else "rises" if after > before else "stays"
    way = f"from {number(before)} to {number(after)}" if after != before else f"at {number(after)}"
    where = f"{x} = {number(first)} and {number(last)}" if len(x) == 1 else f"{number(first)} and {number(last)} {x}"
    return sentence(f"{name} {goes} {way} between {where}")


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "−")


def share(value: float) -> str:
    """Write a share as a percentage.

    Example:
        >>> share(0.92), share(0.0005)
        ('92 %', '0.05 %')
    """
    return f"{100 * value:.3g} %"


def span(values: Iterable[float], ends: Iterable[float]) -> tuple[float, float]:
    """Choose the range of an axis: all values, and as much of their intervals as keeps the values apart.

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
    """Return the place on the ramp of one of `count` ordered series.

    Example:
        >>> [ramp_of(place, 3) for place in range(3)], ramp_of(0, 1)
        ([0.0, 0.5, 1.0], 1.0)
    """
    return place / (count - 1) if count > 1 else 1.0


def many_bands(series: Sequence[Series]) -> bool:
    """Tell whether bands would hide each other; then the page shows one at a time, and a picture none."""
    return sum(each.spread == "band" and each.low is not None for each in series) > MOST_BANDS


def above_zero(values: Iterable[float]) -> list[float]:
    """Raise zeros to the smallest value on a log scale."""
    return [max(float(value), SMALLEST) for value in values]
