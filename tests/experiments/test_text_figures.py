import errno
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.axes
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from strongticket.bench.measure import environment
from strongticket.cli import app
from strongticket.container import Json
from strongticket.data.text import load_text
from strongticket.errors import StrongTicketError
from strongticket.experiments import ablation, fig7, fig8, inits, schedules, spread
from strongticket.experiments.language import ROWS, Rows, Work, name_of, run_missing
from strongticket.experiments.paired import paired_difference, pairs_needed
from strongticket.experiments.text_figure import Choice, TextFigure, reproduce_text_figure
from strongticket.parallel import Place
from strongticket.search.config import RunConfig
from strongticket.search.run import Means
from strongticket.terminal import console

FIGURES = (fig7.FIGURE, fig8.FIGURE, spread.FIGURE, ablation.FIGURE, inits.FIGURE)
QUICK = Choice(schedule="quick", models={"nano": 2})
TINY = schedules.ticket(
    replace(schedules.quick("nano"), steps=4, warmup=1, validate_every=4, sequences=4, micro_batch=4, length=32),
    embeddings="masked",
    scale=2.0,
    seed=0,
)


@pytest.fixture(scope="module")
def work() -> Work:
    return Work(text=load_text("sample"), means=Means(place=Place(0, 1, torch.device("cpu")), keep=False))


def made_up(config: RunConfig, loss: float) -> Json:
    """A row as a run would have left it."""
    return {
        "config": config.as_json(),
        "text": {"data": "sample", "digest": "0" * 64},
        "best_validation_loss": loss,
        "final_validation_loss": loss + 0.01,
        "best_step": config.steps,
        "curve": [[0, 5.5], [config.steps, loss + 0.01]],
        "nonzero": {"all": 40_000 if config.mode == "search" else 120_000, "without_embeddings": 30_000},
        "also": {"other": loss + 1},
        "found": {"identity": "1" * 64},
        "run": {"tokens_per_second": 1e5, "seconds": 2.0, "commit": f"c{config.seed}", "date": f"{2020 + config.seed}"},
    }


def fill(folder: Path, figure: TextFigure, choice: Choice, leave_out: int = 0) -> list[RunConfig]:
    """Rows for all runs of a figure but some at the end: a loss that falls with the scale, and differs by seed."""
    rows, plan = Rows(folder / figure.name), figure.plan(choice)
    for config in plan[: len(plan) - leave_out]:
        scale = config.policy.qk_scale if config.mode == "search" else 50.0
        assert isinstance(scale, float)
        rows.keep(made_up(config, 4.0 + 0.25 * config.seed - 0.01 * scale))
    return plan


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_finished_runs_are_drawn_without_text(figure: TextFigure, tmp_path: Path) -> None:
    plan = fill(tmp_path, figure, QUICK, leave_out=1)
    result = reproduce_text_figure(figure, QUICK, tmp_path, None)
    assert (result["runs"], len(result["missing"])) == (len(plan) - 1, 1)
    assert json.loads((tmp_path / figure.name / "result.json").read_text()) == result
    for ending in ("png", "svg"):
        assert (tmp_path / figure.name / f"{figure.name}.{ending}").stat().st_size > 5000
    assert figure.tables(result)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@pytest.mark.parametrize("schedule", ["quick", "short", "paper"])
def test_plans_have_no_run_twice(figure: TextFigure, schedule: schedules.ScheduleName) -> None:
    plan = figure.plan(Choice(schedule=schedule, models={"mini": 3, "small": 2}))
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
    assert 5.9e9 < config.steps * config.tokens_a_step < 6e9


def test_figure_7_finds_the_effect_that_was_put_in(tmp_path: Path) -> None:
    fill(tmp_path, fig7.FIGURE, QUICK)
    result = reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, None)
    effect = next(e for e in result["effects"] if e["measure"] == "best_validation_loss")
    assert effect["mean"] == pytest.approx(-0.01 * (schedules.theory_scale("nano") - 1))
    assert effect["standard_error"] == pytest.approx(0, abs=1e-12)
    kinds = {point["kind"]: point for point in result["points"]}
    assert kinds["dense"]["best_validation_loss"]["mean"] == pytest.approx(4.125 - 0.5)
    assert kinds["dense"]["best_validation_loss"]["std"] == pytest.approx(0.25 / 2**0.5)


