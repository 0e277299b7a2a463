"""A figure's folder: finished and partial results, never of two configurations.

result.json    configuration and numbers; the same bytes however the work is split
run.json       command, machine, date and seconds of the run that finished it
partial.jsonl  until then: the configuration, the targets, then one line per finished task
"""

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from strongticket.errors import StrongTicketError
from strongticket.files import Json, append_line, lock, read_json, regular, sealed, unsealed, write_json
from strongticket.settings import other_settings

RESULT, RUN, PARTIAL = "result.json", "run.json", "partial.jsonl"


class ResultFolder:
    """The folder of one figure with one configuration: everything the numbers depend on.

    The configuration's dataclass, `kind`, fills in fields that older files lack.
    """

    def __init__(self, path: Path, config: object, kind: type[Any]) -> None:
        self.path, self.config, self.kind = path, config, kind

    def finished(self) -> Json | None:
        """Read the result if there is one; refuse that of another configuration."""
        result = read_json(self.path / RESULT)
        if result is not None:
            self._check(result.get("config") if isinstance(result, dict) else None)
        return result

    @contextmanager
    def partial(self, warn: Callable[[str], object] = warnings.warn) -> Iterator["Partial"]:
        """Open the finished tasks and add to them; they stay on disk if the block fails.

        Args:
            warn: called with a message if lines are damaged.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(regular(self.path / PARTIAL), "a+b", buffering=0) as file:
            lock(file, self.path)
            kept = Partial(file, self.config, self._check, warn)
            # What it holds may be from another release, and every use of it may fail.
            with naming(self.path / PARTIAL) if kept.targets or kept.rows else nullcontext():
                yield kept

    def finish(self, result: Mapping[str, object], run: Mapping[str, object]) -> None:
        """Write both files, the result last: while it is missing, the work counts as unfinished."""
        write_json(self.path / RUN, run)
        write_json(self.path / RESULT, sealed(result))
        (self.path / PARTIAL).unlink(missing_ok=True)

    def _check(self, config: object) -> None:
        if first := other_settings(config, self.config, self.kind):
            raise StrongTicketError(
                f"{self.path} holds the result of another configuration ({first}). "
                "Choose another --out, or move that folder away."
            )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in the error if its content cannot be understood."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StrongTicketError(
            f"{path} is broken, or from another release ({type(error).__name__}: {error}); move it away and run again."
        ) from error


class Partial:
    """Finished tasks, kept line by line, each with a SHA-256.

    When the file is opened again, a line cut short by a crash is dropped, and a damaged line is not used.
    """

    def __init__(
        self, file: IO[bytes], config: object, check: Callable[[object], None], warn: Callable[[str], object]
    ) -> None:
        self._file = file
        self.targets: Sequence[Json] | None = None
        self.rows: dict[str, Json] = {}
        file.seek(0)
        *lines, _ = file.read().split(b"\n")
        file.truncate(sum(len(line) + 1 for line in lines))
        if not lines:
            self._append({"config": config})
            return
        match _parse(lines[0]):
            case {"config": theirs}:
                check(theirs)
            case _:  # then the configuration of the other lines is unknown
                raise StrongTicketError(f"{file.name} is damaged in its first line; move it away and run again.")
        damaged = 0
        for line in lines[1:]:
            match _parse(line):
                case {"targets": list(targets)}:
                    self.targets = targets
                case {"task": str(task), "rows": rows}:
                    self.rows[task] = rows
                case _:
                    damaged += 1
        if damaged:
            warn(f"{file.name}: {damaged} of {len(lines)} lines are damaged; their work is done again.")

    def keep_targets(self, targets: Sequence[object]) -> None:
        """Keep the targets, whose training may have taken long."""
        self.targets = targets
        self._append({"targets": targets})

    def keep(self, task: str, rows: object) -> None:
        """Keep the rows of a task."""
        self.rows[task] = rows
        self._append({"task": task, "rows": rows})

    def _append(self, entry: Mapping[str, object]) -> None:
        append_line(self._file, sealed(entry))
        os.fsync(self._file.fileno())


def _parse(line: bytes) -> Json | None:
    """Read a line and check its SHA-256; None if it is damaged."""
    try:
        read = json.loads(line)
        return rest if (rest := unsealed(read)) != read else None
    except (ValueError, RecursionError):
        return None
