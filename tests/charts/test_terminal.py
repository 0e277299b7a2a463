import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table as RichTable

from strongticket.charts.parts import Chart, Comparison, Row, Section, Series, Table, View
from strongticket.charts.terminal import HEIGHT, WIDTH, marks_of, show, show_table, view_plot
from strongticket.experiments.figure import load_figure
from tests.narrow import check_whole

RESULTS = Path(__file__).parents[2] / "results"


def canvas_of(text: str) -> list[str]:
    """Give the lines between title and axis, without the labels before the bar."""
    return [line.split("|", 1)[1].ljust(WIDTH) for line in text.splitlines()[1 : HEIGHT + 1]]


def plot(series: dict[str, list[tuple[float, float]]], **scales: Any) -> str:
    lines = [Series(name=name, points=points) for name, points in series.items()]
    return view_plot("t", View(name="", x="x", y="", series=lines, **scales), 80)


def test_corners_and_the_middle_of_a_logarithmic_scale() -> None:
    canvas = canvas_of(plot({"a": [(0, 1.0), (10, 1e-4)], "b": [(5, 1e-2)]}))
    assert canvas[0][0] == "*"
    assert canvas[-1][-1] == "*"
    assert "o" in canvas[HEIGHT // 2][WIDTH // 2 - 1 : WIDTH // 2 + 1] + canvas[HEIGHT // 2 - 1]


def test_where_series_meet_the_first_is_seen() -> None:
    assert canvas_of(plot({"a": [(1, 1.0)], "b": [(1, 1.0), (2, 2.0)]}))[-1][0] == "*"


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(0, 1e6)), max_size=6)),
    st.sampled_from(["linear", "log"]),
    st.sampled_from(["linear", "log"]),
)
def test_any_points_fit_the_canvas(series: dict[str, list[tuple[float, float]]], x_scale: str, y_scale: str) -> None:
    text = plot(series, x_scale=x_scale, y_scales=(y_scale,))
    assert bool(text) == any(b > 0 or y_scale == "linear" for points in series.values() for _, b in points)
    if text:
        assert all(len(line) == WIDTH for line in canvas_of(text))


@pytest.mark.parametrize("name", ["fig4", "fig5", "fig6", "fig7", "fig8", "inits"])
def test_committed_figures_have_a_plot(name: str) -> None:
    section = load_figure(name).describe(json.loads((RESULTS / name / "result.json").read_bytes()))
    plots = [part for part in show(section, 80) if isinstance(part, str) and "\n          +---" in part]
    assert plots
    for text in plots:
        assert all(mark in text for mark in ("123" if name in ("fig5", "fig6") else "*o"))
        assert "−" not in text


def test_a_comparison_is_a_table_of_its_words_and_numbers() -> None:
    row = Row(words=("mini", "trained"), mean=-0.1, numbers=("3", "−0.100"))
    block = Comparison(title="t", caption="", words=("model", "what"), axis="nats", numbers=("n", "mean"), rows=[row])
    title, caption, table, below, end = show(Section(anchor="", name="", title="title", lead="", blocks=[block]), 80)
    assert (title, caption, below, end) == ("title", "t", "nats.", "")
    assert not isinstance(table, str)
    assert [[*column.cells] for column in table.columns] == [["mini"], ["trained"], ["3"], ["-0.100"]]
    assert [column.justify for column in table.columns] == ["left", "left", "right", "right"]


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    "name", ["fig4", "fig5", "fig6", "fig7", "fig8", "theorem3", "scans", "spread", "ablation", "inits"]
)
def test_figures_keep_their_digits_in_a_narrow_terminal(name: str, width: int) -> None:
    section = load_figure(name).describe(json.loads((RESULTS / name / "result.json").read_bytes()))
    check_whole(show(section, width), width)


CELLS = st.one_of(
    st.floats(allow_nan=False).map("{:.3g}".format),
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map("{0[0]:.3g} to {0[1]:.3g}".format),
    st.text("abc.de ", max_size=40).map(str.strip),
)


@given(st.integers(1, 9), st.integers(0, 3), st.data(), st.sampled_from([60, 80, 100]))
def test_any_table_is_whole_or_says_what_it_leaves_out(
    columns: int, words: int, data: st.DataObject, width: int
) -> None:
    names = [f"column {place}" for place in range(columns)]
    rows = data.draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=4))
    minor = data.draw(st.lists(st.sampled_from(names[1:]), unique=True)) if columns > 1 else []
    table = Table(caption="", columns=names, rows=rows, words=words, minor=minor)
    shown, *said = show_table(table, width)
    assert isinstance(shown, RichTable)
    check_whole([shown], width)
    left_out = [name for name in names if name not in [column.header for column in shown.columns]]
    flat = " ".join(str(said[0]).split()) if said else ""
    assert flat == (f"Not shown in {width} columns: {'; '.join(left_out)}." if left_out else "")
    assert all(name in left_out for name in minor) or not set(left_out) - set(minor), "minor ones go first"


def test_a_line_has_the_same_mark_in_every_plot() -> None:
    found: dict[str, set[str]] = {}
    for name in ("fig4", "theorem3", "scans"):
        result = json.loads((RESULTS / name / "result.json").read_text("utf-8"))
        chart = next(block for block in load_figure(name).describe(result).blocks if isinstance(block, Chart))
        lines = [line for line in chart.views[0].series if not line.follows]
        marks = marks_of(lines)
        assert len(set(marks)) == len(lines)
        for line, mark in zip(lines, marks, strict=True):
            found.setdefault(f"{line.colour} {line.dash}", set()).add(mark)
    assert found["s1 solid"] == {"x"}  # adaptive units
    assert found["mean solid"] == {"o"}
    assert found["ink dotted"] == {"."}


def test_ordered_lines_have_ordered_marks() -> None:
    line = Series(name="n", points=[(1, 1)])
    assert marks_of([replace(line, name=f"n = {n}", ramp=n / 3) for n in range(4)]) == "1234"
    assert len(set(marks_of([line] * 12))) == 12
