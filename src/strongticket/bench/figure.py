"""The benchmark figure: problems a second against the number of items, one line an engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strongticket.bench.render import short
from strongticket.bench.subset_sum import OURS, Comparison

# Ours stands out; the peers' colours only have to be told apart where lines cross.
OUR_COLOUR = "#c0392b"
PEER_COLOURS = ("#1f4e79", "#2e7d5b", "#b07d2b", "#6a4c93", "#5f6b73")
INK = "#333333"
LEFT, LABEL_START = 0.085, 1.05  # of the figure's width; of the axes' width
CHARACTER = 0.008  # of the figure's width, at the labels' size
LABEL_DISTANCE = 0.052  # of the axes' height, so that two lines of text do not touch

# (label, numbers of items, rates)
Line = tuple[str, list[int], list[float]]


def draw(comparisons: Sequence[Comparison], path: Path, subtitle: str) -> None:
    """Write the figure; lines are labelled at their right end, so that no legend has to be decoded."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = collect_lines(comparisons)
    figure = Figure(figsize=(8.6, 5.2), dpi=160)
    FigureCanvasAgg(figure)
    longest = max(len(_label_text(line)) for line in lines.values())
    axes = figure.add_axes((LEFT, 0.105, (0.99 - LEFT - CHARACTER * longest) / LABEL_START, 0.735))
    colours = {OURS: OUR_COLOUR, **_peer_colours(lines)}
    for name, (_, counts, rates) in lines.items():
        width, size, layer = (2.8, 7, 3) if name == OURS else (1.6, 5, 2)
        style: dict[str, Any] = {
            "marker": "o",
            "markersize": size,
            "linewidth": width,
            "zorder": layer,
            "clip_on": False,
        }
        axes.plot(counts, rates, color=colours[name], **style)
    _style(axes, [comparison.n for comparison in comparisons])
    _label(axes, lines, colours)
    figure.text(0.02, 0.945, "Subset sums solved per second", fontsize=14, fontweight="bold", color=INK)
    figure.text(0.02, 0.897, subtitle, fontsize=9, color="#666666")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def collect_lines(comparisons: Sequence[Comparison]) -> dict[str, Line]:
    """Gather each engine's median rates; an engine may be missing at some number of items."""
    lines: dict[str, Line] = {}
    for comparison in comparisons:
        for measured in comparison.measurements:
            _, counts, rates = lines.setdefault(measured.engine, (measured.label, [], []))
            counts.append(comparison.n)
            rates.append(measured.median)
    return lines


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """Move heights apart to at least a distance, keeping their order and, group by group, their mean.

    Example:
        >>> spread([0.0, 0.0, 5.0], 1.0)
        [-0.5, 0.5, 5.0]
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    # Groups of touching labels as (sum of wanted positions of the lowest member, members); merge while they touch.
    groups: list[tuple[float, int]] = []
    for place in order:
        wanted, size = heights[place], 1
        while groups and groups[-1][0] / groups[-1][1] + groups[-1][1] * distance > wanted / size:
            below, count = groups.pop()
            wanted, size = below + wanted - size * count * distance, size + count
        groups.append((wanted, size))
    placed = [total / size + step * distance for total, size in groups for step in range(size)]
    moved = [0.0] * len(heights)
    for place, height in zip(order, placed, strict=True):
        moved[place] = height
    return moved


def _peer_colours(lines: dict[str, Line]) -> dict[str, str]:
    names = [name for name in lines if name != OURS]
    return {name: PEER_COLOURS[place % len(PEER_COLOURS)] for place, name in enumerate(names)}


def _style(axes: Any, counts: list[int]) -> None:
    axes.set_yscale("log")
    axes.set_xticks(counts)
    axes.margins(x=0.025)
    axes.set_xlabel("items in a sum, n", color=INK)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", which="both", length=0, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#999999")


def _label(axes: Any, lines: dict[str, Line], colours: dict[str, str]) -> None:
    """Write each engine's name beside its last point, with its rate there."""
    axes.autoscale_view()  # the limits decide where a rate lies on the axes
    to_axes = axes.transScale + axes.transLimits
    ends = [(counts[-1], rates[-1]) for _, counts, rates in lines.values()]
    heights = spread([float(to_axes.transform(end)[1]) for end in ends], LABEL_DISTANCE)
    for (name, line), end, height in zip(lines.items(), ends, heights, strict=True):
        weight = "bold" if name == OURS else "normal"
        axes.annotate(
            _label_text(line),
            xy=end,
            xytext=(LABEL_START, height),
            textcoords="axes fraction",
            ha="left",
            va="center",
            fontsize=9,
            fontweight=weight,
            color=colours[name],
            arrowprops={"arrowstyle": "-", "color": colours[name], "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 5},
            annotation_clip=False,
        )


def _label_text(line: Line) -> str:
    label, _, rates = line
    return f"{label}  {short(rates[-1])}/s"
