"""Sections to one HTML file: style, script and data inside it, nothing fetched, every text from a file escaped.

The file names its one script and one style by their hashes in a content security policy, so a browser runs nothing
else in it and asks no network for anything, whatever a name or a caption holds.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from strongticket._version import __version__
from strongticket.charts.parts import Block, Chart, Comparison, Drawn, Section, Table
from strongticket.report.comparison import render_comparison

TITLE = "strongticket report"
_MOST_OF_A_CHAPTER = 4  # at a glance
_LONG = 18  # letters: a column of longer words breaks its lines on a phone
_SCRIPTS = ("draw.js", "chart.js", "maps.js", "inspector.js", "matrix.js", "page.js")


def render_page(sections: Sequence[Section], left_out: Sequence[tuple[str, str]]) -> str:
    """Give the whole page."""
    style = _asset("page.css")
    script = "\n".join(f"// {name}\n{_asset(name)}" for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    body = "\n".join(
        (
            _header(sections),
            _contents(sections),
            '<main id="main">',
            *(render_section(section, _under(sections, section)) for section in sections),
            "" if sections else _empty(),
            _left_out(left_out),
            "</main>",
            _footer(),
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{TITLE}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
{body}
<script>{script}</script>
</body>
</html>
"""


def _inert_json(block: Drawn) -> str:
    text = json.dumps(block.as_json(), allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # Neither an end tag nor a comment can then begin inside the element.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _header(sections: Sequence[Section]) -> str:
    items = "\n".join(_findings(sections))
    glance = f'<ul class="glance" aria-label="At a glance">{items}</ul>' if items else ""
    return f"""<header>
<div class="bar"><p class="mark">strongticket</p>
<div class="switch" role="group" aria-label="Colours">
<button type="button" data-theme="auto" aria-pressed="true">Auto</button>
<button type="button" data-theme="light" aria-pressed="false">Light</button>
<button type="button" data-theme="dark" aria-pressed="false">Dark</button>
</div></div>
<h1>The network already inside a random one</h1>
<p class="lead">A strong lottery ticket is a network hidden in random weights: weights are kept or dropped, none is
trained. It is stored as a seed and a bit for each weight. This page shows what was measured, and from which files.</p>
{glance}
</header>"""


def _findings(sections: Sequence[Section]) -> Iterator[str]:
    """Give a line for each section that found something; of a long chapter, for the first few."""
    listed: Counter[str] = Counter()
    for section in sections:
        if not section.finding:
            continue
        listed[section.chapter] += 1
        name, finding = _whole(section.name, "/"), escape(section.finding)
        if section.chapter and listed[section.chapter] > _MOST_OF_A_CHAPTER:
            if listed[section.chapter] > _MOST_OF_A_CHAPTER + 1:
                continue
            more = sum(other.chapter == section.chapter for other in sections) - _MOST_OF_A_CHAPTER
            name, finding = f"{more} more", f"{escape(section.chapter.lower())}, further down"
        yield f'<li><a href="#{escape(section.anchor)}">{name}</a><span>{finding}</span></li>'


def _whole(text: str, between: str) -> str:
    """Let lines break between the pieces of a path or a command, and nowhere inside them."""
    pieces = [piece for piece in text.split(between) if piece] or [text]
    return between.join(f'<span class="whole">{escape(piece)}</span>' for piece in pieces)


def _contents(sections: Sequence[Section]) -> str:
    if not sections:
        return ""
    entries: dict[str, str] = {}
    for section in sections:
        entries.setdefault(section.chapter or section.name, section.anchor)
    links = "".join(f'<li><a href="#{escape(anchor)}">{escape(name)}</a></li>' for name, anchor in entries.items())
    return f'<nav aria-label="Contents"><ol>{links}</ol></nav>'


def _under(sections: Sequence[Section], section: Section) -> str:
    """Give the anchor of the entry a section is listed under."""
    name = section.chapter or section.name
    return next(other.anchor for other in sections if (other.chapter or other.name) == name)


def render_section(section: Section, under: str = "") -> str:
    """Give one section; `under` is the anchor of its entry in the list of contents, if that is another's."""
    anchor = escape(section.anchor)
    blocks = "\n".join(_block(block, f"{section.anchor}-{place}") for place, block in enumerate(section.blocks))
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_whole(fact, ' ') if name == 'Command' else escape(fact)}</dd></div>"
        for name, fact in section.origin.items()
    )
    listed = f' data-under="{escape(under)}"' if under not in ("", section.anchor) else ""
    return f"""<section id="{anchor}"{listed} aria-labelledby="{anchor}-title">
<h2 id="{anchor}-title">{escape(section.title)}</h2>
<p class="lead">{escape(section.lead)}</p>
<div class="blocks">
{blocks}
</div>
<dl class="origin" aria-label="Where this comes from">{facts}</dl>
</section>"""


def _block(block: Block, name: str) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Comparison):
        return render_comparison(block)
    half = " half" if isinstance(block, Chart) and block.half else ""
    tables = "".join(_table(table) for table in block.tables)
    name = escape(name)
    return f"""<figure class="drawn{half}" data-from="{name}-data" aria-labelledby="{name}-title">
<div class="figure-title" id="{name}-title">{escape(block.title)}</div>
<div class="drawing"><noscript>Figures need JavaScript; the numbers are in the tables below.</noscript></div>
<figcaption>{escape(block.caption)}</figcaption>
<details class="numbers"><summary>Show the numbers</summary>{tables}</details>
<script type="application/json" id="{name}-data">{_inert_json(block)}</script>
</figure>"""


def _table(table: Table) -> str:
    def side(place: int) -> str:
        if table.remarks and place >= len(table.columns) - table.remarks:
            return ' class="remark"'
        if place >= table.words:
            return ' class="n"'
        longest = max((len(row[place]) for row in table.rows), default=0)
        return ' class="long"' if table.columns and longest > _LONG else ""

    head = "".join(f'<th scope="col"{side(place)}>{escape(text)}</th>' for place, text in enumerate(table.columns))
    rows = "".join(
        "<tr>" + "".join(f"<td{side(place)}>{escape(text)}</td>" for place, text in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    # Without heads it is a list of facts, each with its name.
    kind, caption = "table" if head else "table facts", escape(table.caption)
    return (
        f'<div class="{kind}"><p class="caption" aria-hidden="true">{caption}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table aria-label="{caption}">'
        f"{top}<tbody>{rows}</tbody></table></div></div>"
    )


def _left_out(left_out: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<li><code>{escape(name)}</code> {escape(reason)}</li>" for name, reason in left_out)
    if not items:
        return ""
    return (
        '<section id="left-out" aria-labelledby="left-out-title"><h2 id="left-out-title">Left out</h2>'
        f'<p class="lead">These were found and are not shown.</p><ul class="left-out">{items}</ul></section>'
    )


def _empty() -> str:
    return (
        '<section><h2>Nothing to show yet</h2><p class="lead">No result could be shown. '
        "<code>strongticket reproduce fig4 --out out</code> makes one in half a minute.</p></section>"
    )


def _footer() -> str:
    made = f"Made by <code>strongticket report</code>, version {escape(__version__)}."
    return f"<footer><p>{made} One file; it needs no network.</p></footer>"


def _asset(name: str) -> str:
    return (files("strongticket.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
