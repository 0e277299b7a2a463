"""What the page says, what it leaves out, and that nothing stops it."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from strongticket import (
    BlockMask,
    Certificate,
    DenseTensor,
    FullMask,
    PackedMask,
    RandomTensor,
    Ticket,
    construct_linear,
    construct_pretrained,
)
from strongticket.charts.parts import Chart, number, share
from strongticket.cli.main import app
from strongticket.errors import StrongTicketError
from strongticket.experiments import bootstrap, fig4
from strongticket.experiments.curves import curve
from strongticket.experiments.statistics import fit_decay, fit_decay_in_logs
from strongticket.pretrained.compare import compare
from strongticket.pretrained.load import load_tokenizer
from strongticket.report import Written, tickets, write_report
from strongticket.report.certificates import certificate_section
from strongticket.report.find import find
from strongticket.report.origin import took
from strongticket.report.pretrained import collected_section
from strongticket.report.product import draw_product
from strongticket.report.records import SearchConfig
from strongticket.report.searches import policy_words, scale_words
from strongticket.report.speed import speed_sections
from tests.cli.test_pretrained_cli import WORDS, save
from tests.pretrained.small_models import small
from tests.report.conftest import ROOT, subset_sums
from tests.small_tickets import small_ticket

RESULTS = ROOT / "results"


def write(folder: Path, content: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def page_of(*paths: Path, out: Path) -> tuple[str, Written]:
    """Give the page, without the marks that keep the pieces of a command together, and its summary."""
    summary = write_report(paths, out)
    return re.sub(r'<span class="whole">(.*?)</span>', r"\1", out.read_text()), summary


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "page" / "report.html"


def test_committed_results_make_a_whole_page_fast(out: Path) -> None:
    start = time.process_time()
    page, summary = page_of(RESULTS, out=out)
    assert time.process_time() - start < 10
    assert summary["left_out"] == []
    assert out.stat().st_size == summary["bytes"] < 8 * 2**20
    for start in ("Figure 4:", "Figure 5:", "Figure 6:", "all-MiniLM-L6-v2"):
        assert any(title.startswith(start) for title in summary["sections"])
    for fact in (
        "strongticket reproduce fig4 fig5 fig6 --out results",
        "2026-11-16",
        "AMD EPYC (family 25, model 17), 2 cores",
        "fig4/result.json",
    ):
        assert fact in page


def test_a_page_is_made_without_what_runs_searches(out: Path) -> None:
    """In a process of its own: this one has loaded everything."""
    script = (
        "import sys; from pathlib import Path; from strongticket.report import write_report\n"
        f"write_report([Path({str(RESULTS / 'fig7')!r})], Path({str(out)!r}))\n"
        "print(*(name for name in sys.argv[1:] if name in sys.modules))"
    )
    names = [f"strongticket.{name}" for name in ("learn.run", "learn.train", "experiments.language")]
    assert all(map(find_spec, names)), "or this would say nothing"
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_page_asks_for_nothing_and_runs_only_its_own_script(full_page: Path) -> None:
    page = full_page.read_text()
    assert not re.search(
        r"""(?:src|href)\s*=\s*["']?(?!#)[a-z]""", re.sub(r"<script.*?</script>", "", page, flags=re.S)
    )
    assert "@import" not in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_progress_counts_files(tickets: Path, out: Path) -> None:
    told: list[tuple[int, int]] = []
    write_report([RESULTS / "fig5", tickets], out, lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first, _ = page_of(RESULTS / "fig4", out=tmp_path / "a.html")
    second, _ = page_of(RESULTS / "fig4", out=tmp_path / "b.html")
    assert first == second


def test_equal_results_are_shown_once_and_both_files_named(tmp_path: Path, out: Path) -> None:
    write(tmp_path / "again", (RESULTS / "fig4" / "result.json").read_text())
    page, summary = page_of(RESULTS / "fig4", tmp_path / "again", out=out)
    assert sum(title.startswith("Figure 4") for title in summary["sections"]) == 1
    assert f"<dt>The same in</dt><dd>{tmp_path / 'again' / 'result.json'}</dd>" in page


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        (0.0, "numbers differ by at most 1\xa0×\xa010⁻¹¹. That is rounding"),
        (1e-9, "for larger ones, by 1\xa0×\xa010⁻⁹ of their size. That is rounding"),
        (1e-3, "numbers differ by more than rounding"),
    ],
)
def test_of_two_results_with_the_same_settings_the_first_is_shown(
    apart: float, words: str, tmp_path: Path, out: Path
) -> None:
    kept = json.loads((RESULTS / "fig4" / "result.json").read_bytes())
    fresh = json.loads(json.dumps(kept))
    # As in `make demo`: the kept file is older than one setting.
    assert "n_heads" not in kept["config"]["target"]
    fresh["config"]["target"]["n_heads"] = 1
    fresh["widths"][0]["error"]["median"] *= 1 + apart
    # What another CPU gave: errors near 1e-12 moved by 4e-13, and the fit in logarithms by a hundredth.
    fresh["widths"][-2]["error"]["median"] += 4e-13
    fresh["fits"][0]["median_in_logs"]["gamma"] *= 1.01
    first = write(tmp_path / "first", fresh) / "result.json"
    page, summary = page_of(first.parent, RESULTS / "fig4", out=out)
    assert sum(title.startswith("Figure 4") for title in summary["sections"]) == 1
    (left,) = summary["left_out"]
    assert left["file"] == str(RESULTS / "fig4" / "result.json")
    assert left["reason"].startswith(f"has the same settings as {first}, which is shown: ")
    assert words.replace("\xa0", " ") in left["reason"]
    assert re.search(rf'<p class="lead">Compared with {re.escape(left["file"])}: [^<]*{words}', page)


