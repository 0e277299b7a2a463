import gc
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

import strongticket
from strongticket.cli import main as cli
from tests.command import Done, Run
from tests.waiting import wait_until

# xdist tells its processes a width; what is tested is the output to a pipe.
os.environ.pop("COLUMNS", None)

# A case may take longer than Hypothesis' 200 ms on a machine that is shared.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


# A file is run by one process. These take longest, mostly by starting others: what comes last should be short.
# The first two compile kernels, each for another CPU; whoever comes later finds them compiled.
LONGEST = (
    "test_other_cpus.py",
    "test_docs_pages.py",
    "cli/test_reproduce.py",
    "cli/test_pretrained_cli.py",
    "test_cluster.py",
    "test_notebooks.py",
    "test_examples.py",
    "report/test_report_browser.py",
    "pretrained/test_zoo.py",
    "report/test_report.py",
    "test_soak.py",
    "test_contributing.py",
    "pretrained/test_pretrained_construct.py",
    "experiments/test_figures.py",
    "test_parallel.py",
    "test_settings.py",
    "learn/test_run.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = [Path(__file__).parent / name for name in LONGEST]
    items.sort(key=lambda item: files.index(item.path) if item.path in files else len(files))


def pytest_collection_finish() -> None:
    """Keep garbage collection off what is imported by now: it took a twentieth of the time, and timed tests paid."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _tokens_are_kept_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache folder out of the tests, and the tests out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRONGTICKET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def short_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of the sample's text with little to validate on, which else takes most of a short run's time."""
    sample, folder = Path(str(strongticket.__file__)).parent / "data" / "sample", tmp_path_factory.mktemp("sample")
    shutil.copy(sample / "train.txt.xz", folder)
    (folder / "valid.txt").write_bytes(lzma.decompress((sample / "valid.txt.xz").read_bytes())[:2_000])
    return folder


@pytest.fixture(scope="module")
def sample_is_short(short_sample: Path) -> Iterator[None]:
    """Have this process find that text under the name of the sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strongticket.data.text._SAMPLE_FOLDER", short_sample)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Give the project's folder of real text, which is too large for the repository."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the folder of WikiText and Wikipedia text is not beside this checkout")
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: importing torch anew for each call would take most of the time."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["strongticket", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        code = stopped.value.code
        return Done(int(code or 0), *capsys.readouterr())

    return call


class DaskProcesses(NamedTuple):
    address: str
    scheduler: "subprocess.Popen[bytes]"
    workers: list["subprocess.Popen[bytes]"]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., DaskProcesses]]:
    """Start a scheduler and so many workers, each a process; its workers may import from elsewhere."""
    distributed = pytest.importorskip("distributed", reason="needs distributed: pip install 'strongticket[cluster]'")
    processes: list[subprocess.Popen[bytes]] = []
    dask = [sys.executable, "-m", "dask"]

    def start(workers: int = 2, python_path: Path | None = None) -> DaskProcesses:
        file = tmp_path / f"scheduler {len(processes)}.json"
        path = os.pathsep.join(os.path.abspath(place) for place in (python_path, *sys.path) if place)
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
        quiet["env"] = {**os.environ, "PYTHONPATH": path}  # absolute, since they start elsewhere
        at = ["--scheduler-file", str(file), "--no-dashboard"]
        scheduler = subprocess.Popen([*dask, "scheduler", "--port", "0", "--host", "127.0.0.1", *at], **quiet)
        processes.append(scheduler)
        wait_until(lambda: file.exists() and file.stat().st_size > 0)
        # Without a nanny, so that a killed worker stays dead.
        worker = [*dask, "worker", "--nthreads", "1", "--no-nanny", *at]
        started = [subprocess.Popen(worker, **quiet) for _ in range(workers)]
        processes.extend(started)
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address, set_as_default=False) as client:
            wait_until(lambda: len(client.nthreads()) == workers)
        return DaskProcesses(address, scheduler, started)

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(start_cluster: Callable[..., DaskProcesses]) -> tuple[str, list["subprocess.Popen[bytes]"]]:
    """The address of a scheduler with two workers, and these."""
    address, _, workers = start_cluster()
    return address, workers
