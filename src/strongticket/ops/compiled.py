"""How numba compiles hot functions, once for a machine: what it compiled is kept in its cache."""

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.serialize import dumps

from strongticket.files import atomic_write

Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Any = numba.njit  # whose types leave out some options
_DIGEST_BYTES = hashlib.sha256().digest_size


def kernel(function: Function, **options: Any) -> Function:
    """Compile a function that Python calls; it holds no lock."""
    return _compile(function, nogil=True, **options)


def part(function: Function, **options: Any) -> Function:
    """Compile a function that compiled ones alone call: without the wrappers for others, in much less time."""
    return _compile(function, no_cpython_wrapper=True, **options)


def part_without_nan(function: Function) -> Function:
    """Compile a part where no number is NaN and a zero's sign does not matter, so that LLVM finds minima by vectors."""
    return part(function, fastmath={"nnan", "nsz"})


def _compile(function: Function, **options: Any) -> Function:
    compiled = _njit(function, cache=True, no_cfunc_wrapper=True, **options)
    if compiled is function:  # NUMBA_DISABLE_JIT
        return function
    kept = compiled._cache
    kept._cache_file = _Kept(kept)
    # A full disk costs a compilation in every process, but is not an error.
    kept._guard_against_spurious_io_errors = partial(suppress, OSError)
    result: Function = compiled
    return result


class _Kept:
    """A function's compiled code on disk; numba's own files would run whatever a damaged disk made of them.

    Each file starts with a SHA-256 of the code and of all it depends on: numba compiles anew if the function's own file
    has changed, but not if that of a part has that it calls.
    """

    def __init__(self, numbas: Any) -> None:
        self._folder, self._name = Path(numbas.cache_path), numbas._impl.filename_base
        self._made_from = numba.__version__, numbas._impl.locator.get_source_stamp(), _stamp_of_parts()

    def load(self, key: tuple[object, ...]) -> Any:
        """Return what was kept, or None if it must be compiled."""
        content = self._path(key).read_bytes()
        digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return pickle.loads(code) if digest == self._digest(key, code) else None

    def save(self, key: tuple[object, ...], data: object) -> None:
        """Keep the code."""
        code: bytes = dumps(data)  # type: ignore[no-untyped-call]
        with atomic_write(self._path(key), durable=False) as file:
            file.write(self._digest(key, code) + code)

    def _path(self, key: tuple[object, ...]) -> Path:
        types_and_machine = hashlib.sha256(repr(key[:2]).encode()).hexdigest()
        return self._folder / f"{self._name}.{types_and_machine[:16]}.nbc"

    def _digest(self, key: tuple[object, ...], code: bytes) -> bytes:
        return hashlib.sha256(repr((key, self._made_from)).encode() + b"\0" + code).digest()


@cache
def _stamp_of_parts() -> tuple[tuple[str, int, int], ...]:
    """Return name, time and size of every file that may hold parts."""
    files = sorted(Path(__file__).parent.rglob("[!_]*.py"))
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
