"""The measurement of pretrained models, with a small Llama and the CPU in the place of the GPU."""

from pathlib import Path

import pytest

from strongticket.bench import gpu_pretrained
from strongticket.bench.gpu_pretrained import LLAMAS, construct, llama
from strongticket.bench.measure import WrongAnswerError

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 9}


def test_a_row_is_of_one_construction(tmp_path: Path) -> None:
    model = llama(**SMALL)
    row = construct(model, "cpu", 8, "attention+mlp", tmp_path / "x.ticket")
    # Queries and outputs, keys and values of the four groups, gate, up and down.
    assert row["sums"] == 4 * 16 * 16 + 3 * 16 * 24
    assert row["bytes"] == (tmp_path / "x.ticket").stat().st_size
    assert row["peak_gib"] > 0
    gpu_pretrained.check_on_cpu(model, "cpu", 8)


def test_another_ticket_than_the_cpus_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(model: object, *, device: str, items: int, **rest: object) -> object:
        return type("Ticket", (), {"identity": device})

    monkeypatch.setattr(gpu_pretrained, "construct_pretrained", another)
    with pytest.raises(WrongAnswerError, match="one layer is cuda on cuda, but cpu on the CPU"):
        gpu_pretrained.check_on_cpu(llama(**SMALL), "cuda", 8)


@pytest.mark.parametrize(("kind", "parameters"), [("llama", 1e8), ("llama-1b", 1.236e9)])
def test_the_llamas_have_as_many_parameters_as_said(kind: str, parameters: float) -> None:
    sizes = LLAMAS[kind]
    d, mlp, groups = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_key_value_heads"]
    layer = 2 * d * d + 2 * d * d * groups // sizes["num_attention_heads"] + 3 * d * mlp
    made = sizes["num_hidden_layers"] * layer + sizes["vocab_size"] * d
    assert made == pytest.approx(parameters, rel=0.01)
