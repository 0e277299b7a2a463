"""Results as tables for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from strongticket.experiments.statistics import decay_of, formula
from strongticket.files import Json

SHOWN_LENGTHS = (4, 256, 4096)


def width_table(result: Json, fits: Json) -> Table:
    """Show Figure 4's numbers for one target, width by width."""
    columns = ("n", "items", "mean", "std", "median", "quartiles", "largest", "certificate (median)", "unreachable")
    slope = fits["median_slope"]
    caption = (
        f"mean {formula(decay_of(fits['mean']))}; the paper's 0.8 exp(-0.06 n). Median, slope of its logarithm for n = "
        f"{slope['widths'][0]} to {slope['widths'][1]}: {number(slope['slope'])}, ln 2 / d_1 = {slope['predicted']:.4f}"
    )
    table = _table(f"Figure 4, {_target(result, fits['target'])}", columns, caption)
    for point in _of(result, fits["target"]):
        error = point["error"]
        table.add_row(
            str(point["width"]),
            str(point["items"]),
            number(error["mean"]),
            number(error["std"]),
            number(error["median"]),
            f"{number(error['quartile_low'])} to {number(error['quartile_high'])}",
            number(point["worst"]["max"]),
            number(point["certificate"]["median"]),
            f"{100 * point['unreachable_sources']:.0f} %",
        )
    return table


def length_table(result: Json, target: int) -> Table:
    """Show Figure 5's numbers for one target: the regression token at a few lengths."""
    lengths = [length for length in result["config"]["lengths"] if length in SHOWN_LENGTHS]
    columns = ["n", *(f"{what}\nT = {length}" for length in lengths for what in ("mean", "median"))]
    columns += ["mean\ncertificate", "median\ncertificate", "unreachable"]
    table = _table(f"Figure 5, {_target(result, target)}", columns, "error of the regression token over sources")
    for line in _of(result, target):
        shown = [line["token"][line["lengths"].index(length)] for length in lengths]
        table.add_row(
            str(line["width"]),
            *(number(errors[what]) for errors in shown for what in ("mean", "median")),
            number(line["certificate"]["mean"]),
            number(line["certificate"]["median"]),
            f"{100 * line['unreachable_sources']:.0f} %",
        )
    return table


def block_table(result: Json, fits: Json) -> Table:
    """Show Figure 6's numbers for one target: means at the ends, and the fits."""
    points = _of(result, fits["target"])
    narrow, wide = points[0], points[-1]
    columns = ["blocks", f"mean, n = {narrow['width']}", f"mean, n = {wide['width']}", f"median, n = {wide['width']}"]
    columns += ["mean, the first block's rate", "mean, its own rate", "median, its own rate"]
    table = _table(f"Figure 6, {_target(result, fits['target'])}", columns, None)
    for b in range(result["config"]["n_blocks"]):
        table.add_row(
            str(b + 1),
            number(narrow["blocks"][b]["error"]["mean"]),
            number(wide["blocks"][b]["error"]["mean"]),
            number(wide["blocks"][b]["error"]["median"]),
            formula(decay_of(fits["mean"]["shared_rate"][b])),
            formula(decay_of(fits["mean"]["own_rate"][b])),
            formula(decay_of(fits["median"]["own_rate"][b])),
        )
    return table


def number(value: float | None) -> str:
    """Write a number to three digits, short.

    Example:
        >>> number(0.25), number(1.234e-9), number(None)
        ('0.25', '1.23e-09', '-')
    """
    return "-" if value is None else f"{value:.3g}"


def _of(result: Json, target: int) -> list[Json]:
    return [point for point in result["widths"] if point["target"] == target]


def _target(result: Json, target: int) -> str:
    config = result["config"]
    kind = config["target"]["kind"] if "target" in config else "untrained"
    return f"{kind} target {target}, init {config['init']}, {config['sources']} sources a width"


def _table(title: str, columns: Sequence[str], caption: str | None) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table
