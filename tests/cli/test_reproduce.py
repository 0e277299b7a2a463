"""The command as a user runs it: interrupted, killed, split among processes and machines, and refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command import Run
from tests.conftest import DaskProcesses
from tests.experiments.runs import UNTRAINED, command, run_small
from tests.waiting import wait_until
from typer.testing import CliRunner

from strongticket.cli.main import app
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.experiments import fig4, fig6
from strongticket.experiments.figure import How, reproduce_figure

QUICK = ("fig6", "--quick", "--sources", 10, "--inputs", 50)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    arguments = ["reproduce", *map(str, QUICK), "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["strongticket", *arguments])
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Figure 6" in done.stdout
    return out / "fig6"


def finished_tasks(folder: Path) -> int:
    file = folder / "partial.jsonl"
    return file.read_bytes().count(b'{"task"') if file.exists() else 0


def heed_interrupts() -> None:
    """Undo what a shell does to jobs in the background, which ignore interrupts; the tests may run in one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_killed_then_interrupted_then_resumed_gives_the_same_result(uninterrupted: Path, tmp_path: Path) -> None:
    """One process is killed, two are stopped by Ctrl-C, and this one finishes what these have left."""
    folder = tmp_path / "fig6"
    killed = subprocess.Popen(command(*QUICK, "--out", tmp_path), stderr=subprocess.DEVNULL)
    wait_until(lambda: finished_tasks(folder) >= 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (folder / "result.json").exists()
    left = finished_tasks(folder)

    arguments = (*QUICK, "--workers", 2, "--out", tmp_path)
    # In a session of its own, so that the interrupt goes to the workers too, as it does from a keyboard.
    stopped = subprocess.Popen(
        command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    )
    wait_until(lambda: finished_tasks(folder) > left)
    os.killpg(stopped.pid, signal.SIGINT)
    _, told = stopped.communicate(timeout=300)
    assert stopped.returncode == 130
    *lines, told = told.splitlines(keepends=True)
    assert all(line.startswith("fig6: ") for line in lines), "progress, and nothing else"
    assert told == "Stopped; the same command resumes.\n"
    kept = finished_tasks(folder)
    assert kept > left, "nothing is lost, and something was added"
    assert not (folder / "result.json").exists()

    assert CliRunner().invoke(app, ["reproduce", *map(str, QUICK), "--out", str(tmp_path)]).exit_code == 0
    assert (folder / "result.json").read_bytes() == (uninterrupted / "result.json").read_bytes()
    assert json.loads((folder / "run.json").read_text())["tasks_resumed"] == kept
    assert set(os.listdir(folder)) == set(os.listdir(uninterrupted)), "nothing is left behind"


def test_json_and_the_run_file(run: Run, uninterrupted: Path) -> None:
    done = run("reproduce", *QUICK, "--out", uninterrupted.parent, "--json")
    printed = json.loads(done.stdout)
    result = json.loads((uninterrupted / "result.json").read_text())
    assert printed["fig6"]["fits"] == result["fits"]
    assert printed["fig6"]["violations"] == 0
    about = json.loads((uninterrupted / "run.json").read_text())
    assert about["command"].startswith("strongticket reproduce fig6 --quick --sources 10 --inputs 50 --out")
    assert about["seconds"] > 0
    assert about["workers"] == 1


def test_another_configuration_in_the_folder_is_refused_in_one_line(run: Run, uninterrupted: Path) -> None:
    before = (uninterrupted / "result.json").read_bytes()
    done = run("reproduce", *QUICK, "--sources", 9, "--out", uninterrupted.parent)
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {uninterrupted} holds the result of another configuration (sources: 10 there, 9 here). "
        "Choose another --out, or move that folder away.\n"
    )
    assert (uninterrupted / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fig4", "--dask-timeout", 9), "--dask-timeout is for --dask, which is not given"),
        (("fig7", "--dask-timeout", 9), "--dask-timeout is for figures of constructions, fig4 to scans"),
        (("fig4", "--workers", 2, "--dask", "tcp://127.0.0.1:9"), "--workers and --dask exclude each other"),
        (("fig4", "fig6", "--target", "trained"), "fig6 has untrained targets, as in the paper"),
        (("fig9",), "'fig9' is not one of"),
        (("fig4", "--sources", 0), "--sources"),
    ],
)
def test_bad_usage_is_told(arguments: tuple[object, ...], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", *map(str, arguments), "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_help_has_an_example() -> None:
    done = CliRunner().invoke(app, ["reproduce", "-h"])
    assert done.exit_code == 0
    assert "Example: strongticket reproduce" in done.stdout


def test_missing_extra_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"figures need matplotlib: pip install 'strongticket\[report\]'"):
        run_small("fig6", tmp_path)
    assert not list(tmp_path.iterdir())


