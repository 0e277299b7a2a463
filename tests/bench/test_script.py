import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.script import Row, markdown, run_script


def rows(*, names: tuple[str, ...], count: int) -> Iterator[Row]:
    for name in names:
        if name == "wrong":
            raise WrongAnswerError("a wrong answer")
        yield {"name": name, "count": count, "rate": 1 / 3}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, out: Path | None = None) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    run_script("What it does.", rows, op="x", out=out, names=("a",), count=1)


def test_options_take_the_kind_of_their_defaults_and_rows_are_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    run(monkeypatch, "--names", "a,b", "--count", "2000", "--out", str(file))
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table == [["name", "count", "rate"], ["a", "2,000", "0.3333"], ["b", "2,000", "0.3333"]]
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["op"], row["name"], row["count"], row["rate"]) for row in kept] == [
        ("x", "a", 2000, 1 / 3),
        ("x", "b", 2000, 1 / 3),
    ]
    assert all({"date", "commit", "cpu", "gpu", "versions"} <= row.keys() for row in kept)


def test_a_wrong_answer_ends_the_run_and_leaves_what_was_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="Error: a wrong answer"):
        run(monkeypatch, "--names", "a,wrong,b", out=tmp_path / "rows.jsonl")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1


def test_a_table_for_a_document() -> None:
    rows = [{"n": "1", "error": "0.5"}, {"n": "2", "error": "0.1"}]
    assert markdown(rows) == "| n | error |\n| ---: | ---: |\n| 1 | 0.5 |\n| 2 | 0.1 |"


def test_without_a_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(monkeypatch)
    assert list(tmp_path.iterdir()) == []
