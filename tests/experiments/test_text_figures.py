"""What figures on text make of their rows."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from strongticket import Policy, hide
from strongticket.charts import picture
from strongticket.charts.parts import Chart, Comparison
from strongticket.charts.terminal import show
from strongticket.cli.terminal import console
from strongticket.errors import StrongTicketError
from strongticket.experiments import ablation, fig7, fig8, inits, schedules, spread
from strongticket.experiments.figure import Figure, Options, reproduce_figure
from strongticket.experiments.language import Rows
from strongticket.experiments.paired import paired_difference, pairs_needed
from strongticket.experiments.text_figure import Choice
from strongticket.experiments.text_rows import lowest_in_words
from strongticket.files import Json, read_json
from strongticket.learn.policy import Init
from strongticket.models.gpt2 import GPT2, gpt2_config
from tests.experiments.text_results import FIGURES, QUICK, fill, made_up, runs_of


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_finished_runs_are_drawn_without_text(figure: Figure[Choice], tmp_path: Path) -> None:
    plan = fill(tmp_path, figure, QUICK, leave_out=1)
    result = reproduce_figure(figure, QUICK, tmp_path)
    assert (result["runs"], len(result["missing"])) == (len(plan) - 1, 1)
    assert read_json(tmp_path / figure.name / "result.json") == result
    for ending in ("png", "svg"):
        assert (tmp_path / figure.name / f"{figure.name}.{ending}").stat().st_size > 5000
    assert len([*show(figure.describe(result), 80)]) > 1


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@pytest.mark.parametrize("schedule", ["quick", "short", "paper"])
def test_plans_have_no_run_twice(figure: Figure[Choice], schedule: schedules.ScheduleName) -> None:
    plan = runs_of(figure, Choice(schedule=schedule, models={"mini": 3, "small": 2}))
    settings = [json.dumps(config.as_json(), sort_keys=True) for config in plan]
    assert len(set(settings)) == len(settings)


def test_pairs_share_everything_but_the_scale() -> None:
    runs = [c for c in fig8.plan(Choice(schedule="short", models={"mini": 1})) if c.policy.embeddings == "masked"]
    assert [c.policy.qk_scale for c in runs] == [1.0, 2.0, 2.83, 4.0, 5.66, 8.0]
    assert len({replace(c, policy=replace(c.policy, qk_scale=1.0)) for c in runs}) == 1


def test_the_paper_schedule_is_the_papers() -> None:
    config = schedules.paper("small")
    assert (config.steps, config.sequences, config.length, config.warmup) == (50 * 227, 512, 1024, 227)
    assert (config.lr, config.final_lr, config.policy.density) == (1e-4, 1e-5, 0.3)
    assert 5.9e9 < config.steps * config.tokens_per_step < 6e9


def test_figure_7_finds_the_effect_that_was_put_in(tmp_path: Path) -> None:
    fill(tmp_path, fig7.FIGURE, QUICK)
    result = reproduce_figure(fig7.FIGURE, QUICK, tmp_path)
    effect = next(e for e in result["effects"] if e["measure"] == "best_validation_loss")
    assert effect["mean"] == pytest.approx(-0.01 * (schedules.theory_scale("nano") - 1))
    assert effect["standard_error"] == pytest.approx(0, abs=1e-12)
    gaps = {gap["kind"]: gap["mean"] for gap in result["gaps"]}
    assert gaps["scaled"] == pytest.approx(gaps["unscaled"] + effect["mean"])
    kinds = {point["kind"]: point for point in result["points"]}
    lowest = kinds["dense"]["best_validation_loss"]["mean"]
    assert gaps["scaled"] == pytest.approx(kinds["scaled"]["best_validation_loss"]["mean"] - lowest)
    assert kinds["dense"]["best_validation_loss"]["mean"] == pytest.approx(4.125 - 0.5)
    assert kinds["dense"]["best_validation_loss"]["std"] == pytest.approx(0.25 / 2**0.5)


def test_a_figure_says_how_its_runs_were_made(tmp_path: Path) -> None:
    plan = fill(tmp_path, fig8.FIGURE, QUICK)
    reproduce_figure(fig8.FIGURE, QUICK, tmp_path)
    made = json.loads((tmp_path / "fig8" / "run.json").read_text())
    assert made == {"runs": len(plan), "seconds": 2.0 * len(plan), "commit": "c0, c1", "date": "2021"}


def test_figures_share_their_runs(tmp_path: Path) -> None:
    fill(tmp_path, fig7.FIGURE, QUICK)
    result = reproduce_figure(fig8.FIGURE, QUICK, tmp_path)
    assert result["runs"] == 4
    assert [point["scale"] for point in result["curves"][0]["points"]] == [1.0, schedules.theory_scale("nano")]


def test_inits_are_compared_at_their_scales(tmp_path: Path) -> None:
    fill(tmp_path, inits.FIGURE, QUICK)
    result = reproduce_figure(inits.FIGURE, QUICK, tmp_path)
    assert [line["init"] for line in result["inits"]] == ["normal", "uniform", "xavier", "kaiming", "signed constant"]
    theory = schedules.theory_scale("nano")
    for line in result["inits"]:
        *_, plain, scaled = line["points"]
        assert (plain["scale"], scaled["scale"]) == (1.0, theory)
        assert scaled["best_validation_loss_difference"]["mean"] == pytest.approx(-0.01 * (theory - 1))
        assert scaled["deviation"] == pytest.approx(theory * plain["deviation"], rel=1e-3)


def test_kaiming_weights_are_tried_as_large_as_the_own_ones() -> None:
    own = [inits.deviation("mini", "own", scale) for scale in inits.scales_of("own", "mini", "short")]
    tried = [inits.deviation("mini", "kaiming", scale) for scale in inits.scales_of("kaiming", "mini", "short")[2:]]
    assert tried == pytest.approx(own, rel=5e-3)


@pytest.mark.parametrize("init", inits.INITS)
def test_the_deviation_said_is_that_of_the_weights_drawn(init: Init) -> None:
    model = GPT2(gpt2_config("nano", bias=False))
    hide(model, Policy(density=1.0, init=init, qk_scale=2.83), seed=0)
    attention = model.blocks[1].attention
    drawn = torch.cat([attention.query.weight, attention.key.weight]).std().item()
    assert inits.deviation("nano", init, 2.83) == pytest.approx(drawn, rel=0.03)  # of 8,192 numbers


def curve_of(losses: dict[float, list[float]]) -> Json:
    """Figure 8's curve of runs with these losses, seed by seed."""
    (*_, base) = fig8.plan(Choice(schedule="short", models={"mini": 1}))
    rows = [
        made_up(replace(base, seed=seed, policy=replace(base.policy, qk_scale=scale)), loss)
        for scale, of_seeds in losses.items()
        for seed, loss in enumerate(of_seeds)
    ]
    (curve,) = fig8.summarize(rows)["curves"]
    return curve


