"""The runs of a figure as their user sees them: how many are done, and how the present one is doing."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.progress import TimeElapsedColumn

from strongticket.cli.terminal import Lines
from strongticket.experiments.figure import Progress as Begin
from strongticket.learn.run import Moment, Watch
from strongticket.learn.watched import describe, run_bar


@contextmanager
def watched_runs(title: str) -> Iterator[tuple[Begin, Watch]]:
    """Show all tasks or runs of a figure, and how the present one is doing.

    What it gives are called when a run begins, and with each moment of it.
    """
    with run_bar(title, TimeElapsedColumn()) as bar:
        task, lines, run = bar.add_task("", total=None), Lines(bar, title), ""

        def begin(done: int, total: int, name: str) -> None:
            nonlocal run
            run = name
            lines.tell(done, total)
            bar.update(task, completed=done, total=total, description=name)

        def watch(moment: Moment) -> None:
            step = f"step {moment.step} of {moment.steps}"
            bar.update(task, description=f"{step}, {run}, {describe(moment)}")
            if bar.disable and moment.validated == moment.steps:
                typer.echo(f"{title}: {run}, {step}, {describe(moment)}", err=True)

        yield begin, watch