def test_figures_on_text_tell_machine_and_command_from_their_rows(text_results: Path, out: Path) -> None:
    page, summary = page_of(text_results, out=out)
    assert summary["left_out"] == []
    assert [title[:8] for title in summary["sections"]] == ["Figure 7", "Figure 8"]
    assert "strongticket reproduce fig8 --schedule short --models nano --seeds 3" in page
    assert "a GPU" in page
    assert "2026-11-15 00:00 UTC" in page


def test_pretrained_comparisons_make_a_section(tmp_path: Path, out: Path) -> None:
    tokenizer = load_tokenizer(str(save(small("bert"), tmp_path / "model")))
    texts = [" ".join(WORDS[i : i + 7]) for i in range(12)]
    for items in (8, 12):
        told = compare(small("bert"), construct_pretrained(small("bert"), items=items), texts, tokenizer)
        wrapped = {"what": "attention", "items": items, "compare": told, "run": {"machine": "a machine"}}
        # As `compare --json` prints it, and as the benchmark keeps it.
        (tmp_path / f"attention-{items}.json").write_text(json.dumps(told if items == 8 else wrapped))
    page, summary = page_of(tmp_path, out=out)
    assert summary["sections"] == ["A pretrained model inside a random network"]
    assert f"worst {number(1 - told['cosine']['min'])}" in page.replace("\xa0", " ")
    assert "layer.1.attention" in page
    assert re.findall(r"<td>attention</td><td[^>]*>(.*?)</td>", page) == ["8", "12"]
    assert summary["left_out"] == []


def comparison(items: int) -> dict[str, Any]:
    told = {"texts": 2, "tokens": 14, "cosine": {"mean": 0.99, "min": 0.98}, "parts": []}
    return {"what": "attention", "items": items, "compare": {**told, "largest_difference": 0.1, "float32_rounding": 0}}


def test_a_broken_comparison_leaves_the_others(tmp_path: Path, out: Path) -> None:
    for name, content in (("good", comparison(8)), ("bad", {"compare": {}, "items": 3}), ("best", comparison(12))):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    page, summary = page_of(tmp_path, out=out)
    assert summary["sections"] == ["A pretrained model inside a random network"]
    assert [Path(left["file"]).name for left in summary["left_out"]] == ["bad.json"]
    assert re.findall(r"<td>attention</td><td[^>]*>(.*?)</td>", page) == ["8", "12"]


