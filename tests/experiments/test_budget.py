"""What `search --budget-bytes` chooses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strongticket.cli.main import app
from strongticket.experiments import budget, frontier
from strongticket.experiments.budget import PACKAGED, Recommended, config_of, leading, recommend
from strongticket.files import read_json, write_json
from strongticket.learn.config import RunConfig
from tests.experiments.test_frontier import INT4, LEARNED, POPUP, TICKET, row

RESULT = Path(__file__).parents[2] / "results" / "frontier" / "result.json"


@pytest.fixture(scope="module")
def known() -> list[Recommended]:
    rows = [row(TICKET, 3.0, 30_000), row(POPUP, 3.5, 20_000), row(LEARNED, 2.5, 40_000), row(INT4, 2.0, 10_000)]
    return leading(frontier.summarize(rows))


def test_tickets_that_lead_are_known_by_their_bytes(known: list[Recommended]) -> None:
    assert [(each["bytes"], each["loss"], each["strong"]) for each in known] == [
        (20_000, 3.5, True),
        (30_000, 3.0, True),
        (40_000, 2.5, False),
    ]


@pytest.mark.parametrize(
    ("bytes_", "strong", "loss"), [(20_000, False, 3.5), (39_999, False, 3.0), (10**9, False, 2.5), (10**9, True, 3.0)]
)
def test_the_best_that_fits_is_chosen(bytes_: int, strong: bool, loss: float, known: list[Recommended]) -> None:
    assert recommend(bytes_, strong=strong, known=known)["loss"] == loss


def test_too_few_bytes_name_the_least_that_do(known: list[Recommended]) -> None:
    with pytest.raises(
        ValueError, match=r"in 19,999 bytes; the smallest takes 20,000 \(nano, edge-popup.*: --budget-bytes 20000\."
    ):
        recommend(19_999, strong=False, known=known)
    with pytest.raises(ValueError, match="no frontier to choose a search from"):
        recommend(19_999, strong=True, known=known[2:])


def test_a_recommendation_is_the_run_it_came_from(known: list[Recommended]) -> None:
    as_it_was: dict[str, Any] = {"length": TICKET.length, "micro_batch": TICKET.micro_batch, "precision": "float32"}
    again = config_of(known[1], {**as_it_was, "validate_every": TICKET.validate_every})
    assert again == TICKET
    longer = config_of(known[1], {"steps": 10 * TICKET.steps, "lr": 2 * TICKET.lr})
    assert (longer.warmup, longer.final_lr) == (10 * TICKET.warmup, pytest.approx(2 * TICKET.final_lr))
    assert config_of(known[1], {"sequences": 4}).micro_batch == 4


def test_the_package_has_what_the_committed_rows_recommend() -> None:
    packaged = read_json(PACKAGED)
    assert packaged == (leading(read_json(RESULT)) if RESULT.exists() else [])
    for each in packaged:
        assert isinstance(config_of(each, {}), RunConfig)


def test_help_lists_the_option_once_it_can_choose() -> None:
    """Until then, whoever has read about it gets one line."""
    packaged = read_json(PACKAGED)
    listed = "--budget-bytes" in CliRunner().invoke(app, ["search", "-h"]).stdout
    assert listed == bool(packaged)
    if not packaged:
        refused = CliRunner().invoke(app, ["search", "--budget-bytes", "4900000"])
        assert refused.exit_code == 2
        assert refused.stderr.startswith("Error: this release has no frontier to choose a search from. Choose --size")


def test_search_follows_it(known: list[Recommended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "frontier.json", known)
    monkeypatch.setattr(budget, "PACKAGED", tmp_path / "frontier.json")

    def search(*more: str) -> Any:
        usual = [
            "search",
            "--data",
            "sample",
            "--device",
            "cpu",
            "--steps",
            "2",
            "--sequences",
            "16",
            "--length",
            "128",
        ]
        return CliRunner().invoke(app, [*usual, "--out", str(tmp_path / "out"), *more])

    done = search("--budget-bytes", "45000", "--scales", "none", "--json")
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    assert run["config"]["policy"] == TICKET.as_json()["policy"]
    assert (run["config"]["steps"], run["config"]["lr"]) == (2, TICKET.lr)
    assert run["found"]["bytes"] < 45_000
    assert "nano, signed:threshold=0, sign, gain 8: loss 3.000 in 30,000 bytes" in done.stderr
    for more, told in (
        (("--budget-bytes", "10"), "no search on the frontier finds a ticket in 10 bytes; the smallest takes 20,000"),
        (("--budget-bytes", "45000", "--density", "0.5"), "--density is for searches without --budget-bytes"),
        (("--budget-bytes", "45000", "--scales", "block"), "leave out --scales, or give --scales none"),
    ):
        refused = search(*more)
        assert refused.exit_code == 2, refused.output
        assert told in refused.stderr
