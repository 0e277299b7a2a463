"""The runs that figures on text are made of: done once, kept, named, and what is said when they cannot be."""

import errno
import hashlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from strongticket import progress
from strongticket.cli.main import app
from strongticket.data.text import load_text
from strongticket.environment import environment
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.experiments import fig7, fig8, language, schedules
from strongticket.experiments.figure import Figure, How, Options, Work, reproduce_figure
from strongticket.experiments.language import ROWS, Rows, name_of, run_missing
from strongticket.experiments.text_figure import Choice
from strongticket.files import Json, lock_file, unsealed
from strongticket.learn.config import RunConfig
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.run import Means
from strongticket.learn.shared import Share
from tests.experiments.text_results import FIGURES, QUICK, fill, made_up, runs_of

pytestmark = pytest.mark.usefixtures("sample_is_short")
TINY = schedules.ticket(
    replace(schedules.quick("nano"), steps=4, warmup=1, validate_every=4, sequences=4, micro_batch=4, length=32),
    embeddings="masked",
    scale=2.0,
    seed=0,
)


@pytest.fixture(scope="module")
def work() -> Work:
    return Work(text=load_text("sample"), means=Means(share=Share(0, 1, torch.device("cpu")), keep=False))


def test_missing_runs_are_done_once_and_kept(work: Work, tmp_path: Path) -> None:
    plan = [replace(TINY, policy=replace(TINY.policy, qk_scale=scale)) for scale in (1.0, 2.0)]
    begun: list[int] = []

    def progress(done: int, total: int, name: str) -> None:
        begun.append(done)

    for _ in range(2):
        run_missing(plan, Rows(tmp_path), work, progress=progress, watch=lambda moment: None)
    assert begun == [0, 1, 0, 1]
    rows = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert [row["config"]["policy"]["qk_scale"] for row in rows] == [1.0, 2.0]
    assert all(row["run"]["tokens_per_second"] > 0 and len(row["found"]["identity"]) == 64 for row in rows)
    assert not (tmp_path / "under-way").exists()


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


def test_what_another_process_does_is_left_to_it(work: Work, tmp_path: Path) -> None:
    plan = [TINY, replace(TINY, seed=1)]

    def go(plan: list[RunConfig]) -> None:
        run_missing(plan, Rows(tmp_path), work, progress=lambda *_: None, watch=lambda moment: None)

    (tmp_path / "under-way").mkdir()
    with lock_file(tmp_path / "under-way" / f"{name_of(TINY)}.claim"):
        go(plan)
        assert [Rows(tmp_path).find(config) is not None for config in plan] == [False, True]
    late = Rows(tmp_path)
    go(plan)
    # One that began to look before the other ended finds its row all the same.
    run_missing(plan, late, work, progress=lambda *_: None, watch=lambda moment: None)
    assert len((tmp_path / ROWS).read_text().splitlines()) == 2
    assert os.listdir(tmp_path) == [ROWS]


def test_a_row_of_another_version_of_its_rule_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(tmp_path)
    rows.keep(made_up(TINY, 4.0))
    assert rows.find(TINY) is not None, "rows from before there were versions are of the first"
    monkeypatch.setattr(EdgePopup, "version", 2)
    assert rows.find(TINY) is None
    rows.keep(made_up(TINY, 3.5) | {"found": {"rule_version": 2}})
    found = Rows(tmp_path).find(TINY)
    assert found is not None
    assert found["best_validation_loss"] == 3.5


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


