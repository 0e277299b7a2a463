"""The recipes of CONTRIBUTING.md work as they stand there, and take as many lines as they say."""

import re
from pathlib import Path

import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from strongticket import attach, construct_pretrained
from strongticket.pretrained import families
from tests.pretrained.small_models import VOCABULARY, output_of, randomize, seeded

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def recipe(title: str) -> tuple[int, str]:
    """Give the lines that a recipe says it takes, and its code."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^### {title}, in (\d+) lines$.*?```python\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return int(found[1]), found[2]


@seeded
def make_opt() -> torch.nn.Module:
    sizes = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    return randomize(OPTForCausalLM(OPTConfig(vocab_size=VOCABULARY, word_embed_proj_dim=16, **sizes)))


def test_a_model_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
    lines, code = recipe("A model family")
    assert len([line for line in code.splitlines() if line and "import" not in line]) == lines <= 15
    exec(compile(code, PAGE.name, "exec"), {})
    model, batch = make_opt(), {"input_ids": torch.arange(14).view(2, 7)}
    ticket = construct_pretrained(model, items=20, what="attention+mlp")
    original, merged, literal = (
        output_of(each, batch) for each in (model, attach(model, ticket), attach(model, ticket, "literal"))
    )
    assert 0 < (merged - original).abs().max() < 0.02 * original.abs().max()
    assert (literal - merged).abs().max() < 1e-4 * original.abs().max()
