"""Output shared by all commands: results on stdout, errors in one line on stderr."""

import json
import os
import textwrap
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
_CONTROL = (*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# Lone surrogates stand for the bytes of a file's name that are not UTF-8; most terminals' encodings refuse them.
_HOSTILE = (*_CONTROL, *range(0xD800, 0xE000))
_SPELLED = {code: chr(code).encode("unicode_escape").decode() for code in _HOSTILE}
_SPELLED_IN_JSON = {code: f"\\u{code:04x}" for code in _HOSTILE}


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line with control characters spelled out: names come from files, and models may write any byte.

    Line ends are spelled out, too, or the name of a file could look like lines of the command's own. Commands print
    with this and `write` alone; tables go through `print_parts`, whose cells are spelled out, too.
    """
    typer.echo(one_line(str(text)), err=err)


def write(text: str) -> None:
    """Print text of several lines, or a piece of one, as it is but for the characters that control a terminal."""
    typer.echo(spelled_out(text), nl=False)


def spelled_out(text: str) -> str:
    """Escape the characters that control a terminal; lines and tabs stay."""
    return text.translate(_SPELLED)


def one_line(text: str) -> str:
    """Escape line ends, too."""
    return spelled_out(text).replace("\n", "\\n")


def console() -> Console:
    """Return stdout; if it is no terminal and COLUMNS is not set, wide enough for a whole table.

    Brackets are printed as they are, since names in files may contain them.
    """
    stdout = Console(highlight=False, markup=False)
    known = stdout.is_terminal or "COLUMNS" in os.environ
    return stdout if known else Console(width=120, highlight=False, markup=False)


def print_wrapped(text: str) -> None:
    """Print a paragraph in lines no longer than the terminal."""
    write(f"{textwrap.fill(text, console().width, break_on_hyphens=False, break_long_words=False)}\n")


def print_parts(parts: "Iterable[RichTable | str]") -> None:
    """Print lines and tables in order."""
    stdout = console()
    for part in parts:
        if isinstance(part, str):
            write(f"{part}\n")
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
