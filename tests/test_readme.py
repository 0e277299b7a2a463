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
    first_screen = "\n".join(TEXT.splitlines()[:20])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_what_and_why_are_read_in_a_minute() -> None:
    """What stands above the gallery, code and addresses aside, at 300 words per minute; one picture, one message."""
    opening = TEXT[: TEXT.index("## Gallery")]
    prose = re.sub(r"```.*?```|<[^>]*>|\]\([^)]*\)", "", opening, flags=re.DOTALL)
    assert len(re.findall(r"[\w.,]+", prose)) < 300
    assert len(re.findall(r"!\[|<picture", opening)) == 1
    assert len(TEXT.split()) < 1000


def test_examples_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to rounding: another kind of CPU draws another target."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)
    printed, number = capsys.readouterr().out, r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?"
    assert re.sub(number, "#", printed) == re.sub(number, "#", shown)
    for ours, theirs in zip(re.findall(number, printed), re.findall(number, shown), strict=True):
        ratio = float(ours.replace(",", "")) / float(theirs.replace(",", ""))
        assert 1 / 3 < ratio < 3, (ours, theirs)


def test_numbers_are_the_measured_ones() -> None:
    results = README.parent / "results"
    lines = [json.loads(line) for line in (results / "bench" / "results.jsonl").read_text("utf-8").splitlines()]
    sums = {"op": "subset_sum", "n": 20, "device": "cpu", "threads": 1}
    rates = {line["engine"]: line["median"] for line in lines if sums.items() <= line.items()}  # the last of each
    assert f"{round(rates['strongticket'], -3):,.0f} optimal subset sums per second" in TEXT
    assert f"{rates['gurobi']:.1f} per second" in TEXT
    kept = results / "fig8" / "mini-masked-scale2.83-seed1.ticket"
    assert f"GPT-2 mini in {kept.stat().st_size / 1e6:.1f} MB" in TEXT


def test_a_step_against_published_scripts_is_that_of_the_benchmarks() -> None:
    docs = README.parent / "docs"
    benchmarks = (docs / "benchmarks.md").read_text("utf-8")
    (row,) = re.findall(r"^\| edge-popup \| ((?:[\d.]+ \([\d.]+\) \|? ?)+)$", benchmarks, flags=re.MULTILINE)
    shares = sorted(re.findall(r"\(([\d.]+)\)", row), key=float)
    assert len(shares) == 4
    for text in (TEXT, (docs / "comparison.md").read_text("utf-8")):
        assert f"{shares[0]} to {shares[-1]} of the time" in text


def test_commands_are_understood() -> None:
    whole = [words for words in re.findall(r"`strongticket (\w+ [^`]*)`", TEXT) if "..." not in words]
    assert len(whole) > 1
    commands: Any = typer.main.get_command(app)
    for words in whole:
        name, *arguments = words.split()
        commands.commands[name].make_context(name, arguments)  # parses them and runs nothing


def test_links_and_pictures_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert len(links) > 10
    assert len(pictures) > 2
    # Headings within pages are looked up in test_docs_pages.py.
    assert [link for link in links + pictures if not (README.parent / link.partition("#")[0]).exists()] == []


def test_citations_are_those_of_the_citation_file() -> None:
    citation = README.with_name("CITATION.cff").read_text(encoding="utf-8")
    for title in re.findall(r'title: "?(.*?)"?\n', citation):
        assert f"{{{title}}}" in TEXT


def test_citation_names_this_version() -> None:
    citation = README.with_name("CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation, "CITATION.cff must say what src/strongticket/_version.py says"
