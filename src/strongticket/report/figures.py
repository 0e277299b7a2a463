"""Figures of the paper on the page: each is described by its own file, and says where it comes from."""

from dataclasses import replace

from strongticket.charts.parts import Section
from strongticket.experiments.figure import load_figure
from strongticket.report.find import Result
from strongticket.report.origin import origin_of


def figure_section(result: Result) -> Section:
    """Describe the figure that a result is of."""
    section = load_figure(result.content["config"]["figure"]).describe(result.content)
    return replace(section, origin=origin_of(result))
