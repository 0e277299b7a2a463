"""`bench decode`: right first, then timed, in processes of their own; and on the page."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strongticket.bench import decode
from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.settings import ENGINES
from strongticket.cli.bench import bench_app
from strongticket.report.build import build_sections
from strongticket.report.find import find


def test_quick_gives_rows_a_figure_and_a_section(tmp_path: Path) -> None:
    told = CliRunner().invoke(bench_app, ["decode", "--quick", "--out", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "from bits" in told.stdout
    bits, dense = (json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines())
    assert (bits["engine"], dense["engine"], dense["times_float32"]) == ("bits", "float32", 1)
    for row in (bits, dense):
        assert row["error"] < 1e-5
        assert row["p20"] <= row["median"] <= row["p80"]
        assert 0 < row["limit_share"] < row["weight_bytes"] * row["p80"] / row["bandwidth"]
    assert bits["weight_bytes"] < dense["weight_bytes"] / 4  # columns are padded, or it would be 16
    assert all((tmp_path / f"decode.{kind}").stat().st_size > 5_000 for kind in ("png", "svg"))
    (section,) = build_sections(find([tmp_path]))
    assert section.anchor == "decode"
    assert [series.name for series in section.blocks[0].views[0].series] == ["from bits", "float32"]  # type: ignore[union-attr]


def test_wrong_logits_are_not_timed() -> None:
    decode.check({"bits": 1e-6, "bfloat16": 0.1}, "nano")
    for error in (0.1, float("nan")):
        with pytest.raises(WrongAnswerError, match="logits of mask differ"):
            decode.check({"bits": 1e-6, "mask": error}, "nano")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("engine", ENGINES[:-1])
def test_every_engine_computes_the_same_network(engine: str) -> None:
    model, expected = decode._built(engine, "nano", "cpu"), decode._reference("nano")
    tokens = decode.tokens_of(decode.CHECKED, 256)
    error = decode._error(decode.Decoder(model).feed(tokens).float().numpy(), expected)
    assert error < (1e-5 if engine in ("bits", "mask", "float32") else 0.1)
    numbers = sum(tensor.numel for tensor in decode.random_ticket("nano").tensors.values())
    sizes = {"bits": 0.25, "mask": 0.125, "float32": 4, "bfloat16": 2, "int8": 1}
    # Columns of planes are padded here, and int8 keeps embeddings as floats.
    assert sizes[engine] * numbers <= decode._weight_bytes(model) < 2.5 * sizes[engine] * numbers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engines", "abacus"], "engines must be among bits, mask"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--models", "nano", "--prompt", "200"], "nano has a context of 128 tokens; got 200"),
    ],
)
def test_bad_settings_are_named(options: list[str], message: str) -> None:
    told = CliRunner().invoke(bench_app, ["decode", *options])
    assert told.exit_code == 2
    assert message in " ".join(told.output.replace("│", " ").split())
