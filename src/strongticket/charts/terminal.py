"""Print a section in a terminal: its tables, and a rough plot in text that shows whether a curve falls."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from rich.table import Table as RichTable

from strongticket.charts.narrow import fit
from strongticket.charts.parts import Chart, Colour, Comparison, Section, Series, Table, View
from strongticket.errors import printable

WIDTH, HEIGHT = 64, 14  # of a plot's canvas, where the terminal is wide enough
LEAST_WIDTH = 20
MARKS = "*o+x#@%&"
# Lines of one colour on the page have one mark in every plot; a second line of that colour gets one that is left.
_MARKS: dict[Colour, str] = {"median": "*", "mean": "o", "miss": "+", "s0": "o", "s1": "x", "s2": "+", "s3": "*"}
_LEFT = 9  # characters for the vertical axis
_LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_PLAIN = str.maketrans({"−": "-", "–": "-", "’": "'", "\xa0": " "})


def show(section: Section, width: int) -> Iterator[RichTable | str]:
    """Yield tables and text in order, for a terminal of the given width in characters."""
    yield _wrapped(f"{section.title}; {section.finding}" if section.finding else section.title, width)
    for block in section.blocks:
        if isinstance(block, Table):
            yield from show_table(block, width)
            yield ""
        elif isinstance(block, Comparison):
            rows = [(*row.words, *row.numbers) for row in block.rows]
            columns = (*block.words, *block.numbers)
            table = Table(caption=block.title, columns=columns, rows=rows, words=len(block.words))
            yield from show_table(table, width, f"{block.axis}. {block.caption}")
            yield ""
        elif isinstance(block, Chart):
            for place, table in enumerate(block.tables, start=1):
                yield from show_table(table, width, block.caption if place == len(block.tables) else "")
                yield ""
            if plot := view_plot(section.title, block.views[0], width):
                yield plot


def show_table(table: Table, width: int, below: str = "") -> Iterator[RichTable | str]:
    """Yield a table with whole numbers; its caption is above, and a note on dropped columns below."""
    plain = replace(table, columns=[*map(_plain, table.columns)], rows=[[*map(_plain, row)] for row in table.rows])
    fitted, widths, left_out = fit(plain, width)
    if table.caption:
        yield _wrapped(table.caption, width)
    shown = RichTable()
    for place, (column, cells) in enumerate(zip(fitted.columns, widths, strict=True)):
        justify: Literal["right", "left"] = "right" if place in fitted.numbers() else "left"
        shown.add_column(column, justify=justify, width=cells, overflow="fold")
    for row in fitted.rows:
        shown.add_row(*row)
    yield shown
    if left_out:
        yield _wrapped(f"Not shown in {width} columns: {'; '.join(left_out)}.", width)
    if below:
        yield _wrapped(below, width)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(_plain(text), width, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Write powers of ten, dashes and quotes in ASCII, and spell out control characters.

    Example:
        >>> _plain("−1.23 × 10⁻⁹ to 4 × 10⁷"), _plain("the paper’s"), _plain("–")
        ('-1.23e-09 to 4e+07', "the paper's", '-')
    """
    text = re.sub(r" × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda found: f"e{int(found[1].translate(_LOWERED)):+03d}", text)
    return printable(text.translate(_PLAIN))


def view_plot(title: str, view: View, width: int) -> str:
    """Draw the main lines of a view, no wider than the terminal, each point as one character; empty if there are none.

    Where two overlap, the first is shown. What a logarithmic scale cannot show is left out.

    Example:
        >>> line = Series(name="error", points=[(1, 1.0), (2, 0.5), (3, 0.25)])
        >>> print(view_plot("Halving", View(name="Error", x="n", y="", series=[line]), 80))  # doctest: +ELLIPSIS
        Halving; error; y on a log scale
             1.00 |*...
    """
    log_x, log_y = view.x_scale == "log", view.y_scales[0] == "log"
    lines = [series for series in view.series if not series.follows]
    shown = [[(a, b) for a, b in line.points if b > 0 or not log_y] for line in lines]
    xs, ys = ([point[axis] for points in shown for point in points] for axis in (0, 1))
    if not xs:
        return ""
    cells, marks = min(WIDTH, max(LEAST_WIDTH, width - _LEFT - 2)), marks_of(lines)
    across, up = _axis(xs, cells, log_x), _axis(ys, HEIGHT, log_y)
    canvas = [[" "] * cells for _ in range(HEIGHT)]
    for mark, points in reversed([*zip(marks, shown, strict=True)]):
        for a, b in points:
            canvas[HEIGHT - 1 - up(b)][across(a)] = mark
    labels = {0: max(ys), HEIGHT - 1: min(ys)}
    rows = [f"{_label(labels.get(row)):>{_LEFT}} |{''.join(line).rstrip()}" for row, line in enumerate(canvas)]
    low, high = (f"{end(xs):.4g}" for end in (min, max))
    gap = cells - len(low) - len(high)
    fits = len(view.x) <= gap - 2
    ends = [f"{low}{(view.x if fits else '').center(gap)}{high}"]
    ends += [] if fits else [line.center(cells).rstrip() for line in textwrap.wrap(view.x, cells)]
    names = [f"{mark} {line.name}" for mark, line in zip(marks, lines, strict=True)]
    below = [f"{'':>{_LEFT}}  {line}" for line in (*ends, *_legend(names, cells))]
    scales = " and ".join(axis for axis, log in (("x", log_x), ("y", log_y)) if log)
    heading = f"{title}; {view.name.lower()}" + (f"; {scales} on a log scale" if scales else "")
    above = textwrap.wrap(heading, _LEFT + 2 + cells)
    return "\n".join(map(_plain, [*above, *rows, f"{'':>{_LEFT}} +{'-' * cells}", *below]))


def marks_of(lines: Sequence[Series]) -> str:
    """Choose a character for each line: digits if they are ordered, `.` and `-` for lines without points, or by colour.

    Example:
        >>> mean = Series(name="mean", points=[(1, 1)], colour="mean")
        >>> marks_of([mean, replace(mean, name="bound", dash="dotted", marks=False)])
        'o.'
    """
    marks = ""
    for line in lines:
        if line.ramp is not None:
            wanted = "123456789"
        elif not line.marks:
            wanted = "." if line.dash == "dotted" else "-=~"
        else:
            wanted = _MARKS.get(line.colour, "")
        marks += next((mark for mark in f"{wanted}{MARKS}-=~.123456789" if mark not in marks), "?")
    return marks


def _legend(names: Sequence[str], width: int) -> list[str]:
    """Lay out names in lines as wide as the plot; longer names are wrapped."""
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + 2 + len(name) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + name
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]


def _axis(values: Sequence[float], cells: int, log: bool) -> Callable[[float], int]:
    def place(value: float) -> float:
        return math.log(value) if log else value

    low, high = place(min(values)), place(max(values))
    return lambda value: round((place(value) - low) / (high - low) * (cells - 1)) if high > low else 0


def _label(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if 0.01 <= abs(value) < 1e4 else f"{value:.1e}"