@pytest.mark.parametrize("keep", [False, True])
def test_a_folder_that_a_kill_left_beside_its_row_goes_unless_it_was_to_be_kept(
    keep: bool, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go() -> None:
        run_missing([TINY], Rows(tmp_path), work, progress=lambda *_: None, watch=lambda moment: None)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    under_way = tmp_path / "under-way"
    if keep:
        kept = replace(work, means=replace(work.means, keep=True))
        run_missing([TINY], Rows(tmp_path), kept, progress=lambda *_: None, watch=lambda moment: None)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(language, "discard", killed)
            with pytest.raises(KeyboardInterrupt):
                go()
    assert Rows(tmp_path).find(TINY) is not None
    assert len(list(under_way.iterdir())) == 1
    (under_way / ".strongticket-0123.part" / "half").mkdir(parents=True)  # as a kill leaves what it was removing
    go()
    assert [path.name for path in under_way.iterdir()] == [name_of(TINY)] if keep else not under_way.exists()


def test_runs_are_told_apart_by_name(tmp_path: Path) -> None:
    for figure in FIGURES:
        names = [name_of(config)[:-9] for config in runs_of(figure, figure.plan.configure(Options()))]
        alike = {name for name in names if names.count(name) > 1}
        # What the name leaves out: the weight decay of an ablation.
        assert len(alike) <= 1, (figure.name, alike)


# SHA-256 of the names of all runs with the short schedule: who changes one loses the runs that are under way.
NAMES = {
    "fig7": "250230c4de0b30fc",
    "fig8": "a9bcf5a08fcc1445",
    "spread": "5d91b38bcbc0debe",
    "ablation": "755f9f8b36e3256c",
    "inits": "e26ef66917fe43cc",
    "frontier": "996399db27ff7246",
    "signs": "93b05995b8db96bf",
    "longer": "c5131f6bd0ef747c",
}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_runs_keep_their_names(figure: Figure[Choice]) -> None:
    names = "\n".join(name_of(config) for config in runs_of(figure, figure.plan.configure(Options())))
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == NAMES[figure.name]


def test_a_row_older_than_a_setting_is_found_and_stays_as_it_is(tmp_path: Path) -> None:
    first, second = runs_of(fig8.FIGURE, QUICK)[:2]
    row = made_up(first, 4.0)
    assert row["config"].pop("clip", "none") is None
    del row["config"]["policy"]["rescale"]
    line = json.dumps(row, indent=None, separators=(" , ", ": ")).encode() + b"\n"
    (tmp_path / ROWS).write_bytes(line)
    rows = Rows(tmp_path)
    found = rows.find(first)
    assert found is not None
    assert found["config"] == first.as_json(), "whoever reads the row finds all settings"
    assert rows.find(replace(first, clip=1.0)) is None
    assert rows.find(replace(first, policy=replace(first.policy, rescale=True))) is None
    rows.keep(made_up(second, 4.0))
    assert (tmp_path / ROWS).read_bytes().startswith(line + b'{"config"')
    Rows(tmp_path / "other").keep(made_up(first, 3.5))
    with pytest.raises(StrongTicketError, match="two outcomes of one run"):
        Rows(tmp_path, [tmp_path / "other"])


def test_a_figure_with_fewer_runs_than_before_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 600.0)  # on a busy machine, drawing takes longer than usual
    choice = fig8.FIGURE.plan.configure(Options())
    plan = fill(tmp_path, fig8.FIGURE, choice, leave_out=1)
    n, path = len(plan) - 1, tmp_path / "fig8" / ROWS
    assert invoke("fig8", "--out", tmp_path).stderr == invoke("fig8", "--out", tmp_path).stderr == ""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[2:]))
    done = invoke("fig8", "--out", tmp_path, "--json")
    gone = ", ".join(name_of(config) for config in plan[:2])
    assert done.stderr == f"fig8 is drawn from {n - 2} runs, the one before from {n}; newly missing: {gone}.\n"
    assert json.loads(done.stdout)["fig8"]["runs"] == n - 2
    path.write_bytes(b"".join(lines[7:]))
    with pytest.warns(UserWarning, match=rf"from {n - 7} runs, .* {n - 2}; .*, mini-[^,]+, mini-[^,]+ and 2 more\.$"):
        reproduce_figure(fig8.FIGURE, choice, tmp_path)
    path.write_bytes(b"".join(lines))
    assert invoke("fig8", "--out", tmp_path).stderr == ""
    assert invoke("fig8", "--out", tmp_path, "--models", "small").stderr.startswith("fig8 is drawn from ")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_only_and_no_minutes_begin_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = schedules.shortened(schedules.quick("nano"), steps=20)
    monkeypatch.setattr(schedules, "quick", lambda size: shorter)
    quick = ("fig8", "--quick", "--seeds", 1, "--out", tmp_path)
    late = invoke(*quick, "--minutes", 0)
    assert late.exit_code == 1
    assert "--minutes are too few for the first" in str(late.exception)
    unheard = invoke(*quick, "--only", "zzz")
    assert "--only 'zzz' or --minutes let none start" in str(unheard.exception)
    assert not (tmp_path / "fig8" / ROWS).exists()
    done = invoke(*quick, "--only", "scale8-", "--also", "sample")
    assert done.exit_code == 0, done.output
    (row,) = (json.loads(line) for line in (tmp_path / "fig8" / ROWS).read_text().splitlines())
    assert "5 runs are missing; --only leaves out all of them. Next: nano" in done.output
    assert row["config"]["policy"]["qk_scale"] == 8
    assert row["also"]["sample"] == pytest.approx(row["best_validation_loss"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--only", "("), "--only '(' is not a regular expression"),
        (("--models", "huge"), "unknown GPT-2 size 'huge'"),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_begun(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = invoke("fig4", "fig8", "--quick", *arguments, "--out", tmp_path)
    assert done.exit_code == 2, done.output
    assert told in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("fig7", "--seed", "5", "--init", "xavier"),
            "--seed and --init are for figures of constructions, fig4 to scans, and none was given",
        ),
        (("fig7", "--only", "small"), "--only is for new runs, which need --data"),
        (("fig7", "--also", "sample", "--keep"), "--also and --keep are for new runs, which need --data"),
        (("fig7", "--quick", "--schedule", "paper"), "--quick has its own schedule"),
        (("fig4", "--models", "small"), "--models is for figures on text, from fig7 on, and none was given"),
    ],
)
def test_options_that_no_figure_looks_at_are_refused(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = invoke(*arguments, "--out", tmp_path)
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.output.split())
    assert not list(tmp_path.iterdir())


def test_a_figure_without_runs_does_not_keep_others_from_being_drawn(tmp_path: Path) -> None:
    fill(tmp_path, fig8.FIGURE, fig8.FIGURE.plan.configure(Options(schedule="short")))
    done = invoke("spread", "fig8", "--out", tmp_path)
    assert done.exit_code == 1
    assert str(done.exception).startswith("spread has no finished run")
    assert (tmp_path / "fig8" / "fig8.png").exists()


def test_matplotlib_is_missed_before_anything_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="figures need matplotlib"):
        reproduce_figure(fig8.FIGURE, QUICK, tmp_path)


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
        reproduce_figure(fig7.FIGURE, QUICK, tmp_path, How(work=work))


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(StrongTicketError, match="no finished run"):
        reproduce_figure(fig8.FIGURE, QUICK, tmp_path)