def test_the_lowest_loss_is_told_from_others_as_far_as_seeds_can() -> None:
    curve = curve_of({1.0: [5.3, 5.4, 5.6], 2.0: [5.0, 5.12, 5.21], 4.0: [5.0, 5.1, 5.2]})
    # Scale 2 is 0.01 above in the mean, give or take as much; scale 1 is 0.33 above, give or take 0.06.
    assert curve["lowest"] == {"scale": 4.0, "seeds": [0, 1, 2], "not_told_apart": [2.0], "one_seed": []}
    curve = curve_of({1.0: [5.2, 5.4, 5.3], 4.0: [5.0, 5.5, 5.2]})
    assert curve["lowest"]["not_told_apart"] == [1.0]
    assert lowest_in_words(curve["lowest"]) == "lowest at 4 (1 not ruled out)"
    uneven = curve_of({1.0: [5.2, 5.4, 5.3], 4.0: [5.0, 5.5, 5.2], 8.0: [6.0]})
    assert lowest_in_words(uneven["lowest"]) == "lowest at 4 (1 not ruled out, one seed at 8)"
    assert lowest_in_words(curve_of({4.0: [5.0, 5.1]})["lowest"]) == "lowest at 4"
    alone = curve_of({1.0: [5.2], 4.0: [5.0]})
    assert lowest_in_words(alone["lowest"]) == "lowest at 4 (one seed)"


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.5))
def test_pairs_needed_are_the_fewest_with_the_power(effect: float, deviation: float) -> None:
    needed = pairs_needed(effect, deviation)
    assert needed >= 2
    assume(needed < 300)
    draws = np.random.default_rng(0).normal(effect, deviation, (4000, needed))
    error = draws.std(axis=1, ddof=1) / math.sqrt(needed)
    found = draws.mean(axis=1) / error > scipy.stats.t.ppf(0.975, needed - 1)
    # 4,000 experiments tell the power to within 0.03.
    assert found.mean() > 0.77
    if needed > 2:
        fewer = draws[:, :-1]
        error = fewer.std(axis=1, ddof=1) / math.sqrt(needed - 1)
        assert (fewer.mean(axis=1) / error > scipy.stats.t.ppf(0.975, needed - 2)).mean() < 0.83


