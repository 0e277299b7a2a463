import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor
from typer.testing import CliRunner

from strongticket.bench import subset_sum
from strongticket.cli.bench import bench_app

ROW_FIELDS = {
    "op", "engine", "label", "n", "device", "threads", "clock", "rows", "p20", "median", "p80", "unit", "times_slower",
    "median_error", "optimal_share", "checked", "timeouts",
}  # fmt: skip
WHERE_FIELDS = {"date", "commit", "cpu", "cores", "gpu", "os", "versions"}

tiny = ["subset-sum", "--items", "5,9", "--rows", "60", "--repeats", "2", "--peers", "none"]


def nothing_chosen(targets: Tensor, items: Tensor) -> Tensor:
    return items > 2


def read_rows(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_table_figure_and_rows(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "plain numba Horowitz-Sahni" in result.stdout
    assert "100 %" in result.stdout
    assert (tmp_path / "subset-sum-cpu.png").exists() == (importlib.util.find_spec("matplotlib") is not None)
    rows = read_rows(tmp_path)
    assert [(row["n"], row["engine"]) for row in rows] == [
        (n, engine) for n in (5, 9) for engine in ("strongticket", "horowitz-sahni")
    ]
    assert all(row.keys() == ROW_FIELDS | WHERE_FIELDS for row in rows)


def test_json_is_one_object_and_the_figure_goes_where_asked(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path), "--figure", str(picture), "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed.keys() == {"ok", "rows", "unreachable", "missing", "notes", "figure"}
    assert printed["ok"] is True
    assert all(row.keys() == ROW_FIELDS for row in printed["rows"])
    assert printed["unreachable"].keys() == {"5", "9"}
    assert (printed["figure"] is not None) == picture.exists()


def test_markdown_is_a_table_and_nothing_else(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path), "--markdown"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 2 + 4
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)


@pytest.mark.parametrize("as_json", [False, True])
def test_no_speed_of_a_wrong_kernel(as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "solve_ours", nothing_chosen)
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path), *(["--json"] if as_json else [])])
    assert result.exit_code == 1
    assert "are worse than those of the reference; first row" in result.stderr
    assert "No speed is reported" in result.stderr
    assert list(tmp_path.iterdir()) == []
    if as_json:
        assert json.loads(result.stdout)["ok"] is False
    else:
        assert result.stdout == ""


def test_finished_sizes_stay_on_disk_when_a_later_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = subset_sum.solve_ours
    monkeypatch.setattr(subset_sum, "solve_ours", lambda w, a: (honest if a.shape[1] == 5 else nothing_chosen)(w, a))
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert {row["n"] for row in read_rows(tmp_path)} == {5}


def test_a_missing_peer_is_named_with_its_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ortools" else real(name, *a))
    arguments = [*tiny[:-1], "cp-sat", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "not installed, left out. Install it with: pip install ortools" in result.stderr
    assert json.loads(result.stdout)["missing"] == [{"peer": "cp-sat", "install": "pip install ortools"}]


def test_without_matplotlib_there_is_a_table_and_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else real(name, *a))
    result = CliRunner().invoke(bench_app, [*tiny, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "pip install matplotlib" in result.stderr
    assert not (tmp_path / "subset-sum-cpu.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--items", "8,x"], "items must be whole numbers separated by commas, such as 8,16; got '8,x'"),
        (["--items", "33"], "items must lie between 2 and 32"),
        (["--items", ""], "items must be whole numbers"),
        (["--peers", "cplex"], "unknown peer 'cplex'"),
        (["--device", "tpu"], "device must be cpu or cuda; got 'tpu'"),
        (["--threads", "100000"], "threads must be between 1 and the"),
    ],
)
def test_bad_usage_is_exit_2_and_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*tiny, *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_pensia_prints_both_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "rows_to_check", lambda n: 10)
    arguments = ["pensia", "--weights", "50", "--repeats", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "77,266 s" in result.stdout
    assert "2,781,576" in result.stdout  # core-seconds
    printed = json.loads(CliRunner().invoke(bench_app, [*arguments, "--json"]).stdout)
    assert printed["ok"] is True
    assert (printed["published_seconds"], printed["published_cores"], printed["threads"]) == (77_266, 36, 1)
    assert [row["op"] for row in read_rows(tmp_path)] == ["subset_sum_pensia"] * 2


def test_pensia_refuses_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "rows_to_check", lambda n: 10)
    monkeypatch.setattr(subset_sum, "solve_ours", nothing_chosen)
    result = CliRunner().invoke(bench_app, ["pensia", "--weights", "50", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "No speed is reported" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["subset-sum", "pensia"])
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(bench_app, [command, "-h"])
    assert result.exit_code == 0
    assert f"Example: strongticket bench {command}" in result.stdout


def test_the_module_runs_by_itself_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; import strongticket; base = set(sys.modules);"
        "import strongticket.cli.bench; new = {name.partition('.')[0] for name in set(sys.modules) - base};"
        "print(sorted(new & {'numba', 'scipy', 'matplotlib', 'torch', 'numpy', 'gurobipy', 'ortools'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    helped = subprocess.run(
        [sys.executable, "-m", "strongticket.cli.bench", "-h"], capture_output=True, text=True, check=True
    )
    assert "subset-sum" in helped.stdout
