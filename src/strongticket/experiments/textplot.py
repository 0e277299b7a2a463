"""Figures in a few lines of plain text, for a terminal: enough to see whether a curve falls."""

import math
from collections.abc import Callable, Mapping, Sequence

from strongticket.experiments.statistics import PAPER
from strongticket.files import Json

WIDTH, HEIGHT = 64, 14
MARKS = "*o+x#@%&"
_LEFT = 9  # characters for the vertical axis

Points = Sequence[tuple[float, float]]


def text_plot(title: str, series: Mapping[str, Points], x: str, *, log_x: bool = False, log_y: bool = True) -> str:
    """Draw some series of points with one character each; where two meet, the first is seen.

    Points that a logarithmic scale cannot show are left out. Nothing is drawn of nothing.

    Example:
        >>> print(text_plot("halving", {"error": [(1, 1.0), (2, 0.5), (3, 0.25)]}, "n"))  # doctest: +ELLIPSIS
        halving
             1.00 |*...
    """
    shown = {
        name: [(a, b) for a, b in points if (a > 0 or not log_x) and (b > 0 or not log_y)]
        for name, points in series.items()
    }
    everything = [point for points in shown.values() for point in points]
    if not everything:
        return ""
    across = _axis([a for a, _ in everything], WIDTH, log_x)
    up = _axis([b for _, b in everything], HEIGHT, log_y)
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, points in reversed(list(zip(MARKS, shown.values(), strict=False))):
        for a, b in points:
            canvas[HEIGHT - 1 - up(b)][across(a)] = mark
    heights = [b for _, b in everything]
    labels = {0: max(heights), HEIGHT - 1: min(heights)}
    lines = [f"{_label(labels.get(row)):>{_LEFT}} |{''.join(cells).rstrip()}" for row, cells in enumerate(canvas)]
    low, high = (f"{end(a for a, _ in everything):.4g}" for end in (min, max))
    gap = WIDTH - len(low) - len(high)
    ends = f"{'':>{_LEFT}}  {low}{x.center(gap)}{high}"
    names = _legend([f"{mark} {name}" for mark, name in zip(MARKS, shown, strict=False)])
    return "\n".join(
        [title, *lines, f"{'':>{_LEFT}} +{'-' * WIDTH}", ends, *(f"{'':>{_LEFT}}  {line}" for line in names)]
    )


def _legend(names: Sequence[str]) -> list[str]:
    """Lay names out in lines as wide as the plot, none of them broken."""
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + 2 + len(name) > WIDTH:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + name
    return lines


def result_plot(result: Json) -> str:
    """Draw a figure's result; empty for those that have no curve."""
    draw = _PLOTS.get(result["config"]["figure"])
    return draw(result) if draw is not None else ""


def _axis(values: Sequence[float], cells: int, log: bool) -> Callable[[float], int]:
    def place(value: float) -> float:
        return math.log(value) if log else value

    low, high = place(min(values)), place(max(values))
    return lambda value: round((place(value) - low) / (high - low) * (cells - 1)) if high > low else 0


def _label(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if 0.01 <= abs(value) < 1e4 else f"{value:.1e}"


def _plot_widths(result: Json) -> str:
    target = result["fits"][0]["target"]
    points = [point for point in result["widths"] if point["target"] == target]
    series = {what: [(p["width"], p["error"][what]) for p in points] for what in ("mean", "median")}
    series["the paper's fit of the mean"] = [(p["width"], PAPER.at(p["width"])) for p in points]
    return text_plot("Figure 4: error against width, log scale", series, "n")


def _plot_lengths(result: Json) -> str:
    lines = [line for line in result["widths"] if line["target"] == result["targets"][0]["index"]]
    series = {
        f"n = {line['width']}": [(t, e["median"]) for t, e in zip(line["lengths"], line["token"], strict=True)]
        for line in lines
    }
    return text_plot("Figure 5: median error of the token against length, log scales", series, "T", log_x=True)


def _plot_blocks(result: Json) -> str:
    target = result["fits"][0]["target"]
    points = [point for point in result["widths"] if point["target"] == target]
    series = {
        f"{b + 1} block{'s' if b else ''}": [(p["width"], p["blocks"][b]["error"]["mean"]) for p in points]
        for b in range(len(points[0]["blocks"]))
    }
    return text_plot("Figure 6: mean error against width, log scale", series, "n")


def _plot_parameters(result: Json) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for point in result["points"]:
        kind = point["kind"] if point["kind"] == "dense" else f"{point['kind']}, embeddings {point['embeddings']}"
        series.setdefault(kind, []).append((point["nonzero"]["all"], point["best_validation_loss"]["mean"]))
    return text_plot("Figure 7: loss against nonzero parameters", series, "parameters", log_x=True, log_y=False)


def _plot_scales(result: Json) -> str:
    series = {
        f"{curve['size']}, embeddings {curve['embeddings']}": [
            (point["scale"], point["best_validation_loss"]["mean"]) for point in curve["points"]
        ]
        for curve in result["curves"]
    }
    return text_plot("Figure 8: loss against the scale of Q and K", series, "scale", log_x=True, log_y=False)


_PLOTS: dict[str, Callable[[Json], str]] = {
    "fig4": _plot_widths,
    "fig5": _plot_lengths,
    "fig6": _plot_blocks,
    "fig7": _plot_parameters,
    "fig8": _plot_scales,
}
