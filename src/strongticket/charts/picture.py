"""Draw a section as a picture: PNG and SVG files with the same bytes each time, light or dark."""

import hashlib
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from strongticket.charts.colours import THEMES, Theme, ramp
from strongticket.charts.parts import Chart, Comparison, Dash, Section, Series, View, many_bands, sentence
from strongticket.errors import printable
from strongticket.files import atomic_write

_DASHES: dict[Dash, Any] = {"solid": "-", "dashed": "--", "dotted": (0, (1, 1.4)), "dashdot": "-."}
_POINTS: dict[Dash, str] = {"solid": "o", "dashed": "s", "dotted": "v", "dashdot": "D"}
# In inches: a picture's width, its title, a line of text, large and small panels, a line of a comparison, an axis with
# its name, and the distance from an axis down to its legend, below the numbers and the name.
_WIDTH, _HEAD, _LINE, _PANEL, _MINOR, _ROW, _AXIS, _UNDER = 9.6, 0.42, 0.17, 3.6, 1.6, 0.22, 0.85, 0.42
_CHARACTERS, _LEGEND = 145, 68  # in a line under the title, and in a line of a legend under half the width
_TITLE, _TITLE_LINE = 76, 0.22  # characters in a line of the title, and the height of a further line in inches
_HEADING = 98  # characters in a line of a panel's title, if it has the whole width
_AT_END = 30  # characters in a line of a name at the end of its line
_FRAME = 1.05  # inches of a panel that are not its plot: title, numbers, a name
_LETTER = 4.6  # points, the width of a letter of a number
_TICKS = 9  # at most

# Matplotlib's own types do not help here: its keyword arguments are untyped.
Axes = Any
Panel = tuple[str, View] | Comparison


def draw(section: Section, path: Path, theme: Theme = "light") -> None:
    """Draw a section's charts and comparisons, and write `path`.png and `path`.svg."""
    _Picture(theme).draw(section, path)


def words_of(section: Section) -> str:
    """Hash the words of a picture; its PNG stores the hash as its description, so that a stale picture is noticed."""
    charts = [block for block in section.blocks if isinstance(block, Chart | Comparison)]
    views = [view for chart in charts if isinstance(chart, Chart) for view in chart.views]
    said = [section.title, section.finding, *(word for chart in charts for word in (chart.title, chart.caption))]
    said += [word for view in views for word in (view.says, view.x, view.y, *(each.name for each in view.series))]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def save(figure: Any, path: Path, description: str) -> None:
    """Write `path`.png and `path`.svg without dates or random names; the PNG has at most 256 colours."""
    import matplotlib
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    figure.draw_without_rendering()  # compute the layout once for both files
    figure.set_layout_engine("none")
    # The layout's solver visits its constraints in no fixed order, which changes the last digits.
    for band in figure.subfigs:
        band.bbox_relative.set_points(band.bbox_relative.get_points().round(9))
    for axes in figure.get_axes():
        axes.set_position([round(side, 9) for side in axes.get_position().bounds])
    with matplotlib.rc_context({"svg.hashsalt": "strongticket", "svg.fonttype": "none"}):
        # A damaged picture can be drawn again, so there is no need to wait for the disk.
        with atomic_write(path.with_suffix(".svg"), durable=False) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
    about = PngInfo()
    about.add_text("Description", description)
    few = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    with atomic_write(path.with_suffix(".png"), durable=False) as file:
        few.save(file, "PNG", pnginfo=about, optimize=True)


