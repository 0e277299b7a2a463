"""The page about adding a model runs as it stands."""

import re
from pathlib import Path

import pytest

from strongticket.pretrained import adapters

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"


def test_the_examples_run_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_ADAPTERS", dict(adapters._ADAPTERS))
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(examples) == 2
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)
    assert "distilbert" in adapters._ADAPTERS


def test_every_field_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for field in adapters.Adapter.__dataclass_fields__:
        assert f"`{field}`" in page
