"""Find what to show: result files, benchmark rows and tickets under the given folders."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from strongticket.errors import StrongTicketError
from strongticket.files import Json, unsealed
from strongticket.learn.config import RunConfig
from strongticket.report.records import (
    Decoding,
    Made,
    Metric,
    Pretrained,
    RuleRun,
    RuleStep,
    SearchConfig,
    SearchResult,
    SearchSteps,
    SubsetSums,
    Timed,
    typed,
)
from strongticket.settings import filled

RESULT, RUN, ROWS, TICKET = "result.json", "run.json", "results.jsonl", ".ticket"
CONFIG, METRICS = "config.json", "metrics.jsonl"  # of a search, finished or not
LARGEST_JSON = 64 * 2**20

# A file may hold anything: missing fields, words for numbers, null for a list. Correct code raises these errors on such
# files; they are reported with the file's name.
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, MemoryError, RecursionError)


class UnreadableError(StrongTicketError):
    """A file that is not regular, too large or not JSON."""


@dataclass(frozen=True, slots=True)
class Result:
    """A figure's result file: its content, how it was made, and identical copies."""

    path: Path
    content: dict[str, object]
    made: tuple[Made, ...] = (Made(),)  # the file as a whole, then each of its runs if recorded one by one
    copies: tuple[Path, ...] = ()

    @property
    def config(self) -> dict[str, object]:
        """The settings of the figure; empty if the file has none."""
        config = self.content.get("config")
        return config if isinstance(config, dict) else {}


class SearchRun(NamedTuple):
    """The folder of one `strongticket search` or `st.search`; a run without a result is not finished."""

    folder: Path
    config: SearchConfig
    metrics: list[Metric]
    result: SearchResult | None
    made: Made


class ComparedModel(NamedTuple):
    """A file that compares a pretrained model with its ticket."""

    path: Path
    content: Pretrained
    made: Made


class Benchmarks(NamedTuple):
    """A file of benchmark rows; rows of other commands are ignored."""

    path: Path
    sums: list[Timed[SubsetSums]]
    steps: list[Timed[SearchSteps]]
    rules: list[Timed[RuleRun]]
    rule_steps: list[Timed[RuleStep]]
    decoding: list[Timed[Decoding]]


@dataclass(slots=True)
class Found:
    """Everything found, and the files that could not be read, with the reasons."""

    results: list[Result] = field(default_factory=list)
    searches: list[SearchRun] = field(default_factory=list)
    comparisons: list[ComparedModel] = field(default_factory=list)
    benchmarks: list[Benchmarks] = field(default_factory=list)
    tickets: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def leave_out(self, path: object, reason: str) -> None:
        """Note that something is not shown."""
        self.left_out.append((str(path), reason))

    @contextmanager
    def naming(self, path: object) -> Iterator[None]:
        """Note a file as broken if the block fails."""
        try:
            yield
        except UnreadableError as error:
            self.leave_out(path, f"cannot be read: {error}")
        except (*BROKEN, StrongTicketError) as error:
            reason = f"{type(error).__name__}: {error}" if isinstance(error, BROKEN) else str(error)
            self.leave_out(path, f"broken, or from a newer release ({reason:.200})")


def find(paths: Iterable[Path]) -> Found:
    """Search folders and single files; a broken file is named and skipped.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    found, seen = Found(), set[Path]()
    for given in paths:
        if not given.exists():
            raise FileNotFoundError(f"{given} does not exist; give folders with results or tickets.")
        before, ours = len(found.left_out), 0
        for path in _files(given, found):
            with found.naming(path):
                if (file := _place(path)) in seen or _take(path, found):
                    seen.add(file)
                    ours += 1
        if not ours and len(found.left_out) == before:
            found.leave_out(given, "holds no result.json, results.jsonl, search run or .ticket file")
    return found


def _place(path: Path) -> Path:
    """Follow links; unlike Path.resolve, always raise OSError for a link to itself."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except OSError as error:
        raise UnreadableError(error) from None


def check_out(out: Path) -> None:
    """Refuse to write over a result, a pipe or a device."""
    if out.suffix in (TICKET, ".json", ".jsonl"):
        raise ValueError(f"{out} is the name of a result, not of a page; choose another --out, such as report.html.")
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is not a regular file; choose another --out.")


def _files(path: Path, found: Found) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return

    def name(error: OSError) -> None:
        found.leave_out(error.filename, f"cannot be read: {error.strerror}")

    for folder, folders, files in os.walk(path, onerror=name):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        ours = (each for each in sorted(files) if each.endswith((TICKET, ".json")) or each in (ROWS, METRICS))
        yield from (Path(folder) / each for each in ours)


