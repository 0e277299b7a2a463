"""The pages under docs/: their Python runs as it stands, page by page, and their commands have the flags shown.

`search.md` and `adding-a-model.md` have tests of their own, which know more of what they show.
"""

import re
import shlex
from inspect import getmembers, isclass, isfunction
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import strongticket
import strongticket.bounds
from strongticket.cli.main import app
from strongticket.learn.rules import RULES

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"search.md", "adding-a-model.md"}
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in ELSEWHERE]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text("utf-8")) if language in languages]


COMMANDS = [
    pytest.param(match[1], id=f"{page.stem}: {match[1][:60]}")
    for page in PAGES
    for text in blocks(page, "", "sh")
    for line in text.replace("\\\n", " ").splitlines()
    if (match := re.match(r"(?:\$ )?(?:torchrun .* -m )?strongticket ([a-z].*)", line.strip()))
]
COMMANDS += [
    pytest.param(command, id=f"Makefile: {command[:60]}")
    for command in re.findall(r"^\t\$\(BIN\)/strongticket (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_examples_run_one_after_another(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for example in blocks(page, "python"):
        exec(compile(example, page.name, "exec"), names)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.partition("  #")[0])
    # Files that a command wants to exist, do.
    for word in words:
        if word.endswith((".ticket", ".safetensors", ".npy", ".txt")):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
        elif word in ("results", "out/fig4", "FOLDER") or word.startswith("$"):
            Path(word).mkdir(parents=True, exist_ok=True)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    command.make_context(command.name, words)  # parses them and runs nothing


def test_bounds_are_answered_as_shown() -> None:
    shown = [text for page in PAGES for text in blocks(page, "") if text.startswith("$ strongticket bound")]
    assert shown
    for text in shown:
        line, _, answer = text.partition("\n")
        assert CliRunner().invoke(app, shlex.split(line)[2:]).stdout == answer


def test_headings_have_no_formulas() -> None:
    """The site's table of contents would show their source."""
    for page in (ROOT / "docs").glob("*.md"):
        outside_code = BLOCK.sub("", page.read_text("utf-8"))
        assert not re.findall(r"^#.*\$.*", outside_code, re.MULTILINE), page.name


def test_lists_have_a_blank_line_before_them() -> None:
    """Without one the site shows them as running text, though other readers of Markdown do not."""
    for page in (ROOT / "docs").glob("*.md"):
        outside_code = BLOCK.sub("", page.read_text("utf-8"))
        for paragraph in re.split(r"\n\s*\n", outside_code):
            first, *others = [bool(re.match(r" *([-*]|\d+\.) ", line)) for line in paragraph.strip().splitlines()]
            assert first or not any(others), f"{page.name}: {paragraph}"


def test_commands_are_not_cut() -> None:
    """The site shows about 100 characters of a line; a longer command goes on in the next."""
    for page in (ROOT / "docs").glob("*.md"):
        for line in "".join(blocks(page, "", "sh")).splitlines():
            command = line.partition("  #")[0]
            assert len(command) <= 100 or "strongticket " not in command[:15], f"{page.name}: {line}"


def test_the_reference_has_everything_under_the_name_it_is_imported_by() -> None:
    text = "\n".join(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("reference-*.md")))
    entries = re.findall(r"^::: (\S+)\n(?:    options:\n      heading: (\S+))?", text, re.MULTILINE)
    shown = {heading or name for name, heading in entries}
    public = {
        f"{module.__name__}.{name}"
        for module in (strongticket, strongticket.bounds)
        for name, thing in getmembers(module)
        if not name.startswith("_") and (isfunction(thing) or (isclass(thing) and not issubclass(thing, Exception)))
    }
    rules = {f"strongticket.learn.rules.{home.replace(':', '.')}" for home, _ in RULES.values()}
    others = {"strongticket.bounds", "strongticket.errors", "strongticket.report.write_report"}
    assert shown - public == others | rules
    assert public - shown == set()


def test_every_page_is_in_the_contents_and_every_picture_exists() -> None:
    contents = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in contents, f"mkdocs.yml does not list {page.name}"
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8")):
            assert (page.parent / picture).stat().st_size > 0, f"{page.name} shows {picture}"


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as the site and GitHub write them."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [page for folder in (".", "docs", "examples", "results") for page in sorted((ROOT / folder).glob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text("utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_messages_quoted_in_the_faq_are_the_programs() -> None:
    """What stands between the variable parts is in the source; a literal that goes on in the next line is joined."""
    sources = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    sources = re.sub(r'"\n\s*f?"', "", sources)
    quoted = [text for text in blocks(ROOT / "docs" / "faq.md", "text") if text.startswith("Error: ")]
    assert len(quoted) > 3
    variable = r"\(\.\.\.\)|\(.*? there, .*? here\)|out/seed-0|tokens\.weight|cuda"
    for message in quoted:
        pieces = [piece.strip() for piece in re.split(variable, message.removeprefix("Error: "))]
        assert any(piece in sources for piece in pieces if len(piece) > 20), f"{message} is no message of ours"


AWKWARD = (
    "made anew",
    "goes on from there",
    "told from zero",
    "is told",
    "items a sum",
    "bits a weight",
    "as ever",
    "in vain",
)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_phrases_that_readers_stumbled_over_stay_gone(page: Path) -> None:
    """What commands print is theirs; the prose around it is held to this."""
    prose = BLOCK.sub("", page.read_text("utf-8")).lower()
    assert [phrase for phrase in AWKWARD if re.search(rf"\b{phrase}\b", " ".join(prose.split()))] == []
