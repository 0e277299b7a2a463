"""Figures made of constructions: configuration -> targets -> tasks -> rows -> result, however the work is split."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypedDict, TypeVar

from strongticket.construct.assignment import Assignment
from strongticket.environment import command_line, environment
from strongticket.experiments.figure import How, Options, Variant
from strongticket.experiments.options import VARIANT
from strongticket.experiments.results import ResultFolder
from strongticket.experiments.tasks import (
    Indexed,
    Rows,
    SourceConfig,
    Sources,
    Task,
    cut,
    sources_of,
    worst_and_certified,
)
from strongticket.files import Json, as_json
from strongticket.parallel import run_tasks
from strongticket.settings import filled

C = TypeVar("C", bound=SourceConfig)
T = TypeVar("T", bound=Indexed)
_NAMED = 2  # settings in a variant's short name


class Summarized(TypedDict):
    """What a figure finds with one assignment of units; the rest is its own."""

    violations: int  # of certificates


@dataclass(frozen=True, slots=True)
class Constructions(Generic[C, T]):
    """A figure's work as functions; its configuration is a dataclass of plain values."""

    configure: Callable[[Options], C]
    make_target: Callable[[C, int], T]  # from the configuration and an index
    run_task: Callable[[Task[C, T]], Rows]  # a pure function, importable by name
    # From the configuration, the targets and the rows of all tasks to the rest of the result.
    summarize: Callable[[C, Sequence[T], Sequence[Any]], Summarized]
    sources_per_task: int  # of one target and width
    # From the columns of its sources to the worst error and the certificate of each.
    outcomes: Callable[[Sources], tuple[list[float], list[float]]] = worst_and_certified
    # Which sources a task prunes, in a line about them.
    place: Callable[[Task[C, T]], str] = lambda task: f"width {task.width}"

    def full(self, config: object) -> Json:
        """Return the configuration of a result with the settings it is too old to have."""
        return filled(config, type(self.configure(Options())))

    def variant(self, config: object) -> Variant | None:
        """Name the settings that differ from the figure's defaults, or from those of a quick look if that is nearer."""
        usual, quick = (self._unlike(config, Options(quick=quick)) for quick in (False, True))
        if not usual:
            return None
        named = ["quick look", *quick.values()] if len(quick) < len(usual) else [*usual.values()]
        more = f"{len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return Variant(", ".join(filter(None, (*named[:_NAMED], more))), "; ".join(usual))

    def _unlike(self, config: object, options: Options) -> dict[str, str]:
        return dict(_differences(self.full(config), as_json(asdict(self.configure(options)))))

    def carry_out(self, name: str, config: C, out: Path, how: How) -> Json:
        """Run the remaining tasks; if the result is finished, read it."""
        folder = ResultFolder(out / name, as_json({"figure": name, **asdict(config)}), type(config))
        if (finished := folder.finished()) is not None:
            return finished
        start = time.perf_counter()
        with folder.partial(how.warn) as partial:
            if len(partial.targets or ()) != config.targets:
                how.progress(0, 1, "making the target")
                partial.keep_targets([as_json(self.make_target(config, index)) for index in range(config.targets)])
            targets: Sequence[T] = partial.targets or []
            tasks = cut(config, targets, self.sources_per_task)
            left = [task for task in tasks if task.name not in partial.rows]
            resumed = len(tasks) - len(left)

            def tell() -> None:
                how.progress(sum(task.name in partial.rows for task in tasks), len(tasks), "")

            def keep(place: int, rows: Rows) -> None:
                partial.keep(left[place].name, as_json(rows))
                tell()
                together = [task for task in tasks if task.shares_width(left[place])]
                if all(task.name in partial.rows for task in together):
                    how.row(self.in_words(left[place], [partial.rows[task.name] for task in together]))

            tell()
            for _ in run_tasks(self.run_task, left, workers=how.workers, dask=how.dask, progress=keep):
                pass
            found = {
                way: self.summarize(
                    config, targets, [partial.rows[task.name] for task in tasks if task.assignment == way]
                )
                for way in config.assignments
            }
            result = as_json({"config": folder.config, **joined(found), "targets": targets})
            run = {
                "seconds": round(time.perf_counter() - start, 3),
                "tasks": len(tasks),
                "tasks_resumed": resumed,
                "workers": None if how.dask else how.workers,
                "dask": how.dask is not None,
            }
            folder.finish(result, run | {"command": command_line(), **environment()})
        return result

    def in_words(self, task: Task[C, T], rows: Sequence[Rows]) -> str:
        """Summarize one width in a line, to be read while the others run."""
        worst, certified = self.outcomes(sources_of(rows, task.target["index"], task.width))
        units = "equal blocks" if task.assignment == "equal" else "adaptive units"
        errors = f"worst error {median(worst):.1e}, certified {median(certified):.1e} (medians)"
        return f"{self.place(task)}, {units}: {errors}"


def _differences(config: Mapping[str, object], usual: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each setting that differs, in full and in short: a list by its ends."""
    for name, value in usual.items():
        found = config.get(name)
        if isinstance(value, dict) and isinstance(found, dict):
            yield from _differences(found, value)
        elif found != value:
            values = found if isinstance(found, list) else [found]
            ends = values if len(values) < 3 else [f"{values[0]} to {values[-1]}"]
            what = name.removeprefix("n_").replace("_", " ")
            full, short = (f"{what} {', '.join(map(str, each))}" for each in (values, ends))
            yield full, short


def joined(found: Mapping[Assignment, Summarized]) -> dict[str, object]:
    """Put the numbers of the first assignment, the paper's, at the top, and those of others under their names."""
    (_, first), *others = found.items()
    violations = sum(numbers["violations"] for numbers in found.values())
    return {**first, "violations": violations, **dict(others)}


def following(config: C, options: Options, *, coordinates: int = 1, **quick: Any) -> C:
    """Apply a user's options to a configuration.

    Args:
        config: the figure's defaults.
        options: what the user asked for.
        coordinates: how many coordinates share the hidden units; each width must be a multiple of this.
        quick: the smaller settings that `--quick` uses.

    Raises:
        ValueError: the figure has no such setting, or a width cannot be shared out.
    """
    asked: dict[str, Any] = {"seed": options.seed, "targets": options.targets, "init": options.init}
    asked |= quick if options.quick else {}
    config = replace(config, **asked | ({} if options.sources is None else {"sources": options.sources}))
    for own in fields(options):
        value = getattr(options, own.name)
        if own.metadata["option"].get("rich_help_panel") == VARIANT and value != own.default:
            config = _vary(config, own.name, value)
    if uneven := [n for n in config.widths if n % coordinates]:
        figure, least = _figure_of(config), -(-uneven[0] // coordinates) * coordinates
        raise ValueError(f"{figure} needs --widths that are multiples of {coordinates}; got {uneven[0]}. Use {least}.")
    return config


def _figure_of(config: SourceConfig) -> str:
    return type(config).__module__.rpartition(".")[2]


def _vary(config: C, option: str, value: Any) -> C:
    if (path := config.varied.get(option)) is None:
        settings = ", ".join(f"--{name.replace('_', '-')}" for name in config.varied)
        raise ValueError(f"{_figure_of(config)} has no --{option.replace('_', '-')}; its own settings are {settings}.")
    group, _, name = path.rpartition(".")
    of: Any = getattr(config, group) if group else config
    if isinstance(getattr(of, name), tuple):
        value = tuple(sorted(set(value))) if isinstance(value, tuple) else (value,)
    varied = replace(of, **{name: value})
    return replace(config, **{group: varied}) if group else varied
