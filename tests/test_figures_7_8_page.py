"""docs/figures-7-8.md and docs/lab-log.md quote rows of results/; here they are held against each other."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from strongticket.experiments import ablation, schedules
from strongticket.experiments.paired import spread
from strongticket.files import Json
from tests import pages
from tests.pages import result_of

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures-7-8.md"
LOG = ROOT / "docs" / "lab-log.md"
HEADINGS = {
    "Figure 7": "Figure 7: tickets against trained models",
    "Figure 8": "Figure 8: the loss against the scale of Q and K",
}


def table_under(heading: str, place: int = 0) -> list[list[str]]:
    """The cells of a table of a section on either page, without its head."""
    return cells(heading, place)[2:]


def cells(heading: str, place: int) -> list[list[str]]:
    heading = HEADINGS.get(heading, heading)
    page = FIGURES if f"# {heading}\n" in FIGURES.read_text("utf-8") else LOG
    return pages.table_under(page, heading, place)


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


@pytest.mark.parametrize("size", ["mini", "small"])
@pytest.mark.parametrize(("embeddings", "column"), [("trained", 0), ("masked", 3)])
def test_figure_8_is_the_measured_one(size: str, embeddings: str, column: int) -> None:
    rows = {row[1]: row[2:] for row in table_under("Figure 8") if row[0] == size}
    second = {row[1]: row[2:] for row in table_under("The second text") if row[0] == size}
    (curve,) = (c for c in result_of("fig8")["curves"] if (c["size"], c["embeddings"]) == (size, embeddings))
    assert len(rows) == len(second) == len(curve["points"])
    for point in curve["points"]:
        difference, scale = point["best_validation_loss_difference"], f"{point['scale']:g}"
        assert rows[scale][column : column + 3] == [
            with_deviation(point["best_validation_loss"]),
            f"{difference['mean']:+.3f}" if difference else "",
            "{:+.3f} to {:+.3f}".format(*difference["interval"]) if difference and difference["interval"] else "",
        ]
        assert second[scale][column // 3] == f"{point['also']['wikitext-103']['mean']:.3f}"


def with_deviation(loss: Json) -> str:
    return f"{loss['mean']:.3f}" + (f" ± {loss['std']:.3f}" if loss["std"] is not None else "")


def test_sizes_of_q_and_k_are_those_of_the_first_seed() -> None:
    (_, *sizes), _, *table = cells("The size of Q and K", 0)
    lines = {line["init"]: line["points"] for line in result_of("inits")["inits"]}
    assert [float(size) for size in sizes] == pytest.approx(
        [point["deviation"] for point in lines["kaiming"]], rel=0.01
    )
    for init, *losses in table:
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
        ]


def test_figure_7_is_the_measured_one() -> None:
    kinds = {"unscaled": "ticket, scale 1", "scaled": "ticket, scale 2.83", "dense": "trained model"}
    treatments = {"trained": ", embeddings trained", "masked": ", all masked"}
    rows = {tuple(row[:2]): row[2:] for row in table_under("Figure 7")}
    result = result_of("fig7")
    gaps = {(gap["size"], gap["kind"], gap["embeddings"]): gap for gap in result["gaps"]}
    assert len(rows) == len(result["points"]) == len(gaps) + 2
    for point in result["points"]:
        treatment = "" if point["kind"] == "dense" else treatments[point["embeddings"]]
        gap = gaps.get((point["size"], point["kind"], point["embeddings"]))
        assert rows[point["size"], kinds[point["kind"]] + treatment] == [
            *(f"{point['nonzero'][counted] / 1e6:.2f}M" for counted in ("all", "without_embeddings")),
            with_deviation(point["best_validation_loss"]),
            f"{gap['mean']:+.3f}" if gap else "",
            "{:+.3f} to {:+.3f}".format(*gap["interval"]) if gap else "",
        ]


def test_pairs_say_what_three_of_them_distinguish() -> None:
    text = " ".join(FIGURES.read_text("utf-8").split())
    curves = result_of("fig8")["curves"]
    points = [point for curve in curves for point in curve["points"] if point["scale"] == 2.83]
    pairs = sorted(point["best_validation_loss_difference"]["std"] for point in points)
    assert f"have a standard deviation of {pairs[0]:.3f} to {pairs[-1]:.3f} nats" in text
    # Half the width of a 95 % interval of three values, by Student's t with two degrees of freedom.
    best, worst = (4.303 * deviation / math.sqrt(3) for deviation in (pairs[0], pairs[-1]))
    assert f"larger than {best:.2f} nats in the best case, and {worst:.2f} in the worst" in text
    unclear = [point for point in points if max(point["best_validation_loss_difference"]["interval"]) > 0]
    assert len(unclear) == 1
    seeds = [p["best_validation_loss"]["std"] for c in curves for p in c["points"] if len(p["seeds"]) > 1]
    assert f"a standard deviation of {min(seeds):.3f} to {max(seeds):.3f} nats" in text


def test_what_is_still_to_run_is_what_is_missing() -> None:
    runs = {row[0].split("`")[1]: int(row[1]) for row in table_under("Still to run")}
    missing = {name: len(result_of(name)["missing"]) for name in ("ablation", "fig7", "fig8", "inits", "spread")}
    assert runs == {name: count for name, count in missing.items() if count}


def test_the_kept_ticket_is_as_described() -> None:
    kept = ROOT / "results" / "fig8" / "mini-masked-scale2.83-seed1.ticket"
    assert f"{kept.stat().st_size:,} bytes" in FIGURES.read_text("utf-8")
