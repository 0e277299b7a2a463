"""The page about adding a model runs as it stands."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strongticket.pretrained import adapters

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"


@pytest.fixture(autouse=True)
def adapters_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_ADAPTERS", dict(adapters._ADAPTERS))


def run_examples(change: Callable[[str], str] = lambda example: example) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(examples) == 3
    names: dict[str, object] = {}
    for example in (change(examples[0]), *examples[1:]):
        exec(compile(example, PAGE.name, "exec"), names)


def test_the_examples_run_one_after_another() -> None:
    run_examples()
    assert "distilbert" in adapters._ADAPTERS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention.q_lin": "attention.k_lin", "attention.k_lin": "attention.q_lin"}, "^$"),
        ({"attention.q_lin": "attention.v_lin", "attention.v_lin": "attention.q_lin"}, "^$"),
        ({"attention.k_lin": "attention.v_lin", "attention.v_lin": "attention.k_lin"}, "^$"),
        ({"ffn.lin1": "ffn.lin2", "ffn.lin2": "ffn.lin1"}, "mlp_norm of layer 0 is not what makes the inputs there"),
        # The first layer's norm has a path of its own, which stays right.
        ({"{before}.output_layer_norm": "{i}.sa_layer_norm"}, "attention_norm of layer 1 is not what makes"),
        ({"{i}.sa_layer_norm": "{i}.output_layer_norm"}, "mlp_norm of layer 0 is not what makes"),
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
    for field in adapters.Adapter.__dataclass_fields__:
        assert f"`{field}`" in page
