"""The runs of a figure as their user sees them: how many are done, and how the present one is doing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from strongticket.experiments.figure import Progress as Begin
from strongticket.learn.run import Moment, Watch
from strongticket.learn.watched import describe, run_bar
from strongticket.progress import Lines


@contextmanager
def watched_runs(title: str) -> Iterator[tuple[Begin, Watch, Callable[[str], None]]]:
    """Show all tasks or runs of a figure, and how the present one is doing.

    What it gives are called when a run starts, with each moment of it, and with a line that is to stay.
    """
    with run_bar(title) as bar, Lines(title, wanted=bar.disable) as lines:
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
