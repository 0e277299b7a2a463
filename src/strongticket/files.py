"""Files that are written completely or not at all, JSON for people and for hashes, and one run per folder."""

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, BinaryIO

from strongticket.errors import StrongTicketError

try:
    import fcntl
except ModuleNotFoundError:  # Windows has no such locks: there, two processes should not share a folder
    fcntl = None  # type: ignore[assignment]

_PART = ".strongticket-{}.part"
_SEAL = "sha256"  # the field of an object that holds the digest of the other fields
# What a parsed file holds, before its reader gives it a type; a value that is only written is an `object`.
Json = Any


@contextmanager
def atomic_write(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` only if the `with` block succeeds; otherwise nothing is left behind.

    A killed process leaves a partial file, which is removed the next time the folder is written to. `durable=False`
    does not wait for the disk: after a power cut the file may exist but be damaged.

    A pipe or device is refused: replacing it would remove it for every program, which root may do to /dev/null.
    """
    place = regular(Path(os.path.realpath(path)))  # a link keeps pointing to the file
    sweep(place.parent)
    with named(path), _locked_part(place) as part:
        with open(part, "r+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, place)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Make the system's errors name this file: for a full disk they name none, for a missing folder a partial file."""
    try:
        yield
    except OSError as error:
        if error.filename is None or is_part(Path(error.filename).name):
            error.filename = str(path)
        raise


def regular(path: Path) -> Path:
    """Return the path of a file, unless something else is there: opening a pipe would wait forever."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def append_line(file: IO[bytes], content: object) -> None:
    """Append a whole line of JSON to an unbuffered file: a full disk may silently write only part of it."""
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    with named(Path(file.name)):
        while line:
            line = line[file.write(line) :]


def discard(folder: Path) -> None:
    """Remove a folder atomically, by renaming it first; what a killed process leaves goes with the next `sweep`."""
    part = _part_beside(folder)
    with suppress(FileNotFoundError):
        os.rename(folder, part)
    sweep(folder.parent)


def sweep(folder: Path) -> None:
    """Remove what killed processes left of `atomic_write` and `discard`; partial files still in use are locked."""
    for part in folder.glob(_PART.format("*")):
        if part.is_symlink():  # discarded: what it points to is not ours
            with suppress(OSError):
                part.unlink()
        elif part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        elif fcntl is not None:
            # Skip a file that was completed meanwhile, is another user's, or is on a disk without locks.
            with suppress(OSError), open(part, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


@contextmanager
def _locked_part(place: Path) -> Iterator[Path]:
    """Make a partial file next to a file, and remove it if the block fails; its lock protects it from `sweep`."""
    while True:
        part = _part_beside(place)
        with open(part, "xb") as holder:
            if fcntl is None:
                holder.close()  # Windows cannot rename an open file
            else:
                with suppress(OSError):  # a disk without locks: `sweep` cannot lock there either
                    fcntl.flock(holder, fcntl.LOCK_EX)
            if not part.exists():  # swept before it was locked
                continue
            try:
                yield part
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            return


def is_part(name: str) -> bool:
    """Return whether `atomic_write` or `discard` gave this name."""
    return fnmatch(name, _PART.format("*"))


def _part_beside(place: Path) -> Path:
    return place.with_name(_PART.format(secrets.token_hex(6)))  # short, even if the name is long


def canonical_json(value: object) -> str:
    """Write JSON the one way we accept: sorted keys, no spaces, UTF-8, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_canonical_json(text: str) -> Json:
    """Read JSON that `canonical_json` could have written; otherwise raise a ValueError that says what is wrong.

    Writing the value again and comparing rules out repeated keys, NaN, odd numbers and spacing all at once.
    """
    try:
        value = json.loads(text)
        if canonical_json(value) != text:
            raise ValueError("JSON is not in canonical form (sorted, unrepeated keys; no spaces; plain finite numbers)")
        text.encode()
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("JSON contains half a surrogate pair") from None
    return value


def sealed(content: Mapping[str, object]) -> dict[str, object]:
    """Add the SHA-256 of an object to it, so that `unsealed` detects damage."""
    return {**content, _SEAL: hashlib.sha256(canonical_json(content).encode()).hexdigest()}


def unsealed(content: object) -> Json:
    """Remove the SHA-256, or raise a ValueError if it does not fit the rest; an object without one is unchanged."""
    if not isinstance(content, dict) or _SEAL not in content:
        return content
    rest = {key: value for key, value in content.items() if key != _SEAL}
    if sealed(rest) != content:
        raise ValueError("its SHA-256 does not match: it was changed or damaged")
    return rest


def as_json(value: object) -> Json:
    """Return a value as it would be read back from a file: tuples become lists, keys become strings."""
    return json.loads(json.dumps(value, allow_nan=False))


def read_json(path: Path) -> Json | None:
    """Read a file, or return None if it does not exist."""
    if not path.exists():
        return None
    try:
        content = unsealed(json.loads(regular(path).read_bytes()))
        if content is None:
            raise ValueError("it holds nothing")
        return content
    except (ValueError, RecursionError) as error:
        raise StrongTicketError(f"{path} is damaged or not JSON ({error}); move it away and run again.") from None


def write_json(path: Path, content: object) -> None:
    """Write a readable file: one line per list of numbers, indentation for the rest."""
    with atomic_write(path) as file:
        file.write((_lines(content, "") + "\n").encode())


_LONGEST = 120  # characters of a value that is shown in full


def difference(theirs: object, ours: object, path: str = "") -> str:
    """Name the first setting in which two configurations differ.

    Example:
        >>> difference({"seed": 0, "policy": {"density": 0.3}}, {"seed": 0, "policy": {"density": 0.5}})
        'policy.density: 0.3 there, 0.5 here'
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        # A name says more than any other setting.
        for key in sorted(theirs.keys() | ours.keys(), key=lambda key: (key != "name", key)):
            if theirs.get(key) != ours.get(key):
                return difference(theirs.get(key), ours.get(key), f"{path}{'.' if path else ''}{key}")
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for place, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            if their != our:
                return difference(their, our, f"{path}[{place}]")
    texts = map(json.dumps, (theirs, ours))
    there, here = (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in texts)
    return f"{path or 'config'}: {there} there, {here} here"


class BusyError(StrongTicketError):
    """Another process is using a folder."""


def lock(file: IO[bytes], folder: Path) -> None:
    """Keep a second run out of a folder; the lock is released when the process ends, however it ends."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{folder}: another run is working in this folder.") from None
    if not _is_at(file.fileno(), Path(file.name)):
        raise BusyError(f"{folder}: another run in this folder has just ended; run this one again.")


@contextmanager
def lock_file(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Let one process at a time hold a lock file, which exists meanwhile; the others wait, or get a `BusyError`."""
    if fcntl is None:
        yield
        return
    while True:
        with open(regular(path), "ab") as file:
            if not waits:
                lock(file, path)
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file.fileno(), path):  # removed by the process we waited for
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _lines(value: object, indent: str) -> str:
    deeper = indent + " "
    if isinstance(value, dict) and value:
        fields = (f"{deeper}{json.dumps(key)}: {_lines(part, deeper)}" for key, part in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return "[\n" + ",\n".join(deeper + _lines(part, deeper) for part in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
