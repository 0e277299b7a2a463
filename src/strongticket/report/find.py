"""What there is to show: result files, benchmark rows and tickets under the folders a user names."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from strongticket.files import Json
from strongticket.learn.config import RunConfig
from strongticket.settings import filled

RESULT, RUN, ROWS, TICKET = "result.json", "run.json", "results.jsonl", ".ticket"
CONFIG, METRICS = "config.json", "metrics.jsonl"  # of a search, finished or not
LARGEST_JSON = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Result:
    """A result file: its content, how it was made, and other files that hold the very same."""

    path: Path
    content: Json
    run: Json
    copies: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchRun:
    """The folder of one `strongticket search`; a run without a result is not finished."""

    folder: Path
    config: Json
    metrics: list[Json]
    result: Json | None
    run: Json | None


@dataclass(slots=True)
class Found:
    """Everything found, and what could not be read, with the reason."""

    results: list[Result] = field(default_factory=list)
    searches: list[SearchRun] = field(default_factory=list)
    comparisons: list[Result] = field(default_factory=list)  # of pretrained models with their tickets
    rows: list[tuple[Path, list[Json]]] = field(default_factory=list)
    tickets: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def leave_out(self, path: object, error: object) -> None:
        """Note that something cannot be shown."""
        self.left_out.append((str(path), f"cannot be read: {error}"))


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
        run = _run_of(path.parent)
        if _is_search(content):
            metrics = _metrics(path.parent / METRICS)
            found.searches.append(SearchRun(path.parent, filled(content["config"], RunConfig), metrics, content, run))
            return
    except (ValueError, RecursionError, OSError, KeyError, TypeError) as error:
        found.leave_out(path, error)
        return
    for place, first in enumerate(found.results):
        if first.content == content:
            found.results[place] = replace(first, copies=(*first.copies, path))
            return
    found.results.append(Result(path, content, run))


def _is_search(content: Json) -> bool:
    config = content.get("config") if isinstance(content, dict) else None
    return isinstance(config, dict) and {"mode", "size", "steps"} <= config.keys() and "curve" in content


def _take_unfinished(path: Path, found: Found) -> bool:
    """Take a search that is under way or was stopped: settings and metrics, and no result yet."""
    folder = path.parent
    if not (folder / CONFIG).exists():
        return False
    try:
        config = json.loads(_read(folder / CONFIG))
        found.searches.append(SearchRun(folder, filled(config, RunConfig), _metrics(path), None, None))
    except (ValueError, RecursionError, OSError) as error:
        found.leave_out(folder, error)
    return True


def _metrics(path: Path) -> list[Json]:
    """Read the lines of a run, but for the last one if it is only half written."""
    lines = _read(path).splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def _run_of(folder: Path) -> Json:
    """Read how a result was made."""
    return json.loads(_read(folder / RUN)) if (folder / RUN).exists() else None


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
    found.comparisons.append(Result(path, content, content.get("run")))
    return True


def _take_rows(path: Path, found: Found) -> None:
    try:
        lines = _read(path).splitlines()
    except (ValueError, OSError) as error:
        found.leave_out(path, error)
        return
    rows, broken = [], 0
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            broken += 1
    if broken:
        found.left_out.append((str(path), f"{broken} of {len(lines)} lines are no JSON objects"))
    found.rows.append((path, rows))


def _read(path: Path) -> bytes:
    _check_regular(path)
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(f"{size:,} bytes are more than the {LARGEST_JSON:,} a page can use")
    return path.read_bytes()


def _check_regular(path: Path) -> None:
    """Refuse pipes and the like, which may never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")