class _Picture:
    """Draws in the colours of a theme."""

    def __init__(self, theme: Theme) -> None:
        self.theme, self.colours = theme, THEMES[theme]
        self.ink, self.pale, self.back = (self.colours[role] for role in ("ink", "soft", "raised"))
        self.legend_look = {"frameon": False, "handlelength": 2.6, "fontsize": 8, "labelcolor": self.ink}

    def draw(self, section: Section, path: Path) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        finding, words = _words(section)
        rows = list(_with_legends(_rows(section)))
        title = _lines(section.title, _TITLE)
        under = _HEAD + _TITLE_LINE * (len(title) - 1)
        heights = [under + _LINE * len(finding + words) + 0.12, *(_height(*row) for row in rows)]
        figure: Any = Figure(figsize=(_WIDTH, sum(heights)), dpi=160, facecolor=self.back, layout="constrained")
        FigureCanvasAgg(figure)  # needs no display
        head, *bands = figure.subfigures(len(heights), 1, height_ratios=heights, facecolor=self.back)
        at_top = {"va": "top", "color": self.ink}
        head.text(0.012, 1 - 0.1 / heights[0], _set_lines(title), fontsize=13, fontweight="bold", **at_top)
        for lines, colour, above in ((finding, self.ink, 0), (words, self.pale, len(finding))):
            place, look = 1 - (under + _LINE * above) / heights[0], {"va": "top", "linespacing": 1.35}
            head.text(0.012, place, _set_lines(lines), fontsize=8.5, color=colour, **look)
        for band, (row, legends) in zip(bands, rows, strict=True):
            panels = band.subplots(1, len(row), squeeze=False)[0]
            for axes, panel, names in zip(panels, row, legends, strict=True):
                if isinstance(panel, Comparison):
                    self.draw_comparison(axes, panel)
                else:
                    heading, view = panel
                    self.draw_view(axes, _set_lines(_lines(heading, _HEADING // len(row))), view)
                if _at_ends(row, names):
                    assert not isinstance(panel, Comparison)
                    self.name_at_ends(axes, panel[1])
                elif names and not _is_shared(legends):
                    self.draw_legend(axes, _columns(names, 2 / len(row)))
            if _is_shared(legends):
                named = panels[0].get_legend_handles_labels()
                look = {"columnspacing": 1.4, **self.legend_look}
                band.legend(*named, loc="outside lower center", ncols=_columns(legends[0], 2), **look)
        save(figure, path, words_of(section))

    def draw_legend(self, axes: Axes, columns: int) -> None:
        """Name the lines below a panel, where the names cover nothing."""
        from matplotlib.transforms import ScaledTranslation

        under = axes.transAxes + ScaledTranslation(0, -_UNDER, axes.figure.dpi_scale_trans)
        below = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": under, "borderaxespad": 0}
        axes.legend(ncols=columns, columnspacing=1.4, **below, **self.legend_look)

    def name_at_ends(self, axes: Axes, view: View) -> None:
        """Name each line at its end, each name with a sample of its line."""
        named = [series for series in view.series if not series.follows]
        texts = [textwrap.fill(series.name, _AT_END) for series in (*named, *view.key)]
        inside = (_MINOR if view.minor else _PANEL) - _FRAME
        to_axes = axes.transData + axes.transAxes.inverted()
        ends = [to_axes.transform(_end(series, axes.get_yscale() == "log", view.percent))[1] for series in named]
        ends += [-1.0] * len(view.key)
        sizes = [0.155 * (text.count("\n") + 1) / inside for text in texts]
        places = apart(ends, sizes, -0.1, 1.05)
        for series, text, place in zip((*named, *view.key), texts, places, strict=True):
            look = self.look_of(series)
            where = {"transform": axes.transAxes, "clip_on": False}
            xs = [1.02, 1.045, 1.07] if series.marks else [1.02, 1.07]
            axes.plot(xs, [place] * len(xs), markevery=[1] if series.marks else [], **where, **look)
            beside = {"va": "center", "fontsize": 8, "color": self.ink, "linespacing": 1.1}
            axes.text(1.085, place, _set_lines(text.splitlines()), **beside, **where)

    def look_of(self, series: Series) -> dict[str, Any]:
        points = {"marker": _POINTS[series.dash], "ms": 3 if series.thin else 4.5} if series.marks else {}
        dash = _DASHES[series.dash] if series.line else "none"
        colour = self.colours[series.colour] if series.ramp is None else ramp(series.ramp, self.theme)
        if series.marks and series.points and series.each is not None and not any(series.each):
            points["mfc"] = self.back  # nothing but single runs
        return {"color": colour, "lw": 0.8 if series.thin else 1.5, "ls": dash, **points}

    def draw_view(self, axes: Axes, heading: str, view: View) -> None:
        scale = view.printed or view.y_scales[0]
        self.style(axes, heading, view.x, f"{view.y}, log scale" if scale == "log" else view.y)
        for series in view.series:
            if series.points:
                self.draw_series(axes, series, view)
        for series in view.key:
            axes.plot([], [], label=_set(series.name), **self.look_of(series))
        for x, name in view.upright:
            axes.axvline(x, color=self.ink, lw=0.9, ls=":")
            at_top = {"transform": axes.get_xaxis_transform(), "ha": "left", "va": "top", "fontsize": 8}
            axes.text(x, 0.99, f" {_set(name)}", color=self.ink, **at_top)
        if view.zero:
            axes.axhline(0, color=self.pale, lw=0.8)
        axes.set_yscale(scale)
        _set_ticks(axes, view)
        if view.percent:
            axes.set_ylim(0, 106)
            axes.set_yticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        elif view.y_range is not None:
            low, high = view.y_range
            axes.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        self.draw_labels(axes, view)

    def draw_series(self, axes: Axes, series: Series, view: View) -> None:
        look, times = self.look_of(series), 100 if view.percent else 1
        colour, dash, width = look["color"], look["ls"], look["lw"]
        xs, ys = [x for x, _ in series.points], [times * y for _, y in series.points]
        once = [not values for values in series.each] if series.each is not None else [False] * len(xs)
        if series.low is not None and series.high is not None:
            if series.spread == "band":
                if not many_bands(view.series):
                    axes.fill_between(xs, series.low, series.high, color=colour, alpha=0.15, lw=0)
            else:
                # Errors are never negative, so bars are cut at zero.
                least = 0.0 if min(ys) >= 0 and not view.zero else -math.inf
                ends = zip(xs, series.low, series.high, strict=True)
                bars = [(x, max(low, least), high) for x, low, high in ends if low < high]
                axes.vlines(*zip(*bars, strict=True), color=colour, lw=1.2, alpha=0.8) if bars else None
                for end in (1, 2):
                    axes.plot([bar[0] for bar in bars], [bar[end] for bar in bars], "_", color=colour, ms=6, mew=1.2)
        for x, values in zip(xs, series.each or (), strict=False):
            axes.plot([x] * len(values), values, "o", color=colour, ms=2.5, mew=0, alpha=0.5)
        if not series.follows:
            axes.plot([], [], label=_set(series.name), **look)
        mixed = len(set(once)) > 1
        axes.plot(xs, ys, **look | ({"ls": "none"} if mixed else {}))
        if series.line and mixed:
            # A mean and a single run are not directly comparable, so the line between them is dotted.
            for (a, b), (c, d), (first, second) in zip(pairwise(xs), pairwise(ys), pairwise(once), strict=True):
                axes.plot([a, b], [c, d], ls=dash if first == second else ":", color=colour, lw=width)
        for x, y, single in zip(xs, ys, once, strict=True):
            if single:
                # Single runs are hollow; filled, they would look the most certain.
                axes.plot(x, y, _POINTS[series.dash], ms=4.5, mfc=self.back, mec=colour, zorder=3)

    def draw_labels(self, axes: Axes, view: View) -> None:
        """Write labels under their points; leave out those that would overlap."""
        placed: list[tuple[float, float]] = []
        to_axes = axes.transData + axes.transAxes.inverted()
        for series in view.series:
            for place, text in enumerate(series.labels or ()):
                x, y = series.points[place]
                point = (x, series.low[place] if series.low is not None else y)
                across, up = to_axes.transform(point)
                if text and not any(abs(a - across) < 0.1 and abs(b - up) < 0.09 for a, b in placed):
                    placed.append((across, up))
                    where = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": 7.5}
                    axes.annotate(_set(text), point, (0, -5), color=self.pale, **where)

    def draw_comparison(self, axes: Axes, block: Comparison) -> None:
        """Draw one line per thing compared, the first at the top, words on the left and numbers on the right."""
        self.style(axes, _set(block.title), block.axis, "")
        places = range(len(block.rows) - 1, -1, -1)
        for place, row in zip(places, block.rows, strict=True):
            colour, single = self.colours[row.colour], len(row.values) == 1
            if row.interval is not None:
                axes.hlines(place, *row.interval, color=colour, lw=1.2)
            if len(row.values) > 1:
                axes.plot(row.values, [place] * len(row.values), "o", color=colour, ms=2.8, mew=0, alpha=0.55)
            axes.plot(row.mean, place, "o", color=colour, ms=5, mfc=self.back if single else colour, zorder=3)
        axes.set_yticks(places, [_set(", ".join(row.words)) for row in block.rows])
        axes.set_ylim(-0.7, len(block.rows) + 0.2)
        _write_beside(axes, ", ".join(block.words), len(block.rows) - 0.2, 0, -4, ha="right", color=self.pale)
        reached = 8.0
        for column, head in enumerate(block.numbers):
            cells = [row.numbers[column] for row in block.rows]
            reached += _LETTER * max(map(len, (head, *cells)))
            _write_beside(axes, head, len(block.rows) - 0.2, 1, reached, ha="right", color=self.pale)
            for place, cell in zip(places, cells, strict=True):
                _write_beside(axes, cell, place, 1, reached, ha="right", color=self.ink)
            reached += 10
        low, high = block.span()
        pad = 0.04 * ((high - low) or 1.0)
        axes.set_xlim(low - pad, high + pad)
        if block.zero:
            axes.axvline(0, color=self.pale, lw=0.8)
        for colour, name in block.key:
            axes.plot([], [], "o", color=self.colours[colour], ms=5, label=name)

    def style(self, axes: Axes, heading: str, x: str, y: str) -> None:
        """Apply the common look of axes; the heading is typeset."""
        axes.set_facecolor(self.back)
        axes.set_title(heading, loc="left", fontsize=10, fontweight="bold", color=self.ink)
        axes.set_xlabel(_set(x), fontsize=9, color=self.ink)
        axes.set_ylabel(_set(y), fontsize=9, color=self.ink)
        axes.grid(color=self.colours["grid"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(axis="both", which="both", length=0, labelsize=8, colors=self.ink)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(self.pale)


def _words(section: Section) -> tuple[list[str], list[str]]:
    """Return the finding and the settings as lines that fit."""
    captions = [block.caption for block in section.blocks if isinstance(block, Chart)]
    finding = f"{sentence(section.finding)}." if section.finding else ""
    fitting = (_lines(text, _CHARACTERS) for text in captions or [section.lead])
    return _lines(finding, _CHARACTERS), [line for lines in fitting for line in lines]


def _lines(text: str, width: int) -> list[str]:
    """Break text into lines, but not inside a number or an equation.

    Example:
        >>> _lines("falls from 1 to 2.11 × 10⁻⁵", 24)
        ['falls from 1 to', '2.11 × 10⁻⁵']
    """
    whole = re.sub(" ([×=]) ", "\xa0\\1\xa0", text)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(whole, width)]


def _rows(section: Section) -> Iterator[Sequence[Panel]]:
    """Lay out panels: views, small ones below them, then comparisons.

    Views with the same lines stand two by two over one legend; others have a row each, which leaves room for names at
    the ends of their lines.
    """
    charts = [block for block in section.blocks if isinstance(block, Chart)]
    views = [
        (view.says or (view.name if len(chart.views) > 1 else chart.title), view)
        for chart in charts
        for view in chart.views
    ]
    large = [panel for panel in views if not panel[1].minor]
    beside = 2 if len({tuple(_names(panel)) for panel in large}) == 1 or len(large) > 3 else 1
    yield from (large[first : first + beside] for first in range(0, len(large), beside))
    small = [panel for panel in views if panel[1].minor]
    yield from (small[first : first + 2] for first in range(0, len(small), 2))
    yield from ([block] for block in section.blocks if isinstance(block, Comparison) and block.printed and block.rows)


def _with_legends(rows: Iterable[Sequence[Panel]]) -> Iterator[tuple[Sequence[Panel], list[list[str]]]]:
    """Return each panel's legend; none if a row above has the same."""
    known: list[list[str]] = []
    for row in rows:
        legends = [_names(panel) for panel in row]
        yield row, [[] if names in known else names for names in legends]
        known += legends


def _names(panel: Panel) -> list[str]:
    if isinstance(panel, Comparison):
        return [name for _, name in panel.key]
    view = panel[1]
    named = [series.name for series in (*(each for each in view.series if not each.follows), *view.key)]
    return named if len(named) > 1 else []


def _is_shared(legends: Sequence[list[str]]) -> bool:
    return len(legends) > 1 and bool(legends[0]) and all(names == legends[0] for names in legends)


def _at_ends(row: Sequence[Panel], names: Sequence[str]) -> bool:
    """Tell whether names go at the ends of their lines: if the panel fills its row and there is room."""
    if len(row) > 1 or not names or isinstance(row[0], Comparison):
        return False
    lines = sum(len(textwrap.wrap(name, _AT_END)) for name in names)
    return 0.155 * lines <= 1.15 * ((_MINOR if row[0][1].minor else _PANEL) - _FRAME)


def _height(row: Sequence[Panel], legends: Sequence[list[str]]) -> float:
    halves = 2 if _is_shared(legends) else 2 / len(row)
    below = 0.0 if _at_ends(row, legends[0]) else _LINE * max(math.ceil(len(n) / _columns(n, halves)) for n in legends)
    if isinstance(row[0], Comparison):
        return _AXIS + _ROW * (len(row[0].rows) + 1) + below
    return (_MINOR if row[0][1].minor else _PANEL) + below


def _columns(names: Sequence[str], halves: float) -> int:
    longest = max(map(len, names), default=1) + 7
    return max(1, min(len(names), int(halves * _LEGEND / longest)))


def _end(series: Series, log: bool, percent: bool) -> tuple[float, float]:
    """Return a line's last visible point."""
    shown = [(x, 100 * y if percent else y) for x, y in series.points if y > 0 or not log]
    return max(shown, default=(1.0, 1.0))


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Move things of given sizes as little as possible so that they do not overlap, keeping their order.

    Example:
        >>> apart([0.5, 0.52, 0.9], [0.2, 0.2, 0.2], 0, 1)
        [0.5, 0.7, 0.9]
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places, edge = list(wanted), low
    for k in order:
        places[k] = max(places[k], edge + sizes[k] / 2)
        edge = places[k] + sizes[k] / 2
    edge = high
    for k in reversed(order):
        places[k] = min(places[k], edge - sizes[k] / 2)
        edge = places[k] - sizes[k] / 2
    return places


def _set_ticks(axes: Axes, view: View) -> None:
    if view.x_scale == "linear":
        axes.set_xticks(_whole_ticks([round(x) for series in view.series if series.marks for x, _ in series.points]))
        axes.margins(x=0.04)
        return
    axes.set_xscale("log")
    axes.margins(x=0.1, y=0.15)
    low, high = axes.get_xlim()
    ticks = list(view.x_ticks) or _round_numbers(low, high)
    axes.set_xticks(ticks, [_short(x) for x in ticks])
    axes.minorticks_off()


def _whole_ticks(places: Sequence[int]) -> list[int]:
    """Choose a few labels among places on an even grid; without a grid, round numbers.

    Example:
        >>> _whole_ticks([8, 16, 24, 64, 80, 128]), _whole_ticks([1, 2, 3, 4])
        ([16, 32, 48, 64, 80, 96, 112, 128], [1, 2, 3, 4])
        >>> _whole_ticks([2160, 2401, 3174])
        [2200, 2400, 2600, 2800, 3000]
    """
    grid, low, high = math.gcd(*places) or 1, min(places), max(places)
    step = grid * math.ceil((high - low) / grid / _TICKS or 1)
    if step > 50 * grid:
        power = 10 ** (len(str(step)) - 1)
        step = power * next(k for k in (1, 2, 5, 10) if k * power >= step)
    return list(range(math.ceil(low / step) * step, high + 1, step))


def _round_numbers(low: float, high: float) -> list[float]:
    """Choose labels for a log axis: the coarsest set of round numbers that gives at least three.

    Example:
        >>> _round_numbers(9e6, 2.1e8), _round_numbers(1.1, 2.6)
        ([10000000.0, 20000000.0, 50000000.0, 100000000.0, 200000000.0], [1.5, 2.0, 2.5])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for kind in ((1,), (1, 2, 5), (1, 1.5, 2, 2.5, 3, 4, 5, 7), [k / 20 for k in range(20, 200)]):
        found = [k * 10.0**power for power in powers for k in kind if low <= k * 10.0**power <= high]
        if len(found) >= 3:
            break
    return found


def _short(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _write_beside(axes: Axes, text: str, place: float, side: float, points: float, **look: Any) -> None:
    """Write at the height of a line, some points to the right of an end of the axis."""
    where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
    axes.annotate(_set(text), (side, place), (points, 0), va="center", fontsize=8, **where, **look)


def _set_lines(lines: Iterable[str]) -> str:
    return "\n".join(map(_set, lines))


def _set(text: str) -> str:
    r"""Typeset indices and exponents; other text is not read as a formula.

    Example:
        >>> print(_set("times n_K^(1/4)"), _set("2^(−n/2)"), _set("a $ b"))
        times $n_{K}^{1/4}$ $2^{-n/2}$ a \$ b
    """
    text = printable(text.replace("\xa0", " ")).replace("$", r"\$")
    text = re.sub(r"\b(\w)_(\w+)\^\((.*?)\)", r"$\1_{\2}^{\3}$", text)
    return re.sub(r"\b(\w)\^\((.*?)\)", lambda found: f"${found[1]}^{{{found[2].replace('−', '-')}}}$", text)