@pytest.mark.parametrize(
    ("schedule", "sizes", "seeds", "models"),
    [
        ("short", (), None, {"mini": 3, "small": 3}),
        ("short", ("small", "medium"), 1, {"small": 1, "medium": 1}),
        ("paper", ("mini", "small"), 2, {"mini": 2, "small": 2}),
        ("quick", (), None, {"nano": 3}),
        ("quick", (), 4, {"nano": 4}),
    ],
)
def test_what_is_not_asked_for_is_as_usual(
    schedule: schedules.ScheduleName, sizes: tuple[str, ...], seeds: int | None, models: dict[str, int]
) -> None:
    options = Options(quick=schedule == "quick", schedule=schedule, models=sizes, seeds=seeds)
    assert fig7.FIGURE.plan.configure(options).models == models


def test_models_are_gone_through_seed_by_seed() -> None:
    choice = Choice(schedule="short", models={"mini": 3, "small": 1})
    assert list(choice.seeds_and_sizes()) == [(0, "mini"), (0, "small"), (1, "mini"), (2, "mini")]


def test_what_takes_minutes_has_fewer_runs() -> None:
    settings = {size: [v.config for v in ablation.variants(size, "short", 0).values()] for size in ("mini", "small")}
    assert 3 * len(settings["small"]) < len(settings["mini"])
    assert fig8.scales_of("small", "short", seed=1) == (1.0, 2.83)
    assert len(schedules.baselines("short", "small", seed=1)) == 3
    assert {config.steps for config in settings["small"]} == {schedules.short("small").steps}


@pytest.mark.parametrize("size", ["mini", "small"])
def test_trained_models_have_several_rates_and_warmups_to_choose_from(size: str) -> None:
    tried = [v.config for v in ablation.variants(size, "short", 0).values() if v.config.mode == "dense"]
    drawn = schedules.baselines("short", size, seed=0)
    assert {config.warmup for config in drawn} == {80, 160, 320, 640, 1280}
    assert all(config in tried for config in drawn)
    assert {config.lr for config in tried} >= {1e-3 / 3, 1e-3, 3e-3}


@pytest.mark.parametrize("size", ["mini", "small"])
def test_more_seeds_are_of_what_the_first_has(size: str) -> None:
    first, second = (ablation.variants(size, "short", seed) for seed in (0, 1))
    assert 3 * len(second) <= len(first) < 5 * len(second)
    for name, variant in second.items():
        assert variant == first[name]._replace(config=replace(first[name].config, seed=1))
    again = [variant.config for variant in second.values() if variant.config.mode == "dense"]
    assert sorted(map(str, again)) == sorted(map(str, schedules.baselines("short", size, seed=1)))


