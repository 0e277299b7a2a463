"""A run as its user sees it: a live bar in a terminal, a line now and then elsewhere, both on stderr."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from strongticket.learn.run import Moment, Watch
from strongticket.progress import Lines


@contextmanager
def watched(title: str, shown: bool) -> Iterator[Watch]:
    """Show a run during the block; yields a function to call with each moment."""
    with run_bar(title, shown) as bar, Lines(title, wanted=shown and bar.disable) as lines:
        task, milestones = bar.add_task("", total=None), _Milestones(title)

        def show(moment: Moment) -> None:
            bar.update(task, description=describe(moment), completed=moment.step, total=moment.steps)
            lines.note(moment.step, moment.steps, describe(moment, densities=False))
            if shown and bar.disable:
                milestones(moment)

        yield show


def run_bar(title: str, shown: bool = True) -> Progress:
    """Make a bar that is cleared at the end; it is silent if stderr is not a terminal."""
    stderr = Console(stderr=True)
    rest = _WholeParts(table_column=Column(ratio=1))
    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=12), TimeRemainingColumn(), rest)
    return Progress(*columns, console=stderr, transient=True, expand=True, disable=not (shown and stderr.is_terminal))


class _WholeParts(ProgressColumn):
    """As many parts of the description as fit: a narrow terminal drops the last ones, not the digits of a number."""

    def render(self, task: Task) -> "_Parts":
        return _Parts(task.description)


class _Parts(NamedTuple):
    words: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        parts = self.words.split(", ")
        while cell_len(", ".join(parts)) > options.max_width:
            parts.pop()
        yield Text(", ".join(parts), no_wrap=True)


class _Milestones:
    """Print a line when a run resumes, at each validation, and at the end: enough for a log."""

    def __init__(self, title: str) -> None:
        self.title, self.validated, self.resumed = title, -1, False

    def __call__(self, moment: Moment) -> None:
        of = f"{moment.step:,} of {moment.steps:,}"
        if moment.validated == -1 and moment.step > 0 and math.isnan(moment.loss) and not self.resumed:
            self.resumed = True
            self._print(f"resumes after step {of}")
        elif moment.validated != self.validated or (moment.validated == -1 and moment.step == moment.steps):
            self.validated = moment.validated
            self._print(f"step {of}, {describe(moment)}")

    def _print(self, words: str) -> None:
        print(f"{self.title}: {words}", file=sys.stderr, flush=True)


def describe(moment: Moment, *, densities: bool = True) -> str:
    """Describe the progress of a run, as far as known; the densities of groups are optional.

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
    if moment.densities and densities:
        parts.append("density " + " ".join(f"{group} {kept:.3f}" for group, kept in moment.densities.items()))
    return ", ".join(parts)
