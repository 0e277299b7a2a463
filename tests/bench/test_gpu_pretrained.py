"""The measurement of pretrained models, with a small Llama and the CPU in the place of the GPU."""

from pathlib import Path

import pytest

from strongticket.bench import gpu_pretrained
from strongticket.bench.gpu_pretrained import LLAMA, construct, llama
from strongticket.bench.measure import WrongAnswerError

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 9}


def test_a_row_is_of_one_construction(tmp_path: Path) -> None:
    model = llama(**SMALL)
    row = construct(model, "cpu", 8, "attention+mlp", tmp_path / "x.ticket")
    # Queries and outputs, keys and values of the four groups, gate, up and down.
    assert row["sums"] == 4 * 16 * 16 + 3 * 16 * 24
    assert row["bytes"] == (tmp_path / "x.ticket").stat().st_size
    gpu_pretrained.check_on_cpu(model, "cpu", 8)


def test_another_ticket_than_the_cpus_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(model: object, *, device: str, items: int, **rest: object) -> object:
        return type("Ticket", (), {"identity": device})

    monkeypatch.setattr(gpu_pretrained, "construct_pretrained", another)
    with pytest.raises(WrongAnswerError, match="one layer is cuda on cuda, but cpu on the CPU"):
        gpu_pretrained.check_on_cpu(llama(**SMALL), "cuda", 8)


def test_the_llama_has_100_million_parameters() -> None:
    d, mlp, groups = LLAMA["hidden_size"], LLAMA["intermediate_size"], LLAMA["num_key_value_heads"]
    layer = 2 * d * d + 2 * d * d * groups // LLAMA["num_attention_heads"] + 3 * d * mlp
    assert LLAMA["num_hidden_layers"] * layer + LLAMA["vocab_size"] * d == pytest.approx(1e8, rel=0.01)
