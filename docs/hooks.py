"""What `make docs` does to pages: formulas become MathML, docstrings' examples code, and notebooks pages."""

import base64
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
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


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add a page for each notebook, with the outputs it is kept with; nothing is run."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        pictures: dict[str, bytes] = {}
        page = "\n\n".join(_markdown(json.loads(path.read_bytes()), path.stem, pictures))
        page += f"\n\n[Download this notebook]({path.name})\n"
        for name, content in {f"{path.stem}.md": page, path.name: path.read_bytes(), **pictures}.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))


def _markdown(notebook: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Give a notebook cell by cell; a picture is described by the comment that its cell starts with."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                yield f"![{source.partition(chr(10))[0].removeprefix('# ')}]({picture})"
            elif "text/html" in data:
                yield f"<div>{''.join(data['text/html'])}</div>"
            else:
                yield f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
