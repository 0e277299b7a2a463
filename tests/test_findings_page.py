"""docs/findings.md states the project's main results; each is computed here from results/."""

import json
import math
import statistics
from pathlib import Path

from strongticket.files import Json
from tests.pages import result_of

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())


def lines_of(path: str) -> list[Json]:
    return [json.loads(line) for line in (ROOT / "results" / path).read_text("utf-8").splitlines()]


def test_constructed_tickets() -> None:
    result = result_of("fig4")
    means = {
        name: {line["width"]: line["error"]["mean"] for line in found["widths"]}
        for name, found in (("equal", result), ("adaptive", result["adaptive"]))
    }
    shown = [means["adaptive"][width] for width in (32, 64)]
    assert "At width 32 the mean error is {:.1e}, at width 64 it is {:.1e}".format(*shown) in TEXT
    assert f"falls from {means['equal'][32]:.1e} to {means['adaptive'][32]:.1e}" in TEXT
    slopes = [found["fits"][0]["median_slope"]["slope"] for found in (result, result["adaptive"])]
    assert {f"{100 * (1 - math.exp(-slope)):.0f}" for slope in slopes} == {"29"}
    assert f"by {100 * (1 - math.exp(-0.06)):.0f} % per unit of width. We find 29 % for the median" in TEXT


def test_theorem_3() -> None:
    result = result_of("theorem3")
    chances = result["adaptive"]["chances"]
    enough = min(line["width"] for line in chances if line["failures"]["count"] == 0)
    sources = chances[0]["failures"]["sources"]
    width = result["theorem"]["paper"]["width"]
    assert f"a width of {width} in an example where {enough} was enough for all of {sources} random networks" in TEXT
    assert 5 < width / enough < 6


def test_certificates() -> None:
    tickets = 0
    for figure in ("fig4", "fig5", "fig6"):
        result = result_of(figure)
        for found in (result, result["adaptive"]):
            assert found["violations"] == 0
            tickets += sum(len(line["sources"]["seed"]) for line in found["widths"])
    assert f"None of {tickets:,} tickets behind Figures 4 to 6 exceeded its own" in TEXT
    result = result_of("fig4")
    sources = [line["sources"] for found in (result, result["adaptive"]) for line in found["widths"]]
    ratios = [c / w for source in sources for c, w in zip(source["certificate"], source["worst"], strict=True)]
    assert f"typically {statistics.median(ratios):.1f} times the largest error seen" in TEXT


def test_a_real_model() -> None:
    runs = result_of("pretrained")["runs"]
    (run,) = (run for run in runs if (run["what"], run["items"]) == ("attention", 20))
    compared = run["compare"]
    assert compared["texts"] == 1000
    assert f"no output is off by more than {compared['largest_difference']:.1e}" in TEXT
    assert compared["cosine"]["min"] > 0.99999999
    assert "at least 0.99999999" in TEXT
    assert f"takes {run['ticket']['file_bytes'] / 1e6:.1f} MB" in TEXT
    own = 4 * 6 * 4 * 384**2  # six layers of four square matrices in float32
    assert 3.5 < run["ticket"]["file_bytes"] / own < 4.5


def test_searched_tickets() -> None:
    effects = {
        (curve["size"], curve["embeddings"]): point["best_validation_loss_difference"]
        for curve in result_of("fig8")["curves"]
        for point in curve["points"]
        if point["scale"] == 2.83
    }
    assert f"by {-effects['mini', 'masked']['mean']:.2f} nats in GPT-2 mini" in TEXT
    assert f"by {-effects['small', 'masked']['mean']:.2f} in GPT-2 small" in TEXT
    assert f"mini gains {-effects['mini', 'trained']['mean']:.2f}" in TEXT
    (kaiming,) = (line for line in result_of("inits")["inits"] if line["init"] == "kaiming")
    (scaled,) = (point for point in kaiming["points"] if point["scale"] == 2.83)
    assert f"the same scale costs {scaled['best_validation_loss_difference']['mean']:.1f}" in TEXT


