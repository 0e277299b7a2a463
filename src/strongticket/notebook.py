"""How notebooks show our objects: a card with facts, tables, pictures and curves, as HTML.

All HTML for notebooks is made here, and everything in it is escaped: the text in a ticket comes from a file that anyone
may have written. It needs none of our types, and neither torch nor NumPy. Text has the notebook's own colours.
"""

import base64
import html
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence

from strongticket.errors import printable

Points = Sequence[tuple[float, float]]

ROWS = 20  # shown of a long table
_LONGEST = 400  # characters of one cell
_BLUE = b"\x2f\x7f\xc1"
_COLOURS = ("#2f7fc1", "#d9822b", "#4a9c5d", "#8a63b8")
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:middle;background:none"
_WIDTH, _HEIGHT, _LEFT, _BELOW = 360, 140, 52, 18  # of a curve, in pixels


class Markup(str):
    """HTML that was made here; any other text is escaped."""

    __slots__ = ()


def card(title: str, facts: Mapping[str, str], *parts: Markup) -> str:
    """Show a title, facts by name, and other parts below them."""
    rows = "".join(_row((name, fact), "th") for name, fact in facts.items())
    body = f"<table style='border-collapse:collapse'>{rows}</table>" if rows else ""
    return f"<div><strong>{_safe(title)}</strong>{body}{''.join(parts)}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], more: int = 0) -> Markup:
    """Show rows under their column names, and the number of rows left out; show at most `ROWS`."""
    head = "".join(f"<th style='{_CELL}'>{_safe(column)}</th>" for column in columns)
    body = "".join(map(_row, rows))
    below = f"<div>... and {more:,} more</div>" if more else ""
    return Markup(f"<table style='border-collapse:collapse'><tr>{head}</tr>{body}</table>{below}")


def picture(cells: Sequence[bytes], words: str, side: int = 48) -> Markup:
    """Draw rows of cells, each from 0 (blank) to 255, in a square with sides of this many pixels."""
    data = base64.b64encode(_png(cells)).decode()
    style = "image-rendering:pixelated;outline:1px solid #8888"
    return Markup(
        f"<img width='{side}' height='{side}' style='{style}' alt='{_safe(words)}' src='data:image/png;base64,{data}'>"
    )


def curves(lines: Mapping[str, Points], across: str) -> Markup:
    """Draw named lines in one plot; omit those without points."""
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Markup()
    xs, ys = (sorted(point[axis] for points in lines.values() for point in points) for axis in (0, 1))
    wide, high = xs[-1] - xs[0] or 1.0, ys[-1] - ys[0] or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        right, down = (x - xs[0]) / wide, (ys[-1] - y) / high
        return round(_LEFT + right * (_WIDTH - _LEFT - 8), 1), round(8 + down * (_HEIGHT - _BELOW - 16), 1)

    drawn, names = [], []
    for (name, points), colour in zip(lines.items(), _COLOURS, strict=False):
        places = [place(x, y) for x, y in points]
        path = " ".join(f"{x},{y}" for x, y in places)
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        drawn.append(f"<circle cx='{places[-1][0]}' cy='{places[-1][1]}' r='2.5' fill='{colour}'/>")
        names.append(f"<span style='color:{colour}'>{_safe(name)} {points[-1][1]:.4g}</span>")
    label = "<text x='{}' y='{}' text-anchor='{}' font-size='11' fill='currentColor'>{}</text>"
    texts = [
        label.format(_LEFT - 6, 12, "end", f"{ys[-1]:.3g}"),
        label.format(_LEFT - 6, _HEIGHT - _BELOW - 4, "end", f"{ys[0]:.3g}"),
        label.format(_LEFT, _HEIGHT - 3, "start", f"{xs[0]:g}"),
        label.format((_LEFT + _WIDTH - 8) // 2, _HEIGHT - 3, "middle", _safe(across)),
        label.format(_WIDTH - 8, _HEIGHT - 3, "end", f"{xs[-1]:g}"),
    ]
    svg = f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='{_safe(', '.join(lines))}'>"
    return Markup(f"<div>{', '.join(names)}</div>{svg}{''.join(drawn)}{''.join(texts)}</svg>")


def _row(cells: Sequence[str], first: str = "td") -> str:
    kinds = (first, *["td"] * (len(cells) - 1))
    inside = (f"<{kind} style='{_CELL}'>{_safe(cell)}</{kind}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{''.join(inside)}</tr>"


def _safe(text: str) -> str:
    if isinstance(text, Markup):
        return text
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return html.escape(printable(cut), quote=True)


def _png(cells: Sequence[bytes]) -> bytes:
    """Encode cells as the opacity of blue pixels, so that they show on dark and light pages alike."""
    lines = b"".join(b"\0" + b"".join(_BLUE + bytes([cell]) for cell in row) for row in cells)
    header = struct.pack(">IIBBBBB", len(cells[0]), len(cells), 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
