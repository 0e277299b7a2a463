"""Runs of `strongticket search` on the page: finished, stopped, resumed; and what is called alike."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

from strongticket import Ticket, search
from strongticket.data.text import load_text
from strongticket.files import unsealed
from strongticket.learn.config import RunConfig
from strongticket.learn.policy import Policy
from strongticket.learn.rules.bernoulli import Bernoulli
from strongticket.learn.run import Means, Moment, StoppedError
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run
from strongticket.report import write_report
from strongticket.report.names import distinct_names
from strongticket.tickets.summary import summarize
from tests.report.conftest import Visit

MEANS = Means(share=Share(0, 1, torch.device("cpu")))
SCALED = RunConfig(
    size="nano", length=32, sequences=4, micro_batch=4, steps=30, warmup=4, lr=1e-2, final_lr=1e-3, validate_every=10
)
PLAIN = replace(SCALED, policy=Policy(qk_scale=1.0, output_gain=4.0, embeddings="trained"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two searches of equal names below, a trained model, a run that was stopped, and one that went on after that."""
    out, folder = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("my-text")
    for split in ("train", "valid"):
        (folder / f"{split}.txt").write_text(f"A text to {split} on. " * 40)
    text = load_text(str(folder), tokenizer="bytes", cache=folder / "cache")
    threads, before = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(moment: Moment) -> None:
        if moment.step == 20 != moment.validated:
            signal.raise_signal(signal.SIGINT)

    try:
        run(SCALED, text, out / "scaled" / "seed-0", MEANS)
        run(PLAIN, text, out / "plain" / "seed-0", MEANS)
        run(replace(SCALED, mode="dense"), text, out / "dense" / "seed-0", MEANS)
        for name in ("stopped", "resumed"):
            with pytest.raises(StoppedError):
                run(replace(SCALED, seed=1), text, out / name / "seed-1", MEANS, watch=interrupt)
        run(replace(SCALED, seed=1), text, out / "resumed" / "seed-1", MEANS)
    finally:
        signal.signal(signal.SIGINT, before)
        torch.set_num_threads(threads)
    return out


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of all of them."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    return file, write_report([runs], file)


def unsealed_file(path: Path) -> dict[str, Any]:
    """A file's content without its digest: what is changed then is wrong, not damaged."""
    return dict(unsealed(json.loads(path.read_bytes())))


def cells(visit: Visit) -> dict[str, list[str]]:
    rows = visit.section("searches").locator(".blocks > .table tbody tr").all()
    return {(texts := row.locator("td").all_inner_texts())[0]: texts for row in rows}


def test_all_runs_are_shown_and_nothing_is_left_out(page: tuple[Path, dict[str, Any]]) -> None:
    _, summary = page
    assert summary["left_out"] == []
    assert summary["sections"] == [
        "Search runs",
        "Inside a ticket: plain/seed-0/best.ticket",
        "Inside a ticket: resumed/seed-1/best.ticket",
        "Inside a ticket: scaled/seed-0/best.ticket",
    ]


def test_table_says_what_each_run_was(visit: Visit, page: tuple[Path, dict[str, Any]], runs: Path) -> None:
    visit.open(page[0])
    rows = cells(visit)
    result = json.loads((runs / "scaled" / "seed-0" / "result.json").read_bytes())
    assert rows["scaled/seed-0"][1:4] == [f"{result['best_validation_loss']:.4f}", "0", "2.38 (auto)"]
    assert rows["scaled/seed-0"][5:7] == ["nano", "density 0.3"]
    assert rows["scaled/seed-0"][7] == "30 steps"
    assert (rows["plain/seed-0"][3], rows["plain/seed-0"][6]) == ("1", "density 0.3, embeddings trained, output gain 4")
    assert (rows["dense/seed-0"][3], rows["dense/seed-0"][6]) == ("–", "all weights trained")
    assert rows["stopped/seed-1"][7] == "not finished: step 20 of 30"
    assert rows["resumed/seed-1"][7] == "30 steps, resumed at 20"
    assert "1 of 5 not finished" in visit.section("searches").inner_text()