def test_warmups_with_more_seeds_are_compared_on_all_of_them() -> None:
    usual, longer, _ = schedules.baselines("short", "small", seed=1)
    first = [made_up(replace(config, seed=0), loss) for config, loss in ((usual, 4.2), (longer, 4.1))]
    more = [made_up(config, loss) for config, loss in ((usual, 4.2), (longer, 4.4))]
    assert fig7.summarize(first)["points"][0]["warmup"] == longer.warmup
    (point,) = fig7.summarize([*first, *more])["points"]
    assert (point["warmup"], point["seeds"]) == (usual.warmup, [0, 1])


def test_a_rate_that_wins_with_one_seed_is_not_passed_over_for_others_with_more() -> None:
    _, usual, longer, *_, slow, _, _ = schedules.baselines("short", "small", seed=0)
    three = [made_up(replace(config, seed=seed), 4.2) for config in (usual, longer) for seed in range(3)]
    (point,) = fig7.summarize([*three, made_up(slow, 4.1)])["points"]
    assert (point["lr"], point["seeds"]) == (slow.lr, [0])


def test_seeds_that_not_all_have_do_not_decide(tmp_path: Path) -> None:
    alone = curve_of({2.83: [4.9, 5.5], 4.0: [5.0]})
    assert alone["lowest"] == {"scale": 2.83, "seeds": [0], "not_told_apart": [], "one_seed": "all"}
    slow, fast, *_ = schedules.baselines("short", "small", seed=0)
    rows = [made_up(replace(slow, seed=seed), loss) for seed, loss in ((0, 4.2), (1, 4.6))]
    (point,) = fig7.summarize([*rows, made_up(fast, 4.3)])["points"]
    assert (point["lr"], point["seeds"]) == (slow.lr, [0, 1])


ON_TEXT = {"config": {"schedule": "short"}, "text": {"data": "a text"}, "runs": 2, "missing": []}


def test_figure_8_draws_no_scale_that_was_not_run() -> None:
    (chart,) = fig8.describe({"curves": [curve_of({4.0: [5.0, 5.1]})], **ON_TEXT}).blocks
    assert isinstance(chart, Chart)
    assert [x for x, _ in chart.views[0].series[0].points] == [4.0]


def test_what_was_run_once_has_no_bar_and_no_dots() -> None:
    chart, *_ = fig8.describe({"curves": [curve_of({1.0: [5.2, 5.4], 4.0: [5.0]})], **ON_TEXT}).blocks
    assert isinstance(chart, Chart)
    (series,) = chart.views[0].series
    assert list(series.each or ()) == [[5.2, 5.4], ()]
    assert series.low is not None
    assert series.high is not None
    assert (series.low[1], series.high[1]) == (5.0, 5.0)


