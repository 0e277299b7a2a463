"""What lies about in folders, and how little of it may stop a page."""

import json
import os
from pathlib import Path

import pytest

from strongticket.report import write_report
from strongticket.report.find import find
from tests.report.conftest import subset_sums


def left_out(folder: Path) -> dict[str, str]:
    return {Path(name).name: reason for name, reason in find([folder]).left_out}


@pytest.mark.parametrize("name", ["result.json", "results.jsonl", "x.ticket"])
def test_a_pipe_is_named_and_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    assert left_out(tmp_path) == {name: "cannot be read: it is not a regular file"}


def test_links_to_nothing_and_to_themselves_are_named_each(tmp_path: Path) -> None:
    (tmp_path / "result.json").symlink_to("result.json")
    for name in ("a.ticket", "b.ticket"):
        (tmp_path / name).symlink_to("gone")
    assert left_out(tmp_path).keys() == {"result.json", "a.ticket", "b.ticket"}


def test_a_folder_given_twice_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"config": {"figure": "fig4"}}))
    found = find([tmp_path, tmp_path])
    assert len(found.results) == 1
    assert found.left_out == []


def test_lines_that_are_no_rows_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    row = subset_sums(engine="x", device="cpu", n=8, p20=1.0, median=2.0, p80=3.0)
    (tmp_path / "results.jsonl").write_text(f'{json.dumps(row)}\n7\nhalf {{\n{{"op": "rng"}}\n')
    found = find([tmp_path])
    assert [timed.row.median for timed in found.benchmarks[0].sums] == [2.0]
    assert found.benchmarks[0].steps == []
    assert found.left_out[0][1] == "2 of 4 lines are not JSON objects"


def test_a_search_whose_result_is_a_folder_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    config = {"mode": "dense", "size": "nano", "seed": 0, "steps": 9, "sequences": 4, "length": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "validation_loss": 5.0}\n')
    assert [run.result for run in find([tmp_path]).searches] == [None]


@pytest.mark.parametrize("name", ["result.json", "rows.jsonl", "best.ticket"])
def test_a_page_is_not_written_over_a_result(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match="is the name of a result, not of a page"):
        write_report([tmp_path], tmp_path / name)
    assert (tmp_path / name).read_text() == "{}"


def test_a_page_is_not_written_over_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(ValueError, match="is not a regular file"):
        write_report([tmp_path], tmp_path / "report.html")
    assert (tmp_path / "report.html").is_fifo()


def test_halves_of_characters_are_spelled_out(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"not utf-8 \xff")
    folder.mkdir()
    (folder / "result.json").write_text('{"config": {"figure": "\\ud800"}}')
    written = write_report([tmp_path], tmp_path / "report.html")
    assert len(written["left_out"]) == 1
    assert r"not utf-8 \udcff" in (tmp_path / "report.html").read_text()
