"""The command line: the list of commands, and those that inspect one ticket."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from strongticket._version import __version__
from strongticket.cli.bench import bench_app
from strongticket.cli.bound import bound_app
from strongticket.cli.construct import compare, construct
from strongticket.cli.help_page import Command, Group
from strongticket.cli.language import evaluate, generate
from strongticket.cli.options import AsJson, Families, TicketFile, load_families, option, refuse_unused
from strongticket.cli.report import report
from strongticket.cli.reproduce import reproduce
from strongticket.cli.search import SearchCommand, search
from strongticket.cli.terminal import bad_usage, console, echo, print_json, print_parts, say_error, tell, write
from strongticket.errors import StrongTicketError

INTERRUPTED = 130  # the exit code of shells for Ctrl-C

app = typer.Typer(
    cls=Group,
    invoke_without_command=True,
    # On a wide terminal lines may exceed click's 80 characters, but stay easy to read.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    # Rich's help keeps the line breaks of docstrings, cuts long option names and shows values for flags.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        echo(f"strongticket {__version__}")
        raise typer.Exit


# No line is longer than the narrowest terminal that people use.
FIRST = """\
Find the network already inside a random one, stored as a
seed and about one bit per weight; no weight is trained.

Five things to do first (1 and 2 take a minute or two):
  1. See the paper's main result: pruned random attention
     gets close to any target.
       strongticket reproduce fig4 --quick
  2. Find a ticket in a small random GPT-2, on text that
     comes with the package.
       strongticket search --size nano --data sample \\
         --steps 200 --sequences 16 --lr 1e-2 \\
         --output-gain 8 --out out/first
  3. Write text with what it found. After so few steps it
     is letters and spaces, not words.
       strongticket generate --prompt "The river" \\
         out/first/seed-0/best.ticket
  4. Look into the file: what is random, what is kept,
     how many bytes.
       strongticket show out/first/seed-0/best.ticket
  5. Put everything on one page; open it in a browser.
       strongticket report out --out report.html

strongticket -h lists all commands;
strongticket COMMAND -h explains one.
strongticket --install-completion makes the Tab key
complete them in your shell."""


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        option("Print the version and exit.", "--version", "-V", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Find the network already inside a random one, stored as a seed and about one bit per weight.

    Run without a command, it shows five things to do first.
    """
    if context.invoked_subcommand is None:
        write(f"{FIRST}\n")


