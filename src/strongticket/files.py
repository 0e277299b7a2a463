"""Files that are written whole or not at all, JSON for people and for hashes, and one run a folder."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from strongticket.errors import StrongTicketError

# A JSON value as Python's json module reads and writes it.
Json = Any


@contextmanager
def atomic_write(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes `path`'s place only when the block ends well; otherwise nothing is left behind.

    `durable=False` does not wait for the disk: after a power cut the file may be there and damaged.
    """
    place = Path(os.path.realpath(path))  # a link goes on leading to the file
    temporary = place.with_name(f".{secrets.token_hex(6)}.part")  # short, whatever the length of the name
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # A full disk names no file at all, and a missing folder one that nobody asked for.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def canonical_json(value: Json) -> str:
    """Write JSON the one way we accept: sorted keys, no spaces, UTF-8, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_canonical_json(text: str) -> Json:
    """Read JSON that `canonical_json` could have written; a ValueError says what is wrong with any other.

    Writing the value again and comparing rules out repeated keys, NaN, odd numbers and spacing in one stroke.
    """
    try:
        value = json.loads(text)
        if canonical_json(value) != text:
            raise ValueError("JSON is not in canonical form (sorted, unrepeated keys; no spaces; plain finite numbers)")
        text.encode()
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("JSON holds half a surrogate pair") from None
    return value


def as_json(value: object) -> Json:
    """Give a value as it looks after a trip through a file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(value, allow_nan=False))


def read_json(path: Path) -> Json | None:
    """Read a file, or give None if it does not exist."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StrongTicketError(f"{path} is not JSON ({error}); move it away and run again.") from None


def write_json(path: Path, content: Json) -> None:
    """Write a file for people: one line for each list of numbers, indents for the rest."""
    with atomic_write(path) as file:
        file.write((_lines(content, "") + "\n").encode())


def difference(theirs: Json, ours: Json, path: str = "") -> str:
    """Name the first setting in which two configurations differ.

    Example:
        >>> difference({"seed": 0, "policy": {"density": 0.3}}, {"seed": 0, "policy": {"density": 0.5}})
        'policy.density: 0.3 there, 0.5 here'
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                return difference(theirs.get(key), ours.get(key), f"{path}{'.' if path else ''}{key}")
    return f"{path or 'config'}: {json.dumps(theirs)} there, {json.dumps(ours)} here"


def lock(file: IO[bytes], folder: Path) -> None:
    """Keep a second run out of a folder; the lock goes when the process does, however it ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows has none, and runs there without this protection
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StrongTicketError(f"{folder}: another run is working in this folder.") from None


@contextmanager
def waiting_lock(place: Path) -> Iterator[None]:
    """Let one process at a time change what is in a folder, or what a file stands for; the others wait."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows has none, and two processes there should not share a folder
        yield
        return
    descriptor = os.open(place, os.O_RDONLY)  # a folder itself: no file is left behind
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lines(value: Json, indent: str) -> str:
    deeper = indent + " "
    if isinstance(value, dict) and value:
        fields = (f"{deeper}{json.dumps(key)}: {_lines(part, deeper)}" for key, part in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return "[\n" + ",\n".join(deeper + _lines(part, deeper) for part in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