def test_table_of_usual_runs_fits_a_desktop(visit: Visit, runs: Path, tmp_path: Path) -> None:
    write_report([runs / "scaled", runs / "dense"], tmp_path / "report.html")
    table = visit.open(tmp_path / "report.html").section("searches").locator(".blocks > .table .scroll")
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert table.get_attribute("data-more") is None
    # On a phone the result is seen, and an edge that fades says that there is more.
    visit.page.set_viewport_size({"width": 390, "height": 844})
    expect(table).to_have_attribute("data-more", "right")
    loss = table.locator("tbody tr").first.locator("td").nth(1).bounding_box()
    assert loss["x"] + loss["width"] < 390 - 40
    table.evaluate("e => e.scrollTo({ left: 60 })")
    expect(table).to_have_attribute("data-more", "left right")


def test_curves_are_those_of_the_files(visit: Visit, page: tuple[Path, dict[str, Any]], runs: Path) -> None:
    section = visit.open(page[0]).section("searches")
    shown = json.loads(section.locator("script[type='application/json']").text_content())["views"]
    result = json.loads((runs / "scaled" / "seed-0" / "result.json").read_bytes())
    tokens_per_step = SCALED.tokens_per_step
    (validation,) = [series for series in shown[1]["series"] if series["name"] == "nano, scale 2.38 (auto), seed 0"]
    # What is there before the first step would squeeze all else into a corner: only the table has it.
    assert validation["points"] == [[step * tokens_per_step, loss] for step, loss in result["curve"] if step]
    numbers = section.locator("details.numbers tbody tr").all_text_contents()
    assert any(line.startswith("nano, scale 2.38 (auto), seed 00") for line in numbers)
    metrics = [json.loads(line) for line in (runs / "scaled" / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    (training,) = [series for series in shown[2]["series"] if series["name"] == "nano, scale 2.38 (auto), seed 0"]
    assert training["points"] == [[row["step"] * tokens_per_step, row["loss"]] for row in metrics if "loss" in row]


def test_hover_reads_training_and_validation_and_a_legend_entry_hides_both(
    visit: Visit, page: tuple[Path, dict[str, Any]]
) -> None:
    section = visit.open(page[0]).section("searches")
    lines = section.locator(".plot .line")
    before = lines.count()
    assert before == 10  # two of each run
    section.locator(".legend button", has_text="trained, seed 0").click()
    assert lines.count() == before - 2
    section.get_by_role("button", name="Training").click()
    assert lines.count() == 5
    section.locator(".plot").focus()
    visit.page.keyboard.press("ArrowRight")
    expect(section.locator(".tip")).to_be_visible()
    assert "tokens: 1,280" in section.locator(".tip").inner_text()  # ten steps of 128 tokens


def test_every_setting_has_its_colour_and_every_seed_its_dashes(runs: Path, tmp_path: Path, visit: Visit) -> None:
    for name, changes in {"a": {}, "b": {"seed": 5}, "c": {"lr": 0.5, "final_lr": 0.1}, "d": {"steps": 31}}.items():
        shutil.copytree(runs / "scaled" / "seed-0", tmp_path / name)
        result = unsealed_file(tmp_path / name / "result.json")
        result["config"] |= changes
        if name == "b":  # written before there was this setting
            del result["config"]["policy"]["rescale"]
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    write_report([tmp_path], tmp_path / "report.html")
    section = visit.open(tmp_path / "report.html").section("searches")
    view = json.loads(section.locator("script[type='application/json']").text_content())["views"][1]
    looks = {series["name"]: (series["colour"], series["dash"]) for series in view["series"]}
    assert looks == {
        "nano, scale 2.38 (auto), 30 steps, learning rate 0.01, seed 0": ("s0", "solid"),
        "nano, scale 2.38 (auto), 30 steps, learning rate 0.01, seed 5": ("s0", "dashed"),
        "nano, scale 2.38 (auto), 30 steps, learning rate 0.5, seed 0": ("s1", "solid"),
        "nano, scale 2.38 (auto), 31 steps, seed 0": ("s2", "solid"),
    }


def test_two_runs_that_say_the_same_name_are_told_apart(visit: Visit, runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / "scaled" / "seed-0", tmp_path / name / "seed-0")
    summary = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html")
    assert summary["left_out"] == []
    legend = visit.open(tmp_path / "report.html").section("searches").locator(".legend").inner_text()
    assert "seed 0, a/seed-0" in legend
    assert "seed 0, b/seed-0" in legend


def test_ticket_of_a_run_says_when_and_where_it_was_found(visit: Visit, page: tuple[Path, dict[str, Any]]) -> None:
    section = visit.open(page[0]).section("ticket-2")
    assert "scaled/seed-0/best.ticket" in section.locator("h2").inner_text()
    origin, facts = section.locator("dl.origin").text_content(), section.locator(".facts").inner_text()
    assert "Date" in origin
    assert "core" in origin
    assert "GPT-2: 2 layers, width 64, 2 heads" in facts
    assert "no biases" in facts
    assert "config." not in facts
    assert "False" not in facts
    assert "search on my-text" in facts
    assert "validation loss" in facts


def test_broken_runs_are_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "scaled", tmp_path / "whole")
    shutil.copytree(runs / "stopped", tmp_path / "torn")
    with open(tmp_path / "torn" / "seed-1" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 30, "lo')  # as a run under way may leave it
    shutil.copytree(runs / "stopped", tmp_path / "junk")
    (tmp_path / "junk" / "seed-1" / "config.json").write_text("{")
    summary = write_report([tmp_path], tmp_path / "report.html")
    assert [left["file"] for left in summary["left_out"]] == [str(tmp_path / "junk" / "seed-1")]
    assert "torn/seed-1" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["scaled", "plain"])
def test_nonzero_of_show_is_that_of_search(runs: Path, name: str) -> None:
    folder = runs / name / "seed-0"
    summary = summarize(Ticket.load(folder / "best.ticket"), folder / "best.ticket")
    counted = json.loads((folder / "result.json").read_bytes())["nonzero"]["all"]
    assert summary.nonzero_words().startswith(f"{counted:,} as search counts: {summary.kept:,} kept + ")


def test_size_names_its_parts(runs: Path) -> None:
    file = runs / "plain" / "seed-0" / "best.ticket"
    summary = summarize(Ticket.load(file), file)
    assert summary.mask_bytes + summary.description_bytes + 4 * summary.dense_numbers == file.stat().st_size
    bits = 8 * summary.mask_bytes / summary.ticket.numel
    assert 0.85 < bits < 1.01  # 0.881 by the entropy of density 0.3; a small mask is stored as it is
    assert f"({bits:.3f} bits per weight)" in summary.size_words()


def test_names_have_one_depth_and_no_more_than_they_need() -> None:
    paths = [Path("x/a/s/t"), Path("x/b/s/t"), Path("x/b/r/t"), Path("u")]
    assert list(distinct_names(paths).values()) == ["a/s/t", "b/s/t", "b/r/t", "u"]
    assert distinct_names([Path("a"), Path("a")]) == {Path("a"): "a"}
    assert distinct_names([]) == {}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"size": "vast"}),
        ("result.json", {"best_validation_loss": "low"}),
        ("result.json", {"curve": [[0, float("nan")]]}),
        ("run.json", {"tokens_per_second": "fast"}),
    ],
)
def test_a_damaged_run_is_named_and_the_others_are_shown(
    file: str, change: dict[str, Any], runs: Path, tmp_path: Path
) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / "scaled" / "seed-0", tmp_path / name)
    if file == "config.json":  # read only where there is no result yet
        (tmp_path / "bad" / "result.json").unlink()
    path = tmp_path / "bad" / file
    path.write_text(json.dumps({**unsealed_file(path), **change}))
    summary = write_report([tmp_path], tmp_path / "report.html")
    assert "Search runs" in summary["sections"]
    assert [Path(left["file"]).name for left in summary["left_out"]] == ["bad"]


