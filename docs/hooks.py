"""What `make docs` does to pages: formulas become MathML, docstrings' examples become code."""

import html
import re

import griffe
from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Replace every formula of a rendered page by MathML, which browsers draw by themselves, without a script."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    return convert(html.unescape(found[3]).strip(), display="block" if found[2] == "[" else "inline")


class Examples(griffe.Extension):
    """Lets griffe see code in our `Example:`; it knows only `Examples:`, and takes `>>>` for a quotation elsewhere."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename the heading before the docstring is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
