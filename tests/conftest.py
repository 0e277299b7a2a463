import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from strongticket.cli import main as cli
from tests.command import Done, Run
from tests.waiting import wait_until

# A case may take longer than Hypothesis' 200 ms on a machine that is shared.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture(autouse=True, scope="session")
def _tokens_are_kept_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache folder out of the tests, and the tests out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRONGTICKET_CACHE", str(tmp_path_factory.mktemp("cache")))
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """A scheduler and two workers, each a process."""
    pytest.importorskip("distributed", reason="needs distributed: pip install 'strongticket[cluster]'")
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    at = ["--scheduler-file", str(file), "--no-dashboard"]
    processes = [subprocess.Popen([*dask, "scheduler", "--port", "0", "--host", "127.0.0.1", *at], **quiet)]
    try:
        wait_until(file.exists)
        # Without a nanny, so that a killed worker stays dead.
        worker = [*dask, "worker", "--nthreads", "1", "--no-nanny", *at]
        processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]
        yield json.loads(file.read_text())["address"], processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