def test_dask_address_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs distributed: pip install 'strongticket[cluster]'")
    monkeypatch.setattr("strongticket.cluster.CONNECT_SECONDS", 1)
    arguments = ["reproduce", "fig6", "--quick", "--dask", "tcp://127.0.0.1:9", "--out", str(tmp_path)]
    told = CliRunner().invoke(app, arguments).exception
    assert isinstance(told, StrongTicketError)
    (error,) = str(told).splitlines()
    assert error.startswith("no Dask scheduler answers at 'tcp://127.0.0.1:9'")


def test_dask_with_a_worker_killed_mid_run_gives_the_same_result(
    cluster: tuple[str, list["subprocess.Popen[bytes]"]], tmp_path: Path
) -> None:
    address, workers = cluster
    figure = replace(fig4.FIGURE, plan=replace(fig4.FIGURE.plan, sources_per_task=3))  # type: ignore[type-var]
    config = fig4.Config(sources=30, widths=(8, 16), inputs=50, target=UNTRAINED)
    alive_before: list[int] = []

    def kill_one(done: int, total: int, name: str) -> None:
        # Both workers have their queues full at this moment: what this one holds has to be done again.
        if done == 4:
            alive_before.append(sum(worker.poll() is None for worker in workers))
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()

    reproduce_figure(figure, config, tmp_path / "dask", How(dask=address, progress=kill_one))
    assert alive_before == [2]
    assert [worker.poll() for worker in workers] == [-signal.SIGKILL, None]
    reproduce_figure(fig4.FIGURE, config, tmp_path / "here")
    one, other = ((tmp_path / where / "fig4" / "result.json").read_bytes() for where in ("dask", "here"))
    assert one == other
    assert json.loads((tmp_path / "dask" / "fig4" / "run.json").read_text())["dask"] is True


def test_a_scheduler_killed_mid_run_ends_the_command_and_another_cluster_resumes_it(
    start_cluster: Callable[..., DaskProcesses], uninterrupted: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out" / "fig6"
    first = start_cluster(1)
    arguments = (*QUICK, "--out", folder.parent, "--dask")
    broken = subprocess.Popen(command(*arguments, first.address), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: finished_tasks(folder) >= 2)
    first.scheduler.kill()
    _, told = broken.communicate(timeout=300)
    assert broken.returncode == 1
    *_, line = told.splitlines()  # behind progress, if the machine is slow
    assert line.startswith(f"Error: the Dask scheduler at {first.address} went away. Run the same command again")
    assert (kept := finished_tasks(folder)) >= 2
    assert not (folder / "result.json").exists()

    resumed = CliRunner().invoke(app, ["reproduce", *map(str, arguments), start_cluster(1).address])
    assert resumed.exit_code == 0, resumed.output
    assert json.loads((folder / "run.json").read_text())["tasks_resumed"] == kept
    assert (folder / "result.json").read_bytes() == (uninterrupted / "result.json").read_bytes()


def test_a_violated_certificate_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig6.tasks, "ROUNDING", -1e9)
    result = CliRunner().invoke(app, ["reproduce", "fig6", "--quick", "--sources", "1", "--out", str(tmp_path)])
    assert isinstance(result.exception, StrongTicketError)
    assert "errors exceed their certificate" in str(result.exception)
