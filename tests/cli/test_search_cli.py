import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import typer
from typer.testing import CliRunner

from strongticket import parallel
from strongticket.cli import main as command_line
from strongticket.cli import search as cli
from strongticket.cli.help_page import Command
from strongticket.cli.main import app
from strongticket.cli.options import with_settings
from strongticket.learn.config import RunConfig
from strongticket.learn.run import Means, StoppedError
from strongticket.learn.shared import Share
from strongticket.models.gpt2 import GPT2, gpt2_config
from strongticket.settings import setting

pytestmark = pytest.mark.usefixtures("sample_is_short")
RUN = ["search", "--size", "nano", "--data", "sample", "--device", "cpu", "--length", "32", "--sequences", "4"]


def invoke(*more: str) -> Any:
    return CliRunner().invoke(app, [*RUN, *more])


@dataclass(frozen=True, kw_only=True)
class Cup:
    sugar: float | Literal["some"] = setting("some", "Spoons of sugar.")
    handle: bool = setting(True, "With a handle.")


@dataclass(frozen=True, kw_only=True)
class Tea:
    kind: Literal["black", "green"] = setting("black", "Leaves.")
    cup: Cup = field(default_factory=Cup, metadata={"panel": "Table"})
    minutes: int = setting(4, "Minutes to wait.", panel="Kitchen", least=1, shown="until it is done")
    hot_milk: bool = setting(False, "Milk.")
    spoons: tuple[int, ...] = setting((1, 2), "Spoons of leaves, pot by pot.")
    guests: tuple[str, ...] = setting((), "Who comes.", shown="nobody")
    brand: str = "no option"


def brew(*arguments: str) -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)

    @app.command(cls=Command)
    @with_settings(Tea)
    def tea(context: typer.Context, pots: int = 1, **settings: Any) -> None:
        """Make tea."""
        typer.echo(json.dumps([pots, settings]))

    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})


