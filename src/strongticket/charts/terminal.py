"""A section as lines for a terminal: its tables, and a plot in a few lines of text to see whether a curve falls."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table as RichTable

from strongticket.charts.parts import Chart, Comparison, Section, Table, View
from strongticket.errors import printable

WIDTH, HEIGHT = 64, 14
MARKS = "*o+x#@%&"
_LEFT = 9  # characters for the vertical axis
_LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_PLAIN = str.maketrans({"−": "-", "–": "-", "’": "'", "\xa0": " "})

Points = Sequence[tuple[float, float]]


def show(section: Section) -> Iterator[RichTable | str]:
    """Give tables to print and text to write, in order."""
    yield _plain(f"{section.title}; {section.finding}" if section.finding else section.title)
    for block in section.blocks:
        if isinstance(block, Table):
            yield _table(block)
        elif isinstance(block, Comparison):
            rows = [(*row.words, *row.numbers) for row in block.rows]
            columns = (*block.words, *block.numbers)
            table = Table(caption=block.title, columns=columns, rows=rows, words=len(block.words))
            yield _table(table, f"{block.axis}. {block.caption}")
        elif isinstance(block, Chart):
            *others, last = map(_table, block.tables)
            yield from others
            last.caption = _plain(block.caption)
            yield last
            if plot := view_plot(section.title, block.views[0]):
                yield plot


def _table(table: Table, below: str = "") -> RichTable:
    looks = {"title_justify": "left", "caption_justify": "left"}
    shown = RichTable(title=_plain(table.caption), caption=_plain(below) or None, **looks)  # type: ignore[arg-type]
    numbers = range(table.words, len(table.columns) - table.remarks)
    for place, column in enumerate(table.columns):
        shown.add_column(_plain(column), justify="right" if place in numbers else "left")
    for row in table.rows:
        shown.add_row(*map(_plain, row))
    return shown


def _plain(text: str) -> str:
    """Write powers of ten, dashes and quotes as a terminal has them, and nothing that could steer it.

    Example:
        >>> _plain("−1.23 × 10⁻⁹ to 4 × 10⁷"), _plain("the paper’s"), _plain("–")
        ('-1.23e-09 to 4e+07', "the paper's", '-')
    """
    text = re.sub(r" × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda found: f"e{int(found[1].translate(_LOWERED)):+03d}", text)
    return printable(text.translate(_PLAIN))


def view_plot(title: str, view: View) -> str:
    """Draw the main lines of a view; empty where there are none."""
    log = view.y_scales[0] == "log"
    scales = " and ".join(name for name, used in (("x", view.x_scale == "log"), ("y", log)) if used)
    heading = f"{title}; {view.name.lower()}" + (f"; {scales} on a log scale" if scales else "")
    series = {series.name: series.points for series in view.series if not series.follows}
    plot = text_plot(heading, series, view.x, log_x=view.x_scale == "log", log_y=log)
    return "\n".join(_plain(line) for line in plot.splitlines())


def text_plot(title: str, series: Mapping[str, Points], x: str, *, log_x: bool = False, log_y: bool = True) -> str:
    """Draw some series of points with one character each; where two meet, the first is seen.

    Points that a logarithmic scale cannot show are left out. Nothing is drawn of nothing.

    Example:
        >>> print(text_plot("halving", {"error": [(1, 1.0), (2, 0.5), (3, 0.25)]}, "n"))  # doctest: +ELLIPSIS
        halving
             1.00 |*...
    """
    shown = {
        name: [(a, b) for a, b in points if (a > 0 or not log_x) and (b > 0 or not log_y)]
        for name, points in series.items()
    }
    everything = [point for points in shown.values() for point in points]
    if not everything:
        return ""
    across = _axis([a for a, _ in everything], WIDTH, log_x)
    up = _axis([b for _, b in everything], HEIGHT, log_y)
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, points in reversed(list(zip(MARKS, shown.values(), strict=False))):
        for a, b in points:
            canvas[HEIGHT - 1 - up(b)][across(a)] = mark
    heights = [b for _, b in everything]
    labels = {0: max(heights), HEIGHT - 1: min(heights)}
    lines = [f"{_label(labels.get(row)):>{_LEFT}} |{''.join(cells).rstrip()}" for row, cells in enumerate(canvas)]
    low, high = (f"{end(a for a, _ in everything):.4g}" for end in (min, max))
    gap = WIDTH - len(low) - len(high)
    ends = f"{'':>{_LEFT}}  {low}{x.center(gap)}{high}"
    names = _legend([f"{mark} {name}" for mark, name in zip(MARKS, shown, strict=False)])
    return "\n".join(
        [title, *lines, f"{'':>{_LEFT}} +{'-' * WIDTH}", ends, *(f"{'':>{_LEFT}}  {line}" for line in names)]
    )


def _legend(names: Sequence[str]) -> list[str]:
    """Lay names out in lines as wide as the plot, none of them broken."""
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + 2 + len(name) > WIDTH:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + name
    return lines


def _axis(values: Sequence[float], cells: int, log: bool) -> Callable[[float], int]:
    def place(value: float) -> float:
        return math.log(value) if log else value

    low, high = place(min(values)), place(max(values))
    return lambda value: round((place(value) - low) / (high - low) * (cells - 1)) if high > low else 0


def _label(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if 0.01 <= abs(value) < 1e4 else f"{value:.1e}"
