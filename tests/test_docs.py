"""What docs/search.md shows runs as it stands, without a warning, and all pages show the same first search."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from strongticket.cli.main import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "search.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_examples_run_one_after_another_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("transformers", reason="the page shows Hugging Face's GPT-2")
    monkeypatch.chdir(tmp_path)
    # Its messages do not reach the root logger.
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [caplog.handler])
    assert len(EXAMPLES) == 4
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, "search.md", "exec"), names)
    assert caplog.messages == []


def test_there_is_one_first_search() -> None:
    """README, pages and help show the same short run, so that its numbers can be compared."""
    first = "strongticket search --size nano --data sample --steps 1000 --sequences 16 --lr 1e-2 --output-gain 8"
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    commands: Any = typer.main.get_command(app)
    text = re.sub(r" *\\\n *", " ", text + commands.commands["search"].epilog)
    shown = re.findall(r"strongticket search --size nano.*", text)
    assert len(shown) == 3
    assert all(line.startswith(first) for line in shown)