def test_the_gap() -> None:
    result = result_of("fig7")
    gaps = [gap for gap in result["gaps"] if (gap["kind"], gap["embeddings"]) == ("scaled", "masked")]
    assert [gap["size"] for gap in gaps] == ["mini", "small"]
    assert "are {:.2f} and {:.2f} nats above trained models".format(*(gap["mean"] for gap in gaps)) in TEXT
    (dense,) = (p for p in result["points"] if (p["size"], p["kind"]) == ("mini", "dense"))
    ticket = (ROOT / "results" / "fig8" / "mini-masked-scale2.83-seed1.ticket").stat().st_size
    own = 4 * dense["nonzero"]["all"]
    assert f"{own / ticket:.0f} times smaller: {ticket / 1e6:.1f} MB against {own / 1e6:.0f} MB" in TEXT


def test_the_frontier() -> None:
    budget = 4_900_000
    found: dict[str, float] = {}
    for point in result_of("frontier")["points"]:
        if max(point["bytes"]["values"]) <= budget:
            loss = point["best_validation_loss"]["mean"]
            found[point["kind"]] = min(loss, found.get(point["kind"], loss))
    strong, scaled, ternary, int4 = (
        f"{found[kind]:.3f}"
        for kind in ("strong tickets", "tickets with learned scales", "trained ternary", "trained int4")
    )
    words = " ".join(TEXT.split())
    assert f"a strong ticket reaches {strong} nats, a ticket with learned scales {scaled}" in words
    assert f"a trained ternary model {ternary} and a trained 4-bit model {int4}" in words
    page = (ROOT / "docs" / "frontier.md").read_text("utf-8")
    assert all(f"| {loss} |" in page for loss in (strong, scaled, ternary, int4))


def test_missing_runs_of_figure_7_would_be_named() -> None:
    assert result_of("fig7")["missing"] == [], "say on the page which runs are missing"


def test_rules() -> None:
    narrow = [line for line in lines_of("rules/results.jsonl") if line.get("network") == "48-24"]
    trained = [line for line in narrow if line["rule"] == "trained"]
    assert f"{100 * statistics.mean(line['accuracy'] for line in trained):.1f} % accuracy in" in TEXT
    assert f"in {trained[0]['bytes']:,} bytes" in TEXT
    found: dict[str, list[Json]] = {}
    for line in narrow:
        if line["density"] == 0.5:
            found.setdefault(line["rule"], []).append(line)
    assert len(found) == 9
    means = {rule: statistics.mean(line["accuracy"] for line in lines) for rule, lines in found.items()}
    worst, best = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    assert f"from {100 * means[worst]:.1f} % ({worst}) to {100 * means[best]:.1f} % ({best})" in TEXT
    sizes = [statistics.mean(line["bytes"] for line in lines) for lines in found.values()]
    assert f"in {min(sizes):,.0f} to {max(sizes):,.0f} bytes" in TEXT


def test_running_from_bits() -> None:
    measured = ("small", "cpu", 1)
    lines = [x for x in lines_of("decode/results.jsonl") if (x["model"], x["device"], x["threads"]) == measured]
    *_, bits = (line for line in lines if line["engine"] == "bits")  # the latest
    *_, floats = (line for line in lines if line["engine"] == "float32")
    assert f"writes {bits['median']:.0f} tokens per second on one core, {bits['times_float32']:.1f} times as" in TEXT
    assert (
        f"from {bits['weight_bytes'] / 1e6:.0f} MB of weights instead of {floats['weight_bytes'] / 1e6:.0f} MB" in TEXT
    )


def test_subset_sums() -> None:
    sums = {"op": "subset_sum", "n": 20, "device": "cpu", "threads": 1}
    rates = {line["engine"]: line["median"] for line in lines_of("bench/results.jsonl") if sums.items() <= line.items()}
    assert f"{round(rates['strongticket'], -3):,.0f} problems with 20 items per second" in TEXT
    assert f"Gurobi solves {rates['gurobi']:.1f} per second" in TEXT