def test_outside_a_checkout_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("fig8")
    assert done.exit_code == 1
    assert "in ./results of the current folder (a checkout of the repository has some in results)" in str(
        done.exception
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{\n", r"not JSON lines: line 1 \(Expecting property name"),
        ("\n\n{", "not JSON lines: line 3"),
        ("[" * 100_000, "not JSON lines"),
        ("7\n", "line 1 is not a finished run, or is from another release"),
        ('{"config": {}, "text": {"data": "a", "digest": "b"}, "run": {}}\n', "line 1 is not a finished run"),
    ],
)
def test_broken_rows_are_named(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(content)
    with pytest.raises(StrongTicketError, match=rf"rows\.jsonl:? (is damaged, or )?{told}"):
        Rows(tmp_path)


def test_rows_of_another_release_are_named(tmp_path: Path) -> None:
    config = fig7.plan(QUICK)[0]
    row = made_up(config, 4.0)
    del row["nonzero"]
    Rows(tmp_path / "fig8").keep(row)
    with pytest.raises(
        StrongTicketError, match=r"fig8/rows\.jsonl: line 1 is not a finished run, or is from another release"
    ):
        reproduce_figure(fig7.FIGURE, QUICK, tmp_path)
    assert not (tmp_path / "fig7" / "result.json").exists()


def test_rows_on_two_texts_are_not_drawn_together(tmp_path: Path) -> None:
    first, second = (made_up(config, 4.0) for config in fig7.plan(QUICK)[:2])
    Rows(tmp_path / "fig7").keep(first)
    Rows(tmp_path / "fig8").keep(second | {"text": {"data": "other", "digest": "2" * 64}})
    with pytest.raises(StrongTicketError, match="runs on several texts: sample, other"):
        reproduce_figure(fig7.FIGURE, QUICK, tmp_path)


def test_two_outcomes_of_one_run_are_refused(tmp_path: Path) -> None:
    config = fig7.plan(QUICK)[0]
    for folder, best in (("fig7", 4.0), ("fig8", 3.5)):
        Rows(tmp_path / folder).keep(made_up(config, 4.0) | {"best_validation_loss": best})
    told = r"two outcomes of one run \(nano, seed 0\): best and final losses 4.0, 4.01 and 3.5, 4.01"
    with pytest.raises(StrongTicketError, match=told):
        reproduce_figure(fig7.FIGURE, QUICK, tmp_path)


def test_runs_of_the_repository_are_drawn_without_any_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "results", fig8.FIGURE, fig8.FIGURE.plan.configure(Options(schedule="short")), leave_out=1)
    monkeypatch.chdir(tmp_path)
    done = invoke("fig8")
    assert done.exit_code == 0, done.output
    assert "One run is missing; with --data the same command does it." in done.output
    assert "Next: small-embeddings-masked-scale2.83-output_gain-4.0-1600steps-warmup80-lr0.001-seed2-" in done.output
    assert (tmp_path / "results" / "fig8" / "fig8.png").exists()
    result = json.loads((tmp_path / "results" / "fig8" / "result.json").read_text())
    assert result["config"]["models"] == {"mini": 3, "small": 3}
    assert "All runs are kept" not in invoke("fig8").output
    assert "other models, seeds or another schedule before. All runs are kept" in invoke("fig8", "--seeds", 2).output


def test_a_quick_look_stays_away_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "out" / "quick", fig8.FIGURE, fig8.FIGURE.plan.configure(Options(quick=True)))
    path = tmp_path / "out" / "quick" / "fig8" / ROWS
    rows = [unsealed(json.loads(line)) for line in path.read_text().splitlines()]
    texts = ({**row, "text": {"data": "sample", "digest": load_text("sample").digest}} for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in texts))
    monkeypatch.chdir(tmp_path)
    done = invoke("fig8", "--quick")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "quick" / "fig8" / "fig8.png").exists()
    assert not (tmp_path / "results").exists()
