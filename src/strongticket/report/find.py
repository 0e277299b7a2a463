"""What there is to show: result files, benchmark rows and tickets under the folders a user names."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.report.records import (
    Made,
    Metric,
    Pace,
    Pretrained,
    SearchConfig,
    SearchResult,
    SearchSteps,
    SubsetSums,
    made_of,
    typed,
)

RESULT, RUN, ROWS, TICKET = "result.json", "run.json", "results.jsonl", ".ticket"
CONFIG, METRICS = "config.json", "metrics.jsonl"  # of a search, finished or not
LARGEST_JSON = 64 * 2**20

T = TypeVar("T")


# A file may hold anything: fields missing, words for numbers, nothing where a list should be. Each of these is what
# some such file makes of correct code, and is reported with the file's name.
BROKEN = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    OSError,
    MemoryError,
    RecursionError,
    StrongTicketError,
)


@dataclass(frozen=True, slots=True)
class Result:
    """A figure's result file: its content, how it was made, and other files that hold the very same."""

    path: Path
    content: dict[str, Json]
    made: tuple[Made, ...] = ()
    seconds: float = 0.0
    copies: tuple[Path, ...] = ()

    @property
    def config(self) -> dict[str, Json]:
        """The settings of the figure; empty if the file has none."""
        config = self.content.get("config")
        return config if isinstance(config, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRun:
    """The folder of one `strongticket search`; a run without a result is not finished."""

    folder: Path
    config: SearchConfig
    metrics: list[Metric]
    result: SearchResult | None = None
    made: Made = field(default_factory=Made)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A file that holds a pretrained model beside its ticket."""

    path: Path
    content: Pretrained
    made: Made


class Timed(NamedTuple, Generic[T]):
    """A benchmark row, and where it was measured."""

    row: T
    made: Made


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """A file of benchmark rows; those of other commands are left aside."""

    path: Path
    sums: list[Timed[SubsetSums]]
    steps: list[Timed[SearchSteps]]


@dataclass(slots=True)
class Found:
    """Everything found, and what could not be read, with the reason."""

    results: list[Result] = field(default_factory=list)
    searches: list[SearchRun] = field(default_factory=list)
    comparisons: list[ComparedModel] = field(default_factory=list)
    benchmarks: list[Benchmarks] = field(default_factory=list)
    tickets: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def leave_out(self, path: object, error: object) -> None:
        """Note that something cannot be read."""
        self.left_out.append((str(path), f"cannot be read: {error}"))

    @contextmanager
    def naming(self, path: object) -> Iterator[None]:
        """Note a file as broken if what is done with its content fails."""
        try:
            yield
        except BROKEN as error:
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, StrongTicketError) else str(error)
            self.left_out.append((str(path), f"broken, or from a newer release ({reason:.200})"))


def find(paths: Iterable[Path]) -> Found:
    """Look through folders and single files; a broken one is named and passed over.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    found, seen = Found(), set[Path]()
    for given in paths:
        if not given.exists():
            raise FileNotFoundError(f"{given} does not exist; give folders with results or tickets.")
        before, ours = len(found.left_out), 0
        for path in _files(given, found):
            try:
                # Not Path.resolve, which raises another kind of error for a link to itself.
                file = Path(os.path.realpath(path, strict=True))
                if file in seen or _take(path, found):
                    seen.add(file)
                    ours += 1
            except (OSError, ValueError) as error:
                found.leave_out(path, error)
        if not ours and len(found.left_out) == before:
            found.left_out.append((str(given), "holds no result.json, results.jsonl, search run or .ticket file"))
    return found


def check_out(out: Path) -> None:
    """Refuse to write over a result, a pipe or a device."""
    if out.suffix in (TICKET, ".json", ".jsonl"):
        raise ValueError(
            f"{out} is the name of a result, not of a page; choose another --out, report.html for example."
        )
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is no regular file; choose another --out.")


def _files(path: Path, found: Found) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, onerror=lambda error: found.leave_out(error.filename, error.strerror)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(files) if _is_ours(name))


def _is_ours(name: str) -> bool:
    return name.endswith((TICKET, ".json")) or name in (ROWS, METRICS)


def _take(path: Path, found: Found) -> bool:
    """Note a file if it is one of ours."""
    if path.suffix == TICKET:
        _check_regular(path)
        found.tickets.append(path)
    elif path.name == ROWS:
        _take_rows(path, found)
    elif path.name == RESULT:
        _take_result(path, found)
    elif path.name == METRICS and not (path.parent / RESULT).is_file():
        return _take_unfinished(path, found)
    elif path.suffix == ".json" and path.name != RUN:
        return _take_comparison(path, found)
    else:
        return False
    return True


