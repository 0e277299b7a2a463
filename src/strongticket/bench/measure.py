"""Timing, percentiles, the machine's description and result rows: what every benchmark here shares."""

import functools
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import numpy as np

from strongticket._version import __version__
from strongticket.parallel import available_cores

PACKAGES = ("numpy", "numba", "torch", "triton", "scipy", "gurobipy", "ortools")


def time_runs(
    run: Callable[[], object],
    *,
    warmup: int = 1,
    repeats: int = 5,
    synchronize: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Time `run` and return the seconds of each repeat.

    Args:
        run: what to time; its result is dropped.
        warmup: untimed calls first (compilation, caches, clocks).
        repeats: timed calls.
        synchronize: waits for queued device work, for example `torch.cuda.synchronize`.
        clock: gives seconds; see `clock_for`.

    Example:
        >>> len(time_runs(lambda: sum(range(1000)), repeats=3))
        3
    """
    runs = {"run": run}
    return time_alternating(runs, warmup=warmup, repeats=repeats, synchronize=synchronize, clock=clock)["run"]


def time_alternating(
    runs: Mapping[str, Callable[[], object]],
    *,
    warmup: int = 1,
    repeats: int = 5,
    synchronize: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time several functions in turn, so that a slow spell of the machine falls on all of them alike.

    Returns:
        The seconds of each repeat, by name; ratios between names are trustworthy even where the seconds are not.
    """
    wait = synchronize or (lambda: None)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(-warmup, repeats):
        for name, run in runs.items():
            wait()
            start = clock()
            run()
            wait()
            if repeat >= 0:
                seconds[name].append(clock() - start)
    return seconds


def clock_for(threads: int, device: str = "cpu") -> tuple[str, Callable[[], float]]:
    """Choose the clock that says what an engine costs, and its name for the result row.

    One thread on the CPU is charged its CPU time: on an idle core that is the wall time, and on a shared one it does
    not grow with what the neighbours do. Several threads and GPUs are charged wall time, since waiting counts there.
    """
    alone = threads == 1 and not device.startswith("cuda")
    return ("cpu", time.process_time) if alone else ("wall", time.perf_counter)


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Summarise values by their 20th, 50th and 80th percentile.

    Example:
        >>> percentiles([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        {'p20': 2.0, 'median': 3.5, 'p80': 5.0}
    """
    low, middle, high = np.percentile(np.fromiter(values, dtype=np.float64), [20, 50, 80])
    return {"p20": float(low), "median": float(middle), "p80": float(high)}


def environment(device: str = "cpu") -> dict[str, object]:
    """Describe the machine, the software and the moment, as fields of a result row.

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


def append_row(path: Path, /, **fields: object) -> None:
    """Append one result to a JSON-lines file, making its folder if need be.

    NaN and infinity are refused: other readers of JSON could not open the file again.

    Example:
        append_row(Path("results.jsonl"), op="subset_sum", n=16, **percentiles(rates), **environment())
    """
    line = json.dumps(fields, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One unbuffered write in append mode: rows of two runs at once cannot mix within a line.
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())


@functools.cache
def commit() -> str:
    """Name the commit of this source tree, "-dirty" added if the package was edited since.

    Without git, or outside a checkout, `STRONGTICKET_COMMIT` may say it; else the answer is "unknown".
    """
    here = Path(__file__)
    # An installed copy may lie inside somebody else's repository: only a tracked file speaks for its commit.
    if _git(here, "ls-files", "--error-unmatch", here.name) is None:
        return os.environ.get("STRONGTICKET_COMMIT", "unknown")
    head = _git(here, "rev-parse", "--short=12", "HEAD")
    edited = _git(here, "status", "--porcelain", "--untracked-files=no", "--", str(here.parents[1]))
    return f"{head}-dirty" if edited else f"{head}"


def _git(beside: Path, *arguments: str) -> str | None:
    """Run git in a file's folder; None if git is absent or says no."""
    try:
        done = subprocess.run(["git", "-C", str(beside.parent), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    """Model name, with family and model number since virtual machines often hide the rest."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    # The first processor's fields are enough, so later ones must not replace them.
    fields: dict[str, str] = {}
    for line in info.read_text().splitlines():
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
