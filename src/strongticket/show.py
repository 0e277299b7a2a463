"""What `strongticket show` says of a ticket: first as plain data, then as tables."""

import json
import re
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from strongticket.container import DTYPE_NAMES, Json
from strongticket.terminal import bar, console, printable
from strongticket.ticket import Ticket

_ROWS_SHOWN = 20
_VALUE_SHOWN = 60
_DIGEST_SHOWN = 16


def summarize(ticket: Ticket, file_bytes: int) -> dict[str, Json]:
    """Collect everything `show` prints, as JSON."""
    certificate = ticket.certificate
    return {
        "identity": ticket.identity,
        "seed": ticket.seed,
        "architecture": ticket.architecture,
        "weights": ticket.numel,
        "kept": ticket.kept(),
        "density": ticket.density,
        "strong": ticket.strong,
        "file_bytes": file_bytes,
        "tensors": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "distribution": tensor.distribution,
                "scale": tensor.scale,
                "mask": tensor.mask.kind,
                "density": tensor.density,
            }
            for tensor in ticket.tensors.values()
        ],
        "dense": [
            {
                "name": dense.name,
                "shape": list(dense.value.shape),
                "dtype": DTYPE_NAMES[dense.value.dtype],
                "trained": dense.trained,
            }
            for dense in ticket.dense.values()
        ],
        "dense_numbers": sum(dense.value.numel() for dense in ticket.dense.values()),
        "certificate": {
            "error": certificate.error,
            "input_norm": certificate.input_norm,
            "target_sha256": certificate.target_sha256,
            "details": certificate.details,
        }
        if certificate
        else None,
        "metadata": ticket.metadata,
    }


def render(summary: dict[str, Json], title: str, *, every: bool) -> Iterator[Table | str]:
    """Lay a summary out for a terminal."""
    yield _facts(summary, title, every)
    yield from _listing("Random tensors", summary["tensors"], ("distribution", "scale", "mask", "density"), every)
    yield from _listing("Dense tensors", summary["dense"], ("dtype", "trained"), every)


def _facts(summary: dict[str, Json], title: str, every: bool) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", show_header=False, box=None)
    bits = 8 * summary["file_bytes"] / summary["weights"] if summary["weights"] else None
    per_weight = f", {bits:.3f} bits a weight" if bits else ""
    facts = [
        ("identity", summary["identity"]),
        ("seed", str(summary["seed"])),
        *_nested("architecture", summary["architecture"], every),
        ("weights", f"{summary['weights']:,} random, {summary['kept']:,} kept (density {summary['density']:.4f})"),
        ("dense", f"{summary['dense_numbers']:,} numbers in {len(summary['dense'])} tensors"),
        ("strong", "yes" if summary["strong"] else "no: some dense tensors were trained"),
        ("size", f"{summary['file_bytes']:,} bytes{per_weight}"),
        ("certificate", _certificate(summary["certificate"])),
        *(_nested("metadata", summary["metadata"], every) if summary["metadata"] else ()),
    ]
    for name, fact in facts:
        # As Text: what a file says must not be read as markup.
        table.add_row(Text(printable(name)), Text(printable(fact)))
    return table


def _nested(name: str, value: dict[str, Json], every: bool, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Give a row with the plain values of an object, and below it rows for each object inside."""
    inner = {key: part for key, part in value.items() if isinstance(part, dict) and part}
    plain = [f"{key:.{_VALUE_SHOWN}} {_short(part)}" for key, part in value.items() if key not in inner]
    shown = plain if every else plain[:_ROWS_SHOWN]
    more = [f"... and {len(plain) - len(shown)} more"] if len(shown) < len(plain) else []
    yield f"{'  ' * depth}{name:.{_VALUE_SHOWN}}", ", ".join(shown + more) or ("" if inner else "not given")
    for key, part in inner.items():
        yield from _nested(key, part, every, depth + 1)


def _short(value: Json) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else _cell(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:_DIGEST_SHOWN]
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}..."


def _certificate(certificate: Json) -> str:
    if certificate is None:
        return "none"
    parts = certificate["details"].get("parts")
    of = f"each of {len(parts)} parts by itself: " if isinstance(parts, list) else ""
    return (
        f"{of}error at most {certificate['error']:.3e} for inputs of norm at most {certificate['input_norm']:g}, "
        f"target {certificate['target_sha256'][:16]} (as stored; verify --target checks it)"
    )


def _listing(title: str, rows: list[dict[str, Json]], columns: tuple[str, ...], every: bool) -> Iterator[Table | str]:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in ("name", "shape", *columns):
        table.add_column(column, justify="right" if column in ("scale", "density") else "left")
    shown, plain = rows if every else rows[:_ROWS_SHOWN], console().options.ascii_only
    for row in shown:
        shape = " x ".join(map(str, row["shape"])) or "scalar"
        table.add_row(row["name"], shape, *(_drawn(column, row[column], plain) for column in columns))
    yield table
    if len(shown) < len(rows):
        yield f"... and {len(rows) - len(shown)} more; --all lists them."


def _drawn(column: str, value: Json, ascii_only: bool) -> str:
    return f"{bar(value, ascii_only=ascii_only)} {value:6.4f}" if column == "density" else _cell(value)


def _cell(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
