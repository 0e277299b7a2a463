"""Render sections as one HTML file with style, script and data inside; nothing is fetched, all text is escaped.

The templates define the page; the engine escapes everything they print. A content security policy names the only script
and style by their hashes, so that a browser runs nothing else and uses no network, whatever a file contains.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup, escape

from strongticket._version import __version__
from strongticket.charts.colours import style_sheet
from strongticket.charts.parts import Maps, Matrix, Section, Table, drawn_json
from strongticket.report.axis import axis_of

_FINDINGS = 3  # at the top of the page
_MOST_OF_A_CHAPTER = 4  # in the summary
_FORMULA = re.compile(r"\b(\w)(?:_(\w+))?\^\((.*?)\)")
_LONG = 18  # letters: a column of longer words wraps on a phone
_SCRIPTS = ("draw.js", "chart.js", "maps.js", "inspector.js", "matrix.js", "save.js", "page.js")


def render_page(sections: Sequence[Section], left_out: Sequence[tuple[str, str]]) -> str:
    """Return the whole page."""
    style = style_sheet() + _asset("page.css")
    script = "\n".join(f"// {name}\n{_asset(name)}" for name in _SCRIPTS)
    hero, shown = _hero(sections)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return _render(
        "page.html",
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        hero=hero,
        findings=_findings(sections),
        glance=list(_glance(sections)),
        entries=_entries(shown),
        sections=shown,
        left_out=left_out,
        version=__version__,
    )


def _hero(sections: Sequence[Section]) -> tuple[Section | None, list[Section]]:
    """Take the opening block out of its section: attention maps, or a picture hidden in a ticket."""
    for kind in (Maps, Matrix):
        for place, section in enumerate(sections):
            chosen = [block for block in section.blocks if isinstance(block, kind)][:1]
            if chosen:
                rest = [block for block in section.blocks if block is not chosen[0]]
                left = [replace(section, blocks=rest)] if rest else []
                anchor = f"{section.anchor}-hero" if rest else section.anchor
                others = [*sections[:place], *left, *sections[place + 1 :]]
                return replace(section, anchor=anchor, blocks=chosen), others
    return None, list(sections)


def _findings(sections: Sequence[Section]) -> list[str]:
    """Return the first findings, one for each entry in the list of contents: variants of a figure say much the same."""
    first: dict[str, str] = {}
    for section in sections:
        if section.plain:
            first.setdefault(section.chapter or section.name, section.plain)
    return list(first.values())[:_FINDINGS]


def render_section(section: Section) -> str:
    """Return one section as the page shows it."""
    return _render("section.html", section=section, entries=_entries([section]))


def _render(template: str, **content: object) -> str:
    return _templates().get_template(template).render(content)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("strongticket.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    options = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    environment.policies["json.dumps_kwargs"] = options
    environment.globals["axis_of"] = axis_of
    environment.filters |= {
        "column_classes": _column_classes,
        "drawn_json": drawn_json,
        "kind": lambda block: type(block).__name__,
        "typeset": _typeset,
        "letters": lambda row: sum(map(len, row.words)),
    }
    return environment


def _printable(value: object) -> object:
    """Refuse to print anything but text and integers: names and notes from files may be anything.

    Numbers are not broken across lines.

    Example:
        >>> _printable("from 3 × 10⁻⁵ to 1")
        'from 3\\xa0×\\xa010⁻⁵ to 1'
    """
    if not isinstance(value, str | int | Undefined):
        raise TypeError(f"a text is needed; got {type(value).__name__}")
    return value.replace(" × 10⁻", "\xa0×\xa010⁻") if isinstance(value, str) else value


def _typeset(text: str) -> Markup:
    """Typeset indices and exponents, and escape the rest.

    Example:
        >>> print(_typeset("times n_K^(1/4) < 2"))
        times n<sub>K</sub><sup>1/4</sup> &lt; 2
    """
    if not isinstance(text, str):
        raise TypeError(f"a text is needed; got {type(text).__name__}")
    written = _FORMULA.sub(
        lambda f: f"{f[1]}{f'<sub>{f[2]}</sub>' if f[2] else ''}<sup>{f[3]}</sup>", str(escape(text))
    )
    return Markup(written)


def _glance(sections: Sequence[Section]) -> Iterator[tuple[str, str, str]]:
    """Yield anchor, name and finding of each section with a finding; only the first few of a long chapter."""
    listed: Counter[str] = Counter()
    for section in sections:
        if not section.finding:
            continue
        listed[section.chapter] += 1
        if not section.chapter or listed[section.chapter] <= _MOST_OF_A_CHAPTER:
            yield section.anchor, section.name, section.finding
        elif listed[section.chapter] == _MOST_OF_A_CHAPTER + 1:
            more = sum(other.chapter == section.chapter for other in sections) - _MOST_OF_A_CHAPTER
            yield section.anchor, f"{more} more", f"{section.chapter.lower()}, further down"


def _entries(sections: Sequence[Section]) -> dict[str, str]:
    """Return the list of contents: each entry with the anchor of its first section."""
    entries: dict[str, str] = {}
    for section in sections:
        entries.setdefault(section.chapter or section.name, section.anchor)
    return entries


def _column_classes(table: Table) -> list[str]:
    columns = len(table.columns) or max(map(len, table.rows), default=0)
    classes = ["n"] * columns
    for place in range(min(table.words, columns)):
        long = table.columns and any(len(row[place]) > _LONG for row in table.rows)
        classes[place] = "long" if long else ""
    return classes[: columns - table.remarks] + ["remark"] * table.remarks


def _asset(name: str) -> str:
    return (files("strongticket.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
