"""Linear maps as parts, in models whose heads cannot be merged: rotary positions, groups, gates, two towers."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import CLIPConfig, CLIPModel, LlamaConfig, LlamaForCausalLM, SeedOssConfig, SeedOssForCausalLM

from strongticket import Ticket
from strongticket.bench.gpu_pretrained import LLAMAS
from strongticket.errors import StrongTicketError
from strongticket.pretrained import (
    Family,
    LinearMap,
    Norm,
    attach,
    construct_pretrained,
    families,
    predict,
    register_family,
)
from strongticket.pretrained.compare import compare
from strongticket.pretrained.load import load_tokenizer
from strongticket.pretrained.recertify import failures
from strongticket.pretrained.target import Target
from tests.cli.test_pretrained_cli import WORDS, invoke, save
from tests.pretrained.small_models import VOCABULARY, output_of, randomize, seeded
from tests.small_tickets import edited

NAMES = ["attention.query", "attention.key", "attention.value", "attention.output", "mlp.gate", "mlp.up", "mlp.down"]
# As a file of one's own has it, which the command line runs.
OWN = """
from strongticket.pretrained import Family, Heads, Norm, gated_mlp, maps, register_family

at, norm = "self_attn", Norm("post_attention_layernorm")
attention = Heads(at=at, maps=maps(at, "q_proj", "k_proj", "v_proj", "o_proj"), input=Norm("input_layernorm"))
mlp = gated_mlp("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", norm)
register_family("seed_oss", Family({"layers": [attention, *mlp]}, kind="causal", linear=True))
"""


@pytest.fixture(autouse=True)
def families_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))


@pytest.fixture
def llama() -> nn.Module:
    return make_llama()


@seeded
def make_llama() -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=2, attention_bias=True, **sizes)
    return randomize(LlamaForCausalLM(config))


@seeded
def make_seed_oss() -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    return randomize(SeedOssForCausalLM(SeedOssConfig(vocab_size=VOCABULARY, num_hidden_layers=2, **sizes)))


@seeded
def make_clip() -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    text = {**sizes, "num_attention_heads": 4, "vocab_size": VOCABULARY, "eos_token_id": 2, "projection_dim": 8}
    vision = {**sizes, "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "projection_dim": 8}
    return randomize(CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)))


def texts() -> list[str]:
    return [" ".join(WORDS[i : i + 9]) for i in range(30)]


def test_both_forms_are_one_function_near_the_original(llama: nn.Module) -> None:
    model = copy.deepcopy(llama).double()
    batch = {"input_ids": torch.arange(20).view(2, 10)}
    ticket = construct_pretrained(model, items=20, what="attention+mlp")
    original, merged, literal = (
        output_of(m, batch) for m in (model, attach(model, ticket), attach(model, ticket, "literal"))
    )
    torch.testing.assert_close(literal, merged, rtol=0, atol=1e-9)
    assert 0 < (merged - original).abs().max() < 0.05 * original.abs().max()
    assert ticket.architecture["linear"] == NAMES
    d, width, items = 16, 24, 20
    assert ticket.tensors["layer.0.attention.key.first"].shape == (items * d, d)
    assert ticket.tensors["layer.0.attention.key.second"].shape == (d // 2, items * d)
    assert ticket.tensors["layer.1.mlp.down.second"].shape == (d, items * width)
    assert len(ticket.tensors) == 2 * 2 * 7
    assert "layer.1.attention.value.bias" in ticket.dense


def test_without_the_mlps_only_the_attention_is_random(llama: nn.Module) -> None:
    ticket = construct_pretrained(llama, items=6)
    assert ticket.architecture["linear"] == NAMES[:4]
    assert {name.split(".")[2] for name in ticket.tensors} == {"attention"}
    assert failures(ticket, llama) == []


def test_certificates_hold_for_every_part_and_are_recomputed(llama: nn.Module, tmp_path: Path) -> None:
    model = copy.deepcopy(llama).double()
    ticket = construct_pretrained(model, items=20, what="attention+mlp")
    parts = compare(model, ticket, texts(), load_tokenizer(str(save(llama, tmp_path))))["parts"]
    assert [row["part"] for row in parts] == [f"layer.{i}.{name}" for i in range(2) for name in NAMES]
    for row in parts:
        assert 0 < row["error"] <= row["certified"], row
        assert row["largest_input"] <= row["input_norm"], row
    assert failures(ticket, model) == []

    def boast(description: dict) -> None:
        description["certificate"]["details"]["parts"][3]["error"] *= 0.999

    (failure,) = failures(Ticket.from_bytes(edited(ticket.to_bytes(), boast)), model)
    assert "for layer.0.attention.output, the masks and the model give" in failure


def test_each_tower_has_layers_of_its_own() -> None:
    model = make_clip()
    ticket = construct_pretrained(model, items=24, what="attention+mlp", parts="linear")
    assert ticket.architecture["n_layers"] == 2
    assert {name.split(".0.")[0] for name in ticket.tensors} == {
        "text_model.encoder.layers",
        "vision_model.encoder.layers",
    }
    pixels = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": torch.arange(14).view(2, 7), "pixel_values": pixels}
    with torch.no_grad():
        before, after = (m(**batch).logits_per_image for m in (model, attach(model, ticket)))
    assert 0 < (before - after).abs().max() < 0.05 * before.abs().max()
    assert failures(ticket, model) == []


def test_a_family_without_mlps_says_so() -> None:
    register_family(
        "clip", Family({"text_model.encoder.layers": [LinearMap("mlp.up", "mlp.fc1", Norm("layer_norm2"))]})
    )
    with pytest.raises(StrongTicketError, match="the family clip lists no part of its attention"):
        construct_pretrained(make_clip(), items=4)


def test_a_family_of_ones_own_reaches_the_command_line(tmp_path: Path) -> None:
    own, out, text = tmp_path / "seed_oss.py", tmp_path / "x.ticket", tmp_path / "text.txt"
    own.write_text(OWN)
    text.write_text("\n".join(texts()[:5]))
    folder = save(make_seed_oss(), tmp_path / "seed_oss")
    construct = ("construct", "--model", folder, "--items", 6, "--workers", 1, "--out", out)
    unknown = invoke(*construct)
    assert "unknown family 'seed_oss'; `strongticket construct --model ... --describe`" in str(unknown.exception)
    done = invoke(*construct, "--families", own, "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["parts"]) == 8
    compared = invoke("compare", "--model", folder, "--ticket", out, "--text", text, "--families", own)
    assert compared.exit_code == 0, compared.output
    assert "layer.1.attention.output" in compared.stdout
    assert invoke("verify", out, "--target", folder, "--families", own).exit_code == 0
    vain = invoke("verify", out, "--families", own)
    assert (vain.exit_code, "--families is for --target" in vain.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("layer = [", "SyntaxError"), ("exit(3)", "SystemExit: 3")],
)
def test_a_file_of_families_that_fails_is_one_line(content: str, said: str, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(content)
    done = invoke("construct", "--model", tmp_path, "--out", tmp_path / "x.ticket", "--families", own)
    assert isinstance(done.exception, StrongTicketError)
    assert str(done.exception).startswith(f"{own} cannot be run ({said}")
    assert "\n" not in str(done.exception)


def test_a_llama_of_a_billion_parameters_is_predicted_to_fit_into_8_gb() -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**LLAMAS["llama-1b"]))
    work = Target(model, "attention+mlp").pieces(items=16, seed=0)
    needed = predict.predict(piece for part in work.values() for piece in part)
    assert needed.largest == "layer.0.mlp.gate"  # the map with most inputs is not drawn whole
    assert needed.ticket_bytes + needed.piece_bytes + predict._BYTES_PER_WORKER < 8e9
