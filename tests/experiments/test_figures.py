"""Every figure, small but real."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from strongticket.charts.parts import Chart
from strongticket.construct import construct_attention, construct_transformer
from strongticket.data.angular import draw_angular, with_token
from strongticket.errors import InfeasibleError, StrongTicketError
from strongticket.experiments import curves, fig4, fig6, scans, tasks
from strongticket.experiments.figure import Options, load_figure, reproduce_figure
from strongticket.experiments.statistics import summarize
from strongticket.experiments.targets import Target, draw_tokens
from strongticket.models.transformer import FeedForward, Transformer
from tests.experiments.runs import SMALL, UNTRAINED, run_small


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    return {name: run_small(name, out) for name in SMALL}


@pytest.mark.parametrize("name", SMALL)
def test_writes_result_run_and_pictures(results: dict[str, Any], out: Path, name: str) -> None:
    files = {file.name for file in (out / name).iterdir()}
    assert files == {"result.json", "run.json", f"{name}.png", f"{name}.svg"}
    assert (out / name / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / name / f"{name}.svg").read_text()


@pytest.mark.parametrize("name", SMALL)
def test_no_error_exceeds_its_certificate(results: dict[str, Any], name: str) -> None:
    assert results[name]["violations"] == 0


@pytest.mark.parametrize("name", SMALL)
def test_a_finished_result_is_drawn_again_not_computed(
    results: dict[str, Any], out: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = out / name / f"{name}.svg"
    before = picture.read_bytes()
    picture.unlink()
    monkeypatch.setattr("strongticket.experiments.constructions.run_tasks", None)
    assert run_small(name, out) == results[name]
    assert picture.read_bytes() == before


@pytest.mark.parametrize("name", SMALL)
def test_a_result_of_another_release_is_named(results: dict[str, Any], name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "result.json").write_text(json.dumps({"config": results[name]["config"]}))
    with pytest.raises(StrongTicketError, match=r"result\.json is broken, or from another release \(KeyError"):
        run_small(name, tmp_path)


@pytest.mark.parametrize("name", SMALL)
def test_the_size_of_tasks_does_not_show(out: Path, results: dict[str, Any], name: str, tmp_path: Path) -> None:
    figure, config = SMALL[name]
    reproduce_figure(replace(figure, plan=replace(figure.plan, sources_per_task=2)), config, tmp_path)  # type: ignore[type-var]
    assert (tmp_path / name / "result.json").read_bytes() == (out / name / "result.json").read_bytes()


@pytest.mark.parametrize("name", ["fig4", "fig5", "fig6", "theorem3"])
def test_tables_show_every_target(results: dict[str, Any], name: str) -> None:
    (chart,) = load_figure(name).describe(results[name]).blocks
    assert isinstance(chart, Chart)
    shown = [table.caption[-1] for table in chart.tables if "target" in table.caption]
    assert sorted(set(shown)) == [str(target) for target in range(SMALL[name][1].targets)]


def test_a_median_and_a_mean_are_drawn_as_they_are_in_the_result() -> None:
    result = json.loads((Path(__file__).parents[2] / "results" / "fig4" / "result.json").read_bytes())
    (chart,) = fig4.describe(result).blocks
    assert isinstance(chart, Chart)
    median, mean, missed = chart.views
    errors = [point["error"] for point in result["widths"]]
    assert [y for _, y in median.series[0].points] == [error["median"] for error in errors]
    assert list(mean.series[0].high or ()) == [error["mean"] + error["std"] for error in errors]
    assert (median.y_scales[0], mean.printed, missed.minor) == ("log", "linear", True)
    # The predicted slope lies beside the median, where it can be seen.
    (line,) = (series for series in median.series if "halving per item" in series.name)
    assert line.points[0] == (24, pytest.approx(0.03 * errors[2]["median"], rel=0.3))


def test_each_depth_has_its_own_rate(results: dict[str, Any]) -> None:
    (chart,) = fig6.describe(results["fig6"]).blocks
    assert isinstance(chart, Chart)
    (rates,) = chart.views[-1].series
    assert rates.low is not None
    assert rates.high is not None
    fits = results["fig6"]["fits"][0]["mean"]["own_rate"]
    assert rates.points == [(b + 1, fit["delta"]) for b, fit in enumerate(fits)]
    assert all(low <= high for low, high in zip(rates.low, rates.high, strict=True))


def test_one_width_has_no_rates(tmp_path: Path) -> None:
    result = reproduce_figure(fig6.FIGURE, fig6.Config(sources=2, n_blocks=2, widths=(16,), inputs=5), tmp_path)
    (chart,) = fig6.describe(result).blocks
    assert isinstance(chart, Chart)
    assert "Rate" not in [view.name for view in chart.views]


def test_fig4_numbers_can_be_had_from_a_seed_again(results: dict[str, Any]) -> None:
    """One recorded source, rebuilt as the literal network from its seed, has the recorded errors."""
    result, source = results["fig4"], 3
    target = Target.from_json(result["targets"][1])
    (point,) = (p for p in result["widths"] if (p["target"], p["width"]) == (1, 24))
    ticket = construct_attention(
        target.attention,
        key_width=24,
        value_width=24,
        assignment="equal",
        seed=point["sources"]["seed"][source],
        input_norm=target.input_norm(),
    )
    x = with_token(target.token, draw_angular("test", 50).sequences(4))
    literal = ticket.build("literal", dtype=torch.float64)
    errors = (literal(x) - target.attention(x)).norm(dim=-1).amax(dim=-1)
    assert math.isclose(errors.mean().item(), point["sources"]["error"][source], rel_tol=1e-9, abs_tol=1e-14)
    assert math.isclose(errors.max().item(), point["sources"]["worst"][source], rel_tol=1e-9, abs_tol=1e-14)
    assert ticket.certificate is not None
    assert math.isclose(ticket.certificate.error, point["sources"]["certificate"][source], rel_tol=1e-9)


def test_adaptive_units_have_the_same_sources_and_are_no_worse(results: dict[str, Any]) -> None:
    found = results["fig4"]
    for equal, ours in zip(found["widths"], found["adaptive"]["widths"], strict=True):
        assert (ours["target"], ours["width"]) == (equal["target"], equal["width"])
        assert ours["sources"]["seed"] == equal["sources"]["seed"]
        assert ours["error"]["median"] < 2 * equal["error"]["median"]
    (chart,) = fig4.describe(found).blocks
    assert isinstance(chart, Chart)
    for view in chart.views[:2]:
        (line,) = (series for series in view.series if series.name == "mean, adaptive units")
        means = [point["error"]["mean"] for point in curves.of_target(found["adaptive"]["widths"], 0)]
        assert [y for _, y in line.points] == means


def test_theorem3_counts_what_is_above_the_tolerance(results: dict[str, Any]) -> None:
    found = results["theorem3"]
    assert found["theorem"]["tight"]["width"] < found["theorem"]["paper"]["width"]
    for way in (found, found["adaptive"]):
        for point in way["chances"]:
            failed = sum(error > 0.01 for error in point["sources"]["certificate"])
            assert (point["failures"]["count"], point["failures"]["sources"]) == (failed, 5)
            assert point["failures"]["low"] <= failed / 5 <= point["failures"]["high"]
            low, high = point["predicted"]
            assert 0 < low <= high <= 1
    narrow, wide = found["chances"]
    assert narrow["predicted"][0] > wide["predicted"][1]


def test_scans_vary_one_thing_at_a_time(results: dict[str, Any]) -> None:
    cells = results["scans"]["cells"]
    assert [(cell["scan"], cell["value"]) for cell in cells] == scans.CELLS
    usual = {c["scan"]: c["theorem"] for c in cells if c["value"] == scans.USUAL[c["scan"]]}
    assert usual["d"] == usual["H"] == usual["alpha"], "the usual cell is in every scan"
    assert usual["L"] == usual["units"]
    assert all((cell["shallow"] is not None) == (cell["scan"] in scans.NETWORKS) for cell in cells)
    (chart,) = scans.describe(results["scans"]).blocks
    assert isinstance(chart, Chart)
    assert [view.name for view in chart.views] == [*scans.NAMES.values()]


def test_a_shallow_network_is_a_pruned_random_one_and_gets_closer_with_its_width() -> None:
    target = scans.draw_target("L", {**scans.USUAL, "d": 4}, seed=1)
    assert isinstance(target, FeedForward)
    x = draw_tokens(20, 1, 4, 1.0, seed=1)
    errors = []
    for items in (12, 44):
        network = scans.prune_shallow(target, items, seed=101)  # which has no entry out of reach with 44
        first, *others = network.weights
        n = 4 * items
        assert [weight.shape for weight in network.weights] == [(n, 4), (n, n), (4, n)]
        assert ((first != 0).sum(dim=1) == 1).all(), "a unit of the first layer has one input"
        assert all(0.1 < (weight != 0).double().mean() < 0.9 for weight in others)
        assert all(weight.abs().max() <= 1 for weight in network.weights)
        errors.append((network(x) - target(x)).norm(dim=-1).mean().item())
    assert errors[1] < errors[0] / 50


def test_fig4_describes_its_sources(results: dict[str, Any]) -> None:
    result = results["fig4"]
    assert [(p["target"], p["width"]) for p in result["widths"]] == [(t, n) for t in (0, 1) for n in (8, 24, 66)]
    for point in result["widths"]:
        sources = point["sources"]
        assert len(set(sources["seed"])) == 5
        assert point["error"] == summarize(sources["error"])
        assert point["unreachable_sources"] == sum(count > 0 for count in sources["unreachable"]) / 5
        missed = [error for error, count in zip(sources["error"], sources["unreachable"], strict=True) if count]
        assert math.isclose(point["mean_from_unreachable"], sum(missed) / sum(sources["error"]), abs_tol=1e-12)
        assert all(
            (count > 0) == (far > 0) for count, far in zip(sources["unreachable"], sources["missed"], strict=True)
        )
        assert all(len(rows) == 5 and math.isclose(sum(rows[0]), 1, abs_tol=1e-5) for rows in point["maps"])
    widest = result["widths"][2]
    # 33 items: more than are solved exactly, but the wide source must still do better than the narrow ones.
    assert widest["error"]["median"] < 1e-8


def test_fig4_median_halves_with_every_item(tmp_path: Path) -> None:
    """The slope that the full figure has to 6 %, here with fewer sources and to 15 %."""
    # Small entries, which nearly every source can reach: otherwise misses bend the median's curve at small widths.
    small = replace(UNTRAINED, normalize=True)
    config = fig4.Config(sources=15, widths=(24, 32, 40, 48), inputs=50, target=small)
    (fits,) = reproduce_figure(fig4.FIGURE, config, tmp_path)["fits"]
    slope = fits["median_slope"]
    assert slope["predicted"] == math.log(2) / 2
    assert 0.85 < slope["ratio"] < 1.15


def test_fig5_certificate_stands_above_every_length(results: dict[str, Any]) -> None:
    for line in results["fig5"]["widths"]:
        assert len(line["token"]) == 3
        assert len(line["all_tokens"]) == 2
        for errors in (*line["token"], *line["all_tokens"]):
            for statistic in ("mean", "median", "max"):
                assert errors[statistic] <= line["certificate"][statistic] + results["fig5"]["rounding"]
        # Where both are measured on the same inputs, the worst token is at least as bad as the regression token.
        assert line["all_tokens"][0]["max"] > 0


def test_fig5_numbers_can_be_had_from_a_seed_again(results: dict[str, Any]) -> None:
    """Of the second source: the token over all inputs, and every token over as many inputs as the settings say."""
    config, line, source = SMALL["fig5"][1], results["fig5"]["widths"][0], 1
    target = Target.from_json(results["fig5"]["targets"][0])
    ticket = construct_attention(
        target.attention,
        key_width=16,
        value_width=16,
        assignment="equal",
        seed=line["sources"]["seed"][source],
        input_norm=target.input_norm(),
    )
    found = ticket.build("merged", dtype=torch.float64)
    for place, length in enumerate(config.lengths[:2]):
        x = with_token(target.token, draw_angular("test", config.inputs).sequences(length))
        errors = (found(x) - target.attention(x)).norm(dim=-1)  # (inputs, tokens)
        of_token, of_all = errors[:, 0], errors[: config.all_tokens_inputs].amax(dim=-1)
        for name, each in (("token", of_token), ("all_tokens", of_all)):
            recorded, worst = (line["sources"][key][source][place] for key in (name, f"{name}_worst"))
            assert (recorded, worst) == pytest.approx((each.mean().item(), each.max().item()), rel=1e-9)


def test_fig6_first_blocks_are_a_transformer_of_their_own(results: dict[str, Any]) -> None:
    """One source serves every number of blocks: a source of two blocks has the recorded error and certificate."""
    result = results["fig6"]
    target = fig6.read_target(result["targets"][0])
    two = Transformer(fig6._blocks_of(target)[:2])
    (point,) = (p for p in result["widths"] if p["width"] == 32)
    x = with_token(torch.zeros(2, dtype=torch.float64), draw_angular("test", 50).sequences(4))
    widths = {"key_width": 32, "value_width": 32, "hidden_width": 32}
    seed = point["sources"]["seed"][1]
    ticket = construct_transformer(two, **widths, seed=seed, assignment="equal", samples=x)
    errors = (ticket.build("literal", dtype=torch.float64)(x) - two(x)).norm(dim=-1).amax(dim=-1)
    assert math.isclose(errors.mean().item(), point["sources"]["error"][1][1], rel_tol=1e-9, abs_tol=1e-14)
    assert ticket.certificate is not None
    assert math.isclose(ticket.certificate.error, point["sources"]["certificate"][1][1], rel_tol=1e-9)
    assert ticket.certificate.details["unreachable"]["count"] == point["sources"]["unreachable"][1][1]


def test_fig6_keeps_equal_blocks_where_no_choice_of_units_serves_every_input() -> None:
    config = fig6.Config(sources=8, inputs=20)
    target = fig6.make_target(config, 0)
    adaptive, equal = (tasks.Task(config, how, target, 8, 64, 76) for how in ("adaptive", "equal"))
    refused = []
    for source, settings in enumerate(adaptive.sources()):
        try:
            construct_transformer(fig6.read_target(target), hidden_width=8, **settings)
        except InfeasibleError:
            refused.append(source)
    assert 0 < len(refused) < 12
    (ours, theirs) = (fig6.run_task(task)["sources"]["certificate"] for task in (adaptive, equal))
    assert [i for i in range(12) if ours[i] == theirs[i]] == refused


def test_fig6_fits_share_the_first_rate(results: dict[str, Any]) -> None:
    (fits,) = results["fig6"]["fits"]
    rates = {fit["delta"] for fit in fits["mean"]["shared_rate"]}
    assert rates == {fits["mean"]["own_rate"][0]["delta"]}
    assert len(fits["mean"]["own_rate"]) == 3


def test_quick_is_only_smaller() -> None:
    for name in SMALL:
        figure = load_figure(name)
        quick, full = (figure.plan.configure(Options(quick=quick)) for quick in (True, False))
        assert quick.sources < full.sources == {"theorem3": 300, "scans": 30}.get(name, 100)
        assert set(quick.widths) < set(full.widths) or name == "scans"
    full = fig4.configure(Options())
    assert len(full.widths) >= 12
    assert (full.widths[0], full.widths[-1], full.inputs, full.length) == (8, 128, 10_000, 4)


@pytest.mark.parametrize("init", ["printed", "xavier"])
def test_other_inits_reach_less(init: Any, tmp_path: Path) -> None:
    """Both scale products of query and key down as the width grows, so more entries are out of reach."""
    config = fig4.Config(sources=5, widths=(24,), inputs=20, init=init, target=UNTRAINED)
    (point,) = reproduce_figure(fig4.FIGURE, config, tmp_path)["widths"]
    assert point["unreachable_sources"] == 1.0
