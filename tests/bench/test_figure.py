import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongticket.bench import figure, render
from strongticket.bench.subset_sum import OURS, Comparison
from strongticket.report.records import SubsetSums


def measured(engine: str, n: int, rate: float, timeouts: int = 0) -> SubsetSums:
    return SubsetSums(
        engine=engine,
        label=f"The {engine}",
        n=n,
        device="cpu",
        threads=1,
        clock="cpu",
        rows=1000,
        p20=rate / 2,
        median=rate,
        p80=rate * 2,
        times_slower=1e6 / rate,
        median_error=1e-5,
        optimal_share=0.5,
        checked=100,
        timeouts=timeouts,
    )


TWO = [
    Comparison(8, 1000, 70, [measured(OURS, 8, 1e6), measured("slow", 8, 20.0)], []),
    Comparison(
        12, 1000, 7, [measured(OURS, 12, 5e5), measured("slow", 12, 2.0, timeouts=3), measured("new", 12, 9.0)], []
    ),
]


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.01, 0.3))
def test_labels_are_spread_in_order_and_stay_close(heights: list[float], distance: float) -> None:
    moved = figure.spread(heights, distance)
    ends = sorted(zip(heights, moved, strict=True))
    gaps = [after - before for (_, before), (_, after) in itertools.pairwise(ends)]
    assert all(gap >= distance - 1e-9 for gap in gaps)
    assert sum(moved) == pytest.approx(sum(heights), abs=1e-9)
    if all(after - before >= distance for (before, _), (after, _) in itertools.pairwise(ends)):
        assert moved == pytest.approx(heights)


def test_an_engine_may_miss_some_sizes() -> None:
    lines = figure.collect_lines(TWO)
    assert lines[OURS] == (f"The {OURS}", [8, 12], [1e6, 5e5])
    assert lines["new"] == ("The new", [12], [9.0])


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")
    path = tmp_path / "new folder" / "figure.png"
    figure.draw(TWO, path, "a machine")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_markdown_has_a_line_for_each_measurement() -> None:
    lines = render.comparison_markdown(TWO).splitlines()
    assert len(lines) == 2 + 5
    assert lines[3] == "| 8 | The slow | 1,000 | 20.0 (10.0 to 40.0) | 1.0e-05 | 50 % | 50,000x |"
    # A run cut off by its time limit only bounds the rate.
    assert "| under 2.00 (1.00 to 4.00) |" in lines[5]
    assert lines[5].endswith("| over 500,000x |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.4321e6, "1.43M"),
        (139_499, "139k"),
        (999_600, "1.00M"),
        (7.123, "7.12"),
        (0.1714, "0.171"),
        (5e9, "5.00G"),
        (42.0, "42.0"),
        (0, "0"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert render.short(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(7.123, "7.12x"), (168_951.0, "169,000x"), (0.7, "0.700x"), (42.25, "42.2x")]
)
def test_ratios(ratio: float, text: str) -> None:
    assert render.times(ratio) == text
