"""The frontier: what leads, what is never mixed, and what a number of bytes buys."""

from dataclasses import replace
from pathlib import Path

import pytest

from strongticket.charts.parts import Chart
from strongticket.errors import StrongTicketError
from strongticket.experiments import fig8, frontier
from strongticket.experiments.figure import NothingToDrawError, Options, reproduce_figure
from strongticket.experiments.frontier import SCALED, STRONG, best_within, summarize
from strongticket.experiments.language import Rows
from strongticket.files import Json
from strongticket.learn.config import RunConfig
from strongticket.report import write_report
from tests.experiments.text_results import QUICK, fill, made_up

TICKET, POPUP, LEARNED, INT4, TERNARY = frontier.plan(QUICK)[:5]


def row(config: RunConfig, loss: float, size: int, **found: Json) -> Json:
    return made_up(config, loss) | {"found": {"bytes": size, **found}}


def points(*rows: Json) -> dict[str, Json]:
    found = summarize(rows)["points"]
    assert isinstance(found, list)
    return {point["name"] + point["kind"]: point for point in found}


def test_a_point_leads_where_nothing_of_its_kind_is_as_small_and_better() -> None:
    smaller = replace(POPUP, policy=replace(POPUP.policy, density=0.1))
    found = points(
        row(TICKET, 3.0, 100), row(POPUP, 3.5, 100), row(smaller, 3.6, 50), row(LEARNED, 3.2, 101), row(INT4, 2.0, 90)
    )
    assert [point["leads"] for point in found.values()] == [True, True, False, True, True]
    assert {point["kind"] for point in found.values()} == {STRONG, SCALED, "trained int4"}


def test_each_point_has_the_best_schedule_that_was_tried_and_all_its_seeds() -> None:
    fast = replace(INT4, lr=2 * INT4.lr)
    rows = [row(INT4, 3.0, 100), row(fast, 2.9, 101), row(replace(fast, seed=1), 3.3, 103)]
    (point,) = points(*rows).values()
    assert (point["config"]["lr"], point["seeds"], point["schedules"]) == (fast.lr, [0, 1], 2)
    assert (point["bytes"]["mean"], point["best_validation_loss"]["mean"]) == (102, pytest.approx(3.1))
    assert len(points(row(INT4, 3.0, 100), row(TERNARY, 3.0, 100))) == 2


def test_every_run_of_the_plan_sees_the_same_tokens_and_has_one_name() -> None:
    runs = frontier.plan(frontier.FIGURE.plan.configure(Options()))
    assert {run.steps * run.tokens_per_step for run in runs} == {1600 * 32 * 1024}
    assert {frontier.kind_of(run.as_json()) for run in runs} == set(frontier.KINDS)
    kinds: dict[str, set[str]] = {}
    for run in runs:
        kinds.setdefault(frontier.name_of_point(run.as_json()), set()).add(frontier._what(made_up(run, 4.0)))
    assert {name: len(settings) for name, settings in kinds.items() if "," in name and len(settings) > 1} == {}


def test_what_a_number_of_bytes_buys() -> None:
    found = [*points(row(TICKET, 3.0, 100), row(POPUP, 3.5, 60), row(LEARNED, 2.5, 110)).values()]
    kinds = (STRONG, SCALED)
    bought = [best_within(found, budget, kinds) for budget in (59, 60, 99, 100, 109, 110)]
    losses = [point and point["best_validation_loss"]["mean"] for point in bought]
    assert losses == [None, 3.5, 3.5, 3.0, 3.0, 2.5]


def test_rows_from_before_bytes_were_counted_are_left_out(tmp_path: Path) -> None:
    old = made_up(TICKET, 3.0) | {"found": {"identity": "1" * 64}}
    with pytest.raises(NothingToDrawError, match="no run yet that records the bytes"):
        summarize([old])
    assert len(points(old, row(POPUP, 3.5, 60))) == 1


def test_texts_are_not_mixed(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "frontier")
    rows.keep(row(TICKET, 3.0, 100))
    rows.keep(row(POPUP, 3.0, 100) | {"text": {"data": "other", "digest": "1" * 64}})
    with pytest.raises(StrongTicketError, match="runs on several texts"):
        reproduce_figure(frontier.FIGURE, QUICK, tmp_path)


def test_the_picture_joins_what_leads(tmp_path: Path) -> None:
    fill(tmp_path, frontier.FIGURE, QUICK)
    section = frontier.describe(reproduce_figure(frontier.FIGURE, QUICK, tmp_path))
    (chart,) = section.blocks
    assert isinstance(chart, Chart)
    joined = [series.name for series in chart.views[0].series if series.line]
    assert joined == [STRONG, SCALED, "trained int4", "trained ternary"]
    assert all(series.follows for series in chart.views[0].series if not series.line)
    assert section.finding.startswith("within 4.9 MB: strong tickets 4.")


def test_titles_say_who_is_ahead(tmp_path: Path) -> None:
    fill(tmp_path, frontier.FIGURE, QUICK)
    result = reproduce_figure(frontier.FIGURE, QUICK, tmp_path)
    kinds = {STRONG: 4.0, SCALED: 3.5, "trained int4": 3.0}
    result["points"] = [point for point in result["points"] if point["kind"] in kinds]
    for point in result["points"]:
        point["best_validation_loss"]["mean"] = kinds[point["kind"]]

    def titles(*shown: str) -> tuple[str, str]:
        points = [point for point in result["points"] if point["kind"] in shown]
        section = frontier.describe(result | {"points": points})
        return section.title, section.blocks[0].title.removeprefix("Lowest loss within 4.9 MB: ")

    trained = "3.000, trained int4; strong tickets reach 4.000"
    assert titles(*kinds) == ("At equal bytes, trained models are ahead", trained)
    kinds["trained int4"] = result["points"][-1]["best_validation_loss"]["mean"] = 5.0
    scaled = "3.500, tickets with learned scales; strong tickets reach 4.000"
    assert titles(*kinds) == ("At equal bytes, tickets are ahead", scaled)
    assert titles(STRONG) == ("How good a network can be for its bytes", "4.000, strong tickets")


def test_it_is_the_first_that_the_page_shows_of_searches(tmp_path: Path) -> None:
    for figure in (fig8.FIGURE, frontier.FIGURE):
        fill(tmp_path, figure, QUICK)
        reproduce_figure(figure, QUICK, tmp_path)
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert 0 < page.index('<section id="frontier"') < page.index('<section id="fig8"')
