import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from strongticket.errors import StrongTicketError
from strongticket.parallel import FEW_WEIGHTS, numba_threads, one_thread, one_thread_for_small, run_tasks
from tests.waiting import wait_until

# Tasks for other processes must be importable there, so these live at the top of the module.


class Outcome(NamedTuple):
    square: int
    threads: tuple[int, int]
    process: int


def work(task: tuple[int, Path | None]) -> Outcome:
    value, awaited = task
    if awaited is not None:
        wait_until(awaited.exists)
    return Outcome(value * value, threads_in_use(), os.getpid())


def threads_in_use() -> tuple[int, int]:
    return torch.get_num_threads(), numba_threads()  # numba's own function may set torch's, the first time it is asked


def fail_on_two(task: int) -> int:
    if task == 2:
        raise ValueError("two is not allowed")
    return task


def die(_: int) -> None:
    os._exit(3)


def test_results_come_in_task_order_and_progress_as_they_finish(tmp_path: Path) -> None:
    seen: list[tuple[int, Outcome]] = []

    def progress(place: int, outcome: Outcome) -> None:
        seen.append((place, outcome))
        if len(seen) == 2:
            (tmp_path / "others done").touch()

    tasks = [(3, tmp_path / "others done"), (1, None), (2, None)]
    results = list(run_tasks(work, tasks, workers=2, progress=progress))
    assert [result.square for result in results] == [9, 1, 4]
    assert {k: outcome.square for k, outcome in seen} == {0: 9, 1: 1, 2: 4}
    assert seen[-1][0] == 0
    assert {result.threads for result in results} == {(1, 1)}
    assert os.getpid() not in {result.process for result in results}


def test_one_worker_is_this_process() -> None:
    seen: list[int] = []
    results = list(run_tasks(work, [(3, None), (1, None)], workers=1, progress=lambda k, _: seen.append(k)))
    assert [result.square for result in results] == [9, 1]
    assert seen == [0, 1]
    assert {(result.threads, result.process) for result in results} == {((1, 1), os.getpid())}


def test_threads_are_given_back() -> None:
    before = threads_in_use()
    with pytest.raises(RuntimeError), one_thread():
        raise RuntimeError
    assert threads_in_use() == before


NUMBAS_FIRST_CALL = {
    "subset sum": "st.subset_sum(torch.ones(1), torch.ones(1, 4))",
    "task on Dask": "_on_one_thread(abs, -1); print(torch.get_num_threads() == 1); torch.set_num_threads(2)",
}


@pytest.mark.parametrize("call", NUMBAS_FIRST_CALL.values(), ids=NUMBAS_FIRST_CALL)
def test_numba_leaves_torch_its_number_of_threads(call: str) -> None:
    """In a process of its own: numba sets OpenMP's number, which is torch's too, the first time it is asked for its."""
    script = f"""
import torch, strongticket as st
from strongticket.parallel import _on_one_thread
torch.set_num_threads(2)
print(torch.get_num_threads() == 2)  # only from now on, as from a first operation, does torch rely on OpenMP's number
{call}
print(torch.get_num_threads() == 2)
"""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"True"}


@pytest.mark.parametrize(
    ("weights", "device", "threads"),
    [(FEW_WEIGHTS - 1, "cpu", 1), (FEW_WEIGHTS, "cpu", 2), (1, "cuda", 2), (1, torch.device("cuda:1"), 2)],
)
def test_small_models_leave_torch_one_thread(weights: int, device: torch.device | str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one_thread_for_small(weights, device)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_task_comes_up() -> None:
    with pytest.raises(ValueError, match="two is not allowed"):
        list(run_tasks(fail_on_two, range(4)))


def test_a_dead_worker_process_is_told() -> None:
    with pytest.raises(StrongTicketError, match="a worker process died: it ran out of memory"):
        list(run_tasks(die, range(2), workers=2))


def test_no_tasks_no_results() -> None:
    assert list(run_tasks(fail_on_two, [], workers=2)) == []


def test_workers_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        run_tasks(fail_on_two, [], workers=0)


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """A killed process tidies nothing up; its workers have to notice by themselves."""
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, pathlib, time
            from strongticket.parallel import run_tasks

            def note_pid(k):
                pathlib.Path({str(tmp_path)!r}, f"{{k}}.pid").write_text(str(os.getpid()))
                time.sleep(60)

            if __name__ == "__main__":
                list(run_tasks(note_pid, range(2), workers=2))
            """
        )
    )
    parent = subprocess.Popen([sys.executable, script])
    try:
        files = [tmp_path / f"{k}.pid" for k in range(2)]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    workers = [int(file.read_text()) for file in files]
    wait_until(lambda: not any(_alive(pid) for pid in workers))


def test_workers_that_are_still_importing_do_not_complain_of_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, pathlib, signal, time
            from strongticket.parallel import run_tasks

            signal.signal(signal.SIGINT, signal.default_int_handler)
            if __name__ != "__main__":
                pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.importing").touch()
                time.sleep(2)
            if __name__ == "__main__":
                list(run_tasks(time.sleep, [1, 1], workers=2))
            """
        )
    )
    parent = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.importing"))) == 2)
        os.killpg(parent.pid, signal.SIGINT)
        _, told = parent.communicate(timeout=300)
    finally:
        if parent.poll() is None:
            os.killpg(parent.pid, signal.SIGKILL)
    assert told.count("Traceback") == 1, told
    assert told.rstrip().endswith("KeyboardInterrupt")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_tasks_under_way_are_not_waited_for_when_nobody_wants_them() -> None:
    results = run_tasks(time.sleep, [0, 300, 300], workers=2)
    next(results)
    before = time.monotonic()
    del results  # which ends it, as Ctrl-C does, or an error of whoever reads the results
    assert time.monotonic() - before < 100
