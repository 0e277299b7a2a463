"""Turn the files found into sections, in reading order; a broken file does not stop the rest."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from strongticket.charts.parts import Section
from strongticket.experiments import CONSTRUCTIONS, FIGURES, TEXT_FIGURES
from strongticket.experiments.figure import load_figure
from strongticket.files import Json
from strongticket.report.certificates import certificate_section
from strongticket.report.find import Found, Result
from strongticket.report.names import ticket_names
from strongticket.report.origin import origin_of
from strongticket.report.page import render_section
from strongticket.report.pretrained import collected_section, single_section
from strongticket.report.searches import search_sections
from strongticket.report.speed import speed_sections
from strongticket.report.tickets import Budget, ticket_section
from strongticket.report.twins import in_words, twins_of

T = TypeVar("T")
# Called with the number of finished files, and their total.
Progress = Callable[[int, int], object]

# The frontier comes first among figures on text.
_ORDER = ("maps", *CONSTRUCTIONS, "certificate", "frontier", *TEXT_FIGURES, "pretrained")


def build_sections(found: Found, progress: Progress = lambda done, total: None) -> list[Section]:
    """Make all sections that have data; files that cannot be shown are added to `found.left_out`."""
    total = len(found.results) + len(found.tickets)
    sections, shown = list[Section](), list[Result]()
    repeated = set[Path]()
    for place, result in enumerate(found.results):
        progress(place, total)
        if result.path in repeated:
            continue
        made = [section for make in _makers(result, found) for section in _attempt(found, result.path, make, result)]
        if made:
            shown.append(result)
        # Showing the same figure twice would confuse.
        for other in twins_of(result, found.results[place + 1 :]) if made else ():
            repeated.add(other.path)
            apart = in_words(result, other)
            found.leave_out(other.path, f"has the same settings as {result.path}, which is shown: {apart}")
            made = [replace(section, lead=f"{section.lead}\n\nCompared with {other.path}: {apart}") for section in made]
        sections += made
    certified = {result.path: result for result in shown if "widths" in result.content}
    sections += _joint_section(certified, found, certificate_section)
    # A figure comes before its variants, which have a chapter.
    order = sorted(sections, key=lambda section: (_ORDER.index(section.anchor), section.chapter))
    order += _joint_section({run.folder: run for run in found.searches}, found, search_sections)
    order += _joint_section({compared.path: compared for compared in found.comparisons}, found, single_section)
    for rows in found.benchmarks:
        order += _attempt(found, rows.path, speed_sections, rows)
    budget = Budget()
    names = ticket_names(found.tickets, [run.folder for run in found.searches])
    tickets = 0
    for place, path in enumerate(found.tickets):
        progress(len(found.results) + place, total)
        if tickets < budget.tickets:
            made = _attempt(found, path, ticket_section, path, names[path], place, budget, found.searches)
            tickets += len(made)  # none of a damaged one
            order += made
        else:
            found.leave_out(path, f"the page shows the first {budget.tickets} tickets")
    return _with_own_anchors(order)


def _makers(result: Result, found: Found) -> list[Callable[[Result], Section]]:
    """Return the functions that show a result; one of an unknown kind is left out."""
    name = result.config.get("figure")
    if not result.config and {"model", "runs"} <= result.content.keys():
        return [collected_section]
    if name in FIGURES:
        figure = load_figure(str(name))
        return [_with_origin(describe) for describe in (figure.section, *figure.more)]
    what = f"figure {name!r}" if name is not None else "something"
    found.leave_out(result.path, f"holds {what} that this release does not know")
    return []


def _with_origin(describe: Callable[[Json], Section]) -> Callable[[Result], Section]:
    """Describe a figure by its own module, and say where its numbers come from."""
    return lambda result: replace(describe(result.content), origin=origin_of(result))


def _joint_section(
    files: Mapping[Any, T], found: Found, make: Callable[[list[T]], Section | list[Section]]
) -> list[Section]:
    """Make one section from several files; each is tried alone first, so that a broken one is left out."""
    good = {str(name): file for name, file in files.items() if _attempt(found, name, make, [file])}
    return _attempt(found, ", ".join(good), make, [*good.values()]) if good else []


def _attempt(found: Found, name: object, make: Callable[..., Section | list[Section]], *of: object) -> list[Section]:
    """Make sections and render them once; if that fails, leave the file out with the reason."""
    with found.naming(name):
        made = make(*of)
        sections = [made] if isinstance(made, Section) else made
        for section in sections:
            render_section(section)
        return sections
    return []


def _with_own_anchors(sections: list[Section]) -> list[Section]:
    """Number repeated anchors, so that every link has one target."""
    seen, own = Counter[str](), []
    for section in sections:
        seen[section.anchor] += 1
        count = seen[section.anchor]
        own.append(section if count == 1 else replace(section, anchor=f"{section.anchor}-{count}"))
    return own
