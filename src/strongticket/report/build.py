"""From what was found to sections, in the order a reader wants them; nothing that is broken stops the rest."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from strongticket.charts.parts import Section
from strongticket.experiments import CONSTRUCTIONS, FIGURES, TEXT_FIGURES
from strongticket.report.certificates import certificate_section, map_section
from strongticket.report.figures import figure_section
from strongticket.report.find import Found, Result
from strongticket.report.names import ticket_names
from strongticket.report.page import render_section
from strongticket.report.pretrained import collected_section, single_section
from strongticket.report.searches import search_section
from strongticket.report.speed import speed_sections
from strongticket.report.tickets import Budget, ticket_section

T = TypeVar("T")
# Called with how many files are done, and how many there are.
Progress = Callable[[int, int], object]

_MAKERS: dict[str, tuple[Callable[[Result], Section], ...]] = dict.fromkeys(FIGURES, (figure_section,))
_MAKERS["fig4"] = (figure_section, map_section)
_ORDER = (CONSTRUCTIONS[0], "maps", *CONSTRUCTIONS[1:], "certificate", *TEXT_FIGURES, "pretrained")


def build_sections(found: Found, progress: Progress = lambda done, total: None) -> list[Section]:
    """Make the sections there is data for; files that cannot be shown are added to `found.left_out`.

    Args:
        found: files.
        progress: called with the files done, and how many there are.
    """
    total = len(found.results) + len(found.tickets)
    sections, shown = list[Section](), list[Result]()
    for place, result in enumerate(found.results):
        progress(place, total)
        if (twin := _twin(result, shown)) is not None:
            reason = f"has the settings of {twin.path}, which is shown, and other numbers"
            found.leave_out(result.path, reason)
        elif made := _figure_sections(result, found):
            sections += made
            shown.append(result)
    certified = {str(result.path): result for result in shown if "violations" in result.content}
    sections += _joint_section(certified, found, certificate_section)
    order = sorted(sections, key=lambda section: _ORDER.index(section.anchor))
    order += _joint_section({str(run.folder): run for run in found.searches}, found, search_section)
    order += _joint_section({str(compared.path): compared for compared in found.comparisons}, found, single_section)
    for rows in found.benchmarks:
        order += _attempt(str(rows.path), found, partial(speed_sections, rows))
    order += _ticket_sections(found, lambda done: progress(len(found.results) + done, total))
    return _with_own_anchors(order)


def _twin(result: Result, shown: list[Result]) -> Result | None:
    """Find a result on the page with the same settings; two figures of the same would only confuse."""
    return next((other for other in shown if result.config and other.config == result.config), None)


def _figure_sections(result: Result, found: Found) -> list[Section]:
    name = result.config.get("figure")
    makers = _MAKERS.get(name) if isinstance(name, str) else None
    if not result.config and {"model", "runs"} <= result.content.keys():
        makers = (collected_section,)
    if makers is None:
        what = f"figure {name!r}" if name is not None else "something"
        found.leave_out(result.path, f"holds {what} this release does not know")
        return []
    return [section for make in makers for section in _attempt(str(result.path), found, partial(_one, make, result))]


def _joint_section(files: Mapping[str, T], found: Found, make: Callable[[list[T]], Section]) -> list[Section]:
    """Make one section of several files, by name; each alone first, so that a broken one leaves the others."""
    good = {name: file for name, file in files.items() if _attempt(name, found, partial(_one, make, [file]))}
    return _attempt(", ".join(good), found, partial(_one, make, list(good.values()))) if good else []


def _one(make: Callable[[T], Section], of: T) -> list[Section]:
    return [make(of)]


def _ticket_sections(found: Found, progress: Callable[[int], object]) -> list[Section]:
    budget, sections = Budget(), list[Section]()
    names = ticket_names(found.tickets, [run.folder for run in found.searches])
    for place, path in enumerate(found.tickets[: budget.tickets]):
        progress(place)
        made = _attempt(
            str(path),
            found,
            lambda place=place, path=path: [ticket_section(path, names[path], place, budget, found.searches)],  # type: ignore[misc]
        )
        sections += made
    for path in found.tickets[budget.tickets :]:
        found.leave_out(path, f"the page shows the first {budget.tickets} tickets")
    return sections


def _attempt(name: str, found: Found, make: Callable[[], Iterable[Section]]) -> list[Section]:
    """Make sections down to their HTML; say what is wrong with the file if that does not work."""
    with found.naming(name):
        sections = list(make())
        for section in sections:
            render_section(section)
        return sections
    return []


def _with_own_anchors(sections: list[Section]) -> list[Section]:
    """Number the anchors that occur twice, so that every link has one place to go."""
    seen: dict[str, int] = {}
    own = []
    for section in sections:
        seen[section.anchor] = seen.get(section.anchor, 0) + 1
        count = seen[section.anchor]
        own.append(section if count == 1 else replace(section, anchor=f"{section.anchor}-{count}"))
    return own
