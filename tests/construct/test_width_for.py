"""Widths for a given target: chances against counting, and the answer of the search."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import strongticket as st
from strongticket.cli.main import app
from strongticket.construct.chance import (
    _columns,
    chance_out_of_reach,
    chance_some_is_out_of_reach,
    count_failures,
    expected_out_of_reach,
)
from strongticket.construct.linear import plan_linear
from strongticket.construct.width_for import width_for
from strongticket.models.transformer import Block, FeedForward, Transformer
from strongticket.ops.rng import random_weights
from tests.construct.test_construct import draw, random_attention


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("wanted", "items"), [(0.3, 4), (1.0, 8), (1.5, 12), (0.05, 3)])
def test_the_chance_is_what_is_counted_and_not_above_it(relu: bool, wanted: float, items: int) -> None:
    draws = torch.rand(2, 200_000, items, generator=torch.Generator().manual_seed(0)) * 2 - 1
    products = (draws[0].clamp(min=0) if relu else draws[0]) * draws[1]
    seen = (products.clamp(min=0).sum(dim=1) < wanted).double().mean().item()
    found = chance_out_of_reach(wanted, items, relu=relu)
    spread = math.sqrt(seen * (1 - seen) / 200_000)
    assert found <= seen + 4 * spread
    assert found >= seen - 4 * spread - 0.02 * seen, "rounding up to the grid costs little"
    above = chance_out_of_reach(wanted, items, relu=relu, upper=True)
    assert seen - 4 * spread <= above <= seen + 4 * spread + 0.05 * seen
    assert found < above
    assert chance_out_of_reach(-wanted, items, relu=relu) == found, "a sum below 0 is as far"


def test_unreachable_entries_come_as_often_as_predicted() -> None:
    target = draw(3, 3, seed=1, scale=0.5)
    predicted = chance_some_is_out_of_reach(plan_linear(target, 3 * 10, "theory"))
    tickets = [st.construct_linear(target, hidden_width=30, seed=seed, assignment="equal") for seed in range(60)]
    seen = count_failures([ticket.certificate.details["unreachable"]["count"] for ticket in tickets], tol=0.5)
    assert predicted <= seen.high, "a lower bound, since of each column only one entry counts"
    assert predicted > seen.low / 4
    counted = sum(ticket.certificate.details["unreachable"]["count"] for ticket in tickets) / len(tickets)
    expected = expected_out_of_reach(plan_linear(target, 3 * 10, "theory"))
    assert expected == pytest.approx(counted, rel=0.3)
    columns = [*_columns(plan_linear(target, 3 * 10, "theory"))]
    from_below = sum(chance_out_of_reach(wanted, items) for column, items, _ in columns for wanted in column)
    assert from_below < expected < 1.1 * from_below


@pytest.mark.parametrize(
    ("count", "sources", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 20, 0.0866, 0.4910), (1, 200, 0.0001, 0.0275)],
)
def test_intervals_are_clopper_and_pearsons(count: int, sources: int, low: float, high: float) -> None:
    found = count_failures([1.0] * count + [0.0] * (sources - count), tol=0.5)
    assert (found.count, found.sources) == (count, sources)
    assert (found.low, found.high) == (pytest.approx(low, abs=6e-5), pytest.approx(high, abs=6e-5))


TARGETS = {
    "matrix": lambda: draw(3, 2, seed=0, scale=0.5),
    "network": lambda: FeedForward([draw(2, 2, seed=0, scale=0.5), draw(2, 2, seed=1, scale=0.5)], [None, None]),
    "attention": lambda: random_attention(1, 2, 2, bias=False, seed=0),
    "transformer": lambda: Transformer(
        [
            Block(
                random_attention(1, 2, 2, bias=False, seed=b),
                FeedForward([draw(4, 2, seed=b, scale=0.3), draw(2, 4, seed=b + 9, scale=0.3)], [None, None]),
            )
            for b in range(2)
        ]
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_least_width_is_enough_and_one_item_fewer_is_not(name: str) -> None:
    target = TARGETS[name]()
    told: list[tuple[int, int, int]] = []
    answer = width_for(target, tol=0.05, failure=0.1, sources=10, progress=lambda *one: told.append(one))
    assert told == [(tried.items, source, 10) for tried in answer.tried for source in range(1, 11)]
    assert answer.found is not None
    by_items = {tried.items: tried for tried in answer.tried}
    assert answer.found.failures.count <= 1
    assert by_items[answer.found.items - 1].failures.count > 1
    assert answer.theorem_items > answer.found.items
    assert width_for(target, tol=0.05, failure=0.1, sources=10) == answer


def test_a_source_that_is_refused_has_failed() -> None:
    """Any error would do here, so a source fails only if it has no unit of one sign: with two units, half of them."""
    target, seeds = torch.full((1, 1), 0.5), range(20)
    network = FeedForward([target], [None])
    answer = width_for(network, tol=100.0, failure=0.2, sources=len(seeds))
    one_sign = sum(int((random_weights(s, "layer.0.first", (2, 1)) > 0).sum()) != 1 for s in seeds)
    (two,) = (tried for tried in answer.tried if tried.items == 2)
    assert two.failures.count == one_sign > 4
    assert answer.found is not None
    assert answer.found.items > 2


def test_what_no_width_does_is_said() -> None:
    answer = width_for(torch.full((1, 1), 30.0), tol=0.01, sources=2)
    assert answer.found is None
    assert answer.tried[-1].items == 64
    assert answer.tried[-1].out_of_reach > 0.99


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": 0.1, "failure": 1.0}, "failure in"),
        ({"tol": 0.1, "sources": 0}, "sources at least 1"),
    ],
)
def test_bad_settings(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        width_for(torch.ones(1, 1), **changes)  # type: ignore[arg-type]


def test_on_the_command_line(tmp_path: Path) -> None:
    save_file({"weight": TARGETS["matrix"]().contiguous()}, file := tmp_path / "target.safetensors")
    command = ["bound", "given", "--target", str(file), "--tol", "0.05", "--failure", "0.1", "--sources", "10"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    answer = width_for(TARGETS["matrix"](), tol=0.05, failure=0.1, sources=10)
    assert answer.found is not None
    assert f"With {answer.found.items} items {answer.found.failures.count} of 10 failed: hidden width" in told.stdout
    assert "The true share may be up to" in told.stdout
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert printed["found"]["items"] == answer.found.items
    assert printed["theorem_items"] == answer.theorem_items
    save_file({"strange": torch.ones(2)}, file)
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "strange" in str(refused.exception)


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "matrix"])
def test_a_file_of_any_target_gives_the_same_answer(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]()
    tensors = {name: tensor.detach().contiguous() for name, tensor in target.state_dict().items()}
    save_file(tensors, file := tmp_path / "target.safetensors")
    told = CliRunner().invoke(
        app, ["bound", "given", "--target", str(file), "--tol", "1", "--failure", "0.5", "--sources", "2", "--json"]
    )
    assert told.exit_code == 0, told.output
    answer = width_for(target, tol=1.0, failure=0.5, sources=2)
    assert answer.found is not None
    assert json.loads(told.stdout)["found"]["widths"] == answer.found.widths
    if name == "transformer":
        items = answer.found.items
        widths = {"key_width": 2 * items, "value_width": 2 * items, "hidden_width": [4 * items] * 2}
        assert answer.found.widths == widths
        assert 0 < answer.tried[0].out_of_reach <= 1


def test_the_answer_is_printed_in_a_line() -> None:
    found = width_for([[0.5, -0.3], [0.2, 0.9]], tol=0.01, sources=5)
    theorem = f"the theorem needs {found.theorem_items}"
    items = found.found.items
    width = f"{items} items per input: hidden_width={2 * items}; {found.found.failures.count} of 5 sources failed"
    assert repr(found) == f"WidthForTarget({width}; {theorem})"
    missed = replace(found, found=None)
    assert repr(missed) == f"WidthForTarget(not found: 64 items per input are not enough; {theorem})"