def show(
    file: TicketFile,
    every: Annotated[bool, option("List every tensor, however many.", "--all")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a ticket's tensors, densities, size and certificate."""
    from strongticket.cli.show import render
    from strongticket.tickets.summary import summarize
    from strongticket.tickets.ticket import Ticket

    summary = summarize(Ticket.load(file), file)
    if as_json:
        print_json(summary.as_json())
    else:
        stdout = console()
        ascii_only = stdout.options.ascii_only
        print_parts(render(summary, file.name, every=every, width=stdout.width, ascii_only=ascii_only))


def verify(
    file: TicketFile,
    target: Annotated[
        Path | None, option("The target of the certificate: a safetensors file or a model folder.", exists=True)
    ] = None,
    samples: Annotated[
        Path | None,
        option(
            "Tokens or vectors to bound the error on: .npy, or .safetensors with one tensor per name the model needs "
            "(encoder and decoder; text_model or vision_model).",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    radius: Annotated[float | None, option("How far each token of the samples may move.", min=0, shown="0")] = None,
    families: Families = None,
    as_json: AsJson = False,
) -> None:
    """Check that a ticket is what it says it is.

    Its digests and masks are checked, and every random weight is regenerated from the seed. With --target the
    certificate is computed again. With --samples the error on these inputs is bounded, too; through several blocks that
    says far more than the certificate for all inputs. Exits with 1 and a list of failures if anything does not hold.
    """
    unused = [option for option, value in (("--families", families), ("--samples", samples)) if value is not None]
    refuse_unused(unused if target is None else [], "--target, which is not given")
    refuse_unused(["--radius"] if radius is not None and samples is None else [], "--samples, which is not given")
    if radius == math.inf:
        bad_usage("--radius must be finite; got inf.")
    from strongticket.construct.target import load_samples
    from strongticket.pretrained.certify import certify
    from strongticket.pretrained.verify import target_failures
    from strongticket.progress import doing, rate_bar
    from strongticket.tickets.ticket import Ticket

    ticket = Ticket.load(file)
    inputs = load_samples(samples) if samples is not None else None
    with rate_bar("regenerating weights", ticket.drawn) as advance:
        failures = [*ticket.verify(advance).failures]
    if target is not None:
        load_families(families)
        with doing("computing the certificate from the target"):
            failures += target_failures(ticket, target)
    found = None
    if target is not None and inputs is not None and not failures:
        with doing("bounding the error on the samples"):
            found = certify(ticket, target, inputs, radius=radius or 0.0)
    if as_json:
        outcome = {"file": str(file), "identity": ticket.identity, "ok": not failures, "failures": failures}
        print_json(outcome | ({"samples": found.as_json()} if found else {}))
    elif failures:
        echo(f"{file}: {len(failures)} failed")
        for failure in failures:
            echo(f"  {failure}")
    else:
        held = f", holds for {target}" if target is not None else ""
        draws = f" from {ticket.drawn:,} draws" if ticket.drawn > ticket.numel else ""
        echo(f"{file}: ok{held}, {ticket.numel:,} weights regenerated{draws}, identity {ticket.identity}")
        if found:
            echo(f"{samples}: {found}")
    if failures:
        raise typer.Exit(1)


def export(
    file: TicketFile,
    out: Annotated[Path, option("Folder to write into.", file_okay=False, shown=False)],
    as_json: AsJson = False,
) -> None:
    """Write a ticket's masked weights as plain safetensors.

    For programs that know nothing of tickets; a JSON file of names and shapes is written with them.
    """
    from strongticket.progress import rate_bar
    from strongticket.tickets.export import DESCRIPTION, WEIGHTS, describe, export_ticket
    from strongticket.tickets.ticket import Ticket

    ticket = Ticket.load(file)
    with rate_bar("writing weights", ticket.numel) as advance:
        export_ticket(ticket, out, advance)
    if as_json:
        print_json(describe(ticket))
    else:
        echo(f"{out / WEIGHTS}: {len(ticket.tensors) + len(ticket.dense)} tensors, described in {out / DESCRIPTION}")


def _add(command: Callable[..., None], example: str, kind: type[Command] = Command) -> None:
    app.command(cls=kind, epilog=f"Example: strongticket {example}")(command)


# In the order in which a new user needs them.
_add(reproduce, "reproduce fig4 --widths 8,16,32 --heads 4")
_add(
    search,
    "search --size nano --data sample --steps 1000 --sequences 16 --lr 1e-2 --output-gain 8",
    SearchCommand,
)
_add(evaluate, "evaluate best.ticket --data sample")
_add(generate, 'generate best.ticket --prompt "The river"')
_add(construct, "construct --model FOLDER --items 20 --out a.ticket")
_add(compare, "compare --model FOLDER --ticket a.ticket --text b.txt")
_add(show, "show attention.ticket")
_add(verify, "verify attention.ticket --target model.safetensors")
_add(export, "export attention.ticket --out attention/")
_add(report, "report results --out report.html")
app.add_typer(bound_app, name="bound")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run the command line; expected errors become one line and an exit code, mostly 1."""
    try:
        app(prog_name="strongticket")  # also under python -m
    except (StrongTicketError, ValueError, OSError, MemoryError) as error:
        if os.environ.get("STRONGTICKET_DEBUG"):  # show the traceback
            raise
        code = getattr(error, "exit_code", 1)
        if code == INTERRUPTED:  # the user's wish, not an error
            tell(str(error))
        else:
            say_error(error)
        sys.exit(code)
