"""The command line: what commands there are, and those that look at one ticket."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strongticket._version import __version__
from strongticket.cli.bench import bench_app
from strongticket.cli.bound import bound_app
from strongticket.cli.construct import compare, construct
from strongticket.cli.help_page import Command
from strongticket.cli.language import evaluate, generate
from strongticket.cli.options import AsJson, Families, TicketFile, load_families, refuse_in_vain
from strongticket.cli.report import report
from strongticket.cli.reproduce import reproduce
from strongticket.cli.search import SearchCommand, search
from strongticket.cli.terminal import say_error, tell
from strongticket.errors import StrongTicketError

if TYPE_CHECKING:
    from torch import Tensor

    from strongticket.construct.samples import SampleCertificate
    from strongticket.tickets.ticket import Ticket

INTERRUPTED = 130  # as shells have it for Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    # On a wide terminal lines may be longer than click's 80, but not so long that an eye loses them.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    # Rich's help keeps the line breaks of docstrings, cuts long option names and asks flags for a value.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


# In an epilog \b keeps the lines as they are, so that they can be copied.
app.command(
    cls=SearchCommand,
    epilog="\b\nExample: strongticket search --size nano --data sample --steps 1000 \\\n"
    "           --sequences 16 --lr 1e-2 --output-gain 8",
)(search)
app.command(cls=Command, epilog="Example: strongticket construct --model FOLDER --items 20 --out a.ticket")(construct)
app.command(cls=Command, epilog="Example: strongticket compare --model FOLDER --ticket a.ticket --text b.txt")(compare)
app.command(cls=Command, epilog="Example: strongticket reproduce fig4 fig5 fig6 --out out")(reproduce)
app.command(cls=Command, epilog="Example: strongticket evaluate best.ticket --data sample")(evaluate)
app.command(cls=Command, epilog='Example: strongticket generate best.ticket --prompt "The river"')(generate)
app.command(cls=Command, epilog="Example: strongticket report results --out report.html")(report)
app.add_typer(bound_app, name="bound")
app.add_typer(bench_app, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"strongticket {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Find the network already inside a random one: a seed and a bit per weight, no weight is trained."""


@app.command(cls=Command, epilog="Example: strongticket show attention.ticket")
def show(
    file: TicketFile,
    every: Annotated[bool, typer.Option("--all", help="List every tensor, however many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a ticket's tensors, densities, size and certificate."""
    from strongticket.cli.show import render
    from strongticket.cli.terminal import console, print_json, print_parts
    from strongticket.tickets.summary import summarize

    summary = summarize(_load(file), file)
    if as_json:
        print_json(summary.as_json())
    else:
        stdout = console()
        ascii_only = stdout.options.ascii_only
        print_parts(render(summary, file.name, every=every, width=stdout.width, ascii_only=ascii_only))


@app.command(cls=Command, epilog="Example: strongticket verify attention.ticket --target model.safetensors")
def verify(
    file: TicketFile,
    target: Annotated[
        Path | None,
        typer.Option(exists=True, help="The target the certificate speaks of: a safetensors file or a model folder."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Inputs to bound the error on: .npy, or one tensor as .safetensors."
        ),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(show_default="0", help="How far each of the samples' tokens may be moved.")
    ] = None,
    families: Families = None,
    as_json: AsJson = False,
) -> None:
    """Check that a ticket is what it says it is.

    Its digest and its masks are checked, every random weight is made again from the seed, and with --target the
    certificate is computed anew. With --samples the error on these inputs is bounded, too; through several blocks that
    says far more than the certificate for all inputs. Exits with 1 and the list of failures if anything does not hold.
    """
    from strongticket.cli.terminal import print_json
    from strongticket.progress import doing, rate_bar

    vain = [option for option, value in (("--families", families), ("--samples", samples)) if value is not None]
    refuse_in_vain(vain if target is None else [], "--target, which is not given")
    refuse_in_vain(["--radius"] if radius is not None and samples is None else [], "--samples, which is not given")
    ticket = _load(file)
    inputs = _load_samples(ticket, samples) if samples is not None else None
    with rate_bar("regenerating weights", ticket.drawn) as advance:
        failures = [*ticket.verify(advance).failures]
    if target is not None:
        from strongticket.pretrained.verify import target_failures

        load_families(families)
        with doing("computing the certificate from the target"):
            failures += target_failures(ticket, target)
    found = None
    if target is not None and inputs is not None and not failures:
        with doing("bounding the error on the samples"):
            found = _certify(ticket, target, inputs, radius or 0.0)
    if as_json:
        told = {"file": str(file), "identity": ticket.identity, "ok": not failures, "failures": failures}
        print_json(told | ({"samples": found.as_json()} if found else {}))
    elif failures:
        typer.echo(f"{file}: {len(failures)} failed")
        for failure in failures:
            typer.echo(f"  {failure}")
    else:
        held = f", holds for {target}" if target is not None else ""
        typer.echo(f"{file}: ok{held}, {ticket.drawn:,} weights regenerated, identity {ticket.identity}")
        if found:
            typer.echo(f"{samples}: {found}")
    if failures:
        raise typer.Exit(1)


@app.command(cls=Command, epilog="Example: strongticket export attention.ticket --to attention/")
def export(
    file: TicketFile,
    to: Annotated[Path, typer.Option(file_okay=False, show_default=False, help="Folder to write into.")],
    as_json: AsJson = False,
) -> None:
    """Write a ticket's masked weights as plain safetensors.

    For programs that know nothing of tickets; a JSON file of names and shapes goes with them.
    """
    from strongticket.cli.terminal import print_json
    from strongticket.progress import rate_bar
    from strongticket.tickets.export import DESCRIPTION, WEIGHTS, describe, export_ticket

    ticket = _load(file)
    with rate_bar("writing weights", ticket.numel) as advance:
        export_ticket(ticket, to, advance)
    if as_json:
        print_json(describe(ticket))
    else:
        typer.echo(
            f"{to / WEIGHTS}: {len(ticket.tensors) + len(ticket.dense)} tensors, described in {to / DESCRIPTION}"
        )


def _load(file: Path) -> "Ticket":
    from strongticket.tickets.ticket import Ticket

    return Ticket.load(file)


def _load_samples(ticket: "Ticket", file: Path) -> "Tensor":
    from strongticket.construct.samples import check_family
    from strongticket.construct.target import load_samples

    check_family(ticket)
    return load_samples(file)


def _certify(ticket: "Ticket", target: Path, samples: "Tensor", radius: float) -> "SampleCertificate":
    from strongticket.construct.samples import certify
    from strongticket.construct.target import load_target

    return certify(ticket, load_target(target), samples, radius=radius)


def main() -> None:
    """Run the command line; errors we raise on purpose become one line and an exit code, mostly 1."""
    try:
        app()
    except (StrongTicketError, ValueError, OSError, MemoryError) as error:
        if os.environ.get("STRONGTICKET_DEBUG"):  # one that nobody raised on purpose is a bug, and this its traceback
            raise
        code = getattr(error, "exit_code", 1)
        if code == INTERRUPTED:  # which is what its user wanted
            tell(str(error))
        else:
            say_error(error)
        sys.exit(code)
