import json
import time
from pathlib import Path

import pytest
import torch

from strongticket.bench import measure


def test_time_runs_counts_only_the_repeats() -> None:
    calls: list[int] = []
    seconds = measure.time_runs(lambda: calls.append(1), warmup=2, repeats=3)
    assert (len(calls), len(seconds)) == (5, 3)
    assert all(second >= 0 for second in seconds)


def test_time_runs_waits_for_queued_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # The run itself returns at once; the work is only felt when it is waited for.
    queued: list[float] = []

    def synchronize() -> None:
        time.sleep(sum(queued))
        queued.clear()

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    seconds = measure.time_runs(lambda: queued.append(0.02), warmup=0, repeats=2, device="cuda")
    assert min(seconds) >= 0.02


def test_alternating_takes_turns() -> None:
    order: list[str] = []
    seconds = measure.time_alternating(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, warmup=1, repeats=2
    )
    assert "".join(order) == "ababab"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}


def test_one_thread_is_charged_its_cpu_time_alone() -> None:
    name, clock = measure.clock_for(1)
    assert name == "cpu"
    # Sleeping stands for a neighbour that holds the core: wall time sees it, CPU time does not.
    assert max(measure.time_runs(lambda: time.sleep(0.05), warmup=0, repeats=2, clock=clock)) < 0.04
    assert min(measure.time_runs(lambda: time.sleep(0.05), warmup=0, repeats=2)) >= 0.05


def test_several_threads_and_gpus_are_charged_wall_time() -> None:
    assert measure.clock_for(2)[0] == "wall"
    assert measure.clock_for(1, "cuda:0")[0] == "wall"


def test_percentiles_of_one_value_and_of_a_generator() -> None:
    assert measure.percentiles([7.0]) == {"p20": 7.0, "median": 7.0, "p80": 7.0}
    assert measure.percentiles(float(x) for x in range(11)) == {"p20": 2.0, "median": 5.0, "p80": 8.0}


def test_append_row_makes_the_folder_and_keeps_old_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    measure.append_row(path, op="x", n=1)
    measure.append_row(path, op="x", n=2)
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1, 2]


def test_append_row_refuses_nan_and_leaves_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    measure.append_row(path, n=1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        measure.append_row(path, error=float("nan"))
    assert path.read_text() == '{"n": 1}\n'
