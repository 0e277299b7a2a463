"""What every command shares in front of its user: results on stdout, progress on stderr, errors in one line."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from strongticket.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from strongticket.charts.parts import Table

LINE_SECONDS = 10.0  # between lines of progress, where there is no terminal for a bar
_STEP_COLUMNS = (
    SpinnerColumn(),
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)


def console() -> Console:
    """Give stdout; wide enough for a whole table when it is not a terminal.

    Brackets are printed as they are: names in files may hold some.
    """
    stdout = Console(highlight=False, markup=False)
    return stdout if stdout.is_terminal else Console(width=120, highlight=False, markup=False)


def print_parts(parts: "Iterable[RichTable | str]") -> None:
    """Print lines and tables in order."""
    stdout = console()
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            stdout.print(part)


def print_table(table: "Table") -> None:
    """Print a table with whole numbers: what the terminal has no room for is left out, and a line says so."""
    from strongticket.charts.terminal import show_table

    print_parts(show_table(table, console().width))


def bar(share: float, cells: int = 12, *, ascii_only: bool = False) -> str:
    """Draw a share of 1 as a bar, to an eighth of a character; in ASCII to a whole one.

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
    typer.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


def say_error(message: object) -> None:
    """Say in one line what went wrong."""
    tell(f"Error: {message}")


def tell(line: str) -> None:
    """Print a line beside a command's output; what a file brought into it cannot drive the terminal."""
    typer.echo(printable(line), err=True)


def bad_usage(message: object) -> NoReturn:
    """Say in one line what is wrong with the arguments, and exit with 2."""
    say_error(message)
    raise typer.Exit(2)


class Lines:
    """Says now and then how far something is, where stderr is no terminal and a bar stays silent."""

    def __init__(self, shown: Progress, description: str) -> None:
        self._description, self._wanted = description, shown.disable
        self._start = time.monotonic()
        self._next = self._start + LINE_SECONDS

    def tell(self, done: int, total: int) -> None:
        """Say it if the last time is long enough ago."""
        now = time.monotonic()
        if self._wanted and now >= self._next:
            typer.echo(f"{self._description}: {done:,} of {total:,}, {now - self._start:.0f} s", err=True)
            self._next = now + LINE_SECONDS


class _RateColumn(ProgressColumn):
    """How many are done a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


@contextmanager
def step_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar over named steps on stderr; what it gives is called with the name of the step that begins."""
    with _bar(*_STEP_COLUMNS) as shown:
        task = shown.add_task("starting", total=total)
        begun = 0

        def step(description: str) -> None:
            nonlocal begun
            shown.update(task, description=description, completed=begun)
            begun += 1

        yield step


@contextmanager
def count_bar(
    description: str, columns: Sequence[ProgressColumn] = _STEP_COLUMNS
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr whose length is not known yet; what it gives is called with what is done and the total."""
    with _bar(*columns) as shown:
        task, lines = shown.add_task(description, total=None), Lines(shown, description)

        def show(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total)
            lines.tell(done, total)

        yield show


@contextmanager
def rate_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr with how many are done a second; what it gives is called with the amount just done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    done = 0
    with count_bar(description, columns) as show:

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            show(done, total)

        yield advance


def _bar(*columns: ProgressColumn) -> Progress:
    """Make a bar that leaves nothing behind; where stderr is no terminal it stays silent."""
    stderr = Console(stderr=True)
    # Amounts come in large steps, so the speed is that of the last minutes rather than of the last step.
    silent = not stderr.is_terminal
    return Progress(*columns, console=stderr, transient=True, disable=silent, speed_estimate_period=120.0)