def test_options_are_made_of_the_fields_of_settings() -> None:
    defaults = {"kind": "black", "sugar": "some", "handle": True, "minutes": None, "hot_milk": False}
    defaults |= {"spoons": [1, 2], "guests": None}
    assert json.loads(brew().stdout) == [1, defaults]
    given = brew(
        "--kind",
        "green",
        "--sugar",
        "2",
        "--no-handle",
        "--minutes",
        "3",
        "--hot-milk",
        "--pots",
        "2",
        "--spoons",
        "3",
        "--guests",
        "Ada, Max",
    )
    chosen = {"kind": "green", "sugar": 2.0, "handle": False, "minutes": 3, "hot_milk": True}
    chosen |= {"spoons": [3], "guests": ["Ada", "Max"]}
    assert json.loads(given.stdout) == [2, chosen]
    *_, options, table, kitchen = brew("--help").stdout.split("\n\n")
    names = [line.split()[0] for line in options.splitlines()]
    assert names == ["Options:", "--kind", "--hot-milk", "--spoons", "--guests", "--pots", "--help"]
    assert re.search(r"--kind black\|green +Leaves\.  \[default: black\]", options)
    assert re.search(r"--spoons LIST +Spoons of leaves, pot by pot\.  \[default: 1,2\]", options)
    assert re.search(r"--guests LIST +Who comes\.  \[default: nobody\]", options)
    assert table.splitlines()[0] == "Table:"
    assert "--sugar X|some          Spoons of sugar.  [default: some]" in table
    assert "--minutes N  Minutes to wait.  [default: until it is done; at least 1]" in kitchen


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sugar", "lots"], "Error: --sugar must be some or a number; got 'lots'.\n"),
        (
            ["--spoons", "2,some"],
            "Error: --spoons must be whole numbers separated by commas, such as 8,16; got '2,some'.\n",
        ),
        (["--minutes", "0"], "Invalid value for '--minutes'"),
        (["--brand", "x"], "No such option: --brand"),
        (["--no-hot-milk"], "No such option: --no-hot-milk"),
    ],
)
def test_options_refuse_what_their_fields_do_not_take(arguments: list[str], told: str) -> None:
    done = brew(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr


def test_the_defaults_of_the_command_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cli, "_run_seeds", lambda *run: asked.append(run))
    done = CliRunner().invoke(app, ["search", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    ((config, seeds, _, _, means, device, _, _),) = asked
    assert config == RunConfig()
    assert list(seeds) == [config.seed]
    place = Share(0, 1, torch.device(device))
    # A command repeats itself, wherever it can.
    assert Means(share=place, **means) == Means(share=place, deterministic=True)


def test_seeds_follow_on_each_other_and_json_is_pure(tmp_path: Path) -> None:
    done = invoke("--steps", "2", "--seed", "5", "--seeds", "2", "--out", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["runs"]
    assert [result["seed"] for result in results] == [5, 6]
    assert {path.name for path in tmp_path.iterdir()} == {"seed-5", "seed-6"}
    assert results[0]["found"]["identity"] != results[1]["found"]["identity"]


def test_a_small_model_takes_one_thread_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, torch.device]] = []
    monkeypatch.setattr(parallel, "one_thread_for_small", lambda *small: told.append(small))
    assert invoke("--steps", "1", "--out", str(tmp_path)).exit_code == 0
    ((weights, device),) = told
    assert weights == sum(GPT2(gpt2_config("nano", context=32, bias=False)).parameter_counts().values())
    assert device.type == "cpu"


def test_the_ticket_is_named_at_the_end(tmp_path: Path) -> None:
    done = invoke("--steps", "2", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "best validation loss" in done.stdout
    assert "strong, identity" in done.stdout


def test_what_was_not_kept_is_not_promised(tmp_path: Path) -> None:
    for keep in ("--no-keep", "--keep"):  # the second finds the run finished
        done = invoke("--steps", "1", "--out", str(tmp_path / "none"), keep)
        assert done.exit_code == 0, done.output
        assert "only the numbers were kept (--no-keep)" in done.stdout
    for mode, file in (("search", "best.ticket"), ("dense", "model.safetensors")):
        assert f"{file}: " in invoke("--steps", "1", "--out", str(tmp_path / mode), "--mode", mode).stdout
        (tmp_path / mode / "seed-0" / file).unlink()
        done = invoke("--steps", "1", "--out", str(tmp_path / mode), "--mode", mode)
        assert done.exit_code == 0, done.output
        assert f"{file}: no longer there" in done.stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--size", "huge"], "unknown GPT-2 size 'huge'"),
        (["--density", "70"], "density must be in (0, 1]; got 70"),
        (["--qk-scale", "big"], "--qk-scale must be auto or a number"),
        (["--device", "tpu"], "--device must be cpu or cuda; got 'tpu'"),
        (["--device", "cuda:1"], "got 'cuda:1'. CUDA_VISIBLE_DEVICES chooses among several GPUs."),
        (["--micro-batch", "3"], "multiple of micro_batch"),
        (["--warmup", "9", "--steps", "4"], "the warm-up must be 0 to 4 steps; got 9."),
        (["--steps", "4", "--epochs", "2"], "--steps and --epochs both say how long the run is"),
        (["--mode", "dense", "--density", "0.3"], "--density is for --mode search, not dense."),
        (["--mode", "dense", "--qk-scale", "2", "--signed"], "--signed and --qk-scale are for --mode search"),
        (["--lr", "-1"], "the learning rate must be above 0 and finite; got -1."),
        (["--final-lr", "1"], "final_lr must be between 0 and lr, 0.0001; got 1."),
        (["--clip", "0"], "clip must be a positive norm"),
        (["--clip", "inf"], "clip must be a positive norm"),
        (["--weight-decay", "inf"], "weight_decay must be 0 or more"),
        (["--seed", str(2**64 - 1), "--seeds", "2"], "seed must be a whole number in 0 .. 2^64 - 1"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(more: list[str], message: str, tmp_path: Path) -> None:
    done = invoke(*more, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_stopped_ends_like_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(**_: object) -> None:
        raise StoppedError("Stopped after step 3 of 9.")

    monkeypatch.setattr(command_line, "app", stopped)
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "Stopped after step 3 of 9.\n", "no error: it is what was asked for"
