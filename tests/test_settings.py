"""Settings that are added later: runs from before them stay what they were, and the command line has the option."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import strongticket
from strongticket.data.text import load_text
from strongticket.experiments import TEXT_FIGURES
from strongticket.experiments.language import name_of
from strongticket.files import as_json, read_json
from strongticket.learn.config import RunConfig
from strongticket.learn.folder import CHECKPOINT, RESULT
from strongticket.learn.policy import Policy
from strongticket.learn.run import Means, Moment
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run
from strongticket.settings import filled, read_settings, setting, value_before

RESULTS = Path(__file__).parent.parent / "results"
DRAWN = [name for name in TEXT_FIGURES if (RESULTS / name / RESULT).exists()]  # so far
GOLDEN = Path(__file__).parent / "golden" / "settings.json"

# What a later release might add: a line of source, before another one.
ADDED = {
    "learn/policy.py": ("density: float", 'twist: float = setting(0.0, "Twist of the weights.")'),
    "learn/config.py": ("lr: float", 'patience: int = setting(0, "Steps to wait.", panel=SCHEDULE, least=0)'),
    "experiments/tasks.py": ("blocks: Blocks", "tilt: float = 0.0"),
}
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from strongticket.charts import picture
from strongticket.cli.main import app
from strongticket.experiments.language import name_of
from strongticket.learn.config import RunConfig
from strongticket.learn.policy import Policy
picture.save = lambda *_: None  # nobody looks at the pictures
done = [CliRunner().invoke(app, line) for line in json.loads(sys.argv[1])]
told = [(run.exit_code, run.stdout, str(run.exception)) for run in done]
others = [RunConfig(policy=Policy(qk_scale=2.0, twist=0.5)), RunConfig(policy=Policy(qk_scale=2.0), patience=3)]
print(json.dumps([told, [name_of(config) for config in (RunConfig(policy=Policy(qk_scale=2.0)), *others)]]))
"""
TINY = RunConfig(size="nano", length=128, sequences=8, micro_batch=8, steps=20, warmup=2, lr=1e-2, final_lr=1e-3)
SEARCH = (
    "search --size nano --length 128 --sequences 8 --steps 20 --warmup 2 --lr 1e-2 --final-lr 1e-3 --data sample "
    "--device cpu --json --out"
)


class Told(NamedTuple):
    """What a command answered."""

    exit_code: int
    stdout: str
    exception: str


