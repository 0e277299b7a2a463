"""Figures made of runs on text: a plan of runs, and the result of the finished ones."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strongticket.experiments import TEXT_FIGURES
from strongticket.experiments.figure import How, NothingToDrawError, Options, Plan
from strongticket.experiments.results import RESULT, RUN
from strongticket.experiments.schedules import Embeddings, ScheduleName
from strongticket.experiments.text_rows import RunRow, TextResult
from strongticket.files import Json, as_json, read_json, sealed, write_json
from strongticket.learn.config import RunConfig
from strongticket.learn.result import RunRecord

MINI_AND_SMALL = {"mini": 3, "small": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options of a figure on text."""

    schedule: ScheduleName
    models: Mapping[str, int]  # GPT-2 sizes, and how many seeds of each
    only: str = ""  # start only runs whose name matches this regular expression

    def seeds_and_sizes(self) -> Iterator[tuple[int, str]]:
        """Go through all models with one seed before the next, so that all parts of a figure exist early."""
        for seed in range(max(self.models.values())):
            yield from ((seed, size) for size, seeds in self.models.items() if seed < seeds)

    def treatments(self) -> tuple[Embeddings, ...]:
        """Return the treatments of the embeddings to compare; only one with `--quick`."""
        return ("masked",) if self.schedule == "quick" else ("trained", "masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRuns(Plan[Choice]):
    """A figure's work as a list of runs, each done once and kept as a row."""

    runs: Callable[[Choice], list[RunConfig]]  # all of them, in the order they should be done
    summarize: Callable[[Sequence[RunRow]], Mapping[str, object]]  # from finished rows to the rest of the result
    # The default models, and how many seeds of each.
    usual: Mapping[str, int] = field(default_factory=lambda: {"mini": 3})

    def configure(self, options: Options) -> Choice:
        """Fill in defaults; a model beyond the usual ones has the fewest seeds of these."""
        schedule: ScheduleName = "quick" if options.quick else options.schedule
        usual = self.usual if schedule != "quick" else {"nano": max(self.usual.values())}
        few = min(self.usual.values())
        models = {size: options.seeds or usual.get(size, few) for size in options.models or usual}
        return Choice(schedule=schedule, models=models, only=options.only)

    def carry_out(self, name: str, config: Choice, out: Path, how: How) -> Json:
        """Do missing runs, if there is text for them, and summarize the finished ones."""
        # Imported here, so that a result can be described without the training code.
        from strongticket.experiments.language import Rows, fewer_runs, name_of, run_missing

        folder = out / name
        rows = Rows(folder, [out / other for other in TEXT_FIGURES if other != name])
        plan = self.runs(config)
        if how.work is not None:
            chosen = [run for run in plan if re.search(config.only, name_of(run))]
            run_missing(chosen, rows, how.work, progress=how.progress, watch=how.watch)
        found = [(run, rows.find(run)) for run in plan]
        finished = [row for _, row in found if row is not None]
        if not finished:
            asked = f"of {', '.join(config.models)} with the {config.schedule} schedule"
            where, way_on = str(out), ": --minutes are too few for the first."
            if how.work is None:
                way_on = "; give --data to start some, or --out with the folder that has them."
                if not out.is_absolute():
                    where = f"./{out} of the current folder (a checkout of the repository has some in results)"
            elif config.only:
                way_on = f": --only {config.only!r} or --minutes let none start."
            raise NothingToDrawError(f"{name} has no finished run {asked} in {where}{way_on}")
        result: TextResult = as_json(
            {
                "config": {"figure": name, "schedule": config.schedule, "models": dict(config.models)},
                "text": finished[0]["text"],
                "runs": len(finished),
                "missing": [name_of(run) for run, row in found if row is None],
                **self.summarize(finished),
            }
        )
        if fewer := fewer_runs(read_json(folder / RESULT), result):
            how.warn(fewer)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RESULT, sealed(result))
        write_json(folder / RUN, _made_by([row["run"] for row in finished]))
        return result


def _made_by(runs: Sequence[RunRecord]) -> dict[str, object]:
    """Summarize how a figure's runs were made: the machine of the latest, and the time and code of all."""
    in_order = sorted(runs, key=lambda run: str(run.get("date")))
    commits = dict.fromkeys(run["commit"] for run in in_order if run.get("commit"))
    # No command: each run had its own, and the configuration says how to redraw the figure.
    latest = {
        key: value for key, value in in_order[-1].items() if key in ("date", "cpu", "cores", "gpu", "os", "versions")
    }
    seconds = sum(run.get("seconds", 0.0) for run in runs)
    return {"runs": len(runs), "seconds": round(seconds, 3), "commit": ", ".join(commits), **latest}