def test_losses_on_different_texts_are_not_ranked(runs: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(runs / "scaled" / "seed-0", tmp_path / name)
    path = tmp_path / "other" / "result.json"
    result = unsealed_file(path)
    result["config"]["text"]["data"] = "another text"
    path.write_text(json.dumps(result))
    write_report([tmp_path], tmp_path / "report.html")
    shown = (tmp_path / "report.html").read_text()
    assert "2 runs on several texts; their losses cannot be compared" in shown
    assert "on another text" in shown


@pytest.mark.parametrize(
    "curve",
    [[[0, 5.0], [10, 5.0], [20, 5.000000000000001]], [[step, 5 - step / 1e6] for step in range(300_001)]],
    ids=["equal but for rounding", "very long"],
)
def test_odd_curves_are_drawn(curve: list[list[float]], runs: Path, tmp_path: Path, visit: Visit) -> None:
    shutil.copytree(runs / "scaled" / "seed-0", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**unsealed_file(path), "curve": curve}))
    written = write_report([tmp_path], tmp_path / "report.html")
    assert written["bytes"] < 500_000
    plot = visit.open(tmp_path / "report.html").section("searches").locator(".plot > svg")
    expect(plot).to_have_count(1)
    assert plot.locator("circle.mark-dot").count() == min(len(curve) - 1, 500)


