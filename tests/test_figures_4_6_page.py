"""docs/figures-4-6.md quotes results/: every cell of its tables, and the numbers of its prose that carry a claim."""

import math
from pathlib import Path

import pytest

from strongticket.files import Json
from tests.pages import result_of, table_under

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "figures-4-6.md"
TEXT = " ".join(PAGE.read_text("utf-8").split())


def rows(heading: str, place: int = 0) -> list[list[str]]:
    return table_under(PAGE, heading, place)[2:]


def percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 and share > 0 else f"{100 * share:.0f} %"


def test_figure_4() -> None:
    result = result_of("fig4")
    pairs = zip(result["widths"], result["adaptive"]["widths"], strict=True)
    assert rows("Figure 4: error against width") == [
        [str(equal["width"])]
        + [
            cell
            for found in (equal, adaptive)
            for cell in (
                f"{found['error']['mean']:.1e}",
                f"{found['error']['median']:.1e}",
                percent(found["unreachable_sources"]),
            )
        ]
        for equal, adaptive in pairs
    ]
    fit = result["fits"][0]
    assert f"{fit['mean']['gamma']:.2f} exp(-{fit['mean']['delta']:.3f} n)" in TEXT
    assert f"the rate {fit['mean_in_logs']['delta']:.2f}" in TEXT
    slopes = [which["fits"][0]["median_slope"]["slope"] for which in (result, result["adaptive"])]
    assert "we measure {:.4f} with equal blocks and {:.4f} with adaptive units".format(*slopes) in TEXT
    missing = [line["mean_from_unreachable"] for line in result["widths"] if 24 <= line["width"] <= 48]
    assert f"at least {math.floor(100 * min(missing))} % of the mean" in TEXT


def test_figure_5() -> None:
    result = result_of("fig5")
    assert result["widths"][0]["lengths"][0] == 4
    assert result["widths"][0]["lengths"][-1] == 4096
    pairs = zip(result["widths"], result["adaptive"]["widths"], strict=True)
    assert rows("Figure 5: error against length") == [
        [str(equal["width"])]
        + [
            f"{value['median']:.1e}"
            for found in (equal, adaptive)
            for value in (found["token"][0], found["token"][-1], found["certificate"])
        ]
        for equal, adaptive in pairs
    ]
    widest = [tokens["median"] for tokens in result["widths"][-1]["all_tokens"]]
    assert f"has {widest[0]:.1e} at T = 4 and {widest[-1]:.1e} at T = 256" in TEXT


def test_figure_6() -> None:
    result = result_of("fig6")
    pairs = [*zip(result["widths"], result["adaptive"]["widths"], strict=True)]
    shown = [(equal, adaptive) for equal, adaptive in pairs if equal["width"] >= 32]
    assert rows("Figure 6: error against the number of blocks") == [
        [str(equal["width"])]
        + [f"{found['blocks'][depth]['error']['mean']:.1e}" for depth in (0, 3) for found in (equal, adaptive)]
        + [percent(found["blocks"][3]["unreachable_sources"]) for found in (equal, adaptive)]
        for equal, adaptive in shown
    ]
    fit = result["fits"][0]["mean"]
    assert "the factors are {:.1f}, {:.1f}, {:.1f} and {:.1f}".format(*(f["gamma"] for f in fit["shared_rate"])) in TEXT
    assert f"own rates fall from {fit['own_rate'][0]['delta']:.3f} to {fit['own_rate'][3]['delta']:.3f}" in TEXT
    ends = [line["blocks"] for _, line in pairs if line["width"] in (64, 96)]
    falls = [math.log(a["error"]["mean"] / b["error"]["mean"]) / 32 for a, b in zip(*ends, strict=True)]
    assert f"falls by {falls[3]:.3f} per unit of n" in TEXT
    assert max(falls) / min(falls) < 1.03
    wide = [block["error"] for _, line in pairs if line["width"] >= 64 for block in line["blocks"]]
    assert all(error["mean"] < 1.25 * error["median"] for error in wide)


def test_theorem_3() -> None:
    result = result_of("theorem3")

    def failed(found: Json) -> list[str]:
        failures = found["failures"]
        ends = f"{percent(failures['low'])} to {percent(failures['high'])}"
        return [percent(failures["count"] / failures["sources"]), ends]

    pairs = zip(result["chances"], result["adaptive"]["chances"], strict=True)
    assert rows("Theorem 3: failure against width") == [
        [
            str(equal["width"]),
            *failed(equal),
            percent(equal["out_of_reach"]),
            "{} to {}".format(*map(percent, equal["predicted"])),
            *failed(adaptive),
        ]
        for equal, adaptive in pairs
        if equal["width"] >= 48
    ]
    theorem = result["theorem"]
    assert f"a width of {theorem['paper']['width']}, or {theorem['tight']['width']}" in TEXT
    for found, width in ((result, 72), (result["adaptive"], 56)):
        enough = [line["width"] for line in found["chances"] if line["failures"]["count"] <= 15]
        assert min(enough) == width


def test_scans() -> None:
    result = result_of("scans")
    names = {"d": "d", "H": "H", "alpha": "α", "L": "L"}

    expected = []
    for scan, name in names.items():
        equal, adaptive = (
            [cell for cell in which["cells"] if cell["scan"] == scan] for which in (result, result["adaptive"])
        )
        first, last = equal[0], equal[-1]
        medians = [[cells[0]["error"]["median"], cells[-1]["error"]["median"]] for cells in (equal, adaptive)]
        expected.append(
            [
                f"{name} from {first['value']:g} to {last['value']:g}",
                *("{:.1e} to {:.1e}".format(*pair) for pair in medians),
                *(pytest.approx(last / first, rel=0.03) for first, last in medians),
                pytest.approx(last["theorem"] / first["theorem"]),
            ]
        )
    shown = rows("Scans: size, heads, norm and depth")
    found = [[row[0].split(" (")[0], row[1], row[2], float(row[3]), float(row[4]), float(row[5])] for row in shown]
    assert found == expected


def test_layers_saved() -> None:
    result = result_of("scans")
    equal, adaptive = (
        [cell for cell in which["cells"] if cell["scan"] == "units"] for which in (result, result["adaptive"])
    )
    shown = [row[1:] for row in rows("L + 1 layers instead of 2 L")]
    assert shown == [
        [f"{cell['error']['median']:.1e}" for cell in equal],
        [f"{cell['error']['median']:.1e}" for cell in adaptive],
        [f"{cell['shallow']['median']:.1e}" for cell in equal],
    ]


def test_nothing_failed() -> None:
    for figure in ("fig4", "fig5", "fig6", "theorem3", "scans"):
        result = result_of(figure)
        assert result["violations"] == result["adaptive"]["violations"] == 0
    assert "No error of any source on any input exceeded its proved bound." in TEXT
