import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from strongticket import __version__
from strongticket.cli.main import app

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_first_screen_shows_both_commands() -> None:
    first_screen = "\n".join(TEXT.splitlines()[:10])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_it_is_read_in_five_minutes() -> None:
    assert EXAMPLES
    assert len(TEXT.split()) < 1000  # at 200 words a minute
    assert len(re.findall(r"!\[", TEXT)) == 1, "one picture"


def test_examples_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)


def test_commands_are_understood() -> None:
    whole = [words for words in re.findall(r"`strongticket (\w+ [^`]*)`", TEXT) if "..." not in words]
    assert len(whole) > 1
    commands: Any = typer.main.get_command(app)
    for words in whole:
        name, *arguments = words.split()
        commands.commands[name].make_context(name, arguments)  # parses them and runs nothing


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert len(links) > 10
    # Headings within pages are looked up in test_docs_pages.py.
    assert [link for link in links if not (README.parent / link.partition("#")[0]).exists()] == []


def test_it_says_if_runs_of_figure_7_are_missing() -> None:
    result = json.loads((README.parent / "results" / "fig7" / "result.json").read_text("utf-8"))
    done, missing = result["runs"], len(result["missing"])
    told = f"{done} of the {done + missing} runs that Figure 7 takes" in " ".join(TEXT.split())
    assert told == (missing > 0)
    assert ("are missing" in TEXT) == (missing > 0)


def test_citation_names_this_version() -> None:
    citation = README.with_name("CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation, "CITATION.cff must say what src/strongticket/_version.py says"
