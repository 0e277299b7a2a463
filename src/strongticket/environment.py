"""What a run records about its environment: machine, software, commit and time."""

import functools
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from strongticket._version import __version__
from strongticket.parallel import available_cores

PACKAGES = ("numpy", "numba", "torch", "triton", "scipy", "gurobipy", "ortools")


def environment(device: str = "cpu") -> dict[str, object]:
    """Describe the machine, the software and the time, as fields of a result row.

    Args:
        device: with "cuda" (or "cuda:1") the row also names the GPU.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "gpu": _gpu_name(device) if device.startswith("cuda") else None,
        "os": f"{platform.system()} {platform.machine()}",
        "versions": {"strongticket": __version__, "python": platform.python_version(), **_package_versions()},
    }


def peak_memory(device: str = "cpu") -> int:
    """Return this process's peak memory in bytes, on the GPU if it runs there; 0 if unknown."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def command_line() -> str | None:
    """Return the command line, to store with its results: our command, or the calling script; None in a session."""
    program = Path(sys.argv[0])
    if "strongticket" in (program.stem, program.parent.name):  # as installed, or by python -m
        return shlex.join(["strongticket", *sys.argv[1:]])
    return shlex.join(sys.argv) if program.suffix else None


@functools.cache
def commit() -> str:
    """Return the commit of this source tree, with "-dirty" added if the package was edited since.

    Without git, or outside a checkout, it is taken from `STRONGTICKET_COMMIT`, or else "unknown".
    """
    here = Path(__file__)
    # An installed copy may be inside someone else's repository: only a tracked file belongs to its commit.
    if _git(here, "ls-files", "--error-unmatch", here.name) is None:
        return os.environ.get("STRONGTICKET_COMMIT", "unknown")
    head = _git(here, "rev-parse", "--short=12", "HEAD")
    edited = _git(here, "status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    return f"{head}-dirty" if edited else f"{head}"


def _git(beside: Path, *arguments: str) -> str | None:
    """Run git in a file's folder; return None if git is absent or fails."""
    try:
        done = subprocess.run(["git", "-C", str(beside.parent), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    """Return the model name, with family and model number because virtual machines often hide the rest."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    # Only the first processor's fields count, so later ones must not replace them.
    fields: dict[str, str] = {}
    for line in info.read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else name


def _gpu_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device)


def _package_versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
