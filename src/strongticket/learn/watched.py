"""A run as its user sees it: a live bar in a terminal, a line now and then elsewhere, both on stderr."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from strongticket.learn.run import Moment, Watch

LINE_SECONDS = 10.0  # between lines, where there is neither a terminal for a bar nor a validation


@contextmanager
def watched(title: str, shown: bool) -> Iterator[Watch]:
    """Show a run while the block goes on; what it gives is called with each moment."""
    with run_bar(title, TimeRemainingColumn(), shown) as bar:
        task = bar.add_task("", total=None)

        def show(moment: Moment) -> None:
            bar.update(task, description=describe(moment), completed=moment.step, total=moment.steps)

        yield (lambda moment: None) if not shown else _Lines(title) if bar.disable else show


def run_bar(title: str, clock: ProgressColumn, shown: bool = True) -> Progress:
    """Make a bar that leaves nothing behind; where stderr is no terminal it stays silent."""
    stderr = Console(stderr=True)
    # What a narrow terminal has no room for is cut off the description's end.
    rest = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=16), clock, rest)
    return Progress(*columns, console=stderr, transient=True, expand=True, disable=not (shown and stderr.is_terminal))


class _Lines:
    """One line for each validation, or every few seconds where there is none: enough for a log, never too much."""

    def __init__(self, title: str) -> None:
        self.title, self.validated, self.resumed, self.told = title, -1, False, time.monotonic()

    def __call__(self, moment: Moment) -> None:
        of = f"{moment.step:,} of {moment.steps:,}"
        quiet = time.monotonic() - self.told < LINE_SECONDS and moment.step < moment.steps
        if moment.validated == -1 and moment.step > 0 and math.isnan(moment.loss) and not self.resumed:
            self.resumed = True
            self._print(f"resumes after step {of}")
        elif moment.validated != self.validated or (moment.validated == -1 and not quiet):
            self.validated = moment.validated
            self._print(f"step {of}, {describe(moment)}")

    def _print(self, words: str) -> None:
        self.told = time.monotonic()
        print(f"{self.title}: {words}", file=sys.stderr, flush=True)


def describe(moment: Moment) -> str:
    """Say how a run is doing, as far as it is known.

    Example:
        >>> describe(Moment(10, 100, loss=3.25, tokens_per_second=81234.5, densities={"mlp": 0.3}))
        'loss 3.250, 81.2k tokens/s, density mlp 0.300'
    """
    parts = []
    for name, value in (("loss", moment.loss), ("validation", moment.validation_loss), ("best", moment.best_loss)):
        if not math.isnan(value):
            parts.append(f"{name} {value:.3f}")
    if not math.isnan(moment.tokens_per_second):
        parts.append(f"{moment.tokens_per_second / 1000:.1f}k tokens/s")
    if moment.densities:
        parts.append("density " + " ".join(f"{group} {kept:.3f}" for group, kept in moment.densities.items()))
    return ", ".join(parts)