def test_a_figure_says_how_its_runs_were_made(tmp_path: Path) -> None:
    plan = fill(tmp_path, fig8.FIGURE, QUICK)
    reproduce_text_figure(fig8.FIGURE, QUICK, tmp_path, None)
    made = json.loads((tmp_path / "fig8" / "run.json").read_text())
    assert made == {"runs": len(plan), "seconds": 2.0 * len(plan), "commit": "c0, c1", "date": "2021"}


def test_figures_share_their_runs(tmp_path: Path) -> None:
    fill(tmp_path, fig7.FIGURE, QUICK)
    result = reproduce_text_figure(fig8.FIGURE, QUICK, tmp_path, None)
    assert result["runs"] == 4
    assert [point["scale"] for point in result["curves"][0]["points"]] == [1.0, schedules.theory_scale("nano")]


def test_inits_are_compared_at_both_scales(tmp_path: Path) -> None:
    fill(tmp_path, inits.FIGURE, QUICK)
    result = reproduce_text_figure(inits.FIGURE, QUICK, tmp_path, None)
    assert [line["init"] for line in result["inits"]] == ["normal", "uniform", "xavier", "kaiming", "signed constant"]
    theory = schedules.theory_scale("nano")
    for line in result["inits"]:
        plain, scaled = line["points"]
        assert (plain["scale"], scaled["scale"]) == (1.0, theory)
        assert scaled["best_validation_loss_difference"]["mean"] == pytest.approx(-0.01 * (theory - 1))


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
    assert curve["lowest"] == {"scale": 4.0, "seeds": [0, 1, 2], "not_told_apart": [2.0]}
    curve = curve_of({1.0: [5.2, 5.4, 5.3], 4.0: [5.0, 5.5, 5.2]})
    assert curve["lowest"]["not_told_apart"] == [1.0]
    assert fig8.lowest_in_words(curve["lowest"]) == "lowest at 4, not told from 1"
    alone = curve_of({1.0: [5.2], 4.0: [5.0]})
    assert fig8.lowest_in_words(alone["lowest"]) == "lowest at 4, one seed"


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
        ("short", (), None, {"mini": 3, "small": 1}),
        ("short", ("small", "medium"), None, {"small": 1, "medium": 1}),
        ("paper", ("mini", "small"), 2, {"mini": 2, "small": 2}),
        ("quick", (), None, {"nano": 3}),
        ("quick", (), 4, {"nano": 4}),
    ],
)
def test_what_is_not_asked_for_is_as_usual(
    schedule: schedules.ScheduleName, sizes: tuple[str, ...], seeds: int | None, models: dict[str, int]
) -> None:
    assert fig7.FIGURE.choose(schedule, sizes, seeds).models == models


def test_models_are_gone_through_seed_by_seed() -> None:
    choice = Choice(schedule="short", models={"mini": 3, "small": 1})
    assert list(choice.seeds_and_sizes()) == [(0, "mini"), (0, "small"), (1, "mini"), (2, "mini")]


def test_what_takes_minutes_has_fewer_runs() -> None:
    settings = {size: ablation.variants(size, "short", 0) for size in ("mini", "small")}
    assert len(settings["small"]) < 10 < len(settings["mini"])
    rates = {config.lr for config in settings["small"].values() if config.mode == "dense"}
    assert rates == {config.lr for config in schedules.baselines("short", "small", seed=0)}
    assert {config.steps for config in settings["small"].values()} == {schedules.short("small").steps}


