"""Figures 4 to 6 say what their numbers say, whatever these are."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strongticket.experiments.fig4 import carried_in_words, rate_in_words
from strongticket.experiments.fig5 import lengths_in_words
from strongticket.experiments.fig6 import depths_in_words
from strongticket.experiments.scans import NAMES, growth_in_words
from strongticket.report import write_report
from tests.report.conftest import ROOT

THEORY = 0.34657


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (1.09 * THEORY, "falls at rate 0.3778 from width 24 to 48, as the theory predicts: 0.3466."),
        (0.91 * THEORY, "falls at rate 0.3154 from width 24 to 48, as the theory predicts: 0.3466."),
        (0.89 * THEORY, "falls at rate 0.3084 from width 24 to 48, not as the theory predicts: 89 % of its 0.3466."),
        (2 * THEORY, "falls at rate 0.6931 from width 24 to 48, not as the theory predicts: 200 % of its 0.3466."),
        (-0.01, "does not fall from width 24 to 48; the theory’s rate is 0.3466."),
    ],
)
def test_a_rate_agrees_with_the_theory_or_is_said_to_be_off(rate: float, said: str) -> None:
    words = rate_in_words({"widths": [24, 64], "slope": rate, "predicted": THEORY}, [8, 24, 32, 48])
    assert words == f"The median source’s error {said}"


def test_no_rate_is_no_claim() -> None:
    words = rate_in_words({"widths": [24, 64], "slope": None, "predicted": THEORY}, [8])
    assert words == "There are too few widths to fit the median source’s rate; the theory’s is 0.3466."


def missed(width: int, share: float, carried: float) -> dict[str, float]:
    return {"width": width, "unreachable_sources": share, "mean_from_unreachable": carried}


def test_what_unreachable_sources_carry_is_read_where_there_are_some() -> None:
    words = carried_in_words([missed(8, 0.9, 0.99), missed(16, 0.1, 0.6), missed(24, 0.0, 0.0)])
    assert words.startswith("Up to width 16 some sources")
    assert words.endswith("they cause 60 % or more of the mean error.")
    assert carried_in_words([missed(8, 1.0, 1.0)]).endswith("they cause 100 % of the mean error.")
    assert carried_in_words([missed(8, 0.0, 0.0)]) == ""


def test_what_a_scan_changes_is_said_to_grow_or_to_shrink() -> None:
    ends = [
        {"scan": scan, "value": value, "error": {"median": 2.0 ** (sign * value)}, "theorem": float(value)}
        for scan, sign in zip(NAMES, (1, 1, 1, -1, -1), strict=True)
        for value in (2, 8)
    ]
    words = growth_in_words(ends)  # type: ignore[arg-type]
    assert "becomes 64 times larger from d = 2 to 8 (4 times larger)," in words
    assert words.endswith("64 times smaller from 2 to 8 hidden units per input (4 times larger).")


def line(width: int, *medians: float) -> dict[str, Any]:
    return {"width": width, "token": [{"median": median} for median in medians]}


def test_each_width_falls_or_rises_with_length_by_itself() -> None:
    falling, rising, also, level = line(16, 0.3, 0.4, 0.2), line(32, 0.2, 0.3), line(48, 0.1, 0.3), line(64, 0.1, 0.1)
    assert lengths_in_words([falling]) == "falls at every width"
    assert lengths_in_words([rising, also]) == "rises at every width"
    words = "falls at n = 16, and rises at n = 32, 48, and stays the same at n = 64"
    assert lengths_in_words([falling, rising, also, level]) == words


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((0.03, 0.04, 0.05), "0.03, 0.04, 0.05: the deeper, the faster"),
        ((0.05, 0.03, 0.04), "0.05, 0.03, 0.04, in no order of depth"),
        ((0.04, 0.04), "0.04, 0.04, in no order of depth"),
        ((0.05, None, 0.03), "0.05, –, 0.03"),
        ((0.05,), "0.05"),
    ],
)
def test_rates_of_depths_have_an_order_only_if_all_agree(rates: tuple[float | None, ...], said: str) -> None:
    assert depths_in_words([None if rate is None else {"gamma": 1.0, "delta": rate} for rate in rates]) == said


def leads_of(content: Any, folder: Path) -> str:
    (folder / "result.json").write_text(json.dumps(content))
    write_report([folder / "result.json"], folder / "report.html")
    return " ".join(re.findall(r'<p class="lead">.*?</p>', (folder / "report.html").read_text()))


def slow(content: Any) -> None:
    content["fits"][0]["median_slope"]["slope"] = 0.0015


def backwards(content: Any) -> None:
    for each in content["widths"]:
        each["token"].reverse()


def deepest_first(content: Any) -> None:
    content["fits"][0]["mean"]["own_rate"].reverse()


@pytest.mark.parametrize(
    ("figure", "change", "before", "after"),
    [
        ("fig4", slow, ", as the theory predicts", "0.0015 from width 24 to 64, not as the theory predicts: 0.433 %"),
        ("fig5", backwards, "the regression token falls at every", "the regression token rises at every width"),
        ("fig6", deepest_first, ": the deeper, the slower.", ": the deeper, the faster."),
    ],
)
def test_other_numbers_are_told_otherwise(
    figure: str, change: Callable[[Any], None], before: str, after: str, tmp_path: Path
) -> None:
    content = json.loads((ROOT / "results" / figure / "result.json").read_bytes())
    committed = leads_of(content, tmp_path)
    change(content)
    changed = leads_of(content, tmp_path)
    assert before in committed
    assert before not in changed
    assert after in changed
