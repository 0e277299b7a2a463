"""The hot operations: each has a reference that defines it, and kernels that agree with it."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


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


find_place_for_kernels()