def test_a_broken_certificate_leaves_those_of_other_figures(tmp_path: Path, out: Path) -> None:
    good, bad = (json.loads((RESULTS / name / "result.json").read_bytes()) for name in ("fig4", "fig5"))
    bad["violations"] = "many"
    broken = write(tmp_path / "broken", bad)
    page, summary = page_of(RESULTS / "fig4", broken, out=out)
    assert "No measured error exceeds its certificate" in summary["sections"]
    assert [left["file"] for left in summary["left_out"]] == [str(broken / "result.json")]
    sources = sum(len(point["sources"]["worst"]) for point in good["widths"] + good["adaptive"]["widths"])
    assert f"0 of {sources:,} sources exceed their certificate" in page


def test_folder_without_results_still_gives_a_page(tmp_path: Path, out: Path) -> None:
    (tmp_path / "empty").mkdir()
    page, summary = page_of(tmp_path / "empty", out=out)
    assert summary["sections"] == []
    assert "Nothing to show yet" in page
    assert "holds no result.json, results.jsonl, search run or .ticket file" in page


BROKEN = {
    "not JSON": "{",
    "no object": [1, 2],
    "no configuration": {"widths": []},
    "a figure of tomorrow": {"config": {"figure": "fig99"}},
    "nothing but its name": {"config": {"figure": "fig4"}},
    "figure no text": {"config": {"figure": ["fig4"]}},
    "not a number": re.sub(r'"mean": [\d.]+', '"mean": NaN', (RESULTS / "fig4" / "result.json").read_text(), count=1),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_and_newer_results_are_named_and_passed_over(name: str, tmp_path: Path, out: Path) -> None:
    folder = write(tmp_path / "broken", BROKEN[name])
    page, summary = page_of(RESULTS / "fig5", folder, out=out)
    assert any(title.startswith("Figure 5") for title in summary["sections"])
    assert {left["file"] for left in summary["left_out"]} == {str(folder / "result.json")}
    assert "Left out" in page
    assert str(folder / "result.json") in page


@settings(max_examples=25)
@given(data=st.data())
def test_no_damage_to_a_result_stops_the_page(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Take a real result, replace or drop something in it at random, and ask for the page."""
    figure = data.draw(st.sampled_from(["fig4", "fig5", "fig6"]))
    content = json.loads((RESULTS / figure / "result.json").read_bytes())
    node: Any = content
    for _ in range(data.draw(st.integers(0, 4))):
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        inner = [key for key in keys if isinstance(node[key], dict | list) and node[key]]
        if not inner:
            break
        node = node[data.draw(st.sampled_from(inner))]
    key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node)))))
    damage = data.draw(st.sampled_from(["drop", None, "<b>", -1, 1e999, [], {}, [[]], True, 10**400]))
    if damage == "drop":
        del node[key]
    else:
        node[key] = damage
    folder = tmp_path_factory.mktemp("damaged")
    page, _ = page_of(write(folder / figure, content), out=folder / "report.html")
    assert page.endswith("</html>\n")
    assert "<b>" not in page


def test_broken_rows_and_tickets_are_named(tmp_path: Path, out: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"op": "subset_sum", "engine": "x"}\nnot json\n7\n')
    (tmp_path / "torn.ticket").write_bytes(small_ticket().to_bytes()[:-5])
    _, summary = page_of(tmp_path, out=out)
    reasons = {Path(left["file"]).name: left["reason"] for left in summary["left_out"]}
    assert "torn.ticket" in reasons
    assert "results.jsonl" in reasons
    assert any("2 of 3 lines are not JSON objects" in left["reason"] for left in summary["left_out"])


def test_each_gpu_has_its_own_line(tmp_path: Path) -> None:
    rows = [
        subset_sums(engine="strongticket", device="cuda", gpu=gpu, n=n, p20=rate, median=rate, p80=rate)
        for gpu, rate in (("T4", 1e6), ("H200", 1e7))
        for n in (8, 16)
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (section,) = speed_sections(find([tmp_path]).benchmarks[0])
    (chart,) = section.blocks
    assert isinstance(chart, Chart)
    fast, slow = chart.views[0].series
    assert (fast.name, fast.points) == ("strongticket, H200", [(8, 1e7), (16, 1e7)])
    assert (slow.name, slow.points) == ("strongticket, T4", [(8, 1e6), (16, 1e6)])
    assert fast.colour != slow.colour


def test_a_gpu_is_compared_with_its_own_peers(tmp_path: Path) -> None:
    rows = [
        subset_sums(engine=engine, device="cuda", gpu=gpu, n=8, p20=rate, median=rate, p80=rate)
        for gpu, engine, rate in (("T4", "strongticket", 8.0), ("T4", "torch", 2.0), ("H200", "torch", 4.0))
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (section,) = speed_sections(find([tmp_path]).benchmarks[0])
    assert section.title == "Subset sums: 4 times the fastest peer (torch) at 8 items"


def test_speed_is_said_of_what_was_timed_and_dated_by_all_of_it(tmp_path: Path) -> None:
    (decoded,) = speed_sections(find([RESULTS / "decode"]).benchmarks[0])
    (chart,) = decoded.blocks
    assert isinstance(chart, Chart)
    assert re.match(r"One core: GPT-2 medium writes [\d.]+ times as many tokens", chart.views[0].says)
    steps = next(s for s in speed_sections(find([RESULTS / "bench"]).benchmarks[0]) if s.anchor == "search-speed")
    assert re.fullmatch(r"a step of edge-popup takes .* a training step \(NVIDIA H200\)", steps.finding)
    lines = [json.loads(line) for line in (RESULTS / "rules" / "results.jsonl").read_text("utf-8").splitlines()]
    (rules,) = speed_sections(find([RESULTS / "rules"]).benchmarks[0])
    assert max(line["date"] for line in lines)[:10] in rules.origin["Date"]
    assert rules.title.endswith("the best tickets are from 0.7 points ahead of training to 0.1 points behind it")
    for accuracy, said in ((1.0, "at least as good as training"), (0.5, r"at most [\d.]+ points behind training")):
        for line in lines:
            if line["op"] == "rules" and line["rule"] != "trained":
                line["accuracy"] = accuracy
        (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (changed,) = speed_sections(find([tmp_path]).benchmarks[0])
        assert re.search(f"the best tickets are {said}$", changed.title)


def test_the_page_of_reports_says_how_large_our_drawing_is() -> None:
    scripts = [path.read_text("utf-8") for path in (ROOT / "src/strongticket/report/assets").glob("*.js")]
    said = re.search(r"about ([\d,]+) lines and (\d+) kB", (ROOT / "docs/report.md").read_text("utf-8"))
    assert said
    assert sum(script.count("\n") for script in scripts) == pytest.approx(int(said[1].replace(",", "")), rel=0.1)
    assert sum(map(len, scripts)) == pytest.approx(1000 * int(said[2]), rel=0.1)


def test_bands_and_findings_are_in_words_a_newcomer_knows(out: Path) -> None:
    page, _ = page_of(RESULTS / "theorem3", RESULTS / "scans", out=out)
    assert "Grey band: the computed chance that an entry is out of reach" in page
    assert (
        "choosing each unit’s input after seeing its weights lowers the median error by a factor of 3.2 to 200<" in page
    )


def test_other_targets_are_drawn_thin_beside_the_first() -> None:
    content = json.loads((RESULTS / "fig4" / "result.json").read_bytes())
    content["fits"].append({**content["fits"][0], "target": 1})
    content["widths"] += [{**point, "target": 1} for point in content["widths"]]
    (chart,) = fig4.describe(content).blocks
    assert isinstance(chart, Chart)
    for statistic, view in zip(("median", "mean"), chart.views, strict=False):
        assert [series.name for series in view.series if series.thin] == [f"target 1, {statistic}"]


def test_a_glance_has_the_first_tickets_and_says_how_many_there_are(tmp_path: Path, out: Path) -> None:
    for place in range(7):
        small_ticket().save(tmp_path / f"{place:02}.ticket")
    page, _ = page_of(tmp_path, out=out)
    (listed,) = re.findall(r'<ul class="glance".*?</ul>', page, flags=re.DOTALL)
    glance = re.findall(r"<li><a href=\"#ticket-(\d)\">(.*?)</a>", listed)
    assert [place for place, _ in glance] == ["0", "1", "2", "3", "4"]
    assert glance[-1][1] == "3 more"
    (contents,) = re.findall(r"<nav.*?</nav>", page)
    assert contents.count("<li>") == 1


def test_variants_of_a_figure_are_told_apart_and_make_one_headline(tmp_path: Path, out: Path) -> None:
    content = json.loads((RESULTS / "fig4" / "result.json").read_bytes())
    usual = content["config"]
    for name, changed in (("a", {"sources": 20}), ("b", {"init": "xavier", "seed": 7, "inputs": 9}), ("c", {})):
        write(tmp_path / name, content | {"config": usual | changed})
    page, _ = page_of(tmp_path, out=out)
    (listed,) = re.findall(r'<ul class="glance".*?</ul>', page, flags=re.DOTALL)
    names = [name for name in re.findall(r"<li><a href=.*?>(.*?)</a>", listed) if name.startswith("Figure 4")]
    assert names == ["Figure 4", "Figure 4, sources 20", "Figure 4, seed 7, init xavier, 1 more"]
    (findings,) = re.findall(r'<ul class="findings".*?</ul>', page, flags=re.DOTALL)
    assert findings.count("Prune a random attention") == 1
    assert "Every ticket from a construct function comes with a proof" in findings


def test_too_many_tickets_are_counted_out(tmp_path: Path, out: Path) -> None:
    for place in range(14):
        small_ticket().save(tmp_path / f"{place:02}.ticket")
    _, summary = page_of(tmp_path, out=out)
    assert len(summary["sections"]) == 12
    assert [Path(left["file"]).name for left in summary["left_out"]] == ["12.ticket", "13.ticket"]


def test_numbers_that_are_no_random_weights_are_named(tickets: Path, tmp_path: Path, out: Path) -> None:
    mask = PackedMask.random((3, 5), 0.5, seed=0)
    frozen = DenseTensor(name="b", value=torch.ones(1), trained=False)
    for name, dense in (("bare", []), ("frozen", [frozen]), ("trained", [replace(frozen, trained=True)])):
        Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)], dense=dense).save(tmp_path / f"{name}.ticket")
    page, _ = page_of(tmp_path, tickets / "attention.ticket", out=out)
    leads = re.findall(r"<p class=\"lead\">(The file holds.*?)</p>", page)
    strong = re.findall(r"<td>strong</td><td>(.*?)</td>", page)
    kept = "for each tensor which of them are kept"
    for place, (held, said) in enumerate(
        (
            (f"and {kept}.", "yes: random weights and masks, nothing else"),
            (
                f"{kept}, and 1 number stored in full, none trained.",
                "yes: random weights and masks, plus 1 number stored in full, none trained",
            ),
            (f"{kept}, and 1 number, trained ones among them.", "no: some dense tensors were trained"),
            (f"{kept}, and 4 numbers copied", "yes: random weights and masks, plus 4 numbers copied from the target"),
        )
    ):
        assert held in leads[place]
        assert strong[place] == said


def test_a_pretrained_models_ticket_is_not_called_the_whole_network(tmp_path: Path, out: Path) -> None:
    ticket = construct_pretrained(small("gpt2"), items=6, what="attention+mlp")
    ticket.save(tmp_path / "model.ticket")
    page, _ = page_of(tmp_path, out=out)
    rest = "his is the model&#39;s attention and MLP; the rest of the model is not in the file"
    assert re.search(rf"are kept, and \d+ numbers copied from the target\. T{rest}\.<", page)
    assert re.search(rf"<td>strong</td><td>yes: [^<]*; t{rest}</td>", page)
    assert "whole network" not in page
    parts = len(ticket.certificate.details["parts"])
    assert f"<td>each of {parts} parts by itself: output error at most " in page


def test_a_product_made_by_hand_is_said_to_have_no_certificate() -> None:
    constructed = construct_linear(torch.tensor([[0.25, -0.5], [0.5, 0.0]]), hidden_width=48)
    by_hand = Ticket(seed=0, tensors=[*constructed.tensors.values()], architecture=constructed.architecture)
    said = [draw_product(ticket) for ticket in (constructed, by_hand)]
    assert [block.caption.endswith("so it has no certificate.") for block in said if block] == [False, True]


def test_a_part_just_above_its_certificate_exceeds_it(tmp_path: Path) -> None:
    """Even where both round to the same three digits."""
    content = json.loads((RESULTS / "pretrained" / "result.json").read_bytes())
    part = content["runs"][0]["compare"]["parts"][0]
    for error, said in ((1.2342e-5, "No part exceeds"), (1.2344e-5, "Some parts exceed")):
        part |= {"certified": 1.2343e-5, "error": error}
        (chart,) = collected_section(find([write(tmp_path, content)]).results[0]).blocks
        assert isinstance(chart, Chart)
        assert chart.views[-1].says.startswith(said)
        assert 1.24e-5 in [x for series in chart.views[-1].series for x, _ in series.points]


def test_kinds_of_masks_are_explained(out: Path) -> None:
    page, _ = page_of(ROOT / "tests" / "golden" / "owners.ticket", out=out)
    assert "Masks: owners: one kept weight per hidden unit." in page


def test_a_page_claims_no_more_than_a_certificate(tmp_path: Path, out: Path) -> None:
    certificate = Certificate(error=4.531e-07, input_norm=1.09972, target_sha256="ab" * 32)
    Ticket(seed=0, tensors=[], certificate=certificate).save(tmp_path / "proved.ticket")
    page, _ = page_of(tmp_path, out=out)
    said = "output error at most 4.54\xa0×\xa010⁻⁷ for every input of norm at most 1.09, as stored"
    assert f"<td>certificate</td><td>{said}</td>" in page
    found = find([RESULTS / "fig4"]).results
    (chart,) = certificate_section(found).blocks
    drawn_at = [x for x, _ in chart.views[0].series[0].points]  # type: ignore[union-attr]
    exact = found[0].content["widths"][0]["sources"]["certificate"]
    assert all(x >= certified for x, certified in zip(drawn_at, exact, strict=True))


def drawn(tensor: RandomTensor) -> Any:
    ticket = Ticket(seed=3, tensors=[tensor])
    return tickets._draw(ticket, tensor, tickets.Budget())


def cells_of(shown: Any) -> Any:
    grid = shown["grid"]
    cells = np.frombuffer(base64.b64decode(grid["cells"]), dtype=np.uint8)
    return cells.reshape(grid["rows"], grid["columns"]) / 255


def test_large_mask_is_downsampled_and_says_so() -> None:
    tensor = RandomTensor(name="w", mask=PackedMask.random((300, 1000), 0.3, seed=0))
    shown = drawn(tensor)
    assert shown["note"] == "300 × 1,000 weights drawn as 96 × 96 cells of mean density"
    assert cells_of(shown).mean() == pytest.approx(tensor.density, abs=0.01)


def test_mask_too_large_to_read_is_sampled_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "MOST_BITS", 1000)
    tensor = RandomTensor(name="w", mask=PackedMask.random((301, 33), 0.5, seed=0))
    shown = drawn(tensor)
    assert shown["note"].endswith("from one row in 10")
    whole = tensor.mask.to_bool().numpy()
    assert (cells_of(shown) == whole[::10]).all()


def test_what_is_too_large_to_draw_is_named() -> None:
    row, whole = FullMask((1, 2**26 + 1)), BlockMask((2**14, 2**13), 0, 1)
    assert drawn(RandomTensor(name="w", mask=row))["note"] == "a row of 67,108,865 weights is too large to draw"
    said = drawn(RandomTensor(name="w", mask=whole))["note"]
    assert said == "a mask of 134,217,728 weights, given as blocks, is too large to draw"


def test_a_tall_mask_is_drawn_from_a_few_rows() -> None:
    shown = drawn(RandomTensor(name="w", mask=FullMask((50_000_000, 2))))
    assert shown["note"].endswith("from one row in 3,052")
    assert (cells_of(shown) == 1).all()


def test_budget_for_pictures_is_kept() -> None:
    tensors = [RandomTensor(name=f"w{k}", mask=PackedMask.random((4, 4), 0.5, seed=k)) for k in range(5)]
    ticket, budget = Ticket(seed=0, tensors=tensors), tickets.Budget(pictures=3)
    shown = [tickets._draw(ticket, tensor, budget) for tensor in tensors]
    assert ["grid" in each for each in shown] == [True, True, True, False, False]
    assert shown[-1]["note"] == "the page has no room for more"


@pytest.mark.parametrize(
    "mask", [FullMask((5, 7)), BlockMask((4, 12), 1, 3), PackedMask.random((3, 5, 7), 0.4, seed=1), FullMask((9,))]
)
def test_pictures_and_distributions_agree_with_the_weights(mask: Any) -> None:
    tensor = RandomTensor(name="w", mask=mask, distribution="normal", scale=0.5)
    shown = drawn(tensor)
    weights, kept = (
        Ticket(
            seed=3, tensors=[RandomTensor(name="w", mask=FullMask(mask.shape), distribution="normal", scale=0.5)]
        ).materialize()["w"],
        mask.to_bool(),
    )
    assert (cells_of(shown) == kept.reshape(-1, mask.shape[-1]).numpy()).all()
    histogram = shown["histogram"]
    edges = np.linspace(-histogram["reach"], histogram["reach"], tickets.BINS + 1)
    assert histogram["all"] == np.histogram(weights.numpy(), edges)[0].tolist()
    assert histogram["kept"] == np.histogram(weights[kept].numpy(), edges)[0].tolist()
    assert sum(histogram["kept"]) == mask.count()


def test_weights_of_codes_are_counted_as_the_network_has_them() -> None:
    tensors = Ticket.load(Path(__file__).parents[1] / "golden" / "codes.ticket")
    for name in ("again", "levels", "fixed"):
        shown = tickets._draw(tensors, tensors.tensors[name], tickets.Budget())
        histogram, masked = shown["histogram"], tensors.materialize()[name]
        edges = np.linspace(-histogram["reach"], histogram["reach"], tickets.BINS + 1)
        assert histogram["kept"] == np.histogram(masked[masked != 0].numpy(), edges)[0].tolist()
        assert sum(histogram["kept"]) == shown["kept"]


def test_distribution_of_a_large_tensor_is_a_sample_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "SAMPLE", 64)
    tensor = RandomTensor(name="w", mask=PackedMask.random((100, 101), 0.25, seed=0))
    histogram = drawn(tensor)["histogram"]
    assert (histogram["of"], histogram["numel"]) == (16 * 64, 10100)
    assert sum(histogram["kept"]) / histogram["of"] == pytest.approx(0.25, abs=0.06)


@given(st.data())
def test_downsampling_keeps_the_number_of_ones(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    bits = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=rows * columns, max_size=rows * columns)), dtype=np.uint8
    )
    down, across = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    grid = tickets.downsample(bits.reshape(rows, columns), down, across)
    heights, widths = (np.diff(np.arange(n + 1) * size // n) for n, size in ((down, rows), (across, columns)))
    assert (grid * np.outer(heights, widths)).sum() == pytest.approx(bits.sum())
    assert ((grid >= 0) & (grid <= 1)).all()


def test_fits_of_the_bootstrap_are_those_of_the_figures() -> None:
    fig4 = json.loads((RESULTS / "fig4" / "result.json").read_bytes())
    widths = [point["width"] for point in fig4["widths"]]
    for what in ("mean", "median"):
        errors = [point["error"][what] for point in fig4["widths"]]
        gamma, delta = bootstrap.fit_many(widths, np.array([errors]))
        theirs = fit_decay(widths, errors)
        assert theirs is not None
        assert (gamma[0], delta[0]) == pytest.approx((theirs["gamma"], theirs["delta"]), rel=1e-4)
        lines = fit_decay_in_logs(widths, errors)
        assert lines is not None
        assert bootstrap.slopes_in_logs(widths, np.array([errors]))[0] == pytest.approx(lines["delta"])
    drawn = bootstrap.redraw([point["sources"]["error"] for point in fig4["widths"]], "mean")
    low, high = bootstrap.interval(bootstrap.fit_many(widths, drawn)[1])
    assert low < fig4["fits"][0]["mean"]["delta"] < high


def test_a_rising_fit_has_no_minus_sign() -> None:
    falling, rising = (curve("fit", {"gamma": 0.5, "delta": delta}, [8, 16], "mean")[0].name for delta in (0.06, -0.06))
    assert (falling, rising) == ("fit, 0.5\xa0exp(−0.06\xa0n)", "fit, 0.5\xa0exp(0.06\xa0n)")


def test_bootstrap_interval_covers_the_truth() -> None:
    """Means of exponential values around a known decay: 95 % intervals miss its rate about one time in twenty."""
    widths, truth, missed = [8, 16, 24, 32], 0.06, 0
    generator = np.random.default_rng(1)
    for _ in range(25):
        sources = [generator.exponential(0.8 * np.exp(-truth * n), 80) for n in widths]
        low, high = bootstrap.interval(bootstrap.fit_many(widths, bootstrap.redraw(sources, "mean"))[1])
        missed += not low < truth < high
    assert missed <= 5


def test_an_interval_is_the_middle_95_percent() -> None:
    hundredths = np.random.default_rng(0).permutation(np.linspace(0, 100, 1001))
    assert bootstrap.interval(hundredths) == pytest.approx((2.5, 97.5))


def test_numbers_are_written_to_three_digits() -> None:
    policy: dict[str, object] = {"qk_scale": 2.828427, "density": 0.123456, "output_gain": 1.23456}
    config = SearchConfig("search", "mini", seed=0, steps=1, sequences=1, length=1, policy=policy)
    assert (number(1.23456), share(0.123456), took(3600 * 2.34567)) == ("1.23", "12.3 %", "2.35 h")
    assert (scale_words(config), policy_words(config)) == ("2.83", "density 0.123, output gain 1.23")


def test_a_page_of_nothing_is_a_failure(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(app, ["report", str(tmp_path / "empty"), "--out", str(out)])
    assert isinstance(done.exception, StrongTicketError)
    assert "has nothing to show" in str(done.exception)
    assert done.stdout == "", "no page to open"
    assert "holds no result.json" in out.read_text()


def test_a_page_of_nothing_does_not_replace_an_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("an earlier page")
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(app, ["report", str(tmp_path / "empty"), "--out", str(out)])
    assert done.exit_code == 1
    said = str(done.exception)
    assert f"{out} is left as it was." in said
    assert "holds no result.json" in said
    assert out.read_text() == "an earlier page"


def test_command_line(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    done = CliRunner().invoke(app, ["report", str(RESULTS / "fig4"), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["file"] == str(out)
    assert told["bytes"] == out.stat().st_size
    plain = CliRunner().invoke(app, ["report", str(RESULTS / "fig4"), "--out", str(out)])
    assert f"{out}: 3 sections" in plain.stdout
    missing = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere"), "--out", str(out)])
    assert missing.exit_code == 2
    # The message stands in a frame that breaks its lines wherever the path happens to end.
    assert "does not exist" in " ".join(re.findall(r"[^\s│]+", missing.output))
