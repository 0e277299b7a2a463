"""The parts of a figure, and how every figure is made: options -> work -> result -> description -> picture."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from strongticket.charts import picture
from strongticket.charts.parts import Chart, Section
from strongticket.cluster import Cluster
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.experiments.options import Options as Options
from strongticket.experiments.results import RESULT, naming
from strongticket.files import Json

if TYPE_CHECKING:
    from strongticket.data.text import Text
    from strongticket.learn.run import Means, Watch

C = TypeVar("C")
# Called with the number of finished tasks or runs, their total, and the name of the next one.
Progress = Callable[[int, int, str], object]


class NothingToDrawError(StrongTicketError):
    """A figure has too few finished runs; others may have enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is needed to do missing runs on text."""

    text: "Text"
    means: "Means"
    deadline: float | None = None  # start no run that would end after this time of `time.monotonic`


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a figure's work is done; its numbers do not depend on this."""

    workers: int = 1  # local processes
    dask: str | Cluster | None = None  # a Dask cluster, or its address, instead of local processes
    work: Work | None = None  # None draws finished runs only
    progress: Progress = lambda done, total, name: None
    row: Callable[[str], object] = lambda line: None  # called with a line about each width once it is finished
    watch: "Watch" = lambda moment: None  # called during a run on text
    # Called with a warning, for example that the new figure has fewer runs than the one it replaces.
    warn: Callable[[str], object] = warnings.warn


ALONE = How()


@dataclass(frozen=True, slots=True)
class Variant:
    """How a result differs from the figure's defaults: a short name for titles, and all settings for the caption."""

    name: str
    settings: str


class Plan(Protocol[C]):
    """The work a figure is made of: constructions, or runs on text."""

    def configure(self, options: Options) -> C:
        """Apply a user's options."""

    def carry_out(self, name: str, config: C, out: Path, how: How) -> Json:
        """Do the remaining work in `out`/`name`, and return the content of its `result.json`."""

    def full(self, config: object) -> Json:
        """Return the configuration of a result with the settings it is too old to have."""
        return config

    def variant(self, config: object) -> Variant | None:
        """Say how the configuration of a result differs from the figure's defaults, if it does."""
        return None


@dataclass(frozen=True, slots=True)
class Figure(Generic[C]):
    """A figure: its name, which is also its folder's, its work, and the description of its result."""

    name: str
    plan: Plan[C]
    describe: Callable[[Json], Section]
    more: tuple[Callable[[Json], Section], ...] = ()  # further sections of a report, not drawn on their own

    def section(self, result: Json) -> Section:
        """Describe a result; title and name tell a variant from the figure, and the caption lists its settings."""
        section, variant = self.describe(result), self.plan.variant(result["config"])
        if variant is None:
            return section
        chart, *others = section.blocks
        assert isinstance(chart, Chart)
        chart = replace(chart, caption=f"{chart.caption} Other settings than the figure’s: {variant.settings}.")
        return replace(
            section,
            title=f"{section.title} ({variant.name})",
            name=f"{section.name}, {variant.name}",
            chapter=section.name,
            blocks=[chart, *others],
        )


def load_figure(name: str) -> Figure[Any]:
    """Import a figure by name."""
    figure: Figure[Any] = import_module(f"strongticket.experiments.{name}").FIGURE
    return figure


def reproduce_figure(figure: Figure[C], config: C, out: Path, how: How = ALONE) -> Json:
    """Do a figure's remaining work in its folder under `out`, draw it, and return the content of `result.json`."""
    try:
        for needed in ("matplotlib", "scipy"):  # fail before the work, not after it
            import_module(needed)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"figures need {error.name}: pip install 'strongticket[report]'") from None
    result = figure.plan.carry_out(figure.name, config, out, how)
    folder = out / figure.name
    with naming(folder / RESULT):
        picture.draw(figure.section(result), folder / figure.name)
    return result
