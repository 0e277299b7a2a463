import re
from pathlib import Path

import pytest

from strongticket import __version__

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_first_screen_shows_both_commands() -> None:
    first_screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:30])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    assert EXAMPLES


def test_examples_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)


def test_citation_names_this_version() -> None:
    citation = README.with_name("CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation, "CITATION.cff must say what src/strongticket/_version.py says"
