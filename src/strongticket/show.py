"""What `strongticket show` says of a ticket: first as plain data, then as tables."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from strongticket.container import DTYPE_NAMES, Json
from strongticket.terminal import bar, console, printable
from strongticket.ticket import Ticket

_ROWS_SHOWN = 20
_VALUE_SHOWN = 60
_DIGEST_SHOWN = 16


def summarize(ticket: Ticket, file: Path) -> dict[str, Json]:
    """Collect everything `show` prints, as JSON.

    Args:
        ticket: as loaded.
        file: what it was loaded from.
    """
    certificate = ticket.certificate
    file_bytes, description_bytes = file.stat().st_size, _description_bytes(file)
    dense_bytes = sum(dense.value.nbytes for dense in ticket.dense.values())
    return {
        "identity": ticket.identity,
        "seed": ticket.seed,
        "architecture": ticket.architecture,
        "weights": ticket.numel,
        "kept": ticket.kept(),
        "density": ticket.density,
        "strong": ticket.strong,
        "norms_at_one": _norms_at_one(ticket),
        "file_bytes": file_bytes,
        "description_bytes": description_bytes,
        "mask_bytes": file_bytes - description_bytes - dense_bytes,
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


def _description_bytes(file: Path) -> int:
    """Give the size of the header: names, shapes, hashes and settings, which a small ticket has mostly."""
    with open(file, "rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def _norms_at_one(ticket: Ticket) -> int:
    """Count a searched GPT-2's norm scales if they stay 1, which no file needs to hold."""
    config = ticket.architecture.get("config")
    trained = any("norm" in name for name in ticket.dense)
    if ticket.architecture.get("family") != "gpt2" or not isinstance(config, dict) or trained:
        return 0
    layers, width = config.get("n_layers"), config.get("d_model")
    # Two in each block and one at the end.
    return (2 * layers + 1) * width if isinstance(layers, int) and isinstance(width, int) else 0


def weights_words(summary: dict[str, Json]) -> str:
    """Say how many weights there are, and how many are kept."""
    return f"{summary['weights']:,} random, {summary['kept']:,} kept (density {summary['density']:.4f})"


def nonzero_words(summary: dict[str, Json]) -> str:
    """Say what `search` counts as nonzero, which is more than masks keep; nothing where that is all."""
    dense, norms = summary["dense_numbers"], summary["norms_at_one"]
    if not norms and not (dense and "search" in summary["metadata"]):
        return ""
    parts = [f"{summary['kept']:,} kept"]
    if dense:
        parts.append(f"{dense:,} dense")
    if norms:
        parts.append(f"{norms:,} norm scales, which stay 1")
    return f"{summary['kept'] + dense + norms:,} as search counts: {' + '.join(parts)}"


def dense_words(summary: dict[str, Json]) -> str:
    """Say how many numbers the file holds as they are."""
    tensors = len(summary["dense"])
    return f"{summary['dense_numbers']:,} numbers in {tensors} tensor{'s' * (tensors != 1)}" if tensors else "none"


def besides_words(summary: dict[str, Json]) -> str:
    """Say what the file holds besides random weights and masks; nothing where that is all."""
    count = summary["dense_numbers"]
    if not count:
        return ""
    numbers = f"{count:,} number{'s' * (count != 1)}"
    if not summary["strong"]:
        return f"{numbers}, trained ones among them"
    # Only a construction has a target, and takes from it what is exact: its biases.
    return f"{numbers} {'copied from the target' if summary['certificate'] else 'stored in full'}"


def strong_words(summary: dict[str, Json]) -> str:
    """Say whether nothing was trained to find the ticket."""
    if not summary["strong"]:
        return "no: some dense tensors were trained"
    besides = besides_words(summary)
    return f"yes: random weights and masks, {f'plus {besides}' if besides else 'nothing else'}"


def size_words(summary: dict[str, Json]) -> str:
    """Say how large the file is, and how much of it is masks: only that grows with the network."""
    masks, description = summary["mask_bytes"], summary["description_bytes"]
    dense = summary["file_bytes"] - masks - description
    bits = f" ({8 * masks / summary['weights']:.3f} bits a weight)" if summary["weights"] and masks else ""
    numbers = f"{dense:,} of dense numbers, " if dense else ""
    return f"{summary['file_bytes']:,} bytes: {masks:,} of masks{bits}, {numbers}{description:,} of description"


def render(summary: dict[str, Json], title: str, *, every: bool) -> Iterator[Table | str]:
    """Lay a summary out for a terminal."""
    yield _facts(summary, title, every)
    yield from _listing("Random tensors", summary["tensors"], ("distribution", "scale", "mask", "density"), every)
    yield from _listing("Dense tensors", summary["dense"], ("dtype", "trained"), every)


def _facts(summary: dict[str, Json], title: str, every: bool) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", show_header=False, box=None)
    nonzero = nonzero_words(summary)
    facts = [
        ("identity", summary["identity"]),
        ("seed", str(summary["seed"])),
        *_nested("architecture", summary["architecture"], every),
        ("weights", weights_words(summary)),
        *([("nonzero", nonzero)] if nonzero else []),
        ("dense", dense_words(summary)),
        ("strong", strong_words(summary)),
        ("size", size_words(summary)),
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
        # A name that is cut may be that of its neighbour.
        table.add_column(column, justify="right" if column in ("scale", "density") else "left", overflow="fold")
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
