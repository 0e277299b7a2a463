"""What there is to show: result files, benchmark rows and tickets under the folders a user names."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from strongticket.container import Json

RESULT, RUN, ROWS, TICKET = "result.json", "run.json", "results.jsonl", ".ticket"
RUNS = "rows.jsonl"  # of figures on text: one line for each run
LARGEST_JSON = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Result:
    """A result file: its content, how it was made, and other files that hold the very same."""

    path: Path
    content: Json
    run: Json
    copies: tuple[Path, ...] = ()


@dataclass(slots=True)
class Found:
    """Everything found, and what could not be read, with the reason."""

    results: list[Result] = field(default_factory=list)
    comparisons: list[Result] = field(default_factory=list)  # of pretrained models with their tickets
    rows: list[tuple[Path, list[Json]]] = field(default_factory=list)
    tickets: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def find(paths: Iterable[Path]) -> Found:
    """Look through folders and single files; a broken one is named and passed over.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    found, seen = Found(), set[Path]()
    for given in paths:
        if not given.exists():
            raise FileNotFoundError(f"{given} does not exist; give folders with results or tickets.")
        before = len(seen) + len(found.left_out)
        for path in _files(given):
            if path.resolve() not in seen and _take(path, found):
                seen.add(path.resolve())
        if len(seen) + len(found.left_out) == before:
            found.left_out.append((str(given), "holds no result.json, results.jsonl or .ticket file"))
    return found


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(files))


def _take(path: Path, found: Found) -> bool:
    """Note a file if it is one of ours."""
    if path.suffix == TICKET:
        found.tickets.append(path)
    elif path.name == ROWS:
        _take_rows(path, found)
    elif path.name == RESULT:
        _take_result(path, found)
    elif path.suffix == ".json" and path.name != RUN:
        return _take_comparison(path, found)
    else:
        return False
    return True


def _take_result(path: Path, found: Found) -> None:
    """Take a result; of several with the same settings the first is shown, and what the others hold is said."""
    try:
        data = _read(path)
        content = json.loads(data)
        run = _run_of(path.parent)
    except (ValueError, RecursionError, OSError, KeyError, TypeError) as error:
        found.left_out.append((str(path), f"cannot be read: {error}"))
        return
    for place, first in enumerate(found.results):
        if first.content == content:
            found.results[place] = replace(first, copies=(*first.copies, path))
            return
        if _settings(first.content) is not None and _settings(first.content) == _settings(content):
            reason = f"has the settings of {first.path}, which is shown, and other numbers"
            found.left_out.append((str(path), reason))
            return
    found.results.append(Result(path, content, run))


def _settings(content: Json) -> Json:
    return content.get("config") if isinstance(content, dict) else None


def _run_of(folder: Path) -> Json:
    """Read how a result was made; a figure of many runs has that in its rows, of which the last ones count."""
    if (folder / RUN).exists():
        return json.loads(_read(folder / RUN))
    if not (folder / RUNS).exists():
        return None
    runs = [json.loads(line)["run"] for line in _read(folder / RUNS).splitlines()]
    return {**runs[-1], "seconds": sum(run["seconds"] for run in runs)} if runs else None


def _take_comparison(path: Path, found: Found) -> bool:
    """Take the file of a pretrained comparison; any other JSON file is somebody else's, and passed over."""
    try:
        content = json.loads(_read(path))
    except (ValueError, RecursionError, OSError):
        return False
    if not isinstance(content, dict) or "compare" not in content or "items" not in content:
        return False
    found.comparisons.append(Result(path, content, content.get("run")))
    return True


def _take_rows(path: Path, found: Found) -> None:
    try:
        lines = _read(path).splitlines()
    except (ValueError, OSError) as error:
        found.left_out.append((str(path), f"cannot be read: {error}"))
        return
    rows, broken = [], 0
    for line in lines:
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            broken += 1
    if broken:
        found.left_out.append((str(path), f"{broken} of {len(lines)} lines are not JSON"))
    found.rows.append((path, rows))


def _read(path: Path) -> bytes:
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(f"{size:,} bytes are more than the {LARGEST_JSON:,} a page can use")
    return path.read_bytes()
