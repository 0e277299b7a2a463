"""`strongticket report`: all results on one page."""

from pathlib import Path
from typing import Annotated

import typer

from strongticket.cli.options import AsJson, option
from strongticket.cli.terminal import echo, print_json
from strongticket.errors import StrongTicketError

_REASONS = 3  # for having nothing to show


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", exists=True, show_default=False, help="Folders with results or tickets, or single files."
        ),
    ],
    out: Annotated[Path, option("The page to write.", dir_okay=False)] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write one HTML page of figures, tickets and timings.

    The page shows what is found in DIR. It is a single file, opens in any browser and needs no network.
    """
    from strongticket.progress import count_bar
    from strongticket.report import write_report

    with count_bar("report") as progress:
        summary = write_report(paths, out, progress)
    sections = summary["sections"]
    if as_json:
        print_json(summary)
    elif sections:
        for title in sections:
            echo(f"  {title}")
        for left in summary["left_out"]:
            echo(f"  left out: {left['file']}: {left['reason']}")
        count = f"{len(sections)} section{'s' * (len(sections) != 1)}"
        echo(f"{out.resolve()}: {count}, {summary['bytes']:,} bytes; open it in a browser")
    if not sections:
        reasons = "; ".join(f"{left['file']}: {left['reason']}" for left in summary["left_out"][:_REASONS])
        kept = "" if summary["bytes"] else f" {out} is left as it was."
        raise StrongTicketError(f"the page has nothing to show: {reasons}.{kept}")
