"""docs/reproduction.md quotes rows of results/; here they are held against each other."""

import json
import re
from pathlib import Path

import pytest

from strongticket.container import Json

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def result_of(figure: str) -> Json:
    return json.loads((ROOT / "results" / figure / "result.json").read_text("utf-8"))


def table_under(heading: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    section = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    lines = re.findall(r"^\|(.*)\|$", section.split("\n\n![", 1)[0], flags=re.MULTILINE)
    return [[cell.strip().replace("**", "") for cell in line.split("|")] for line in lines[2:]]


def test_the_spread_is_the_measured_one() -> None:
    rows = {row[0].split(" ")[0].replace(",", ""): row for row in table_under("The spread")}
    lengths = result_of("spread")["lengths"]
    assert len(rows) == len(lengths)
    for length in lengths:
        low, high = length["difference"]["interval"]
        assert rows[str(length["steps"])][2:] == [
            *(f"{line['mean']:.3f} ± {line['std']:.3f}" for line in length["losses"]),
            f"{length['difference']['mean']:+.3f}",
            f"{low:+.3f} to {high:+.3f}",
            str(length["seeds_needed"]),
        ]


def test_every_loss_of_the_ablation_is_quoted() -> None:
    quoted = " ".join(cell for row in table_under("The ablation") for cell in row)
    for line in result_of("ablation")["variants"]:
        assert f"{line['final_validation_loss']:.3f}" in quoted, line["variant"]


@pytest.mark.parametrize("picture", ["spread", "fig8"])
def test_its_pictures_are_those_of_the_results(picture: str) -> None:
    assert (ROOT / "docs" / f"{picture}.png").read_bytes() == (
        ROOT / "results" / picture / f"{picture}.png"
    ).read_bytes()


def test_figure_8_is_the_measured_one() -> None:
    heading = next(line for line in PAGE.splitlines() if line.startswith("### Figure 8"))
    rows = {row[0].split(",")[0]: row[1:] for row in table_under(heading.removeprefix("### "))}
    for curve in result_of("fig8")["curves"]:
        cells = rows[{"trained": "embeddings trained", "masked": "all masked"}[curve["embeddings"]]]
        losses = [f"{point['best_validation_loss']['mean']:.3f}" for point in curve["points"]]
        assert [cell.split(" ")[0] for cell in cells if cell] == losses
