"""A command's progress on stderr: a bar with the time left in a terminal, a line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

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

LINE_SECONDS = 10.0  # until the first line where there is no terminal; the wait doubles after each line
MOST_SECONDS = 600.0  # between two lines
_DESCRIPTION = TextColumn("{task.description}")
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_STEPS = (SpinnerColumn(), _DESCRIPTION, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


class Lines:
    """Print what a command is doing if stderr is not a terminal: after ten seconds, then less and less often."""

    def __init__(self, title: str, wanted: bool) -> None:
        self._wanted = wanted
        self.begin(title)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, daemon=True)

    def begin(self, title: str) -> None:
        """Start another kind of work."""
        self.title, self._start = title, time.monotonic()
        self._what, self._done, self._total = "", 0, 0
        self._first: int | None = None  # the amount already done when a run resumes

    def note(self, done: int, total: int, what: str = "") -> None:
        """Record the progress for the next line."""
        self._done, self._total, self._what = done, total, what
        if self._first is None:
            self._first, self._start = done, time.monotonic()

    def line(self) -> str:
        """Return the line to print.

        Example:
            >>> lines = Lines("sums", wanted=False)
            >>> lines.note(3, 1200)
            >>> lines.line()
            'sums: 3 of 1,200, 0 s'
        """
        seconds, new = time.monotonic() - self._start, self._done - (self._first or 0)
        parts = [self._what] if self._what else []
        if self._total > 1:
            parts.append(f"{self._done:,} of {self._total:,}")
        parts.append(f"{seconds:.0f} s")
        if new:
            parts.append(f"about {seconds * (self._total - self._done) / new:.0f} s left")
        return f"{self.title}: {', '.join(parts)}"

    def _say(self) -> None:
        wait = LINE_SECONDS
        while not self._over.wait(wait):
            print(self.line(), file=sys.stderr, flush=True)
            wait = min(2 * wait, MOST_SECONDS)

    def __enter__(self) -> "Lines":
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()


class _RateColumn(ProgressColumn):
    """The number done per second, short enough for a narrow terminal."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text()
        unit, letter = next(((unit, letter) for unit, letter in _UNITS if speed >= unit), (1, ""))
        return Text(f"{speed / unit:.{1 if letter else 0}f}{letter}/s")


@contextmanager
def _shown(
    title: str, *columns: ProgressColumn, total: int | None = None
) -> Iterator[tuple[Callable[..., None], Callable[[str, int], None]]]:
    """Show a bar that leaves nothing behind, or lines if stderr is not a terminal.

    Yield a function to call with the amount done, the total and what is being done, and one that begins other work.
    """
    stderr = Console(stderr=True)
    silent = not stderr.is_terminal
    # Amounts come in large steps, so the speed is averaged over the last minutes.
    bar = Progress(*columns, console=stderr, transient=True, disable=silent, speed_estimate_period=120.0)
    with bar, Lines(title, silent) as lines:
        task = bar.add_task(title, total=total)

        def show(done: int, total: int, what: str = "") -> None:
            bar.update(task, completed=done, total=total, description=what or lines.title)
            lines.note(done, total, what)

        def begin(title: str, total: int) -> None:
            bar.reset(task, description=title, total=total)
            lines.begin(title)

        yield show, begin


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Show what a `with` block is doing if its progress is not known."""
    with _shown(what, SpinnerColumn(), _DESCRIPTION, TimeElapsedColumn()):
        yield


@contextmanager
def step_bar(total: int, title: str) -> Iterator[Callable[[str], None]]:
    """Show a bar over named steps; yield a function to call with the name of each step as it starts."""
    with _shown(title, *_STEPS, total=total) as (show, _):
        started = count()
        yield lambda description: show(next(started), total, description)


@contextmanager
def count_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar of initially unknown length; yield a function to call with the amount done and the total."""
    with _shown(description, *_STEPS) as (show, _):
        yield show


@contextmanager
def rate_bars() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Show one bar for successive kinds of work, with the number done per second.

    Yield a function that takes the name and amount of a kind of work and returns another, to call with the amount just
    done.
    """
    columns = (_DESCRIPTION, BarColumn(), TaskProgressColumn(), _RateColumn(), TimeElapsedColumn())
    with _shown("starting", *columns, TimeRemainingColumn()) as (show, begin):

        def work(description: str, total: int) -> Callable[[int], None]:
            done: int | None = None

            def advance(amount: int) -> None:
                nonlocal done
                if done is None:
                    begin(description, total)
                    show(done := 0, total)
                done += amount
                show(done, total)

            return advance

        yield work


@contextmanager
def rate_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar with the number done per second; yield a function to call with the amount just done."""
    with rate_bars() as begin:
        advance = begin(description, total)
        advance(0)
        yield advance