def _take_result(path: Path, found: Found) -> None:
    """Take a result; one that holds the very same as another is shown with it."""
    try:
        content = json.loads(_read(path))
        run = json.loads(_read(path.parent / RUN)) if (path.parent / RUN).exists() else None
        metrics = _metrics(path.parent / METRICS) if _is_search(content) else []
    except (ValueError, RecursionError, OSError) as error:
        found.leave_out(path, error)
        return
    if _is_search(content):
        _take_search(path.parent, content["config"], metrics, found, content, run)
        return
    content = content if isinstance(content, dict) else {}
    for place, first in enumerate(found.results):
        if content and first.content == content:
            found.results[place] = replace(first, copies=(*first.copies, path))
            return
    with found.naming(path):
        facts = run if isinstance(run, dict) else {}
        parts = facts.get("runs")
        made = tuple(map(made_of, (facts, *(parts if isinstance(parts, list) else ()))))
        found.results.append(Result(path, content, made, typed(Pace, facts).seconds or 0.0))


def _is_search(content: Json) -> bool:
    config = content.get("config") if isinstance(content, dict) else None
    return isinstance(config, dict) and {"mode", "size", "steps"} <= config.keys() and "curve" in content


def _take_unfinished(path: Path, found: Found) -> bool:
    """Take a search that is under way or was stopped: settings and metrics, and no result yet."""
    folder = path.parent
    if not (folder / CONFIG).exists():
        return False
    try:
        config, metrics = json.loads(_read(folder / CONFIG)), _metrics(path)
    except (ValueError, RecursionError, OSError) as error:
        found.leave_out(folder, error)
    else:
        _take_search(folder, config, metrics, found)
    return True


def _take_search(
    folder: Path, config: Json, metrics: Json, found: Found, result: Json | None = None, run: Json = None
) -> None:
    with found.naming(folder):
        found.searches.append(
            SearchRun(
                folder=folder,
                config=replace(typed(SearchConfig, config), settings=dict(_settings(config))),
                metrics=[typed(Metric, line) for line in metrics],
                result=typed(SearchResult, result) if result is not None else None,
                made=made_of(run),
                pace=typed(Pace, run if isinstance(run, dict) else {}),
            )
        )


def _settings(config: dict[str, Json]) -> Iterator[tuple[str, object]]:
    """Give all settings but the seed, those of the policy beside the others."""
    for name, value in config.items():
        if name == "policy" and isinstance(value, dict):
            yield from value.items()
        elif name != "seed":
            yield name, value


def _metrics(path: Path) -> list[Json]:
    """Read the lines of a run, but for the last one if it is only half written."""
    lines = _read(path).splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def _take_comparison(path: Path, found: Found) -> bool:
    """Take the file of a pretrained comparison, as `compare --json` prints it or with more about its ticket.

    Any other JSON file is somebody else's, and passed over.
    """
    try:
        content = json.loads(_read(path))
    except (ValueError, RecursionError, OSError):
        return False
    if not isinstance(content, dict) or "items" not in content:
        return False
    if "attention_maps" in content:
        content = {"what": content.get("what"), "items": content["items"], "compare": content}
    if "compare" not in content:
        return False
    with found.naming(path):
        found.comparisons.append(ComparedModel(path, typed(Pretrained, content), made_of(content.get("run"))))
    return True


def _take_rows(path: Path, found: Found) -> None:
    try:
        lines = _read(path).splitlines()
    except (ValueError, OSError) as error:
        found.leave_out(path, error)
        return
    rows = [row for line in lines if isinstance(row := _row(line), dict)]
    if len(rows) < len(lines):
        found.left_out.append((str(path), f"{len(lines) - len(rows)} of {len(lines)} lines are no JSON objects"))
    sums = [row for row in rows if row.get("op") == "subset_sum" and "engine" in row]
    steps = [row for row in rows if row.get("op") == "search"]
    with found.naming(path):
        found.benchmarks.append(Benchmarks(path, _timed(SubsetSums, sums), _timed(SearchSteps, steps)))


def _row(line: bytes) -> Json:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _timed(kind: type[T], rows: list[Json]) -> list[Timed[T]]:
    return [Timed(typed(kind, row), made_of(row)) for row in rows]


def _read(path: Path) -> bytes:
    _check_regular(path)
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(f"{size:,} bytes are more than the {LARGEST_JSON:,} a page can use")
    return path.read_bytes()


def _check_regular(path: Path) -> None:
    """Refuse pipes and the like, which may never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")
