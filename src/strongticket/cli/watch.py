"""A run as its user sees it: a live bar in a terminal, a line at each validation elsewhere, both on stderr."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from strongticket.cli.progress import Lines
from strongticket.experiments.figure import Progress as Begin
from strongticket.learn.run import Moment, Watch


@contextmanager
def watched(title: str, shown: bool) -> Iterator[Watch]:
    """Show a run while the block goes on; what it gives is called with each moment."""
    with _bar(title, shown) as bar, Lines(title, wanted=shown and bar.disable) as lines:
        task, validations = bar.add_task("", total=None), _Validations(title)

        def show(moment: Moment) -> None:
            bar.update(task, description=describe(moment), completed=moment.step, total=moment.steps)
            lines.note(moment.step, moment.steps, describe(moment, densities=False))
            if shown and bar.disable:
                validations(moment)

        yield show


@contextmanager
def watched_runs(title: str) -> Iterator[tuple[Begin, Watch, Callable[[str], None]]]:
    """Show all tasks or runs of a figure, and how the present one is doing.

    What it gives are called when a run starts, with each moment of it, and with a line that is to stay.
    """
    with _bar(title) as bar, Lines(title, wanted=bar.disable) as lines:
        task, run, count = bar.add_task("starting", total=None), "", (0, 0)

        def begin(done: int, total: int, name: str) -> None:
            nonlocal run, count
            run, count = name, (done, total)
            lines.note(done, total, name)
            bar.update(task, completed=done, total=total, description=name)

        def watch(moment: Moment) -> None:
            step = f"step {moment.step} of {moment.steps}"
            bar.update(task, description=f"{step}, {run}, {describe(moment)}")
            lines.note(*count, f"{run}, {step}, {describe(moment, densities=False)}")
            if bar.disable and moment.validated == moment.steps:
                typer.echo(f"{title}: {run}, {step}, {describe(moment)}", err=True)

        def say(line: str) -> None:
            bar.console.print(f"{title}: {line}", highlight=False, markup=False, soft_wrap=True)

        yield begin, watch, say


def _bar(title: str, shown: bool = True) -> Progress:
    stderr = Console(stderr=True)
    # What a narrow terminal has no room for is cut off the description's end.
    rest = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=16), TimeRemainingColumn(), rest)
    return Progress(*columns, console=stderr, transient=True, expand=True, disable=not (shown and stderr.is_terminal))


class _Validations:
    """One line for each validation: enough for a log file, and never too much."""

    def __init__(self, title: str) -> None:
        self.title, self.validated, self.resumed = title, -1, False

    def __call__(self, moment: Moment) -> None:
        if moment.validated == -1 and moment.step > 0 and not self.resumed:
            self.resumed = True
            typer.echo(f"{self.title}: resumes after step {moment.step:,} of {moment.steps:,}", err=True)
        elif moment.validated != self.validated:
            self.validated = moment.validated
            typer.echo(f"{self.title}: step {moment.step:,} of {moment.steps:,}, {describe(moment)}", err=True)


def describe(moment: Moment, *, densities: bool = True) -> str:
    """Say how a run is doing, as far as it is known; what is kept of each group of tensors only if asked for.

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
