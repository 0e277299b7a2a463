"""docs/frontier.md quotes rows of results/frontier; here they are held against each other."""

from pathlib import Path

from strongticket.experiments import frontier
from strongticket.experiments.figure import Options
from strongticket.experiments.frontier import KINDS, SCALED, STRONG, best_within
from tests.pages import result_of, table_under

PAGE = Path(__file__).parents[1] / "docs" / "frontier.md"
TEXT = " ".join(PAGE.read_text("utf-8").split())
POINTS = result_of("frontier")["points"]
KIND = {
    "trained, 4 bits": "trained int4",
    "trained, ternary": "trained ternary",
    "ticket with learned scales": SCALED,
    "strong ticket": STRONG,
}


def lowest(start: str, kind: str) -> float:
    """The lowest loss of a kind's points whose names start like this."""
    losses = [p["best_validation_loss"]["mean"] for p in POINTS if p["kind"] == kind and p["name"].startswith(start)]
    return min(losses)


def test_the_lowest_losses_are_those_of_the_rows() -> None:
    rows = table_under(PAGE, "Results")[2:]
    assert [row[0] for row in rows] == [*KIND]
    found = {kind: best_within(POINTS, 4_900_000, (kind,)) for kind in KINDS}
    assert {kind for kind, point in found.items() if point} == {*KIND.values()}
    for kind, loss, size, _ in rows:
        point = found[KIND[kind]]
        assert point is not None
        assert (loss, size) == (f"{point['best_validation_loss']['mean']:.3f}", f"{point['bytes']['mean']:,.0f}")
    losses = [float(row[1]) for row in rows]
    assert losses == sorted(losses)
    assert f"beat the best strong ticket by {losses[-1] - losses[0]:.2f} nats" in TEXT


def test_numbers_in_the_text() -> None:
    result = result_of("frontier")
    assert result["runs"] == 26
    planned = result["runs"] + len(result["missing"])
    assert planned == len(frontier.plan(frontier.FIGURE.plan.configure(Options())))
    assert f"Twenty-six of {planned} runs" in TEXT
    assert f"**Cost**: {planned} runs" in TEXT
    (binary,) = (point for point in POINTS if point["kind"] == "trained binary")
    shown = binary["best_validation_loss"]["mean"], binary["bytes"]["mean"]
    assert "binary mini has {:.3f}, in {:,.0f} bytes".format(*shown) in TEXT
    popup, flip = "mini, edge-popup, density 0.5, sign, gain 4", "mini, signed:threshold=0, sign, gain"
    for words, loss in {
        "It ends at {:.2f}": lowest(flip, STRONG),
        "with a scale per output at {:.2f}": lowest(f"{flip} 2, norms trained, scales output", SCALED),
        "make edge-popup worse** ({:.2f}, at the lower density": lowest("mini, edge-popup", SCALED),
        "(5.10 and {:.2f})": lowest("6x448", STRONG),
        "({:.2f} and 5.06)": lowest("10x384", STRONG),
        "hardly learn ({:.2f})": lowest(f"{popup}, embeddings frozen", STRONG),
    }.items():
        assert words.format(loss) in TEXT, (words, loss)