@pytest.fixture(scope="module")
def old_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results and searches, one of them stopped on its way, all by the package as it is."""
    folder = tmp_path_factory.mktemp("old")
    for name in ("fig4", *DRAWN):
        shutil.copytree(RESULTS / name, folder / name, ignore=shutil.ignore_patterns("*.png", "*.svg", "*.ticket"))
    text, means = load_text("sample"), Means(share=Share(0, 1, torch.device("cpu")), checkpoint_seconds=0.0)
    run(TINY, text, folder / "finished" / "seed-0", means)

    def pull_the_plug(moment: Moment) -> None:
        if moment.step == TINY.steps:
            raise RuntimeError("no power")

    with pytest.raises(RuntimeError, match="no power"):
        run(TINY, text, folder / "stopped" / "seed-0", means, watch=pull_the_plug)
    assert (folder / "stopped" / "seed-0" / CHECKPOINT).exists()
    return folder


class Later(NamedTuple):
    """What a later release made of runs: its answers, and names of runs without and with its own settings."""

    told: dict[str, Told]
    names: list[str]


@pytest.fixture(scope="module")
def later(old_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Later:
    """Use those runs with a package whose settings have a field more."""
    source = tmp_path_factory.mktemp("later")
    package = Path(str(strongticket.__file__)).parent
    shutil.copytree(package, source / "strongticket", ignore=shutil.ignore_patterns("*.pyc"))
    for name, (place, line) in ADDED.items():
        path = source / "strongticket" / name
        text = path.read_text("utf-8")
        assert text.count(f"\n    {place}") == 1, f"{name} has no field {place} to put another before"
        path.write_text(text.replace(f"\n    {place}", f"\n    {line}\n    {place}"), "utf-8")
    lines = {
        "help": "search -h",
        "figures": f"reproduce fig4 {' '.join(DRAWN)} --json --out {old_runs}",
        "finished": f"{SEARCH} {old_runs / 'finished'}",
        "twisted": f"{SEARCH} {old_runs / 'finished'} --twist 0.5",
        "twisted, stopped": f"{SEARCH} {old_runs / 'stopped'} --twist 0.5",
        "patient": f"{SEARCH} {old_runs / 'finished'} --patience 3",
        "stopped": f"{SEARCH} {old_runs / 'stopped'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([line.split() for line in lines.values()])],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers, names = json.loads(done.stdout)
    return Later({name: Told(*told) for name, told in zip(lines, answers, strict=True)}, names)


def test_figures_miss_what_they_missed_before_a_setting_was_added(later: Later, old_runs: Path) -> None:
    told = later.told["figures"]
    assert told.exit_code == 0, told
    figures = json.loads(told.stdout)
    for name in DRAWN:
        committed = json.loads((RESULTS / name / RESULT).read_text())
        assert figures[name]["missing"] == committed["missing"]
        assert (figures[name]["runs"], name) == (committed["runs"], name)
    # Fits and intervals are SciPy's, whose last digits depend on its version.
    for name in ("fig4", *DRAWN):
        drawn, committed = (
            json.loads(json.dumps(read_json(folder / name / RESULT)), parse_float=lambda x: f"{float(x):.9g}")
            for folder in (old_runs, RESULTS)
        )
        assert drawn == committed, name
    for name in DRAWN:
        assert (old_runs / name / "rows.jsonl").read_bytes() == (RESULTS / name / "rows.jsonl").read_bytes()


def test_a_run_from_before_a_setting_is_the_same_run(later: Later, old_runs: Path) -> None:
    finished, stopped = (json.loads(later.told[name].stdout)["runs"][0] for name in ("finished", "stopped"))
    assert "twist" not in finished["config"]["policy"], "the finished run is read, not done again"
    circumstances = json.loads((old_runs / "stopped" / "seed-0" / "run.json").read_text())
    assert circumstances["resumed_at_step"] == 10
    assert stopped["config"]["policy"]["twist"] == 0.0
    assert stopped["config"]["patience"] == 0
    for key in ("best_validation_loss", "final_validation_loss", "nonzero"):
        assert stopped[key] == finished[key]
    assert stopped["found"]["identity"] == finished["found"]["identity"]  # the file also says the setting


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("twisted", "holds a run with other settings (policy.twist: 0.0 there, 0.5 here)"),
        ("twisted, stopped", "holds a run with other settings (policy.twist: 0.0 there, 0.5 here)"),
        ("patient", "holds a run with other settings (patience: 0 there, 3 here)"),
    ],
)
def test_a_run_that_sets_it_is_another(name: str, told: str, later: Later) -> None:
    assert later.told[name].exit_code == 1
    assert told in later.told[name].exception


def test_a_run_has_the_name_it_had_unless_it_sets_one(later: Later) -> None:
    usual, twisted, patient = later.names
    assert usual == name_of(RunConfig(policy=Policy(qk_scale=2.0)))
    assert "-scale2-twist-0.5-" in twisted
    assert patient[:-8] == usual[:-8]
    assert len({name[-8:] for name in later.names}) == 3


def test_a_new_setting_is_an_option_at_once(later: Later) -> None:
    _, _, masks, schedule, machine, _ = later.told["help"].stdout.split("\n\n")[-7:-1]
    assert "  --twist X                       Twist of the weights.  [default: 0.0]\n" in masks
    assert "  --patience N            Steps to wait.  [default: 0; at least 0]\n" in schedule
    assert machine.startswith("Machine:")


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 1
    width: int = setting(4, "Now wider.", before=2)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    sizes: tuple[int, ...] = (1, 2)


@pytest.mark.parametrize(
    ("found", "full"),
    [
        ({"name": "a", "sizes": [3]}, {"name": "a", "sizes": [3]}),
        ({"name": "a", "inner": {}}, {"name": "a", "inner": {"depth": 1, "width": 2}, "sizes": [1, 2]}),
        ({"inner": {"width": 4}}, {"inner": {"depth": 1, "width": 4}, "sizes": [1, 2]}),
        ({"name": "a", "colour": 7}, {"name": "a", "colour": 7, "sizes": [1, 2]}),
        ({"inner": 7}, {"inner": 7, "sizes": [1, 2]}),
        (None, None),
    ],
)
def test_what_a_file_does_not_say_is_what_runs_did_then(found: Any, full: Any) -> None:
    assert filled(found, Outer) == full


def test_settings_are_made_from_a_file_with_what_it_lacks_and_without_what_they_lack() -> None:
    read = read_settings({"figure": "a", "name": "b", "inner": {"depth": 3}, "sizes": [4, 5]}, Outer)
    assert read == Outer(name="b", inner=Inner(depth=3, width=2), sizes=(4, 5))


def test_settings_in_full_stay_as_they_are() -> None:
    for config in (RunConfig(size="nano", policy=Policy(density=0.5)), RunConfig(mode="dense")):
        assert filled(config.as_json(), RunConfig) == config.as_json()


def test_what_runs_did_before_a_setting_is_on_record() -> None:
    """A default that changes would give old rows another meaning: the old one belongs into `before=`.

    A new setting belongs into tests/golden/settings.json.
    """
    recorded = json.loads(GOLDEN.read_text())
    before = {own.name: value_before(own) for own in fields(RunConfig)}
    policy = {own.name: value_before(own) for own in fields(Policy)}
    assert as_json(before | {"policy": policy}) == recorded
