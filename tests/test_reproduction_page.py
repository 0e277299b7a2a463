"""docs/reproduction.md quotes rows of results/; here they are held against each other."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from strongticket.experiments import ablation, schedules
from strongticket.experiments.paired import spread
from strongticket.files import Json

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def result_of(figure: str) -> Json:
    return json.loads((ROOT / "results" / figure / "result.json").read_text("utf-8"))


def table_under(heading: str, place: int = 0) -> list[list[str]]:
    """The cells of a table of a section, the first one if not said, without its head."""
    return cells(heading, place)[2:]


def table_head(heading: str, place: int) -> list[str]:
    return cells(heading, place)[0][1:]


def cells(heading: str, place: int) -> list[list[str]]:
    section = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    tables = re.findall(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE)
    lines = [line.strip("|") for line in tables[place].splitlines()]
    return [[cell.strip().replace("**", "") for cell in line.split("|")] for line in lines]


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
    quoted = " ".join(cell for place in (0, 1) for row in table_under("The ablation", place) for cell in row)
    for line in result_of("ablation")["variants"]:
        assert line["seed"] > 0 or f"{line['final_validation_loss']:.3f}" in quoted, line["variant"]


def test_warmups_are_the_measured_ones() -> None:
    losses: dict[str, dict[int, dict[int, float]]] = {}  # by setting, warm-up and seed
    for line in result_of("ablation")["variants"]:
        config = ablation.variants(line["size"], "short", line["seed"])[line["variant"]].config
        # Everything but warm-up and seed: what has several warm-ups is a line of the table.
        rest = str(replace(config, warmup=0, seed=0).as_json())
        losses.setdefault(rest, {}).setdefault(config.warmup, {})[line["seed"]] = line["final_validation_loss"]
    found = [
        [_with_mean(by_warmup[warmup]) if warmup in by_warmup else "" for warmup in (80, 160, 320, 640, 1280)]
        for by_warmup in losses.values()
        if len(by_warmup) > 1
    ]
    assert sorted(found) == sorted(row[1:] for row in table_under("The ablation", 1))


def _with_mean(losses: dict[int, float]) -> str:
    several = f" ({with_deviation(spread([*losses.values()]))})" if len(losses) > 1 else ""
    return f"{losses[0]:.3f}{several}"


@pytest.mark.parametrize("size", ["mini", "small"])
@pytest.mark.parametrize(("treatment", "prefix"), [("ticket", ""), ("embeddings masked", "embeddings masked, ")])
def test_the_short_schedule_has_the_rate_that_won(size: str, treatment: str, prefix: str) -> None:
    rate = re.compile(rf"{prefix}learning rate ([0-9.]+)")
    losses = {}
    for line in result_of("ablation")["variants"]:
        if (line["size"], line["seed"]) == (size, 0) and (
            line["variant"] == treatment or rate.fullmatch(line["variant"])
        ):
            found = rate.fullmatch(line["variant"])
            losses[float(found[1]) if found else schedules.first(size).lr] = line["final_validation_loss"]
    assert len(losses) > 1
    assert min(losses, key=losses.__getitem__) == pytest.approx(schedules.short(size).lr)


@pytest.mark.parametrize("size", ["mini", "small"])
def test_more_seeds_are_for_the_two_lowest_warmups(size: str) -> None:
    variants = ablation.variants(size, "short", 0)
    usual, *_ = schedules.baselines("short", size, seed=1)
    losses = {}
    for line in result_of("ablation")["variants"]:
        config = variants[line["variant"]].config if (line["size"], line["seed"]) == (size, 0) else None
        if config and (config.mode, config.lr, config.steps) == ("dense", usual.lr, usual.steps):
            losses[config.warmup] = line["final_validation_loss"]
    assert len(losses) > 2
    lowest = sorted(losses, key=losses.__getitem__)[:2]
    more = {config.warmup for config in schedules.baselines("short", size, seed=1)}
    assert set(lowest) <= more
    if size == "small":
        assert more == set(lowest)  # mini has more, from before the longest were tried
    alone = [loss for warmup, loss in losses.items() if warmup not in more]
    assert min(alone) - losses[lowest[0]] > 0.06, "a warm-up with one seed might be the best"


@pytest.mark.parametrize("picture", ["spread", "fig7", "fig8", "inits"])
def test_its_pictures_are_those_of_the_results(picture: str) -> None:
    assert (ROOT / "docs" / f"{picture}.png").read_bytes() == (
        ROOT / "results" / picture / f"{picture}.png"
    ).read_bytes()


@pytest.mark.parametrize(("size", "place"), [("mini", 0), ("small", 1)])
@pytest.mark.parametrize(("embeddings", "column"), [("trained", 0), ("masked", 4)])
def test_figure_8_is_the_measured_one(size: str, place: int, embeddings: str, column: int) -> None:
    rows = {row[0]: row[1:] for row in table_under("Figure 8", place)}
    (curve,) = (c for c in result_of("fig8")["curves"] if (c["size"], c["embeddings"]) == (size, embeddings))
    assert len(rows) == len(curve["points"])
    for point in curve["points"]:
        difference = point["best_validation_loss_difference"]
        assert rows[f"{point['scale']:g}"][column : column + 4] == [
            with_deviation(point["best_validation_loss"]),
            f"{difference['mean']:+.3f}" if difference else "",
            "{:+.3f} to {:+.3f}".format(*difference["interval"]) if difference and difference["interval"] else "",
            f"{point['also']['wikitext-103']['mean']:.3f}",
        ]


def with_deviation(loss: Json) -> str:
    return f"{loss['mean']:.3f}" + (f" ± {loss['std']:.3f}" if loss["std"] is not None else "")


def test_sizes_of_q_and_k_are_those_of_the_first_seed() -> None:
    table = {row[0]: row[1:] for row in table_under("Other weights", 1)}
    lines = {line["init"]: line["points"] for line in result_of("inits")["inits"]}
    assert [float(size) for size in table_head("Other weights", 1)] == pytest.approx(
        [point["deviation"] for point in lines["kaiming"]], rel=0.01
    )
    for init, losses in table.items():
        first = [point["best_validation_loss"]["values"][point["seeds"].index(0)] for point in lines[init]]
        assert [loss for loss in losses if loss] == [f"{loss:.3f}" for loss in first]


def test_other_weights_are_the_measured_ones() -> None:
    rows = {row[0]: row[1:] for row in table_under("Other weights")}
    lines = result_of("inits")["inits"]
    assert rows.keys() == {line["init"] for line in lines}
    for line in lines:
        plain, scaled = (next(p for p in line["points"] if p["scale"] == scale) for scale in (1, 2.83))
        difference = scaled["best_validation_loss_difference"]
        low, high = difference["interval"]
        losses = [point["best_validation_loss"] for point in (plain, scaled)]
        assert rows[line["init"]] == [
            f"{plain['deviation']:.3g}",
            *map(with_deviation, losses),
            f"{difference['mean']:+.3f}",
            f"{low:+.3f} to {high:+.3f}",
            *(f"{point['also']['wikitext-103']['mean']:.3f}" for point in (plain, scaled)),
        ]


def test_gaps_to_trained_models_are_the_measured_ones() -> None:
    rows = {row[0]: row[1:] for row in table_under("Figure 7", 1)}
    treatments = {"trained": "embeddings trained", "masked": "all masked"}
    gaps = result_of("fig7")["gaps"]
    assert 2 * len(rows) == len(gaps)
    for gap in gaps:
        seeds, *cells = rows[f"{gap['size']}, {treatments[gap['embeddings']]}"]
        interval = "{:+.3f} to {:+.3f}".format(*gap["interval"]) if gap["interval"] else ""
        place = 0 if gap["kind"] == "unscaled" else 2
        assert [seeds, *cells[place : place + 2]] == [str(gap["n"]), f"{gap['mean']:+.3f}", interval]


def test_figure_7_is_the_measured_one() -> None:
    kinds = {"unscaled": "ticket, scale 1", "scaled": "ticket, scale 2.83", "dense": "trained model"}
    treatments = {"trained": ", embeddings trained", "masked": ", all masked"}
    rows = {row[0]: row[1:] for row in table_under("Figure 7")}
    points = result_of("fig7")["points"]
    assert len(rows) == len(points)
    for point in points:
        treatment = "" if point["kind"] == "dense" else treatments[point["embeddings"]]
        loss = with_deviation(point["best_validation_loss"])
        assert rows[f"{point['size']}: {kinds[point['kind']]}{treatment}"] == [
            *(f"{point['nonzero'][counted] / 1e6:.2f}M" for counted in ("all", "without_embeddings")),
            f"{loss} ({point['also']['wikitext-103']['mean']:.3f})",
        ]