def test_a_figure_that_fails_costs_no_other(page: tuple[Path, dict[str, Any]], tmp_path: Path, visit: Visit) -> None:
    broken = page[0].read_text().replace('data-kind="Chart"', 'data-kind="unheard-of"', 1)
    assert broken != page[0].read_text()
    (tmp_path / "broken.html").write_text(broken)
    shown = visit.open(tmp_path / "broken.html").page
    assert shown.get_by_text("This figure could not be drawn").count() == 1
    assert shown.locator("figure.drawn canvas").count() >= 3


def test_a_run_reported_from_inside_its_folder_has_a_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs / "scaled" / "seed-0")
    assert list(distinct_names([Path()]).values()) == ["seed-0"]


def test_searches_in_the_callers_module_have_their_own_section(visit: Visit, runs: Path, tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 64).view(32, 2)
    y = (x.sum(1) > 0).long()

    def searched(name: str, **settings: Any) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        search(model, [(x, y)] * 20, density=0.5, out=tmp_path / "own" / name, **settings)

    searched("validated", validation=[(x, y)], rule=Bernoulli(final="threshold"))
    searched("unvalidated", seed=1)
    summary = write_report([runs / "dense", tmp_path / "own"], tmp_path / "report.html")
    assert summary["left_out"] == []
    assert summary["sections"][:2] == ["Search runs", "Search runs in modules"]
    section = visit.open(tmp_path / "report.html").section("searches-2")
    rows = [row.locator("td").all_inner_texts() for row in section.locator(".blocks > .table tbody tr").all()]
    result = json.loads((tmp_path / "own" / "validated" / "result.json").read_bytes())
    assert [row[:4] for row in rows] == [
        ["unvalidated", "–", "1", "edge-popup"],
        ["validated", f"{result['best_validation_loss']:.4f}", "0", "bernoulli:final=threshold,rescale=False"],
    ]
    assert rows[0][5:8] == ["Sequential", "density 0.5, init kaiming-sign, rescale", "20 steps"]
    shown = json.loads(section.locator("script[type='application/json']").text_content())["views"][1]
    assert (shown["x"], shown["y"]) == ("steps", "loss")
    assert shown["series"][0]["points"] == [point for point in result["curve"] if point[0]]
