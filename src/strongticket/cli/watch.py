"""Progress of a figure's runs: how many are done, and how the current one is doing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strongticket.cli.terminal import echo
from strongticket.experiments.figure import Progress as Begin
from strongticket.learn.run import Moment, Watch
from strongticket.learn.watched import describe, run_bar
from strongticket.progress import Lines


@contextmanager
def watched_runs(title: str) -> Iterator[tuple[Begin, Watch, Callable[[str], None]]]:
    """Show the progress of a figure's tasks or runs, and of the current one.

    Yields three functions: call the first when a run starts, the second with each moment of it, the third with a line
    to keep on screen.
    """
    with run_bar(title) as bar, Lines(title, wanted=bar.disable) as lines:
        task, run, count = bar.add_task("starting", total=None), "", (0, 0)

        def begin(done: int, total: int, name: str) -> None:
            nonlocal run, count
            run, count = name, (done, total)
            lines.note(done, total, name)
            bar.update(task, completed=done, total=total, description=name)

        def watch(moment: Moment) -> None:
            step = f"step {moment.step:,} of {moment.steps:,}"
            bar.update(task, description=f"{step}, {run}, {describe(moment)}")
            lines.note(*count, f"{run}, {step}, {describe(moment, densities=False)}")
            if bar.disable and moment.validated == moment.steps:
                echo(f"{title}: {run}, {step}, {describe(moment)}", err=True)

        def say(line: str) -> None:
            bar.console.print(f"{title}: {line}", highlight=False, markup=False, soft_wrap=True)

        yield begin, watch, say
