"""A figure's folder: what is finished, what was begun, and a refusal to mix two configurations.

result.json    configuration and numbers; the same bytes however the work was split
run.json       command, machine, date and seconds of the run that finished it
partial.jsonl  while work is under way: the configuration, the targets, then one line for each finished task
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from strongticket.container import Json, atomic_write
from strongticket.errors import StrongTicketError

RESULT, RUN, PARTIAL = "result.json", "run.json", "partial.jsonl"


class ResultFolder:
    """The folder of one figure under one configuration.

    Args:
        path: made when work begins.
        config: everything the numbers depend on, as JSON.
    """

    def __init__(self, path: Path, config: Json) -> None:
        self.path, self.config = path, config

    def finished(self) -> Json | None:
        """Read the result if there is one; that of another configuration is refused."""
        result = _read_json(self.path / RESULT)
        if result is not None:
            self._check(result.get("config") if isinstance(result, dict) else None)
        return result

    @contextmanager
    def partial(self) -> Iterator["Partial"]:
        """Open the work done so far, keep more of it, and leave it on disk if the block is left by an error."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / PARTIAL, "a+b", buffering=0) as file:
            _lock(file, self.path)
            yield Partial(file, self.config, self._check)

    def finish(self, result: Json, run: Json) -> None:
        """Write both files, the result last: while it is missing, the work counts as unfinished."""
        _write_json(self.path / RUN, run)
        _write_json(self.path / RESULT, result)
        (self.path / PARTIAL).unlink(missing_ok=True)

    def _check(self, config: Json) -> None:
        if config == self.config:
            return
        raise StrongTicketError(
            f"{self.path} holds the result of another configuration ({_difference(config, self.config)}). "
            "Choose another --out, or move that folder away."
        )


class Partial:
    """Finished tasks, kept line by line; a line cut short by a crash is dropped when it is opened again."""

    def __init__(self, file: IO[bytes], config: Json, check: Callable[[Json], None]) -> None:
        self._file = file
        self.targets: list[Json] | None = None
        self.rows: dict[str, Json] = {}
        whole = self._read(check)
        file.truncate(whole)
        if not whole:
            self._append({"config": config})

    def keep_targets(self, targets: list[Json]) -> None:
        """Keep the targets, which may have taken training."""
        self.targets = targets
        self._append({"targets": targets})

    def keep(self, task: str, rows: Json) -> None:
        """Keep what the task of this name gave."""
        self.rows[task] = rows
        self._append({"task": task, "rows": rows})

    def _read(self, check: Callable[[Json], None]) -> int:
        """Read the whole lines and give the number of bytes they take."""
        self._file.seek(0)
        whole = 0
        for line in self._file.read().splitlines(keepends=True):
            entry = _parse(line)
            if entry is None:
                break
            if "config" in entry:
                check(entry["config"])
            elif "targets" in entry:
                self.targets = entry["targets"]
            else:
                self.rows[entry["task"]] = entry["rows"]
            whole += len(line)
        return whole

    def _append(self, entry: Json) -> None:
        self._file.write(json.dumps(entry, allow_nan=False).encode() + b"\n")
        os.fsync(self._file.fileno())


def as_json(value: object) -> Json:
    """Give a value as it looks after a trip through a file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(value, allow_nan=False))


def _parse(line: bytes) -> Json | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read_json(path: Path) -> Json | None:
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise StrongTicketError(f"{path} is not JSON ({error}); move it away and run again.") from None


def _write_json(path: Path, content: Json) -> None:
    with atomic_write(path) as file:
        file.write(_dump(content).encode())


def _dump(content: Json) -> str:
    """Write JSON for people: one line for each list of numbers, indents for the rest."""
    return _lines(content, "") + "\n"


def _lines(value: Json, indent: str) -> str:
    deeper = indent + " "
    if isinstance(value, dict) and value:
        fields = (f"{deeper}{json.dumps(key)}: {_lines(part, deeper)}" for key, part in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return "[\n" + ",\n".join(deeper + _lines(part, deeper) for part in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


def _difference(theirs: Json, ours: Json, path: str = "") -> str:
    """Name the first setting in which two configurations differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                return _difference(theirs.get(key), ours.get(key), f"{path}{'.' if path else ''}{key}")
    return f"{path or 'config'}: {json.dumps(theirs)} there, {json.dumps(ours)} here"


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep a second run out of the folder; the lock goes when the process does, however it ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows has none, and runs there without this protection
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StrongTicketError(f"{path}: another run is working in this folder.") from None
