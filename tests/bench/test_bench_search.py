import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from strongticket.bench import search
from strongticket.bench.settings import SearchSettings
from strongticket.cli.bench import bench_app
from strongticket.learn.rules import RULES
from strongticket.learn.step import Step
from strongticket.ops.supermask import Refresh

ROW_FIELDS = {
    "op", "model", "kind", "device", "precision", "compiler", "micro_batches", "sequences", "length", "trained", "p20",
    "median", "p80", "tokens_per_second", "time_ratio", "peak_bytes", "peak_ratio", "loss_error", "gradient_error",
}  # fmt: skip
WHERE_FIELDS = {"date", "commit", "cpu", "cores", "gpu", "os", "versions"}

quick = ["search", "--repeats", "2"]


def test_table_and_rows(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*quick, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2 x 4 x 64 tokens, cpu, float32" in result.stdout
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(row["model"], row["kind"]) for row in rows] == [("nano", kind) for kind in ("dense", "search", "gpt2")]
    assert all(row.keys() == ROW_FIELDS | WHERE_FIELDS for row in rows)
    dense, searched, _ = rows
    assert dense["time_ratio"] == 1
    assert searched["tokens_per_second"] == pytest.approx(512 / searched["median"])
    for row in rows:
        assert row["peak_bytes"] is None
        assert row["gradient_error"] < 1e-5  # float32 against float32, summed in another order


def test_json_is_one_object(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*quick, "--models", "nano", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed.keys() == {"ok", "rows"}
    assert all(row.keys() == ROW_FIELDS for row in printed["rows"])


def test_dense_trains_just_what_search_masks() -> None:
    trained = {
        kind: sum(p.numel() for p in search.build("nano", kind, "cpu")[0].parameters() if p.requires_grad)
        for kind in ("dense", "search", "gpt2")
    }
    model, supermasks, _ = search.build("nano", "search", "cpu")
    assert trained["search"] == trained["dense"] == sum(m.mask.numel() for m in supermasks)
    assert trained["gpt2"] == sum(p.numel() for p in search.build("nano", "gpt2", "cpu")[0].parameters())
    assert trained["gpt2"] > trained["dense"]
    assert model.config.bias is False


def test_every_rule_can_be_timed(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_app, [*quick, "--repeats", "1", "--rules", "all", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["dense", "search", *list(RULES)[1:], "gpt2"]


def test_the_figures_are_about_these_steps() -> None:
    settings = SearchSettings(device="cuda")
    assert settings.sizes == ("mini", "small")
    assert settings.batch == (4, 32, 1024)
    assert (settings.step.precision, settings.step.compiler) == ("bfloat16", "inductor")


def refused(tmp_path: Path, *options: str) -> str:
    result = CliRunner().invoke(bench_app, [*quick, "--out", str(tmp_path), *options])
    assert result.exit_code == 1
    assert "No speed is reported" in result.stderr
    assert list(tmp_path.iterdir()) == []
    if "--json" in options:
        assert json.loads(result.stdout)["ok"] is False
    else:
        assert result.stdout == ""
    return result.stderr


def test_no_speed_where_masks_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refresh, "__call__", lambda self: None)
    assert "differ from the published rule after 5 steps" in refused(tmp_path)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_speed_where_the_loss_is_another(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Step.loss
    monkeypatch.setattr(Step, "loss", lambda self, batch: 1.001 * honest(self, batch))
    assert "the loss of a dense step is off by 0.001 of eager float32" in refused(tmp_path, *options)


def test_no_speed_where_only_the_gradient_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Step.loss

    def twice_as_steep(self: Step, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = honest(self, batch)
        return 2 * loss - loss.detach()

    monkeypatch.setattr(Step, "loss", twice_as_steep)
    assert "the gradient of a dense step is off by 1 of eager float32" in refused(tmp_path)


def test_bad_usage(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    result = CliRunner().invoke(bench_app, [*quick, "--models", "nano,huge", *out])
    assert (result.exit_code, "choose nano, mini, small, medium" in result.stderr) == (2, True)
    if not torch.cuda.is_available():
        result = CliRunner().invoke(bench_app, [*quick, "--device", "cuda", *out])
        assert (result.exit_code, "torch finds no CUDA device" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
