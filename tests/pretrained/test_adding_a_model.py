"""The page about adding a model runs as it stands."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from strongticket.pretrained import Behind, Family, Heads, LinearMap, Mixed, Norm, ReluPair, families

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"


@pytest.fixture(autouse=True)
def families_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))


def examples() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(found) == 4
    return found


def run_examples(change: Callable[[str], str] = lambda example: example, count: int = 3) -> None:
    names: dict[str, object] = {}
    first, *others = examples()[:count]
    for example in (change(first), *others):
        exec(compile(example, PAGE.name, "exec"), names)


def test_the_examples_run_one_after_another() -> None:
    run_examples(count=4)
    assert {"distilbert", "llama"} <= families._FAMILIES.keys()


@pytest.mark.parametrize(
    ("example", "begin", "end"),
    [(0, "layer = ", "register_family"), (3, "attention, mlp = ", "register_family")],
)
def test_a_family_of_known_parts_takes_at_most_15_lines(example: int, begin: str, end: str) -> None:
    lines = examples()[example].splitlines()
    (start,), (stop,) = ([i for i, line in enumerate(lines) if line.startswith(words)] for words in (begin, end))
    assert stop + 1 - start <= 15


def test_the_built_in_families_take_no_more() -> None:
    for name in ("_BERT", "_GPT2", "_VIT"):
        source = Path(families.__file__).read_text(encoding="utf-8")
        described = re.search(rf"^{name}_LAYER = .*?^{name} = Family", source, flags=re.DOTALL | re.MULTILINE)
        assert described is not None
        assert len(described.group().splitlines()) <= 15


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention.q_lin": "attention.k_lin", "attention.k_lin": "attention.q_lin"}, "^$"),
        ({"attention.q_lin": "attention.v_lin", "attention.v_lin": "attention.q_lin"}, "^$"),
        ({"attention.k_lin": "attention.v_lin", "attention.v_lin": "attention.k_lin"}, "^$"),
        ({"ffn.lin1": "ffn.lin2", "ffn.lin2": "ffn.lin1"}, "norm of layer.0.mlp.up is not what makes the inputs there"),
        # The first layer's norm has a path of its own, which stays right.
        ({'"output_layer_norm"': '"sa_layer_norm"'}, r"norm of layer\.1\.attention is not what makes"),
        ({'"sa_layer_norm"': '"output_layer_norm"'}, r"norm of layer\.0\.mlp\.up is not what makes"),
    ],
)
def test_wrong_paths_are_caught(changes: dict[str, str], said: str) -> None:
    """By the two assertions on outputs, which say nothing, or by the one on norms."""

    def change(example: str) -> str:
        assert all(example.count(right) == 1 for right in changes)
        return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found.group()], example)

    with pytest.raises(AssertionError, match=said):
        run_examples(change)


def test_every_field_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for described in (Family, Heads, LinearMap, ReluPair, Norm, Behind, Mixed):
        assert described is Family or f"`{described.__name__}`" in page
        for field in {field.name for field in fields(described)} - {"layers", "name", "input", "map"}:
            assert f"`{field}`" in page or f"{field}=" in page, field
