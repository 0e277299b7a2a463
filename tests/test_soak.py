"""A short soak, and what a soak must notice."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strongticket.errors import StrongTicketError
from strongticket.files import atomic_write
from tests.soak import FAULTS, Job, Soak, as_command

ROOT = Path(__file__).parents[1]


def test_a_few_rounds_end_with_the_bytes_of_unbroken_runs() -> None:
    arguments = ["-m", "tests.soak", "--rounds", "2", "--only", "search"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 rounds" in done.stdout
    assert " 0 failures." in done.stdout


def writes_whole_files(folder: Path) -> None:
    for name in ("first", "second"):
        time.sleep(0.02)
        with atomic_write(folder / name) as file:
            file.write(b"whole")


def writes_halves(folder: Path) -> None:
    with open(folder / "first", "ab") as file:  # beside what an earlier process left
        file.write(b"half")
        file.flush()
        time.sleep(0.05)
        file.write(b"whole")


def tells_nobody(folder: Path) -> None:
    if list(folder.iterdir()):
        raise LookupError("what is this?")
    (folder / "first").touch()
    time.sleep(0.05)


def names_no_file(folder: Path) -> None:
    try:
        writes_whole_files(folder)
    except OSError:
        raise StrongTicketError("it did not work.") from None


@pytest.mark.parametrize(
    ("call", "faults", "said"),
    [
        (writes_whole_files, [fault for fault in FAULTS if fault != "full disk"], None),
        (writes_halves, ["kill -9"], "differs in first ("),
        (tells_nobody, ["kill -9", "SIGTERM"], "LookupError: what is this?"),
        (names_no_file, ["read-only folders"], "names no file"),
    ],
)
def test_what_a_soak_notices(call: Callable[[Path], None], faults: list[str], said: str | None, tmp_path: Path) -> None:
    run = Soak(tmp_path, [Job("it", lambda folder: as_command(lambda: call(folder)))], faults, random.Random(0))
    while run.rounds < 12:
        run.round()
    if said is None:
        assert run.failures == []
        assert run.struck.total() > 6  # of 12 to 36; on a busy machine some come too late
    else:
        assert any(said in failure for failure in run.failures)
    assert list(tmp_path.iterdir()) == []
