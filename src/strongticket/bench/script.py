"""Shared by the measurements behind the documents: options, a table on the terminal, rows in a file."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strongticket.bench.measure import WrongAnswerError, append_row
from strongticket.environment import environment

RESULTS = Path("results/bench/results.jsonl")
Row = Mapping[str, object]


def run_script(
    doc: str | None,
    measure: Callable[..., Iterable[Row]],
    *,
    op: str,
    out: Path | None = RESULTS,
    on: str = "cpu",
    **defaults: Any,
) -> None:
    """Measure, print each row as a line of a table, and append it to a file with machine, versions and date.

    Args:
        doc: for --help.
        measure: takes the options and yields checked rows, fields by name.
        op: the operation measured, for readers of the rows.
        out: default of --out; None saves no rows.
        on: the device, unless --device is one of the options.
        defaults: the other options by name; a tuple is a list separated by commas.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out, help="append rows to this file")
    for name, default in defaults.items():
        kind = _list_of(type(default[0])) if isinstance(default, tuple) else type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"default: {default}")
    options = vars(parser.parse_args())
    file, heads = options.pop("out"), ""
    try:
        for row in measure(**options):
            if heads != (heads := "  ".join(f"{name:>10}" for name in row)):
                print(heads)
            print("  ".join(f"{_cell(value):>{max(10, len(name))}}" for name, value in row.items()), flush=True)
            if file is not None:
                append_row(file, op=op, **row, **environment(options.get("device", on)))
    except WrongAnswerError as error:
        sys.exit(f"Error: {error}")


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Format rows as a table for a document."""
    lines = [rows[0], ["---:"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _list_of(kind: type) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(map(kind, text.split(",")))


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
