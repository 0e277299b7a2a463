"""Draw every figure of the documentation from the committed results, for light pages and for dark ones.

    python docs/pictures.py [NAME ...]

Nothing is computed. The light pictures of figures that keep one beside their rows are written there, too.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from strongticket.charts.colours import THEMES
from strongticket.charts.parts import Chart, Section, Series, View
from strongticket.charts.picture import draw
from strongticket.experiments import curves, fig4
from strongticket.experiments.figure import load_figure
from strongticket.report.find import find
from strongticket.report.pretrained import collected_section
from strongticket.report.speed import speed_sections

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
FIGURES = ("fig4", "fig5", "fig6", "fig7", "fig8", "theorem3", "scans", "inits", "spread", "ablation", "frontier")
WITH_PICTURES = ("fig7", "fig8", "inits", "spread", "ablation", "frontier", "decode", "rules")  # beside their rows
NOT_IN_DOCS = ("ablation",)


def sections() -> Iterator[tuple[str, Callable[[], Section]]]:
    """Name each picture, and say what it shows."""
    for name in FIGURES:
        yield name, lambda name=name: load_figure(name).describe(_result(name))  # type: ignore[misc]
    yield "fig4-readme", _halving
    yield "decode", _on_one_core
    yield "rules", lambda: _speed("rules", "rules")
    for device in ("cpu", "cuda"):
        yield f"subset-sum-{device}", lambda device=device: _speed("bench", "speed", device)  # type: ignore[misc]
    yield "pretrained", _pretrained


def _halving() -> Section:
    """Of Figure 4, the main message for the README, with the units a user gets: each extra item halves the error."""
    result = _result("fig4")
    config, found = result["config"], result["adaptive"]["fits"][0]
    low, high = found["median_slope"]["widths"]
    points = [p for p in curves.of_target(result["adaptive"]["widths"], found["target"]) if p["width"] <= high]
    items = [point["items"] for point in points]
    start = next(point for point in points if point["width"] >= low)
    halved = [(n, start["error"]["median"] * 2.0 ** (start["items"] - n)) for n in items if n >= start["items"]]
    errors, name = [point["error"] for point in points], "median of random networks, with quartiles"
    view = View(
        name="Halving",
        x="random numbers to choose from, for each weight",
        y="error of the pruned attention",
        series=(
            curves.errors(name, items, errors, "median", spread=True, colour="mean"),
            Series(name="halved by each number", points=halved, colour="median", dash="dashed", marks=False),
        ),
        y_scales=("log",),
    )
    caption = (
        f"A random attention, pruned and not trained, against its target: {config['sources']} random "
        f"networks per point, {config['inputs']:,} inputs. The halving holds from {start['items']} on."
    )
    chart = Chart(title="", caption=caption, views=(view,), tables=())
    title = "Each extra random number halves the error" if fig4.halves(found["median_slope"]) else "The error falls"
    return Section(anchor="halving", name="Halving", title=title, lead="", blocks=(chart,))


def _result(name: str) -> dict:  # type: ignore[type-arg]
    return json.loads((RESULTS / name / "result.json").read_bytes())


def _speed(folder: str, anchor: str, device: str | None = None) -> Section:
    (rows,) = find([RESULTS / folder / "results.jsonl"]).benchmarks
    if device:
        rows = rows._replace(sums=[timed for timed in rows.sums if timed.row.device == device])
    return next(section for section in speed_sections(rows) if section.anchor == anchor)


def _on_one_core() -> Section:
    """Of decoding, the first view: on two cores one model was timed, and the GPU's are in tables."""
    section = _speed("decode", "decode")
    (chart,) = section.blocks
    assert isinstance(chart, Chart)
    return replace(section, blocks=[replace(chart, views=chart.views[:1])])


def _pretrained() -> Section:
    """Of the attention alone, whose items were varied."""
    (result,) = (found for found in find([RESULTS / "pretrained"]).results if "runs" in found.content)
    runs = [run for run in result.content["runs"] if run["what"] == "attention"]  # type: ignore[union-attr]
    return collected_section(replace(result, content={**result.content, "runs": runs}))


def main(names: list[str]) -> None:
    """Draw some of them, or all."""
    for name, describe in sections():
        if names and name not in names:
            continue
        section = describe()
        for theme in THEMES if name not in NOT_IN_DOCS else ():
            path = DOCS / (name if theme == "light" else f"{name}-dark")
            draw(section, path, theme)
            path.with_suffix(".svg").unlink()  # pages show the PNG
        if name in WITH_PICTURES:
            draw(section, RESULTS / name / name)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