def test_a_single_run_has_a_spread_without_complaint(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    result = {**spread.summarize([made_up(spread.plan(QUICK)[0], 4.0)]), **ON_TEXT}
    picture.draw(spread.describe(result), tmp_path / "spread")
    assert not recwarn.list


def test_differences_of_the_spread_are_of_one_seed_each() -> None:
    plan = spread.plan(Choice(schedule="short", models={"mini": 3}))
    rows = [made_up(c, 4.0 + c.seed) for c in plan if (c.seed, c.policy.qk_scale) != (0, 1.0)]
    losses, differences = spread.describe({**spread.summarize(rows), **ON_TEXT}).blocks
    assert isinstance(losses, Comparison)
    assert isinstance(differences, Comparison)
    assert [len(row.values) for row in losses.rows] == [2, 3] * 3
    assert [[*row.values] for row in differences.rows] == [[0.0, 0.0]] * 3


def test_an_init_without_a_pair_is_no_figure(tmp_path: Path) -> None:
    Rows(tmp_path / "inits").keep(made_up(inits.plan(QUICK)[0], 4.0))
    with pytest.raises(StrongTicketError, match="no init with the same seed at two scales yet"):
        reproduce_figure(inits.FIGURE, QUICK, tmp_path)


def test_names_from_files_are_no_markup(tmp_path: Path) -> None:
    row = made_up(fig7.plan(QUICK)[0], 4.0)
    row["text"]["data"], row["also"] = "[/]\x1b[2J", {"[/red]": 5.0}
    Rows(tmp_path / "fig7").keep(row)
    result = reproduce_figure(fig7.FIGURE, QUICK, tmp_path)
    out = console()
    with out.capture() as shown:
        for part in show(fig7.describe(result), 120):
            out.print(part)
    assert r"[/]\x1b[2J" in shown.get()
    assert "[/red]" in shown.get()
    assert "\x1b" not in shown.get()


def test_one_pair_has_no_interval() -> None:
    found = paired_difference({0: 1.0, 1: 2.0}, {1: 2.5})
    assert found is not None
    assert (found["seeds"], found["mean"], found["std"], found["interval"]) == ([1], 0.5, None, None)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize("best", range(8))
def test_a_trained_model_stands_at_its_best_rate_and_warmup(best: int) -> None:
    tried = schedules.baselines("short", "small", seed=0)
    assert len(tried) == 8
    (point,) = fig7.summarize([made_up(config, 4.0 - (place == best)) for place, config in enumerate(tried)])["points"]
    assert (point["lr"], point["warmup"]) == (tried[best].lr, tried[best].warmup)


def test_a_variant_is_held_against_itself_without_its_last_change(tmp_path: Path) -> None:
    fill(tmp_path, ablation.FIGURE, QUICK)
    result = reproduce_figure(ablation.FIGURE, QUICK, tmp_path)
    bases = {line["variant"]: line["base"] for line in result["variants"]}
    assert bases["learning rate 0.03, kept weights rescaled"] == "learning rate 0.03"
    assert bases["kept weights rescaled"] == "ticket"
    assert bases["trained model, learning rate 0.1"] == "trained model"
    assert bases["ticket"] is bases["trained model"] is None


def test_an_ablation_has_one_line_a_variant_with_the_mean_of_its_seeds(tmp_path: Path) -> None:
    fill(tmp_path, ablation.FIGURE, QUICK)
    result = reproduce_figure(ablation.FIGURE, QUICK, tmp_path)
    losses, changes = ablation.describe(result).blocks
    assert isinstance(losses, Comparison)
    assert isinstance(changes, Comparison)
    (line,) = (row for row in losses.rows if row.words[0] == "trained model, learning rate 0.03")
    assert [*line.numbers] == ["2", "3.635 ± 0.177"]
    (change,) = (row for row in changes.rows if [*row.words] == ["learning rate 0.03", "trained model"])
    assert [*change.numbers][:2] == ["1", "+0.000"]  # the trained model it is held against has the first seed only


def test_an_ablation_says_what_is_usual_for_each_model_if_they_differ() -> None:
    rows = [made_up(ablation.variants(size, "short", 0)["ticket"].config, 4.0) for size in ("mini", "small", "nano")]
    usual = "scale {}, 1,600 steps of 33k tokens, learning rate 0.001, warm-up 80 (trained models 160)"
    assert ablation.summarize(rows[:2])["usual"] == usual.format("2.83")
    assert ablation.summarize(rows)["usual"].endswith("; nano: " + usual.format("2.38"))


def test_an_ablation_of_the_papers_schedule_sets_out_from_it() -> None:
    assert ablation.variants("mini", "paper", 0)["ticket"].config in fig7.plan(
        Choice(schedule="paper", models={"mini": 1})
    )


@pytest.mark.parametrize("size", ["mini", "small"])
def test_figure_7_of_one_model_is_drawn(size: str, tmp_path: Path) -> None:
    rows = Path(__file__).parents[2] / "results"
    for name in ("fig7", "fig8", "ablation"):
        shutil.copytree(rows / name, tmp_path / name)
    with pytest.warns(UserWarning, match="fig7 is drawn from 2. runs, the one before from 51"):
        reproduce_figure(fig7.FIGURE, fig7.FIGURE.plan.configure(Options(models=(size,))), tmp_path)
    assert len(re.findall(r">\d+M<", (tmp_path / "fig7" / "fig7.svg").read_text())) >= 4  # numbers along both axes
