"""What `strongticket show` says of a ticket, as tables."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from strongticket.cli.terminal import bar, console
from strongticket.errors import printable
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.summary import Summary, mask_words
from strongticket.tickets.tensors import Certificate

_ROWS_SHOWN = 20
_VALUE_SHOWN = 60
_DIGEST_SHOWN = 16


def render(summary: Summary, title: str, *, every: bool) -> Iterator[Table | str]:
    """Lay a summary out for a terminal."""
    yield _facts(summary, title, every)
    plain = console().options.ascii_only
    tensors = [
        (t.name, _shape(t.shape), t.distribution, f"{t.scale:.4g}", mask_words(t.mask), _density(t.density, plain))
        for t in summary.ticket.tensors.values()
    ]
    yield from _listing("Random tensors", ("distribution", "scale", "mask", "density"), tensors, every)
    dense = [
        (t.name, _shape(t.value.shape), DTYPE_NAMES[t.value.dtype], _cell(t.trained))
        for t in summary.ticket.dense.values()
    ]
    yield from _listing("Dense tensors", ("dtype", "trained"), dense, every)


def _facts(summary: Summary, title: str, every: bool) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")  # an identity is no use without its end
    ticket, nonzero = summary.ticket, summary.nonzero_words()
    facts = [
        ("identity", ticket.identity),
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
    for name, fact in facts:
        # As Text: what a file says must not be read as markup.
        table.add_row(Text(printable(name)), Text(printable(fact)))
    return table


def _nested(name: str, value: Mapping[str, object], every: bool, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Give a row with the plain values of an object, and below it rows for each object inside."""
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
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}..."


def _certificate(certificate: Certificate | None) -> str:
    if certificate is None:
        return "none"
    parts = certificate.details.get("parts")
    of = f"each of {len(parts)} parts by itself: " if isinstance(parts, list) else ""
    return (
        f"{of}error at most {certificate.error:.3e} for inputs of norm at most {certificate.input_norm:g}, "
        f"target {certificate.target_sha256[:16]} (as stored; verify --target checks it)"
    )


def _listing(
    title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], every: bool
) -> Iterator[Table | str]:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in ("name", "shape", *columns):
        # A name that is cut may be that of its neighbour.
        table.add_column(column, justify="right" if column in ("scale", "density") else "left", overflow="fold")
    shown = rows if every else rows[:_ROWS_SHOWN]
    for row in shown:
        table.add_row(*row)
    yield table
    if len(shown) < len(rows):
        yield f"... and {len(rows) - len(shown)} more; --all lists them."


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _density(value: float, ascii_only: bool) -> str:
    return f"{bar(value, ascii_only=ascii_only)} {value:6.4f}"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
