"""The page about adding a model runs as it stands."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from strongticket.pretrained import Behind, Family, Given, Heads, LinearMap, Norm, ReluPair, families

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"


@pytest.fixture(autouse=True)
def families_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_examples_run_one_after_another(capsys: pytest.CaptureFixture[str]) -> None:
    described = {"starcoder2", "electra"}
    assert not described & families._FAMILIES.keys()
    names: dict[str, object] = {}
    for example in examples():
        exec(compile(example, PAGE.name, "exec"), names)
    assert described < families._FAMILIES.keys()
    assert f"It prints `{capsys.readouterr().out.strip()}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("example", [0, 1])
def test_a_family_takes_at_most_15_lines(example: int) -> None:
    lines = [line for line in examples()[example].splitlines() if line and not line.startswith("from ")]
    assert len(lines) <= 15


def test_the_built_in_families_take_no_more() -> None:
    source = Path(families.__file__).read_text(encoding="utf-8")
    described = re.findall(r"^def _\w+\(.*?(?=^def |^_FAMILIES)", source, flags=re.DOTALL | re.MULTILINE)
    assert len(described) > 12
    for function in described:
        lines = [line for line in function.splitlines() if line.strip() and '"""' not in line]
        assert len(lines) <= 16, function  # with its first line, which says its name


def test_every_field_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for described in (Family, Heads, LinearMap, ReluPair, Norm, Behind, Given):
        assert described is Family or f"`{described.__name__}`" in page
        for field in {field.name for field in fields(described)} - {"layers", "name", "input", "map"}:
            assert f"`{field}`" in page or f"{field}=" in page, field
