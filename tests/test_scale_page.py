"""docs/scale.md quotes results/pretrained: each row of MiniLM, all from one tree, and the bound layer by layer."""

import json

from strongticket.bench.script import RESULTS
from tests.pages import ROOT, result_of, table_under

PAGE = ROOT / "docs" / "scale.md"
RUNS = json.loads((ROOT / "results/pretrained/run.json").read_text("utf-8"))["runs"]


def test_rows_of_minilm() -> None:
    told = table_under(PAGE, "all-MiniLM-L6-v2")[2:]
    runs = result_of("pretrained")["runs"]
    assert [(run["what"], run["items"]) for run in runs] == [(run["what"], run["items"]) for run in RUNS]
    for cells, run, made in zip(told, runs, RUNS, strict=True):
        ticket, compared = run["ticket"], run["compare"]
        assert cells == [
            f"{run['items']}{' with MLPs' if run['what'] == 'attention+mlp' else ''}",
            f"{1 - compared['cosine']['mean']:.1e}",
            f"{1 - compared['cosine']['min']:.1e}",
            f"{compared['largest_difference']:.1e}",
            f"{ticket['worst_entry']:.1e}",
            f"{ticket['worst_reached']:.1e}",
            str(ticket["unreachable"]),
            f"{ticket['file_bytes'] / 1e6:.1f} MB",
            f"{run['hidden_units']:,}" if "hidden_units" in run else "",
            f"{run['information_limit']:,.0f}" if "information_limit" in run else "",
            f"{made['construct']['cpu_seconds']:.0f}",
        ]


def test_all_rows_come_from_one_tree() -> None:
    assert len({run["commit"] for run in RUNS}) == 1


def test_16_items_now_do_what_20_in_balanced_blocks_did() -> None:
    (mlps,) = (run for run in result_of("pretrained")["runs"] if (run["what"], run["items"]) == ("attention+mlp", 16))
    assert 1 - mlps["compare"]["cosine"]["mean"] < 1.2e-5
    assert "a mean 1 - cosine of 1.2e-5" in PAGE.read_text("utf-8")


def test_the_time_of_the_choice() -> None:
    """The pages quote the range of all runs since the choice was last made faster."""
    rows = [json.loads(line) for line in (ROOT / RESULTS).read_text("utf-8").splitlines()]
    runs = [row for row in rows if row.get("case") == "time of the choice" and row["date"] >= "2026-11-19"]

    def told(*sizes: int) -> str:
        percents = {round(100 * row["share"]) for row in runs if row["d"] in sizes}
        return " to ".join(map(str, sorted({min(percents), max(percents)}))) + " %"

    assert f"takes {told(384)} of the construction" in PAGE.read_text("utf-8")
    page = (ROOT / "docs/construct.md").read_text("utf-8")
    assert f"at d = 16 that takes {told(16)}" in page
    assert f"At d = 32 it takes {told(32)}" in page
    assert f"takes {told(128, 384)} of the time with 16 or 20 items" in page


def test_the_bound_from_end_to_end() -> None:
    found = json.loads((ROOT / "results/pretrained/end_to_end.json").read_text("utf-8"))
    told = table_under(PAGE, "From end to end")[2:]
    for cells, layer in zip(told, found["layers"], strict=True):
        index, *numbers, longest = layer.values()
        assert cells == [str(index + 1), *(f"{number:.1e}" for number in numbers), f"{float(f'{longest:.2g}'):g}"]
        assert layer["seen"] <= layer["bound"]
    # Of the ticket in the table above, and useless from the fourth layer on.
    (run,) = (run for run in result_of("pretrained")["runs"] if (run["what"], run["items"]) == ("attention", 20))
    assert found["identity"] == run["ticket"]["identity"]
    assert [layer["bound"] < layer["output_norm"] for layer in found["layers"]] == [True] * 3 + [False] * 3
