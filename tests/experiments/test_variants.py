"""Figures with settings of one's own: every setting reaches the numbers, and the result says so."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strongticket.charts.parts import Chart
from strongticket.cli.main import app
from strongticket.experiments import CONSTRUCTIONS
from strongticket.experiments.figure import How, Options, load_figure, reproduce_figure
from strongticket.experiments.options import VARIANT
from strongticket.files import as_json
from strongticket.settings import other_settings

RESULTS = Path(__file__).parents[2] / "results"
VALUES: dict[str, Any] = {
    "widths": (8, 16),
    "heads": 3,
    "d_model": 2,
    "blocks": 2,
    "lengths": (4, 8),
    "items": 8,
    "tol": 0.5,
    "input_norm": 3.0,
    "inputs": 7,
}
# Small, and with the numbers of widths, blocks and lengths that are hardest to fit: one.
SMALL: dict[str, tuple[dict[str, Any], str]] = {
    "fig4": ({"widths": (24,), "heads": 3, "target": "untrained"}, "widths 24; kind untrained; heads 3"),
    "fig5": ({"widths": (16,), "lengths": (4,), "heads": 2, "target": "untrained"}, "lengths 4"),
    "fig6": ({"widths": (8, 16), "heads": 2, "blocks": 1}, "widths 8, 16; blocks 1; heads 2"),
    "theorem3": ({"widths": (16,), "heads": 1, "d_model": 2, "tol": 0.5}, "d model 2; heads 1"),
    "scans": ({"items": 8}, "widths 8"),
}


def test_each_setting_has_a_value_to_try() -> None:
    panels = {own.name: own.metadata["option"].get("rich_help_panel") for own in fields(Options)}
    assert {name for name, panel in panels.items() if panel == VARIANT} == set(VALUES)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_default_is_the_repositorys_run(name: str) -> None:
    plan = load_figure(name).plan
    config = plan.configure(Options())
    found = json.loads((RESULTS / name / "result.json").read_bytes())["config"]
    assert other_settings(found, as_json({"figure": name, **asdict(config)}), type(config)) is None
    assert plan.variant(found) is None


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_setting_changes_the_configuration_or_is_refused(name: str, option: str) -> None:
    plan = load_figure(name).plan
    usual = plan.configure(Options())
    options = Options(**{option: VALUES[option]})
    if option not in usual.varied:
        own = ", ".join(f"--{each.replace('_', '-')}" for each in usual.varied)
        with pytest.raises(ValueError, match=rf"^{name} has no --[a-z-]+; its own settings are {own}\.$"):
            plan.configure(options)
        return
    variant = plan.variant(as_json(asdict(plan.configure(options))))
    assert variant is not None
    assert variant.settings.count(";") == 0, "this setting, and no other"
    assert plan.configure(options) != usual


@pytest.mark.parametrize("name", SMALL)
def test_a_variant_runs_and_says_what_it_is(name: str, tmp_path: Path) -> None:
    asked, said = SMALL[name]
    figure, told = load_figure(name), list[str]()
    config = figure.plan.configure(Options(**asked, sources=2, inputs=5))
    result = reproduce_figure(figure, config, tmp_path, How(row=told.append))
    assert result["violations"] == 0
    section = figure.section(result)
    usual = figure.describe(result)
    assert section.title.startswith(f"{usual.title} (")
    assert section.title.endswith(" more)")
    assert section.name.startswith(f"{usual.name}, sources 2, ")
    assert section.chapter == usual.name
    (chart, *_) = (block for block in section.blocks if isinstance(block, Chart))
    assert said in chart.caption
    assert "sources 2" in chart.caption
    assert "falls" not in section.plain or len(config.widths) > 1
    rows = len(config.widths) * len(config.assignments) * config.targets
    assert len(told) == rows, "one line for each width as soon as it is known"
    assert all(" units: worst error " in line or " blocks: worst error " in line for line in told)


def test_a_variant_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["theorem3", "--widths", "24,16", "--heads", "1", "--sources", "2", "--inputs", "5"]
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    assert done.exit_code == 0, done.output
    folder = Path("out/sources-2_widths-24-16_heads-1_inputs-5/theorem3")
    assert (folder / "result.json").exists()
    assert f"{folder / 'result.json'}" in done.stdout
    assert "settings than the figure's: sources 2; widths 16, 24; heads 1; inputs 5" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_quick_run_is_called_a_quick_look(name: str) -> None:
    plan = load_figure(name).plan
    variant = plan.variant(as_json(asdict(plan.configure(Options(quick=True)))))
    assert variant is not None
    assert variant.name == "quick look"
    more = plan.variant(as_json(asdict(plan.configure(Options(quick=True, seed=7)))))
    assert more is not None
    assert more.name == "quick look, seed 7"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fig4", "--blocks", "3"), "fig4 has no --blocks; its own settings are --widths, --heads, --inputs."),
        (("fig4", "--widths", "8,many"), "--widths must be whole numbers separated by commas, such as 8,16"),
        (("fig4", "--widths", "0,8"), "--widths must be positive whole numbers; got 0."),
        (("fig4", "--widths", "7,9"), "fig4 needs --widths that are multiples of 2; got 7. Use 8."),
        (("theorem3", "--d-model", "3"), "theorem3 needs --widths that are multiples of 3; got 32. Use 33."),
        (("fig7", "--widths", "8"), "--widths is for figures of constructions, fig4 to scans"),
    ],
)
def test_what_a_figure_has_not_is_refused_in_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
