"""Pictures show what a section describes, and come out the same bytes each time."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from strongticket.charts.parts import Chart, Comparison, Row, Section, Series, View
from strongticket.charts.picture import draw


def section(*blocks: Chart | Comparison) -> Section:
    return Section(anchor="a", name="a", title="Title", lead="lead", finding="found $1", blocks=blocks)


def chart(**look: object) -> Chart:
    series = Series(
        name="times n_K^(1/4)",
        points=[(1.0, 5.0), (2.0, 4.8), (4.0, 4.9)],
        low=[4.9, 4.8, 4.7],
        high=[5.1, 4.8, 5.1],
        each=[(4.9, 5.1), (), (4.8, 5.0)],
        labels=("first", "", ""),
    )
    other = Series(name="another\xa0line", points=[(1.0, 5.5), (4.0, 5.4)])
    view = View(name="v", x="scale", y="loss", series=(series, other), y_scales=("linear",), **look)  # type: ignore[arg-type]
    return Chart(title="A chart", caption="caption", views=[view], tables=[])


def svg_of(described: Section, path: Path) -> str:
    draw(described, path)
    return path.with_suffix(".svg").read_text()


def test_words_names_and_numbers_are_there(tmp_path: Path) -> None:
    row = Row(words=("mini", "n_K^(1/4)"), mean=0.2, values=[0.1, 0.3], interval=(-9.0, 9.0), numbers=["7"])
    compared = Comparison(
        title="Compared",
        caption="",
        words=("m", "s"),
        axis="nats",
        numbers=["seeds"],
        rows=[row],
        key=[("mean", "key")],
    )
    text = svg_of(section(chart(x_scale="log", upright=[(2.83, "theory")]), compared), tmp_path / "p")
    for said in (
        "Title",
        "Found $1.",
        "caption",
        "A chart",
        "scale",
        "loss",
        "another line",
        "first",
        "theory",
        "Compared",
        "seeds",
        "key",
    ):
        assert f">{said}<" in text.replace("> ", ">"), said
    assert "n_K^(1/4)" not in text  # typeset


def test_a_long_title_is_wrapped(tmp_path: Path) -> None:
    title = "A title of many words " * 6
    text = svg_of(replace(section(chart()), title=title), tmp_path / "p")
    assert title.strip() not in text
    assert all(text.count(f">{line}<") == 1 for line in textwrap.wrap(title, 76))


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(section(chart()), tmp_path / name)
    for ending in ("png", "svg"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_what_was_run_once_is_hollow_and_joined_by_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.axes

    drawn: list[tuple[list[float], dict[str, object]]] = []
    plot = matplotlib.axes.Axes.plot

    def note(axes: object, x: object, y: object, *form: object, **style: object) -> object:
        drawn.append((list(x) if isinstance(x, list) else [x], style))  # type: ignore[list-item]
        return plot(axes, x, y, *form, **style)  # type: ignore[arg-type]

    monkeypatch.setattr(matplotlib.axes.Axes, "plot", note)
    draw(section(chart()), tmp_path / "p")
    assert [x for x, style in drawn if style.get("mfc") == "#ffffff"] == [[2.0]]
    assert [x for x, style in drawn if style.get("ls") == ":"] == [[1.0, 2.0], [2.0, 4.0]]
