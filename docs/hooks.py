"""What `make docs` does to pages: dark pictures, changelog, commands' help, formulas as MathML, notebooks."""

import base64
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
import typer.main
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "examples" / "notebooks"
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([\w/-]+)\.(png|svg)\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Fill the pages that are made from elsewhere, and give each picture its dark twin where there is one."""
    if page.file.src_uri == "changelog.md":
        markdown = changelog()
    if page.file.src_uri == "commands.md":
        markdown = f"{markdown}\n{commands()}"
    return _PICTURE.sub(lambda found: _for_both(found, (DOCS / page.file.src_uri).parent), markdown)


def _for_both(found: re.Match[str], folder: Path) -> str:
    words, name, ending = found.groups()
    if not (folder / f"{name}-dark.{ending}").exists():
        return found[0]
    return f"![{words}]({name}.{ending}#only-light)![{words}]({name}-dark.{ending}#only-dark)"


def changelog() -> str:
    """Give CHANGELOG.md with its links as they are from docs/; those to files outside become their names."""

    def from_here(link: re.Match[str]) -> str:
        words, address = link.groups()
        path = address.removeprefix("docs/")
        if "://" in address:
            return link[0]
        return f"[{words}]({path})" if (DOCS / path.partition("#")[0]).exists() else words

    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", from_here, (DOCS.parent / "CHANGELOG.md").read_text("utf-8"))


def commands() -> str:
    """Give the help of every command, as `strongticket COMMAND -h` prints it."""
    from strongticket.cli.main import app

    return "\n".join(_help_of(typer.main.get_command(app), "strongticket", 1))


def _help_of(command: click.Command, name: str, depth: int) -> list[str]:
    names = ["-h", "--help"]
    context = click.Context(command, info_name=name, terminal_width=96, max_content_width=96, help_option_names=names)
    sections = [f"{'#' * depth} {name}\n\n```text\n{command.get_help(context)}\n```\n"] if depth > 1 else []
    for each, below in getattr(command, "commands", {}).items():
        sections += _help_of(below, f"{name} {each}", depth + 1)
    return sections


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
                yield f"![{source.partition(chr(10))[0].removeprefix('# ')}]({picture}#on-white)"
            elif "text/html" in data:
                yield f"<div>{''.join(data['text/html'])}</div>"
            else:
                yield f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
