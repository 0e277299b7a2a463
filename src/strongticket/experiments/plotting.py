"""What the figures share: colours, axes, captions, and files that come out the same bytes each time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strongticket.experiments.statistics import Decay

INK, PALE, GRID = "#2b2b2b", "#6f6f6f", "#e6e6e6"
MEAN, MEDIAN, PAPER_COLOUR, MISS = "#1f4e79", "#c0392b", "#8a8a8a", "#b9a27a"
SERIES = ("#1f4e79", "#2e7d5b", "#b07d2b", "#c0392b", "#6a4c93")

# Matplotlib's own types do not help here: its keyword arguments are untyped.
Axes = Any


def new_figure(width: float, height: float) -> Any:
    """Make a figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write `path`.png and `path`.svg, without dates or random names in them."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "strongticket", "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"))


def title(figure: Any, text: str, subtitle: str) -> None:
    """Say what is seen, and under which settings."""
    figure.text(0.012, 0.985, text, fontsize=13, fontweight="bold", color=INK, va="top")
    figure.text(0.012, 0.985 - 0.32 / figure.get_figheight(), subtitle, fontsize=8.5, color=PALE, va="top")


def style(axes: Axes, heading: str = "", *, x: str = "", y: str = "") -> None:
    """Give axes the common looks."""
    axes.set_title(heading, loc="left", fontsize=9.5, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", which="both", length=0, labelsize=8, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#999999")


def legend(axes: Axes, **where: Any) -> None:
    """Explain the lines; what has error bars comes first, where matplotlib would put it last."""
    handles, labels = axes.get_legend_handles_labels()
    bars = set(axes.containers)
    order = sorted(range(len(handles)), key=lambda place: handles[place] not in bars)
    texts = {"fontsize": 8, "labelcolor": INK}
    axes.legend(
        [handles[k] for k in order], [labels[k] for k in order], frameon=False, handlelength=1.8, **texts, **where
    )


def legend_below(figure: Any, axes: Axes, columns: int) -> None:
    """Explain the lines of all panels under them, for data that may stand anywhere in the panels."""
    where = {"loc": "lower center", "bbox_transform": figure.transFigure, "bbox_to_anchor": (0.5, 0.0)}
    legend(axes, ncols=columns, **where)


def draw_means(
    axes: Axes, places: Sequence[float], means: Sequence[float], reaches: Sequence[float], **style: Any
) -> None:
    """Draw means over seeds with bars; hollow where there is no bar, or what was run once would look known best.

    A mean and a single run do not compare well, so the line between them is dotted.
    """
    look = {"marker": "o", "ms": 5, "capsize": 3} | style
    joined = look.pop("ls", "-") != "none"
    axes.errorbar(places, means, yerr=reaches, ls="none", **look)
    once = [math.isnan(height) for height in reaches]
    for k in range(len(once) - 1) if joined else ():
        kind = "-" if once[k] == once[k + 1] else ":"
        axes.plot(places[k : k + 2], means[k : k + 2], ls=kind, lw=1.5, color=look["color"])
    hollow = {"marker": look["marker"], "ms": look["ms"], "mfc": "white", "mec": look["color"], "zorder": 3}
    for place, mean, single in zip(places, means, once, strict=True):
        if single:
            axes.plot(place, mean, **hollow)


def over_seeds(points: Iterable[Mapping[str, Any]]) -> str:
    """Say what `draw_means` shows of some points.

    Example:
        >>> over_seeds([{"seeds": [0, 1, 2]}, {"seeds": [0]}])
        'mean and deviation over 3 seeds; hollow: one seed'
    """
    numbers = {len(point["seeds"]) for point in points}
    several = sorted(numbers - {1})
    count = f"{several[0]} " if len(several) == 1 else ""
    said = [f"mean and deviation over {count}seeds"] if several else []
    return "; ".join(said + (["hollow: one seed"] if 1 in numbers else []))


def draw_decay(axes: Axes, decay: Decay | None, widths: Sequence[int], **style: Any) -> None:
    """Draw a fitted curve over the range of the widths; nothing where there was no fit."""
    if decay is None:
        return
    low, high = min(widths), max(widths)
    steps = [low + (high - low) * k / 200 for k in range(201)]
    axes.plot(steps, [decay.at(n) for n in steps], **style)


def formula(decay: Decay | None) -> str:
    """Write a fit for a legend, with a raised exponent.

    Example:
        >>> print(formula(Decay(0.8, 0.06)), formula(Decay(0.2, -0.06)))
        $0.80\\,e^{-0.060\\,n}$ $0.20\\,e^{0.060\\,n}$
    """
    if decay is None:
        return "no fit"
    return rf"${decay.gamma:.2f}\,e^{{{-decay.delta:.3f}\,n}}$"