def test_missing_runs_are_done_once_and_kept(work: Work, tmp_path: Path) -> None:
    plan = [replace(TINY, policy=replace(TINY.policy, qk_scale=scale)) for scale in (1.0, 2.0)]
    begun: list[int] = []

    def progress(done: int, total: int, config: RunConfig) -> None:
        begun.append(done)

    for _ in range(2):
        run_missing(plan, Rows(tmp_path), work, progress=progress, watch=lambda moment: None)
    assert begun == [0, 1, 0, 1]
    rows = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert [row["config"]["policy"]["qk_scale"] for row in rows] == [1.0, 2.0]
    assert all(row["run"]["tokens_per_second"] > 0 and len(row["found"]["identity"]) == 64 for row in rows)
    assert not list((tmp_path / "under-way").iterdir())


@pytest.mark.parametrize("spare", [True, False])
def test_no_run_is_begun_that_would_not_end_in_time(spare: bool, work: Work, tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    here = environment()
    earlier = made_up(replace(TINY, seed=1), 4.0) | {"text": work.text.describe()}
    speed = {"tokens_per_second": 4 * 4 * 32 / 100, "date": "2026"}  # such a run takes 100 s
    rows.keep(earlier | {"run": here | speed})
    rows.keep(earlier | {"run": here | {"tokens_per_second": 1e9, "date": "2025"}})
    rows.keep(earlier | {"run": here | {"tokens_per_second": 1e9, "date": "2027", "gpu": "another machine"}})
    limited = replace(work, deadline=time.monotonic() + (140 if spare else 110))  # a tenth and setting up come on top
    run_missing([TINY], rows, limited, progress=lambda *_: None, watch=lambda moment: None)
    assert (Rows(tmp_path).find(TINY) is not None) is spare


def test_rows_of_two_processes_are_all_kept(tmp_path: Path) -> None:
    plan = fig8.plan(QUICK)
    first, second = Rows(tmp_path), Rows(tmp_path)
    for rows, config in zip((first, second, first), plan, strict=False):
        rows.keep(made_up(config, 4.0))
    assert [Rows(tmp_path).find(config) is not None for config in plan[:3]] == [True] * 3
    assert os.listdir(tmp_path) == [ROWS]


def test_a_run_is_not_thrown_away_before_its_row_is_kept(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def full(rows: Rows, row: Json) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as disk:
        disk.setattr(Rows, "keep", full)
        with pytest.raises(OSError, match="no space left"):
            run_missing([TINY], Rows(tmp_path), work, progress=lambda *_: None, watch=lambda moment: None)
    (folder,) = (tmp_path / "under-way").iterdir()
    assert (folder / "result.json").exists()
    run_missing([TINY], Rows(tmp_path), work, progress=lambda *_: None, watch=lambda moment: None)
    row = Rows(tmp_path).find(TINY)
    assert row is not None
    assert row["run"]["date"] == json.loads((tmp_path / ROWS).read_text())["run"]["date"]


def test_runs_are_told_apart_by_name(tmp_path: Path) -> None:
    for figure in FIGURES:
        names = [name_of(config)[:-9] for config in figure.plan(figure.choose("short"))]
        alike = {name for name in names if names.count(name) > 1}
        # What the name leaves out: batches, weight decay, and small ablations of it.
        assert len(alike) <= 2, (figure.name, alike)


def test_seeds_that_not_all_have_do_not_decide(tmp_path: Path) -> None:
    alone = curve_of({2.83: [4.9, 5.5], 4.0: [5.0]})
    assert alone["lowest"] == {"scale": 2.83, "seeds": [0], "not_told_apart": []}
    (*_, slow, fast) = fig7.plan(Choice(schedule="short", models={"small": 1}))
    rows = [made_up(replace(slow, seed=seed), loss) for seed, loss in ((0, 4.2), (1, 4.6))]
    (point,) = fig7.summarize([*rows, made_up(fast, 4.3)])["points"]
    assert (point["lr"], point["seeds"]) == (slow.lr, [0, 1])


def test_lines_of_the_spread_join_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = spread.plan(Choice(schedule="short", models={"mini": 3}))
    rows = [made_up(c, 4.0 + c.seed) for c in plan if (c.seed, c.policy.qk_scale) != (0, 1.0)]
    drawn: list[list[float]] = []
    monkeypatch.setattr(matplotlib.axes.Axes, "plot", lambda axes, x, y, **style: drawn.append(list(y)))
    result = {"lengths": spread.summarize(rows)["lengths"], "config": {"schedule": "short"}, "runs": 1, "missing": []}
    spread.draw(result | {"text": {"data": "a text"}}, tmp_path / "spread")
    assert len(drawn) == 9
    assert all(math.isnan(y[0]) or y[0] == y[1] for y in drawn)


def test_an_init_without_a_pair_is_no_figure(tmp_path: Path) -> None:
    Rows(tmp_path / "inits").keep(made_up(inits.plan(QUICK)[0], 4.0))
    with pytest.raises(StrongTicketError, match="no way to draw the weights has a seed at both scales yet"):
        reproduce_text_figure(inits.FIGURE, QUICK, tmp_path, None)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_only_and_no_minutes_begin_what_they_say(tmp_path: Path) -> None:
    quick = ("fig8", "--quick", "--seeds", 1, "--out", tmp_path)
    assert invoke(*quick, "--minutes", 0).exit_code == 1
    assert not (tmp_path / "fig8" / ROWS).exists()
    done = invoke(*quick, "--only", "scale8-", "--also", "sample")
    assert done.exit_code == 0, done.output
    (row,) = (json.loads(line) for line in (tmp_path / "fig8" / ROWS).read_text().splitlines())
    assert row["config"]["policy"]["qk_scale"] == 8
    assert row["also"]["sample"] == pytest.approx(row["best_validation_loss"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--only", "("), "--only '(' is no regular expression"),
        (("--models", "huge"), "unknown GPT-2 size 'huge'"),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_begun(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = invoke("fig4", "fig8", "--quick", *arguments, "--out", tmp_path)
    assert done.exit_code == 2, done.output
    assert told in done.output
    assert not list(tmp_path.iterdir())


def test_another_text_must_have_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = load_text("sample")
    other = replace(sample, name="other", tokenizer=replace(sample.tokenizer, name="pieces", digest="1" * 64))
    monkeypatch.setattr("strongticket.data.text.load_text", lambda data, **_: sample if data == "sample" else other)
    done = invoke("fig8", "--quick", "--also", "other", "--out", tmp_path)
    assert done.exit_code == 2, done.output
    assert "--also other has tokens of pieces, --data those of bytes." in done.output
    assert not list(tmp_path.iterdir())


def test_runs_on_other_text_are_not_mixed_in(work: Work, tmp_path: Path) -> None:
    fill(tmp_path, fig7.FIGURE, QUICK)
    with pytest.raises(StrongTicketError, match="has runs on other text"):
        reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, work)


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(StrongTicketError, match="no finished run"):
        reproduce_text_figure(fig8.FIGURE, QUICK, tmp_path, None)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{\n", "is not JSON lines"),
        ("[" * 100_000, "is not JSON lines"),
        ("7\n", "line 1 is no finished run"),
        ('{"config": {}, "text": {"data": "a", "digest": "b"}, "run": {}}\n', "line 1 is no finished run"),
    ],
)
def test_broken_rows_are_named(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(content)
    with pytest.raises(StrongTicketError, match=rf"rows\.jsonl:? {told}"):
        Rows(tmp_path)


def test_rows_of_another_release_are_named(tmp_path: Path) -> None:
    config = fig7.plan(QUICK)[0]
    row = made_up(config, 4.0)
    del row["nonzero"]
    Rows(tmp_path / "fig7").keep(row)
    with pytest.raises(
        StrongTicketError, match=r"rows\.jsonl is broken, or from another release \(KeyError: 'nonzero'\)"
    ):
        reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, None)
    assert not (tmp_path / "fig7" / "result.json").exists()


def test_rows_on_two_texts_are_not_drawn_together(tmp_path: Path) -> None:
    first, second = (made_up(config, 4.0) for config in fig7.plan(QUICK)[:2])
    Rows(tmp_path / "fig7").keep(first)
    Rows(tmp_path / "fig8").keep(second | {"text": {"data": "other", "digest": "2" * 64}})
    with pytest.raises(StrongTicketError, match="runs on several texts: sample, other"):
        reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, None)


def test_two_outcomes_of_one_run_are_refused(tmp_path: Path) -> None:
    config = fig7.plan(QUICK)[0]
    for folder, loss in (("fig7", 4.0), ("fig8", 5.0)):
        Rows(tmp_path / folder).keep(made_up(config, loss))
    with pytest.raises(StrongTicketError, match=r"two outcomes of one run \(nano, seed 0\): 4.01 and 5.01"):
        reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, None)


def test_names_from_files_are_no_markup(tmp_path: Path) -> None:
    row = made_up(fig7.plan(QUICK)[0], 4.0)
    row["text"]["data"], row["also"] = "[/]\x1b[2J", {"[/red]": 5.0}
    Rows(tmp_path / "fig7").keep(row)
    result = reproduce_text_figure(fig7.FIGURE, QUICK, tmp_path, None)
    out = console()
    with out.capture() as shown:
        for table in fig7.FIGURE.tables(result):
            out.print(table)
    assert r"[/]\x1b[2J" in shown.get()
    assert "[/red]" in shown.get()


def test_one_pair_has_no_interval() -> None:
    found = paired_difference({0: 1.0, 1: 2.0}, {1: 2.5})
    assert found is not None
    assert (found["seeds"], found["mean"], found["std"], found["interval"]) == ([1], 0.5, None, None)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_a_trained_model_stands_at_its_best_learning_rate(tmp_path: Path) -> None:
    choice = Choice(schedule="short", models={"small": 2})
    plan = fill(tmp_path, fig7.FIGURE, choice)
    rates = sorted({config.lr for config in plan if config.mode == "dense"})
    assert len(rates) == 3
    path = tmp_path / "fig7" / ROWS
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["config"]["mode"] == "dense" and row["config"]["lr"] == rates[0]:
            row["best_validation_loss"] -= 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = reproduce_text_figure(fig7.FIGURE, choice, tmp_path, None)
    (trained,) = (point for point in result["points"] if point["kind"] == "dense")
    assert (trained["lr"], trained["seeds"]) == (rates[0], [0, 1])


def test_a_variant_is_held_against_itself_without_its_last_change(tmp_path: Path) -> None:
    fill(tmp_path, ablation.FIGURE, QUICK)
    result = reproduce_text_figure(ablation.FIGURE, QUICK, tmp_path, None)
    bases = {line["variant"]: line["base"] for line in result["variants"]}
    assert bases["learning rate 0.03, kept weights rescaled"] == "learning rate 0.03"
    assert bases["kept weights rescaled"] == "ticket"
    assert bases["trained model, learning rate 0.1"] == "trained model"
    assert bases["ticket"] is bases["trained model"] is None
    losses = {(line["seed"], line["variant"]): line["final_validation_loss"] for line in result["variants"]}
    for line in result["variants"]:
        if line["base"] is not None:
            assert line["difference"] == losses[line["seed"], line["variant"]] - losses[line["seed"], line["base"]]


def test_runs_of_the_repository_are_drawn_without_any_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "results", fig8.FIGURE, fig8.FIGURE.choose("short"), leave_out=1)
    monkeypatch.chdir(tmp_path)
    done = invoke("fig8")
    assert done.exit_code == 0, done.output
    assert "One run is missing (mini-embeddings-masked-scale8-output_gain-4.0-1600steps-" in done.output
    assert (tmp_path / "results" / "fig8" / "fig8.png").exists()
    result = json.loads((tmp_path / "results" / "fig8" / "result.json").read_text())
    assert result["config"]["models"] == {"mini": 3, "small": 1}


def test_a_quick_look_stays_away_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "out", fig8.FIGURE, fig8.FIGURE.choose("quick"))
    path = tmp_path / "out" / "fig8" / ROWS
    path.write_text(path.read_text().replace("0" * 64, load_text("sample").digest))
    monkeypatch.chdir(tmp_path)
    done = invoke("fig8", "--quick")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "fig8" / "fig8.png").exists()
    assert not (tmp_path / "results").exists()
