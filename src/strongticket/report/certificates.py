"""Certified errors of every source against measured ones."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from strongticket.bounds.upward import up_digits
from strongticket.charts.parts import Chart, Section, Series, Table, View, above_zero, number, ramp_of, table_of
from strongticket.experiments.constructions import Constructions
from strongticket.experiments.figure import load_figure
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.records import Certified, typed

_DIGITS = 3  # of a number on the page
Group = tuple[int, list[float], list[float]]  # a width, its sources' worst errors, and their certificates


def certificate_section(results: Sequence[Result]) -> Section:
    """Draw every source of these figures: its worst error on any input against its certificate."""
    views, tables, total, violations = [], [], 0, 0
    figures = [typed(Certified, result.content) for result in results]
    for result, figure in zip(results, figures, strict=True):
        name, plan = _name(result), load_figure(str(result.config["figure"])).plan
        assert isinstance(plan, Constructions)
        for way, points in ((name, figure.widths), (f"{name}, adaptive", figure.adaptive.widths)):
            groups = [(point.width, *plan.outcomes(point.sources)) for point in points]
            views.append(_view(way, groups))
            tables.append(_table(way, groups))
            total += sum(len(worst) for _, worst, _ in groups)
        violations += figure.violations
    none = "No measured error exceeds its certificate"
    title = f"{violations} of {total:,} errors exceed their certificates" if violations else none
    chart = Chart(
        title=title,
        caption="Each dot is one source: the largest error of any token on any test input, against the error its "
        f"certificate allows. {violations} of {total:,} lie above the line by more than rounding can explain, "
        f"{number(max(figure.rounding for figure in figures))}.",
        views=views,
        tables=tables,
    )
    return Section(
        anchor="certificate",
        name="Certificate",
        title=title,
        lead="A certificate is computed from the actual weights and holds for every input up to a norm, any length and "
        "any attention mask. Measured errors must stay below it; how far below says how tight it is.",
        finding=f"{violations} of {total:,} sources exceed their certificate",
        plain="Every ticket from a construct function comes with a proof of how far off it can be. "
        f"{total:,} were tried: " + (f"{violations} broke it." if violations else "none broke it."),
        blocks=(chart,),
        origin=origin_of(*results),
    )


def _name(result: Result) -> str:
    """Name the figure, and the variant if it is one."""
    figure = str(result.config["figure"])
    variant = load_figure(figure).plan.variant(result.config)
    return figure.replace("fig", "Figure ") + (f", {variant.name}" if variant else "")


def _view(name: str, groups: Sequence[Group]) -> View:
    series = [
        Series(
            name=f"n = {width}",
            points=[(shown(c), _round(w)) for c, w in zip(above_zero(certified), above_zero(worst), strict=True)],
            ramp=ramp_of(place, len(groups)),
            line=False,
        )
        for place, (width, worst, certified) in enumerate(groups)
    ]
    return certificate_view(name, series)


def certificate_view(name: str, series: Sequence[Series], x: str = "certified error", y: str = "worst error") -> View:
    """Draw errors against certificates, which none may exceed."""
    broken = "above this line: certificate broken"
    return View(name=name, x=x, y=f"{y} measured", series=series, x_scale="log", y_scales=("log",), diagonal=broken)


def _table(name: str, groups: Sequence[Group]) -> Table:
    def ratio(group: Group, of: Callable[[list[float]], float]) -> str:
        ratios = [certified / worst for worst, certified in zip(*group[1:], strict=True) if worst > 0]
        return number(float(of(ratios)) if ratios else None)

    return table_of(
        f"{name}: tightness, width by width",
        groups,
        {
            "n": lambda group: str(group[0]),
            "median worst error": lambda group: number(float(np.median(group[1]))),
            "median certificate": lambda group: number(shown(float(np.median(group[2])))),
            "certificate / error: median": lambda group: ratio(group, np.median),
            "smallest": lambda group: ratio(group, min),
        },
        words=0,
    )


def shown(certified: float) -> float:
    """Round a certified error up to the digits the page shows, so as not to claim more than is proved."""
    return up_digits(certified, _DIGITS)


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value
