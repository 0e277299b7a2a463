"""`bench rules`: every rule on digits, resumable, and on the page."""

import json
from pathlib import Path
from statistics import mean

import pytest
from tests.pages import ROOT, table_under
from typer.testing import CliRunner

from strongticket.bench.rules import digits, make, run_task, tasks_of
from strongticket.bench.settings import NETWORKS, RulesSettings
from strongticket.cli.bench import bench_app
from strongticket.learn.rules import RULES
from strongticket.report.build import build_sections
from strongticket.report.find import find

pytest.importorskip("sklearn")


def rows_of(folder: Path, op: str) -> list[dict[str, object]]:
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["op"] == op]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    told = CliRunner().invoke(bench_app, ["rules", "--quick", "--out", str(folder)])
    assert told.exit_code == 0, told.output
    assert "time / sorting" in told.stdout
    assert all(rule in told.stdout for rule in RULES)
    return folder


def test_the_documented_accuracies_are_those_of_the_rows() -> None:
    found: dict[tuple[str, float], list[dict[str, float]]] = {}
    for row in rows_of(ROOT / "results" / "rules", "rules"):
        if row["network"] == "48-24":
            found.setdefault((str(row["rule"]), float(str(row["density"]))), []).append(row)  # type: ignore[arg-type]
    head, _, *lines = table_under(ROOT / "docs" / "rules.md", "What they reach")
    assert [line[0].partition(" ")[0] for line in lines] == [*RULES]
    for name, *numbers, size in lines:
        for density, shown in zip(head[1:-1], numbers, strict=True):
            accuracies = [row["accuracy"] for row in found[name.partition(" ")[0], float(density)]]
            assert f"{100 * mean(accuracies):.1f}" == shown, (name, density)
            assert len(accuracies) == 5
        assert f"{mean(row['bytes'] for row in found[name.partition(' ')[0], 0.5]):,.0f}" == size


def test_every_rule_has_a_row(done: Path) -> None:
    rows = rows_of(done, "rules")
    assert [row["rule"] for row in rows] == ["trained", *RULES]
    assert {row["network"] for row in rows} == {"48-24"}
    assert all(0.1 < row["accuracy"] <= 1 and row["bytes"] > 1000 for row in rows)  # type: ignore[operator]
    kept = {row["rule"]: row["kept"] / row["weights"] for row in rows}  # type: ignore[operator]
    assert kept["edge-popup"] == pytest.approx(0.5, abs=0.001)
    steps = rows_of(done, "rule-step")
    assert [row["rule"] for row in steps] == [*RULES] * 4  # networks
    assert all(row["over_dense"] > 0 and row["over_published"] > 0 for row in steps)  # type: ignore[operator]
    assert all((done / f"rules.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))


def test_what_is_done_is_not_done_again(done: Path) -> None:
    before = (done / "results.jsonl").read_bytes()
    told = CliRunner().invoke(bench_app, ["rules", "--quick", "--json", "--out", str(done)])
    assert len(json.loads(told.stdout)["rows"]) == 1 + len(RULES)
    assert (done / "results.jsonl").read_bytes() == before


def test_several_at_a_time_give_the_same(done: Path, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows_of(done, "rule-step"))  # which need not be timed again
    )
    line = ["rules", "--quick", "--rules", "edge-popup,signed", "--jobs", "2", "--json", "--out", str(tmp_path)]
    told = CliRunner().invoke(bench_app, line)
    assert told.exit_code == 0, told.output
    one = {row["rule"]: row for row in rows_of(done, "rules")}
    for row in json.loads(told.stdout)["rows"]:
        assert {**row, "seconds": 0} == {**{key: one[row["rule"]][key] for key in row}, "seconds": 0}


def test_the_page_shows_them(done: Path) -> None:
    (section,) = build_sections(find([done]))
    assert section.anchor == "rules"
    (view,) = section.blocks[0].views  # type: ignore[union-attr]
    assert [series.name for series in view.series] == [*RULES, "trained, 18,184 bytes in float32"]
    assert (view.x, view.y, view.y_scales[0]) == ("bytes of the file", "wrong answers, %", "log")


def test_the_full_grid() -> None:
    settings = RulesSettings()
    assert len(tasks_of(settings)) == len(NETWORKS) * settings.seeds * (len(RULES) * 6 + 1)
    assert min(settings.densities) == 0.05
    assert max(settings.densities) == 0.9


def test_every_network_takes_the_images() -> None:
    (images, _), _ = digits()
    assert all(make(network)(images[:3]).shape == (3, 10) for network in NETWORKS)


def test_a_ticket_of_a_convolutional_network() -> None:
    row = run_task(("conv", "edge-popup", 0.5, 0, 5))
    assert row.weights == 9 * 32 + 9 * 32 * 64 + 256 * 10
    assert row.kept == row.weights // 2


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--networks", "resnet"], "networks must be among 300-100, 48-24, conv; got 'resnet'"),
        (["--rules", "magic"], "rule must be one of edge-popup"),
        (["--densities", "0.5,70"], "density must be in"),
    ],
)
def test_bad_usage(option: list[str], told: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, ["rules", *option, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert told in result.output
