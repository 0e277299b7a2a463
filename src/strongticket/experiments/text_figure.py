"""What figures on text share: a plan of runs, and a picture of those that are done."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strongticket.errors import StrongTicketError, printable
from strongticket.experiments import TEXT_FIGURES
from strongticket.experiments.figure import check_packages
from strongticket.experiments.language import Progress, Rows, Work, fewer_runs, name_of, run_missing
from strongticket.experiments.schedules import Embeddings, ScheduleName
from strongticket.files import Json, as_json, read_json, write_json
from strongticket.learn.config import RunConfig
from strongticket.learn.folder import RESULT, RUN
from strongticket.learn.run import Watch

if TYPE_CHECKING:
    from rich.table import Table

MINI_AND_SMALL = {"mini": 3, "small": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a user may ask of a figure on text."""

    schedule: ScheduleName
    models: Mapping[str, int]  # GPT-2 sizes, and how many seeds of each
    only: str = ""  # begin only runs whose name has this regular expression in it

    def seeds_and_sizes(self) -> Iterator[tuple[int, str]]:
        """Go through all models with one seed before the next, so that a figure has all its parts early."""
        for seed in range(max(self.models.values())):
            yield from ((seed, size) for size, seeds in self.models.items() if seed < seeds)

    def treatments(self) -> tuple[Embeddings, ...]:
        """Which treatments of the embeddings are compared; a quick look has one."""
        return ("masked",) if self.schedule == "quick" else ("trained", "masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFigure:
    """A figure as functions.

    Args:
        name: also its folder's.
        plan: all its runs, in the order they should be done.
        summarize: finished rows to everything else in the result.
        draw: result to picture files `path`.png and `path`.svg.
        tables: result to what is printed.
        usual: its models, and how many seeds of each, where nothing else is asked for.
    """

    name: str
    plan: Callable[[Choice], list[RunConfig]]
    summarize: Callable[[Sequence[Json]], dict[str, Json]]
    draw: Callable[[Json, Path], None]
    tables: Callable[[Json], "list[Table]"]
    usual: Mapping[str, int] = field(default_factory=lambda: {"mini": 3})

    def choose(
        self, schedule: ScheduleName, sizes: Sequence[str] = (), seeds: int | None = None, only: str = ""
    ) -> Choice:
        """Fill up what was not asked for; a model beyond the usual ones has the fewest seeds of them."""
        few = min(self.usual.values())
        usual = self.usual if schedule != "quick" else {"nano": max(self.usual.values())}
        return Choice(
            schedule=schedule, models={size: seeds or usual.get(size, few) for size in sizes or usual}, only=only
        )


class NothingToDrawError(StrongTicketError):
    """A figure has too few finished runs so far; others may have enough."""


def load_text_figure(name: str) -> TextFigure:
    """Import a figure by name."""
    figure: TextFigure = import_module(f"strongticket.experiments.{name}").FIGURE
    return figure


def reproduce_text_figure(
    figure: TextFigure,
    choice: Choice,
    out: Path,
    work: Work | None,
    *,
    progress: Progress = lambda done, total, config: None,
    watch: Watch = lambda moment: None,
    tell: Callable[[str], object] = warnings.warn,
) -> Json:
    """Do what is missing of a figure, if there is text to do it with, and draw what there is.

    Args:
        figure: which.
        choice: its schedule, and models with their seeds.
        out: the folder above the figure's own, `results/fig7` for example.
        work: text and machine for the missing runs; None draws finished runs only.
        progress: called before each run.
        watch: called while one is under way.
        tell: called with a line if the figure that is there has more runs.

    Returns:
        The content of `result.json`.
    """
    check_packages()
    rows = Rows(out / figure.name, [out / other for other in TEXT_FIGURES if other != figure.name])
    plan = figure.plan(choice)
    if work is not None:
        chosen = [config for config in plan if re.search(choice.only, name_of(config))]
        run_missing(chosen, rows, work, progress=progress, watch=watch)
    found = [(config, rows.find(config)) for config in plan]
    finished = [row for _, row in found if row is not None]
    if not finished:
        asked = f"of {', '.join(choice.models)} with the {choice.schedule} schedule"
        raise NothingToDrawError(
            f"{figure.name} has no finished run {asked} in {out}{_way_on(work is not None, choice.only)}"
        )
    result: dict[str, Any] = as_json(
        {
            "config": {"figure": figure.name, **_settings(choice)},
            "text": finished[0]["text"],
            "runs": len(finished),
            "missing": [name_of(config) for config, row in found if row is None],
            **figure.summarize(finished),
        }
    )
    folder = out / figure.name
    if loss := fewer_runs(read_json(folder / RESULT), result):
        tell(loss)
    folder.mkdir(parents=True, exist_ok=True)
    figure.draw(result, folder / figure.name)
    write_json(folder / RESULT, result)
    write_json(folder / RUN, _made_by([row["run"] for row in finished]))
    return result


def _way_on(working: bool, only: str) -> str:
    if not working:
        return "; give --data to begin, or --out where they are."
    return f": --only {only!r} or --minutes let none begin." if only else ": --minutes are too few for the first."


def _made_by(runs: Sequence[Json]) -> dict[str, Json]:
    """Sum up how a figure's runs were made: the machine of the latest, and the time and code of all."""
    in_order = sorted(runs, key=lambda run: str(run.get("date")))
    commits = dict.fromkeys(run["commit"] for run in in_order if run.get("commit"))
    # No command: each run had its own, and what redraws the figure is in its configuration.
    latest = {
        key: value for key, value in in_order[-1].items() if key in ("date", "cpu", "cores", "gpu", "os", "versions")
    }
    seconds = sum(run.get("seconds", 0.0) for run in runs)
    return {"runs": len(runs), "seconds": round(seconds, 3), "commit": ", ".join(commits), **latest}


def _settings(choice: Choice) -> dict[str, Json]:
    return {"schedule": choice.schedule, "models": dict(choice.models)}


def caption(result: Json) -> str:
    """Say under a figure what it was made with."""
    missing = f", {len(result['missing'])} missing" if result["missing"] else ""
    text = printable(str(result["text"]["data"]))
    return f"{result['config']['schedule']} schedule on {text}, runs: {result['runs']}{missing}"
