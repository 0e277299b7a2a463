"""What `strongticket show` says of a ticket: first as plain data, then as tables."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from strongticket.container import DTYPE_NAMES, Json
from strongticket.terminal import printable
from strongticket.ticket import Ticket

_ROWS_SHOWN = 20


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
    yield _facts(summary, title)
    yield from _listing("Random tensors", summary["tensors"], ("distribution", "scale", "mask", "density"), every)
    yield from _listing("Dense tensors", summary["dense"], ("dtype", "trained"), every)


def _facts(summary: dict[str, Json], title: str) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", show_header=False, box=None)
    bits = 8 * summary["file_bytes"] / summary["weights"] if summary["weights"] else None
    per_weight = f", {bits:.3f} bits a weight" if bits else ""
    facts = {
        "identity": summary["identity"],
        "seed": str(summary["seed"]),
        "architecture": _one_line(summary["architecture"]) or "not given",
        "weights": f"{summary['weights']:,} random, {summary['kept']:,} kept (density {summary['density']:.4f})",
        "dense": f"{summary['dense_numbers']:,} numbers in {len(summary['dense'])} tensors",
        "strong": "yes" if summary["strong"] else "no: some dense tensors were trained",
        "size": f"{summary['file_bytes']:,} bytes{per_weight}",
        "certificate": _certificate(summary["certificate"]),
    }
    if summary["metadata"]:
        facts["metadata"] = _one_line(summary["metadata"])
    for name, fact in facts.items():
        # As Text: what a file says must not be read as markup.
        table.add_row(name, Text(fact))
    return table


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
    shown = rows if every else rows[:_ROWS_SHOWN]
    for row in shown:
        shape = " x ".join(map(str, row["shape"])) or "scalar"
        table.add_row(row["name"], shape, *(_cell(row[column]) for column in columns))
    yield table
    if len(shown) < len(rows):
        yield f"... and {len(rows) - len(shown)} more; --all lists them."


def _cell(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _one_line(value: dict[str, Json]) -> str:
    return printable(", ".join(f"{key} {item}" for key, item in value.items()))
