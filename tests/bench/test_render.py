import pytest

from strongticket.bench import render
from strongticket.bench.subset_sum import OURS, Comparison
from strongticket.report.records import Made, SubsetSums, Timed
from strongticket.report.speed import sums_chart


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


def test_an_engine_may_miss_some_sizes() -> None:
    rows = [Timed(row, Made()) for comparison in TWO for row in comparison.measurements]
    (view,) = sums_chart(rows, "on a machine").views
    points = {series.name.split(",")[0]: series.points for series in view.series}
    assert points[f"The {OURS}"] == [(8, 1e6), (12, 5e5)]
    assert points["The new"] == [(12, 9.0)]


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
