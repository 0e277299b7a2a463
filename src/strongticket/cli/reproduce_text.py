"""The part of `strongticket reproduce` that is about figures on text."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from strongticket.experiments.language import Work
    from strongticket.experiments.schedules import ScheduleName
    from strongticket.learn.config import RunConfig
    from strongticket.learn.run import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """What the command line says about runs on text."""

    schedule: "ScheduleName"
    sizes: tuple[str, ...]  # none: those a figure usually has
    seeds: int | None
    only: str
    data: str | None
    also: str | None
    tokenizer: str | None
    minutes: float | None
    device: str
    keep: bool


def reproduce_text_figures(names: list[str], options: TextOptions, out: Path, as_json: bool) -> dict[str, Any]:
    """Do what is missing of each figure, draw it, and print it."""
    from strongticket.cli.terminal import console
    from strongticket.experiments.text_figure import NothingToDrawError, load_text_figure, reproduce_text_figure
    from strongticket.experiments.textplot import result_plot
    from strongticket.files import read_json
    from strongticket.learn.folder import RESULT

    summaries: dict[str, Any] = {}
    work = _work(options) if options.data is not None else None
    for name in names:
        figure, folder = load_text_figure(name), out / name
        before = read_json(folder / RESULT)
        choice = figure.choose(options.schedule, options.sizes, options.seeds, options.only)
        lines: list[str] = []
        try:
            with _Runs(name) as runs:
                result = reproduce_text_figure(
                    figure, choice, out, work, progress=runs.begin, watch=runs.watch, tell=lines.append
                )
        except NothingToDrawError as error:
            summaries[name] = {"folder": str(folder), "runs": 0, "error": str(error)}
            continue
        for line in lines:
            typer.echo(line, err=True)
        if not as_json:
            for table in figure.tables(result):
                console().print(table)
            if plot := result_plot(result):
                typer.echo(f"{plot}\n")
            if result["missing"]:
                typer.echo(_missing_line(result["missing"], options))
            typer.echo(f"{folder / RESULT}, {name}.png, {name}.svg")
            if before is not None and before.get("config") != result["config"]:
                typer.echo(
                    "These showed other models, seeds or another schedule before. All runs are kept: with the options "
                    "of then, or none, the command draws them again."
                )
        summaries[name] = {"folder": str(folder), "runs": result["runs"], "missing": result["missing"]}
    return summaries


def _missing_line(missing: Sequence[str], options: TextOptions) -> str:
    which, them = ("One run is", "it") if len(missing) == 1 else (f"{len(missing)} runs are", "them")
    chosen = [name for name in missing if re.search(options.only, name)]
    way = "the same command goes on with"
    if options.data is None:
        way = "with --data the same command does"
    elif not chosen:
        way = "--only leaves out all of" if len(missing) > 1 else "--only leaves out"
    elif len(chosen) < len(missing):
        way = f"--only chooses {len(chosen)} of"
    return f"{which} missing; {way} {them}. Next: {(chosen or missing)[0]}"


def _work(options: TextOptions) -> "Work":
    import torch

    from strongticket.cli.terminal import bad_usage
    from strongticket.data.text import load_text
    from strongticket.environment import command_line
    from strongticket.experiments.language import Work
    from strongticket.learn.config import RunConfig
    from strongticket.learn.run import Means
    from strongticket.learn.shared import Share
    from strongticket.parallel import one_thread_for_small

    assert options.data is not None
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    text = load_text(options.data, tokenizer=options.tokenizer)
    also = load_text(options.also, tokenizer=options.tokenizer, splits=("valid",)) if options.also else None
    if also and also.tokenizer.digest != text.tokenizer.digest:
        bad_usage(f"--also {also.name} has tokens of {also.tokenizer.name}, --data those of {text.tokenizer.name}.")
    sizes = options.sizes or (("nano",) if options.schedule == "quick" else ("mini",))
    weights = max(RunConfig(size=size).weights(text.tokenizer.vocabulary) for size in sizes)
    one_thread_for_small(weights, options.device)
    means = Means(
        share=Share(0, 1, torch.device(options.device)),
        compiler="inductor" if options.device == "cuda" else None,
        keep=options.keep,
        command=command_line(),
        also={also.name: also.valid} if also else {},
    )
    return Work(text=text, means=means, deadline=deadline)


class _Runs:
    """A bar over all runs of a figure, with how the present one is doing; lines where there is no terminal."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from strongticket.cli.terminal import rest_column

        self._name, self._run = name, ""
        stderr = Console(stderr=True)
        columns = (TextColumn(name), MofNCompleteColumn(), BarColumn(bar_width=16), TimeElapsedColumn(), rest_column())
        self._bar = Progress(*columns, console=stderr, transient=True, expand=True, disable=not stderr.is_terminal)
        self._lines = not stderr.is_terminal
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "_Runs":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, done: int, total: int, config: "RunConfig") -> None:
        """Note the run that begins."""
        from strongticket.experiments.language import name_of

        self._run = name_of(config)
        self._bar.update(self._task, completed=done, total=total, description=self._run)

    def watch(self, moment: "Moment") -> None:
        """Note how it is doing."""
        from strongticket.cli.watch import describe

        step = f"step {moment.step} of {moment.steps}"
        self._bar.update(self._task, description=f"{step}, {self._run}, {describe(moment)}")
        if self._lines and moment.validated == moment.steps:
            typer.echo(f"{self._name}: {self._run}, {step}, {describe(moment)}", err=True)
