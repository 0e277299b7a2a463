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
from strongticket.charts.parts import Chart, Section
from strongticket.charts.picture import draw
from strongticket.experiments import fig4
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
    yield "fig4-readme", lambda: fig4.describe_halving(_result("fig4"))
    yield "decode", _on_one_core
    yield "rules", lambda: _speed("rules", "rules")
    for device in ("cpu", "cuda"):
        yield f"subset-sum-{device}", lambda device=device: _speed("bench", "speed", device)  # type: ignore[misc]
    yield "pretrained", _pretrained


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
