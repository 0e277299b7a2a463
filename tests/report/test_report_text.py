"""Figures on text where only some runs are there: one seed, scales missing, no base; and tables with pictures."""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strongticket.charts.parts import Comparison, Row, Section
from strongticket.experiments import inits
from strongticket.experiments.ablation import variants
from strongticket.experiments.fig7 import LABELS
from strongticket.experiments.figure import load_figure, reproduce_figure
from strongticket.experiments.text_figure import Choice
from strongticket.report import write_report
from strongticket.report.axis import axis_of
from strongticket.report.page import render_section
from tests.report.conftest import Visit

Keep = Callable[[Any], bool]


def figure_of(
    name: str,
    keep: Keep,
    folder: Path,
    *,
    sizes: tuple[str, ...] = ("nano",),
    losses: Mapping[float, float] | None = None,
    also: Mapping[str, float] | None = None,
) -> Path:
    """Make a figure of the planned runs that `keep` chooses; a run's loss falls with its scale, and differs by seed."""
    choice, figure = Choice(schedule="short", models=dict.fromkeys(sizes, 3)), load_figure(name)
    rows = []
    for config in filter(keep, figure.plan.runs(choice)):
        scale = 0.0 if config.mode == "dense" else float(config.policy.qk_scale)
        loss = 5 + 0.1 * config.seed - 0.01 * (1 + config.seed) * scale + 0.001 * config.lr
        loss = losses[scale] if losses else loss
        rows.append(
            {
                "config": config.as_json(),
                "text": {"data": "a text", "digest": "0"},
                "best_validation_loss": loss,
                "final_validation_loss": loss,
                "curve": [[0, 6.0], [10, loss]],
                "nonzero": {"all": 10_000, "without_embeddings": 1000},
                "also": dict(also or {}),
                "run": {"seconds": 2.0, "tokens_per_second": 1e5, "gpu": "a GPU", "date": "2026-11-15T00:00:00+00:00"},
            }
        )
    (folder / name).mkdir(parents=True)
    (folder / name / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reproduce_figure(figure, choice, folder)
    return folder / name


def page_of(result: Path) -> tuple[Path, dict[str, Any]]:
    out = result.parent / "report.html"
    return out, write_report([result], out)


def trained(config: Any) -> bool:
    return bool(config.policy.embeddings == "trained")


PARTS: dict[str, tuple[Keep, int, str]] = {
    "one seed": (lambda config: config.seed == 0, 2, "Single runs have no interval"),
    "two seeds": (lambda config: config.seed < 2, 2, "if one contains zero, the effect is uncertain"),
    "a scale of one seed only": (lambda config: config.seed == 0 or config.policy.qk_scale < 3, 2, "there is one seed"),
    "no scale 1 for one policy": (lambda c: trained(c) or c.policy.qk_scale > 1, 2, "no run at scale 1"),
    "no scale 1 at all": (lambda config: config.policy.qk_scale > 1, 1, "planned runs"),
}


@pytest.mark.parametrize("name", PARTS)
def test_figure_8_draws_whatever_runs_there_are(name: str, visit: Visit, tmp_path: Path) -> None:
    keep, charts, said = PARTS[name]
    page, summary = page_of(figure_of("fig8", keep, tmp_path))
    assert summary["left_out"] == []
    section = visit.open(page).section("fig8")
    assert section.locator("figure.drawn .plot > svg .mark-dot").count() >= charts
    assert section.locator("figure.drawn").count() == charts
    assert said in section.inner_text()
    assert "NaN" not in section.inner_html()
    assert "undefined" not in section.inner_html()


def test_names_are_at_the_ends_of_lines_where_there_is_room(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("fig8", lambda config: True, tmp_path))
    assert visit.open(page).section("fig8").locator("figure.drawn .legend.ends").count() == 2


def test_interval_of_two_seeds_does_not_flatten_the_figure(visit: Visit, tmp_path: Path) -> None:
    """With two seeds a 95 % interval is 12.7 standard errors; the axis shows the differences themselves."""
    page, _ = page_of(figure_of("fig8", lambda config: config.seed < 2, tmp_path))
    section = visit.open(page).section("fig8")
    view = json.loads(section.locator("script[type='application/json']").nth(1).text_content())["views"][0]
    values = [value for series in view["series"] for point in series["each"] for value in point]
    widest = max(
        high - low for series in view["series"] for low, high in zip(series["low"], series["high"], strict=True)
    )
    low, high = view["y_range"]
    assert high - low < widest
    assert low <= min(values)
    assert high >= max(values)
    assert high - low <= 4 * (max(*values, 0) - min(*values, 0)) + 1e-9


def test_ablation_compares_what_has_its_base_there(visit: Visit, tmp_path: Path) -> None:
    trained = "trained model, learning rate 0.003"
    few = (trained, f"{trained}, 320 steps of warm-up", "learning rate 0.003", "embeddings masked, learning rate 0.003")
    wanted = {json.dumps(variants("nano", "short", seed)[name].config.as_json()) for seed in (0, 1) for name in few}
    page, _ = page_of(figure_of("ablation", lambda config: json.dumps(config.as_json()) in wanted, tmp_path))
    section = visit.open(page).section("ablation")
    assert "4 settings of nano, 2 seeds each" in section.inner_text()
    assert "Single runs" not in section.inner_text()
    losses, against = section.locator("figure.comparison").all()
    assert losses.locator("tbody tr").count() == 4
    (row,) = against.locator("tbody tr").all()
    texts = row.locator("td").all_inner_texts()
    assert texts[:2] == ["320 steps of warm-up", trained]
    assert texts[3] == "2"


def test_ablation_of_single_runs_says_so(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("ablation", lambda config: config.seed == 0, tmp_path))
    section = visit.open(page).section("ablation")
    assert "one seed each. Unless stated otherwise: scale " in section.inner_text()
    assert "Single runs have no interval" in section.inner_text()
    assert re.search(r"lowest final loss: .*: 4\.\d{3} \(one seed\)", visit.page.inner_text("body"))
    rows = section.locator("figure.comparison").nth(1).locator("tbody tr").all()
    assert len(rows) == len(variants("nano", "short", 0)) - 2  # all but the ticket and the trained model


def test_inits_are_compared(visit: Visit, tmp_path: Path) -> None:
    page, summary = page_of(figure_of("inits", lambda config: config.policy.init != "kaiming", tmp_path))
    assert summary["left_out"] == []
    section = visit.open(page).section("inits")
    (differences,) = section.locator("figure.comparison").all()
    kept = [len(inits.scales_of(init, "nano", "short")) for init in inits.INITS if init != "kaiming"]
    assert section.locator(".plot .mark-dot").count() == sum(kept)
    assert differences.locator("tbody tr").count() == sum(kept) - len(kept)
    assert "signed constant" in differences.inner_text()
    assert re.search(r"lowest loss: normal [\d.]+ at scale 8, uniform [\d.]+ at scale [\d.]+,", visit.page.content())


def test_spread_says_the_difference_once(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("spread", lambda config: True, tmp_path))
    section = visit.open(page).section("spread")
    losses, differences = section.locator("figure.comparison").all()
    assert losses.locator("tbody tr").count() == 6
    assert differences.locator("tbody tr").count() == 3  # lengths, not lengths times scales


@pytest.mark.parametrize(("keep", "single"), [(lambda config: config.seed == 0, True), (lambda config: True, False)])
def test_figure_7_speaks_of_seeds_and_scales_that_are_there(
    keep: Keep, single: bool, visit: Visit, tmp_path: Path
) -> None:
    both = figure_of("fig7", keep, tmp_path / "both")
    section = visit.open(page_of(both)[0]).section("fig7")
    assert ("standard deviation over seeds" in section.inner_text()) is not single
    assert "No ticket was searched both with and without" not in section.inner_text()
    scaled = LABELS["scaled"].replace("n_K^(1/4)", "nK1/4")  # typeset
    assert f"{scaled}, embeddings trained" in section.locator(".legend").first.text_content()
    assert set(section.locator(".plot text.halo").all_text_contents()) == {"nano"}
    assert "Every model saw 52.4M tokens." in section.inner_text()
    unpaired = figure_of("fig7", lambda c: keep(c) and (c.mode == "dense" or c.policy.qk_scale > 1), tmp_path / "one")
    section = visit.open(page_of(unpaired)[0]).section("fig7")
    assert "No ticket was searched both with and without that scale yet" in section.inner_text()


def test_models_that_saw_different_text_say_so(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("fig7", lambda config: True, tmp_path, sizes=("mini", "medium")))
    section = visit.open(page).section("fig7")
    assert set(section.locator(".plot text.halo").all_text_contents()) == {"mini, 52.4M tokens", "medium, 26.2M tokens"}
    assert "Every model saw" not in section.inner_text()


def test_losses_on_another_text_have_a_column(visit: Visit, tmp_path: Path) -> None:
    for name in ("fig7", "fig8"):
        page, _ = page_of(figure_of(name, lambda config: True, tmp_path, also={"another text": 7.125}))
        section = visit.open(page).section(name)
        section.locator("summary").first.click()
        table = section.locator("details table").first
        place = table.locator("thead th").all_inner_texts().index("best, on another text")
        assert table.locator("tbody tr").first.locator("th, td").nth(place).inner_text() == "7.125 ± 0.000"


def test_figure_7_says_how_far_tickets_are_from_trained_models(visit: Visit, tmp_path: Path) -> None:
    section = visit.open(page_of(figure_of("fig7", lambda config: True, tmp_path))[0]).section("fig7")
    (gaps,) = section.locator("figure.comparison").filter(has_text="How far tickets are from trained models").all()
    rows = [row.locator("td").all_text_contents() for row in gaps.locator("tbody tr").all()]
    assert [row[:3] for row in rows] == [
        ["nano", embeddings, scale] for embeddings in ("trained", "masked") for scale in ("1", "nK1/4")
    ]
    # What `figure_of` puts in: at scale 1 a ticket's loss is lower by 0.01, 0.02 and 0.03.
    assert rows[0][4:6] == ["3", "−0.020"]


def test_figure_8_says_where_the_loss_is_lowest(visit: Visit, tmp_path: Path) -> None:
    losses = {1.0: 5.0, 2.0: 4.7, 2.83: 4.6, 4.0: 4.7, 5.66: 5.0, 8.0: 5.5}
    page, _ = page_of(figure_of("fig8", trained, tmp_path, sizes=("mini",), losses=losses))
    assert "lowest at a scale of 2.83; the theory’s is 2.83" in visit.open(page).page.inner_text("body")


def test_figure_8_names_the_theorys_scales_where_models_differ(tmp_path: Path) -> None:
    first = figure_of("fig8", lambda config: trained(config) and config.seed == 0, tmp_path, sizes=("nano", "mini"))
    assert "lowest at a scale of 8; the theory’s is 2.38 or 2.83<" in page_of(first)[0].read_text()


def test_changes_of_several_models_name_theirs(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("ablation", lambda config: config.seed == 0, tmp_path, sizes=("nano", "small")))
    changes = visit.open(page).section("ablation").locator("figure.comparison").nth(1)
    words = [tuple(row.locator("td, th").all_inner_texts()[:3]) for row in changes.locator("tbody tr").all()]
    assert ("learning rate 0.003", "trained model", "nano") in words
    assert ("learning rate 0.003", "trained model", "small") in words
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("width", [820, 1180])
def test_long_names_of_settings_leave_room_for_the_numbers(visit: Visit, tmp_path: Path, width: int) -> None:
    page, _ = page_of(figure_of("ablation", lambda config: True, tmp_path, sizes=("nano", "small")))
    visit.page.set_viewport_size({"width": width, "height": 900})
    figures = visit.open(page).section("ablation").locator("figure.comparison")
    assert figures.count() == 2
    for figure in figures.all():
        assert figure.locator(".scroll").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_a_comparison_without_rows_is_an_empty_table() -> None:
    empty = Comparison(title="", caption="", words=("what",), axis="", numbers=("n",), rows=[], zero=True)
    section = Section(anchor="x", name="", title="", lead="", blocks=(empty,))
    assert "<tbody></tbody>" in render_section(section)


def test_what_is_no_text_is_refused_not_printed() -> None:
    listed: Any = ["a list"]
    section = Section(anchor="x", name="", title="", lead=listed, blocks=())
    with pytest.raises(TypeError, match="a text is needed; got list"):
        render_section(section)


def test_one_minus_sign_everywhere(full_page: Path) -> None:
    page = re.sub(r"<(script|style).*?</\1>", "", full_page.read_text(), flags=re.DOTALL)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert any("−" in cell for cell in cells)
    # An exponent only as part of an engine's name, which is the benchmark's own.
    hyphens = [cell for cell in cells if re.search(r"(^|\s)-\d|^\S*\de-\d", cell)]
    assert hyphens == []


def test_comparison_is_read_without_its_heads_on_a_phone(visit: Visit, tmp_path: Path) -> None:
    page, _ = page_of(figure_of("inits", lambda config: True, tmp_path))
    visit.page.set_viewport_size({"width": 390, "height": 844})
    figure = visit.open(page).section("inits").locator("figure.comparison")
    assert figure.locator(".scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
    row = figure.locator("tbody tr").first
    heads = row.locator("td:not(.picture)").evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)")
    assert heads == ["none", '"model "', '"scale "', '"seeds "', '"mean "', '"95 % interval "']


def finite() -> st.SearchStrategy[float]:
    return st.floats(-1e6, 1e6)


@example([(0.0, 5e-324)], False)
@given(st.lists(st.tuples(finite(), st.floats(0, 1e6)), min_size=1, max_size=5), st.booleans())
def test_axis_shows_every_value_and_has_ticks(means: list[tuple[float, float]], zero: bool) -> None:
    ends = [(mean, (mean - reach, mean + reach)) for mean, reach in means]
    rows = [Row(words=(), mean=mean, values=[mean], interval=interval, numbers=()) for mean, interval in ends]
    axis = axis_of(Comparison(title="", caption="", words=(), axis="", numbers=(), rows=rows, zero=zero))
    assert axis.low < min(mean for mean, _ in means)
    assert axis.high > max(mean for mean, _ in means)
    assert not zero or axis.low < 0 < axis.high
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 7
    slack = 1e-6 * axis.step
    assert all(axis.low - slack <= value <= axis.high + slack for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks) or math.isclose(axis.low, axis.high, rel_tol=1e-9)


def test_runs_that_are_still_to_do_are_named(tmp_path: Path) -> None:
    out, _ = page_of(figure_of("fig8", lambda config: config.seed == 0 or config.policy.qk_scale != 8, tmp_path))
    page = out.read_text()
    assert "Still to run" in page
    named = re.findall(r"nano-embeddings-[a-z]+-scale8-[^;<]*-seed\d", page)
    assert sorted(named) == sorted(set(named))
    assert [name[-1] for name in named] == ["1", "1", "2", "2"]


def test_few_of_many_runs_are_named(tmp_path: Path) -> None:
    out, _ = page_of(figure_of("fig8", lambda config: config.seed == 0, tmp_path))
    assert "; 16 more<" in out.read_text()