def _take(path: Path, found: Found) -> bool:
    """Note a file if it is one of ours."""
    if path.suffix == TICKET:
        _check_regular(path)
        found.tickets.append(path)
    elif path.name == ROWS:
        _take_rows(path, found)
    elif path.name == RESULT:
        _take_result(path, found)
    elif path.name == METRICS and not (path.parent / RESULT).is_file() and (path.parent / CONFIG).exists():
        # A search that is running or was stopped: settings and metrics, but no result yet.
        with found.naming(path.parent):
            found.searches.append(_search(path.parent, _json(path.parent / CONFIG), None, Made()))
    elif path.suffix == ".json" and path.name != RUN:
        return _take_comparison(path, found)
    else:
        return False
    return True


def _take_result(path: Path, found: Found) -> None:
    """Take a result; an identical copy of another is shown with it."""
    content, run = _json(path), _json(path.parent / RUN) if (path.parent / RUN).exists() else None
    content, run = (each if isinstance(each, dict) else {} for each in (content, run))
    config = content.get("config")
    if isinstance(config, dict) and "curve" in content and ("module" in config or {"mode", "size"} <= config.keys()):
        with found.naming(path.parent):
            result, made = typed(SearchResult, content), typed(Made, run)
            found.searches.append(_search(path.parent, config, result, made))
        return
    for place, first in enumerate(found.results):
        if content and first.content == content:
            found.results[place] = replace(first, copies=(*first.copies, path))
            return
    runs = run.get("runs")  # only a count in figures on text
    made_by = tuple(typed(Made, how) for how in (run, *(runs if isinstance(runs, list) else ())))
    found.results.append(Result(path, content, made_by))


def _search(folder: Path, config: Json, result: SearchResult | None, made: Made) -> SearchRun:
    config = _in_module(config) if "module" in config else filled(config, RunConfig)
    settings = {**config, **config.get("policy", {})}
    for name in ("policy", "seed", "module", "tensors"):
        settings.pop(name, None)
    metrics = folder / METRICS
    # A running search may have written only half of the last line.
    lines = [line for line in (_lines(metrics) if metrics.exists() else []) if line.endswith(b"\n")]
    steps = [typed(Metric, _parse(line)) for line in lines]
    return SearchRun(folder, typed(SearchConfig, config)._replace(settings=settings), steps, result, made)


def _in_module(config: dict[str, Json]) -> dict[str, Json]:
    """Write the settings of a search in the caller's module like those of one on text; its rule may be an object."""
    name, *settings = config["rule"].items()
    rule = name[1] + ":" * bool(settings) + ",".join(f"{key}={value}" for key, value in settings)
    policy = {key: value for key, value in config["policy"].items() if key != "rule"}
    return {**config, "mode": "search", "size": config["module"].rpartition(".")[2], "rule": rule, "policy": policy}


def _take_comparison(path: Path, found: Found) -> bool:
    """Take the file of a pretrained comparison, as `compare --json` prints it or with more about its ticket.

    Any other JSON file is not ours, and is skipped.
    """
    try:
        content = _json(path)
    except UnreadableError:
        return False
    if isinstance(content, dict) and {"items", "attention_maps"} <= content.keys():
        content = {"what": content.get("what"), "items": content["items"], "compare": content}
    if not isinstance(content, dict) or not {"items", "compare"} <= content.keys():
        return False
    run = content.get("run")
    made = typed(Made, run) if isinstance(run, dict) else Made()
    found.comparisons.append(ComparedModel(path, typed(Pretrained, content), made))
    return True


_KINDS: tuple[tuple[str, Any], ...] = (
    ("subset_sum", SubsetSums),
    ("search", SearchSteps),
    ("rules", RuleRun),
    ("rule-step", RuleStep),
    ("decode", Decoding),
)


def _take_rows(path: Path, found: Found) -> None:
    lines, rows = _lines(path), list[dict[str, object]]()
    for line in lines:
        with suppress(UnreadableError):
            rows += [row] if isinstance(row := _parse(line), dict) else []
    if len(rows) < len(lines):
        found.leave_out(path, f"{len(lines) - len(rows)} of {len(lines)} lines are not JSON objects")
    rows = [row for row in rows if row.get("op") != "subset_sum" or "engine" in row]
    parts = ([Timed(typed(kind, row), typed(Made, row)) for row in rows if row.get("op") == op] for op, kind in _KINDS)
    found.benchmarks.append(Benchmarks(path, *parts))


def _json(path: Path) -> Json:
    return _parse(_read(path))


def _lines(path: Path) -> list[bytes]:
    return _read(path).splitlines(keepends=True)


def _parse(text: bytes) -> Json:
    try:
        return unsealed(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(error) from None


def _read(path: Path) -> bytes:
    _check_regular(path)
    try:
        if (size := path.stat().st_size) > LARGEST_JSON:
            raise UnreadableError(f"{size:,} bytes are more than the {LARGEST_JSON:,} a page can use")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(error) from None


def _check_regular(path: Path) -> None:
    """Refuse pipes and devices, which may never end."""
    if path.exists() and not path.is_file():
        raise UnreadableError("it is not a regular file")
