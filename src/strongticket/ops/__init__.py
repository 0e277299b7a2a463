"""The hot operations: each has a reference that defines it, and kernels that agree with it."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_held_for_fork: list[Any] = []


def find_place_for_kernels() -> None:
    """Give numba a temporary folder for compiled kernels, where it would find none.

    Without a folder it refuses to compile.
    """
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "numba"
    places = (Path(__file__).parent, next(folder for folder in (user, *user.parents) if folder.exists()))
    effective = os.access in os.supports_effective_ids  # the process's rights, not those of the user who started it
    if os.environ.get("NUMBA_CACHE_DIR") or any(os.access(at, os.W_OK, effective_ids=effective) for at in places):
        return
    os.environ["NUMBA_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="strongticket-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def wait_for_compilers() -> None:
    """Wait until no other thread compiles a kernel, before a fork.

    The child would inherit numba's lock as it is, without the thread that releases it, and wait for it forever.
    """
    numba = sys.modules.get("numba.core.compiler_lock")
    if lock := getattr(numba, "global_compiler_lock", None):
        lock.acquire()
        _held_for_fork.append(lock)


def let_compilers_go_on() -> None:
    """Undo `wait_for_compilers`, in the parent and in the child."""
    while _held_for_fork:
        _held_for_fork.pop().release()


find_place_for_kernels()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=wait_for_compilers, after_in_parent=let_compilers_go_on, after_in_child=let_compilers_go_on
    )
