"""What a figure consists of, and how any of them is run: configuration -> tasks -> rows -> result -> picture."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from strongticket.construct.source import Init
from strongticket.errors import MissingExtraError
from strongticket.experiments.results import RESULT, ResultFolder, naming
from strongticket.experiments.tasks import SourceConfig, Task
from strongticket.files import Json, as_json
from strongticket.parallel import run_tasks

if TYPE_CHECKING:
    from rich.table import Table

C = TypeVar("C", bound=SourceConfig)
# Called with how many tasks are done and how many there are.
Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may ask of any figure; None leaves the figure's own default."""

    quick: bool = False
    sources: int | None = None
    targets: int = 1
    seed: int = 0
    init: Init = "theory"
    target: Literal["trained", "untrained"] | None = None
    normalize: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Generic[C]):
    """A figure as functions; its configuration is a dataclass of plain values.

    Args:
        name: also its folder's.
        configure: options to configuration.
        make_target: configuration and index to a target, in JSON.
        make_tasks: one for each target, width and chunk of sources.
        run_task: a task to its rows, in JSON; a pure function, importable by name.
        summarize: configuration, targets and the rows of all tasks to everything else in the result.
        draw: result to picture files `path`.png and `path`.svg.
        tables: result to what is printed.
    """

    name: str
    configure: Callable[[Options], C]
    make_target: Callable[[C, int], Json]
    make_tasks: Callable[[C, Sequence[Json]], list[Task[C]]]
    run_task: Callable[[Task[C]], Json]
    summarize: Callable[[C, Sequence[Json], Sequence[Json]], dict[str, Json]]
    draw: Callable[[Json, Path], None]
    tables: Callable[[Json], "list[Table]"]


def load_figure(name: str) -> Figure[Any]:
    """Import a figure by name."""
    figure: Figure[Any] = import_module(f"strongticket.experiments.{name}").FIGURE
    return figure


def reproduce_figure(
    figure: Figure[C],
    config: C,
    out: Path,
    *,
    workers: int = 1,
    dask: str | None = None,
    progress: Progress | None = None,
) -> Json:
    """Run a figure, or what is left of it, and draw it.

    Args:
        figure: which.
        config: its configuration.
        out: the folder above the figure's own, `out/fig4` for example.
        workers: local processes.
        dask: address of a Dask scheduler, instead of local processes.
        progress: called with the tasks done and their number.

    Returns:
        The content of `result.json`.
    """
    check_packages()
    folder = ResultFolder(out / figure.name, as_json({"figure": figure.name, **asdict(config)}), type(config))
    picture = folder.path / figure.name
    result = folder.finished()
    if result is None:
        result = _run(figure, config, folder, workers, dask, progress)
        figure.draw(result, picture)
        return result
    with naming(folder.path / RESULT):
        figure.draw(result, picture)
    return result


def _run(
    figure: Figure[C], config: C, folder: ResultFolder, workers: int, dask: str | None, progress: Progress | None
) -> Json:
    start = time.perf_counter()
    with folder.partial() as partial:
        if partial.targets is None:
            partial.keep_targets([as_json(figure.make_target(config, index)) for index in range(config.targets)])
        targets = partial.targets or []
        tasks = figure.make_tasks(config, targets)
        left = [task for task in tasks if task.name not in partial.rows]
        found = len(tasks) - len(left)
        done = found
        if progress is not None:
            progress(done, len(tasks))

        def keep(place: int, rows: Json) -> None:
            nonlocal done
            partial.keep(left[place].name, as_json(rows))
            done += 1
            if progress is not None:
                progress(done, len(tasks))

        for _ in run_tasks(figure.run_task, left, workers=workers, dask=dask, progress=keep):
            pass
        rows = [partial.rows[task.name] for task in tasks]
        result = as_json({"config": folder.config, **figure.summarize(config, targets, rows), "targets": targets})
        run = {
            "seconds": round(time.perf_counter() - start, 3),
            "tasks": len(tasks),
            "tasks_resumed": found,
            "workers": None if dask else workers,
            "dask": dask is not None,
        }
        folder.finish(result, run | _circumstances())
    return result


def _circumstances() -> dict[str, Json]:
    from strongticket.environment import command_line, environment

    return {"command": command_line(), **environment()}


def check_packages() -> None:
    """Say what is missing before any work is done, not after."""
    try:
        import_module("matplotlib")
        import_module("scipy")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"figures need {error.name}: pip install 'strongticket[report]'") from None
