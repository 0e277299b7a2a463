"""Clusters as they are on a bad day: schedulers and workers that die, stop, never come, or have other source."""

import logging
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import strongticket
from strongticket import cluster
from strongticket.cluster import Cluster, package
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.parallel import run_tasks
from tests.conftest import DaskProcesses

Start = Callable[..., DaskProcesses]
SECONDS = 4.0  # of patience


def end_of(
    started: DaskProcesses, then: Callable[[], object] = lambda: None
) -> tuple[str, list[int], list[str], float]:
    """Run twenty short tasks, do something after the second, and tell the end: message, tasks, lines, seconds."""
    done: list[int] = []
    lines: list[str] = []
    begin = time.monotonic()

    def progress(place: int, _: object) -> None:
        nonlocal begin
        done.append(place)
        if len(done) == 2:
            then()
            begin = time.monotonic()

    there = Cluster(started.address, SECONDS, lines.append)
    with pytest.raises(StrongTicketError) as caught:
        list(run_tasks(time.sleep, [0.2] * 20, dask=there, progress=progress))
    return str(caught.value), done, lines, time.monotonic() - begin


def test_a_scheduler_without_workers_is_not_waited_for_forever(
    start_cluster: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TELL_SECONDS", 1.0)
    started = start_cluster(workers=0)
    told, done, lines, seconds = end_of(started)
    assert told.startswith(f"waited 4 s for the Dask cluster at {started.address}: it has no workers. Run the same")
    assert not done
    assert 2 <= len(lines) <= 4
    assert all(
        line.startswith(f"waiting for the Dask cluster at {started.address}: it has no workers") for line in lines
    )
    assert SECONDS <= seconds < SECONDS + 50


BAD_DAYS = {
    "scheduler killed": ("scheduler", signal.SIGKILL, "the Dask scheduler at {} went away."),
    "scheduler stopped": ("scheduler", signal.SIGSTOP, "waited 4 s for the Dask cluster at {}: the scheduler does not"),
    "worker killed": ("worker", signal.SIGKILL, "waited 4 s for the Dask cluster at {}: it has no workers."),
    "worker stopped": ("worker", signal.SIGSTOP, "waited 4 s for the Dask cluster at {}: none of its workers answer."),
}


@pytest.mark.parametrize(("who", "sign", "message"), BAD_DAYS.values(), ids=BAD_DAYS)
def test_a_cluster_that_fails_ends_the_work_and_keeps_what_is_done(
    who: str, sign: signal.Signals, message: str, start_cluster: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    started = start_cluster(workers=1)
    process = started.scheduler if who == "scheduler" else started.workers[0]
    told, done, _, seconds = end_of(started, lambda: process.send_signal(sign))
    assert told.startswith(message.format(started.address))
    assert told.endswith("it resumes from the finished tasks.")
    assert 2 <= len(done) < 20
    assert seconds < SECONDS + 50
    assert capfd.readouterr().err == ""  # where Dask itself would log


def test_what_dask_leaves_to_its_event_loop_is_not_printed(
    start_cluster: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A scheduler that dies while results are on their way leaves errors to tornado, which logs tracebacks."""
    from distributed.comm.core import CommClosedError

    loop = logging.getLogger("tornado.application")

    def say() -> None:
        for error in (CommClosedError("theirs"), ValueError("ours")):
            loop.error("Exception in callback", exc_info=error)

    for number in run_tasks(int, [1], dask=Cluster(start_cluster(workers=1).address, 60)):
        assert number == 1
        say()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["ours"]


def test_a_task_may_last_longer_than_the_patience_while_its_worker_answers(start_cluster: Start) -> None:
    there = Cluster(start_cluster(workers=1).address, SECONDS)
    assert list(run_tasks(time.sleep, [SECONDS + 2], dask=there)) == [None]


def test_without_tasks_no_cluster_is_asked() -> None:
    assert list(run_tasks(abs, [], dask="tcp://127.0.0.1:9")) == []


def test_a_worker_with_other_source_is_refused_before_the_first_task(start_cluster: Start, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(
        Path(strongticket.__file__).parent, elsewhere / "strongticket", ignore=shutil.ignore_patterns("__py*")
    )
    with open(elsewhere / "strongticket" / "ops" / "rng.py", "a") as file:
        file.write("# one line more\n")
    done: list[int] = []
    with pytest.raises(StrongTicketError, match="another strongticket") as caught:
        list(run_tasks(abs, [1], dask=start_cluster(1, elsewhere).address, progress=lambda k, _: done.append(k)))
    version, mine = package().split(", source ")
    assert f"({package()})" in str(caught.value)
    assert f"({version}, source " in str(caught.value).replace(mine, "")
    assert not done


def test_a_worker_without_the_package_is_refused(start_cluster: Start, tmp_path: Path) -> None:
    (tmp_path / "strongticket.py").touch()
    with pytest.raises(StrongTicketError, match=r"worker tcp://.* has another strongticket .*No module named"):
        list(run_tasks(abs, [1], dask=start_cluster(1, tmp_path).address))


def test_a_worker_that_joins_late_is_held_against_the_caller_too() -> None:
    assert cluster._with_package(package(), abs, -1) == 1
    with pytest.raises(StrongTicketError, match="this worker has strongticket"):
        cluster._with_package("0.0.1, source 0", abs, -1)


def test_dask_address_that_does_not_answer_is_told_in_seconds() -> None:
    pytest.importorskip("distributed", reason="needs distributed: pip install 'strongticket[cluster]'")
    start = time.monotonic()
    with pytest.raises(StrongTicketError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'") as caught:
        list(run_tasks(abs, [1], dask="tcp://127.0.0.1:9"))
    assert cluster.CONNECT_SECONDS <= 5
    assert time.monotonic() - start < 50
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:9", "tcp://127.0.0.1:no-port"])
def test_dask_address_that_is_none_is_told(address: str) -> None:
    pytest.importorskip("distributed", reason="needs distributed: pip install 'strongticket[cluster]'")
    with pytest.raises(StrongTicketError, match="no Dask scheduler answers at"):
        list(run_tasks(abs, [1], dask=address))


def test_an_error_in_a_task_on_a_cluster_comes_up(start_cluster: Start) -> None:
    with pytest.raises(ValueError, match="sleep length must be non-negative"):
        list(run_tasks(time.sleep, [-1.0], dask=start_cluster(1).address))


def test_a_task_that_kills_its_worker_is_told(start_cluster: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    address = start_cluster(workers=1).address
    with pytest.raises(
        StrongTicketError, match=f"the Dask cluster at {address} failed: Attempted to run task"
    ) as caught:
        list(run_tasks(os._exit, [1], dask=address))
    assert "\n" not in str(caught.value)


def test_dask_takes_large_tasks_without_a_word(start_cluster: Start) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Dask warns of 10 MB and more; the same bytes twice would travel once.
        sizes = [6_000_000, 6_000_001]
        assert list(run_tasks(len, [bytes(size) for size in sizes], dask=start_cluster(1).address)) == sizes


def test_missing_dask_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'strongticket\[cluster\]'"):
        list(run_tasks(abs, [1], dask="tcp://127.0.0.1:9"))
