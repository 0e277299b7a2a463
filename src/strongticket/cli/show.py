"""The output of `strongticket show`: facts in lines, tensors in tables."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rich.table import Table as RichTable

from strongticket.charts.parts import Table
from strongticket.charts.terminal import show_table
from strongticket.cli.terminal import bar
from strongticket.errors import printable
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.summary import Summary, mask_words
from strongticket.tickets.tensors import Certificate

_ROWS_SHOWN = 20
_BARS_FROM = 80  # columns of the terminal
_VALUE_SHOWN = 60
_NAME_SHOWN = 20
_DIGEST_SHOWN = 16

Part = RichTable | str


def render(summary: Summary, title: str, *, every: bool, width: int, ascii_only: bool = False) -> Iterator[Part]:
    """Lay out a summary for a terminal of the given width in characters."""
    yield printable(title)
    yield from _facts(summary, every, width)
    yield ""
    tensors = [
        (
            t.name,
            _shape(t.shape),
            t.distribution,
            mask_words(t.mask),
            f"{t.scale:.4g}",
            _density(t.density, ascii_only, width),
        )
        for t in summary.ticket.tensors.values()
    ]
    columns = ("name", "shape", "distribution", "mask", "scale", "density")
    minor = ("distribution", "mask", "scale")
    random = Table(caption="Random tensors", columns=columns, rows=tensors, words=4, minor=minor)
    yield from _listing(random, every, width)
    yield from textwrap.wrap(summary.mask_meanings(), width)
    dense = [
        (t.name, _shape(t.value.shape), DTYPE_NAMES[t.value.dtype], _cell(t.trained))
        for t in summary.ticket.dense.values()
    ]
    stored = Table(caption="Dense tensors", columns=("name", "shape", "dtype", "trained"), rows=dense, words=4)
    yield from _listing(stored, every, width)


def _facts(summary: Summary, every: bool, width: int) -> Iterator[str]:
    ticket, nonzero = summary.ticket, summary.nonzero_words()
    facts = [
        ("seed", str(ticket.seed)),
        *_nested("architecture", ticket.architecture, every),
        ("weights", summary.weights_words()),
        *([("nonzero", nonzero)] if nonzero else []),
        ("dense", summary.dense_words()),
        ("strong", summary.strong_words()),
        ("size", summary.size_words()),
        ("certificate", _certificate(ticket.certificate)),
        *(_nested("metadata", ticket.metadata, every) if ticket.metadata else ()),
    ]
    names = min(max(len(name) for name, _ in facts), _NAME_SHOWN)
    # In full on one line, so that it can be copied.
    yield f" {'identity':<{names}}  {ticket.identity}"
    for name, fact in facts:
        room = max(width - names - 3, _NAME_SHOWN)
        first, *more = textwrap.wrap(printable(fact), room, break_on_hyphens=False) or [""]
        yield f" {printable(name):<{names}}  {first}"
        yield from (f" {'':<{names}}  {line}" for line in more)


def _nested(name: str, value: Mapping[str, object], every: bool, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield a row with the plain values of an object, and below it rows for each nested object."""
    inner = {key: part for key, part in value.items() if isinstance(part, dict) and part}
    plain = [f"{key:.{_VALUE_SHOWN}} {_short(part)}" for key, part in value.items() if key not in inner]
    shown = plain if every else plain[:_ROWS_SHOWN]
    more = [f"... and {len(plain) - len(shown)} more"] if len(shown) < len(plain) else []
    yield f"{'  ' * depth}{name:.{_VALUE_SHOWN}}", ", ".join(shown + more) or ("" if inner else "not given")
    for key, part in inner.items():
        yield from _nested(key, part, every, depth + 1)


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else _cell(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:_DIGEST_SHOWN]
    if len(text) <= _VALUE_SHOWN:
        return text
    cut = text[:_VALUE_SHOWN]
    # A list is cut between entries; one long entry, anywhere.
    return f"{cut.rpartition(', ')[0]}, ...]" if isinstance(value, list) and ", " in cut else f"{cut}..."


def _certificate(certificate: Certificate | None) -> str:
    if certificate is None:
        return "none"
    return f"{certificate}, target {certificate.target_sha256[:16]} (as stored; verify --target checks it)"


def _listing(table: Table, every: bool, width: int) -> Iterator[Part]:
    if not table.rows:
        return
    shown = table.rows if every else table.rows[:_ROWS_SHOWN]
    yield from show_table(replace(table, rows=shown), width)
    if len(shown) < len(table.rows):
        yield f"... and {len(table.rows) - len(shown)} more; --all lists them."


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _density(value: float, ascii_only: bool, width: int) -> str:
    drawn = f"{bar(value, ascii_only=ascii_only)} " if width >= _BARS_FROM else ""  # names need the room more
    return f"{drawn}{value:6.4f}"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
