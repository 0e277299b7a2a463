"""Output shared by all commands: results on stdout, errors in one line on stderr."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console

from strongticket.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from strongticket.charts.parts import Section, Table

STOPPED = "Stopped; the same command resumes."
# All control characters but tab and line end, and those that reorder the text around them.
_HOSTILE = (*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SPELLED = {code: chr(code).encode("unicode_escape").decode() for code in _HOSTILE}
_SPELLED_IN_JSON = {code: f"\\u{code:04x}" for code in _HOSTILE}


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text with control characters spelled out: names come from files, and models may write any byte.

    Commands print with this alone; tables go through `print_parts`, whose cells are spelled out, too.
    """
    typer.echo(spelled_out(str(text)), err=err, nl=nl)


def spelled_out(text: str) -> str:
    """Escape the characters that control a terminal; lines and tabs stay."""
    return text.translate(_SPELLED)


def console() -> Console:
    """Return stdout, wide enough for a whole table if it is not a terminal.

    Brackets are printed as they are, since names in files may contain them.
    """
    stdout = Console(highlight=False, markup=False)
    return stdout if stdout.is_terminal else Console(width=120, highlight=False, markup=False)


def print_parts(parts: "Iterable[RichTable | str]") -> None:
    """Print lines and tables in order."""
    stdout = console()
    for part in parts:
        if isinstance(part, str):
            echo(part)
        else:
            stdout.print(part)


def print_table(table: "Table") -> None:
    """Print a table with whole numbers; a line names the columns that do not fit."""
    from strongticket.charts.terminal import show_table

    print_parts(show_table(table, console().width))


def print_section(section: "Section") -> None:
    """Print a section's words, figures and tables."""
    from strongticket.charts.terminal import show

    print_parts(show(section, console().width))


def bar(share: float, cells: int = 12, *, ascii_only: bool = False) -> str:
    """Draw a share of 1 as a bar, to an eighth of a character; in ASCII, to a whole one.

    Example:
        >>> bar(0.5, 4), bar(0.3, 4), bar(0.5, 4, ascii_only=True)
        ('██  ', '█▎  ', '##  ')
    """
    if ascii_only:
        return ("#" * round(share * cells)).ljust(cells)
    eighths = round(8 * share * cells)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(cells)


def print_json(content: object) -> None:
    """Print one JSON value for machines."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False).translate(_SPELLED_IN_JSON))


def say_error(message: object) -> None:
    """Print an error in one line."""
    tell(f"Error: {message}")


def say_stopped() -> NoReturn:
    """End a command that was stopped by Ctrl-C and can be resumed."""
    tell(STOPPED)
    raise typer.Exit(130)


def tell(line: str) -> None:
    """Print a line to stderr, with control characters spelled out."""
    typer.echo(printable(line), err=True)


def bad_usage(message: object) -> NoReturn:
    """Print in one line what is wrong with the arguments, and exit with 2."""
    say_error(message)
    raise typer.Exit(2)
