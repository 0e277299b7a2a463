"""Every family that is built in: a ticket computes what the model does, and its bounds hold."""

import copy
import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.vit.modeling_vit import ViTAttention, ViTLayer

from strongticket import Ticket
from strongticket.errors import StrongTicketError
from strongticket.pretrained import (
    Family,
    Heads,
    Norm,
    attach,
    check,
    construct_pretrained,
    families,
    mlp,
    register_family,
)
from strongticket.pretrained.check import Notes, check_ticket_in_model, random_inputs
from strongticket.pretrained.families import Parts
from strongticket.pretrained.pieces import Piece
from strongticket.pretrained.predict import predict
from strongticket.pretrained.recertify import failures
from strongticket.pretrained.target import Target
from strongticket.pretrained.torch_modules import opened
from tests.pretrained.small_models import TORCH, VOCABULARY, ZOO, from_zoo, randomize, seeded, small, what


@pytest.fixture(autouse=True)
def families_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))


@torch.no_grad()
def first_output(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    output = getattr(model, "base_model", model)(**batch)
    return output if isinstance(output, Tensor) else output[0]


def ways(name: str) -> tuple[Parts, ...]:
    """Give the parts a model of that name can be made of."""
    return ("merged", "linear") if not Target(from_zoo(name)).family.linear else ("merged",)


@pytest.mark.parametrize("name", [*ZOO, *TORCH])
def test_a_ticket_computes_what_the_model_does(name: str) -> None:
    model = from_zoo(name)
    batch = random_inputs(Target(model))
    original = first_output(model, batch)
    for parts in ways(name):
        ticket = construct_pretrained(model, items=24, what=what(name), parts=parts)
        merged, literal = (first_output(attach(model, ticket, mode), batch) for mode in ("merged", "literal"))
        assert 0 < (merged - original).abs().max() < 0.01 * original.abs().max()
        assert (literal - merged).abs().max() < 1e-4 * original.abs().max()
        assert failures(Ticket.from_bytes(ticket.to_bytes()), model) == []


@pytest.mark.parametrize("name", ["BERT", "ModernBERT", "GPT-NeoX", "Qwen3", "Gemma", "T5 1.1", "Whisper"])
@pytest.mark.parametrize("parts", ["merged", "linear"])
def test_bounds_hold_where_inputs_are_attacked(name: str, parts: Parts) -> None:
    """Gradient ascent on what goes into each part of the last layer, from inside of the layer before."""
    model = opened(from_zoo(name)).requires_grad_(False)
    target = Target(model, "attention+mlp", parts)
    attacked = {}
    for part_name, (layer, part) in target.parts.items():
        for place, input in part.reads(layer).items():
            if layer.index == 0:
                seen = longest_input(target, place, steps=12)
                bound = input.largest(layer)
                assert seen <= bound * (1 + 1e-5), part_name
                attacked[part_name] = seen / bound
    assert max(attacked.values()) > 0.9
    assert min(attacked.values()) > 0.1, attacked


def longest_input(target: Target, place: str, steps: int) -> float:
    """Make the input of a map as long as can be, by the model's embeddings: whatever they are, the bound must hold."""
    backbone, longest = target.backbone, 0.0
    embedded = [module for module in backbone.modules() if isinstance(module, nn.Embedding | nn.Conv1d | nn.LayerNorm)]
    shifts: dict[int, Tensor] = {}
    read: list[Tensor] = []

    def shift(module: nn.Module, _: object, output: Tensor) -> Tensor:
        if isinstance(module, nn.LayerNorm) or not output.is_floating_point():
            return output
        if id(module) not in shifts:
            shifts[id(module)] = torch.zeros_like(output, requires_grad=True)
        return output + shifts[id(module)]

    hooks = [module.register_forward_hook(shift) for module in embedded]
    hooks.append(backbone.get_submodule(place).register_forward_pre_hook(lambda _, args: read.append(args[0])))
    batch = random_inputs(target)
    try:
        for _ in range(steps):
            read.clear()
            backbone(**batch)
            size = read[0].norm(dim=-1).max()
            longest = max(longest, size.item())
            moved = [x for x in shifts.values()]
            gradients = torch.autograd.grad(size, moved, allow_unused=True)
            for x, gradient in zip(moved, gradients, strict=True):
                if gradient is not None and (norm := gradient.norm()) > 0:
                    x.data += 3 * math.sqrt(x.numel()) * gradient / norm / steps
    finally:
        for hook in hooks:
            hook.remove()
    return longest


# What a family may say wrongly. Each was found by running the model, and would have given a ticket of something else.


def test_gpt2s_row_on_another_order_of_heads_is_refused() -> None:
    """GPTBigCode has query, key and value of one head side by side, then those of the next."""

    @seeded
    def make() -> nn.Module:
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 4, "n_inner": 24, "n_positions": 32}
        return GPTBigCodeForCausalLM(GPTBigCodeConfig(vocab_size=VOCABULARY, multi_query=False, **sizes))

    register_family("gpt_bigcode", families._gpt2(None))
    with pytest.raises(StrongTicketError, match=r"layer\.0\.attention has error .* model's own numbers\. Its"):
        construct_pretrained(randomize(make()), items=24)
    # As linear maps it can be done, and the bound of what the last one reads knows which outputs are values.
    attention = Heads(at="attn", maps=families._gpt2(None).layers["h"][0].maps, input=Norm("ln_1"))
    register_family("gpt_bigcode", Family({"h": [attention]}, kind="causal", linear=True))
    with pytest.raises(
        StrongTicketError, match=r"layer\.0\.attention\.output does not read the output of h\.0\.attn\.c_attn"
    ):
        construct_pretrained(randomize(make()), items=24)
    by_head = Heads(at="attn", maps=attention.maps, input=Norm("ln_1"), by_head=True)
    register_family("gpt_bigcode", Family({"h": [by_head]}, kind="causal", linear=True))
    assert construct_pretrained(randomize(make()), items=24).strong


class WithOwnScale(ViTAttention):
    def forward(self, *args: object, **named: object) -> object:
        said, self.scaling = self.scaling, self.own
        try:
            return super().forward(*args, **named)
        finally:
            self.scaling = said


def test_a_scale_that_is_not_looked_at_is_refused() -> None:
    """Merged, the scores have their scale inside, and the attention is told not to multiply by it."""
    model = small("vit")
    for layer in model.layers:
        layer.attention.__class__, layer.attention.own = WithOwnScale, layer.attention.scaling
    with pytest.raises(StrongTicketError, match=r"layer\.0\.attention has error"):
        construct_pretrained(model, items=20)
    assert construct_pretrained(model, items=20, parts="linear").strong


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("q_proj", "k_proj", r"layer\.0\.attention has error"),
        ("v_proj", "q_proj", r"layer\.0\.attention (has error|cannot be run)"),
        (
            "layernorm_before",
            "layernorm_after",
            r"layer\.0\.attention does not read the output of the norm at layers\.0",
        ),
        ("mlp.fc1", "mlp.fc2", r"layer\.0\.mlp\.up does not read the output of the norm at layers\.0\.layernorm_after"),
    ],
)
def test_wrong_paths_are_refused(right: str, wrong: str, said: str) -> None:
    exchanged = {right: wrong, wrong: right}

    def swap(text: str) -> str:
        return exchanged.get(text, text)

    at = "attention"
    maps = tuple(f"{at}.{swap(name)}" for name in ("q_proj", "k_proj", "v_proj", "o_proj"))
    attention = Heads(at=at, maps=maps, input=Norm(swap("layernorm_before")))
    rest = mlp(swap("mlp.fc1"), swap("mlp.fc2"), Norm(swap("layernorm_after")))
    register_family("vit", Family({"layers": [attention, *rest]}, kind="image"))
    for items in (4, 16):  # with few, a certificate would allow even this
        with pytest.raises(StrongTicketError, match=said):
            construct_pretrained(small("vit"), items=items, what="attention+mlp")


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        # Both maps read what is 0 where values and `up` are, but each by its own source.
        (
            "GPT-NeoX",
            {"attention.dense": "mlp.dense_4h_to_h", "mlp.dense_4h_to_h": "attention.dense"},
            r"attention\.output does not read the output of .*query_key_value",
        ),
        ("DistilBERT", {"embeddings.LayerNorm": ""}, r"no layer is before layer\.0: .* needs first=, the source of"),
        ("GPT-2", {"ln_1": "attn.c_proj"}, r"expected a LayerNorm at h\.0\.attn\.c_proj, but the model has a Conv1D"),
        ("GPT-2", {"attn.c_attn": "mlp.c_fc"}, r"2 parts of a layer stand for the map at mlp\.c_fc; only one can"),
        (
            "BERT",
            {"attention.self.value": "output.dense", "output.dense": "attention.self.value"},
            r"do not fit together",
        ),
        ("ModernBERT", {"attn.Wqkv": "mlp.Wo"}, r"2 parts of a layer stand for the map at mlp\.Wo; only one can"),
    ],
)
def test_exchanged_places_are_refused(name: str, wrong: dict[str, str], said: str) -> None:
    """Found by exchanging two paths of a family at random, and looking which tickets or foreign errors came of it."""
    model = from_zoo(name)
    with pytest.raises((StrongTicketError, ValueError), match=said):
        construct_as(model, wrong)


def construct_as(model: transformers.PreTrainedModel, paths: dict[str, str]) -> None:
    make = families._FAMILIES[model.config.model_type]
    register_family(model.config.model_type, with_paths(make(model.config), paths))  # type: ignore[operator]
    construct_pretrained(model, items=8, what="attention+mlp")


def with_paths(thing: Any, paths: dict[str, str]) -> Any:
    """Give a family, part or input with other paths."""
    if isinstance(thing, str):
        return paths.get(thing, thing)
    if isinstance(thing, list | tuple):
        return type(thing)(with_paths(each, paths) for each in thing)
    if isinstance(thing, dict):
        return {key: with_paths(each, paths) for key, each in thing.items()}
    if not dataclasses.is_dataclass(thing):
        return thing
    named = ((field.name, getattr(thing, field.name)) for field in dataclasses.fields(thing))
    return dataclasses.replace(thing, **{name: with_paths(each, paths) for name, each in named})  # type: ignore[type-var]


class AddsOne(LlamaMLP):
    """What goes up is 1 larger, as in GPT-OSS."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * (self.up_proj(x) + 1))


class Squares(LlamaMLP):
    """The configuration names another activation."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x).relu().square() * self.up_proj(x))


@pytest.mark.parametrize("kind", [AddsOne, Squares])
def test_a_bound_on_a_gated_mlp_that_computes_something_else_is_refused(kind: type[LlamaMLP]) -> None:
    """On random inputs every norm is within its bound, and gates of 0 still give 0."""
    model = from_zoo("Llama")
    model.model.layers[0].mlp.__class__ = kind
    said = r"mlp\.down does not read the output of layers\.0\.mlp\.gate_proj and layers\.0\.mlp\.up_proj"
    with pytest.raises(StrongTicketError, match=said):
        construct_pretrained(model, items=4, what="attention+mlp")
    assert construct_pretrained(model, items=4).strong


def test_a_bound_on_weights_that_are_not_a_mixture_is_refused() -> None:
    """DiffLlama subtracts two attentions, so values are added up with weights that may be negative, and more than 1."""

    @seeded
    def make() -> nn.Module:
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_hidden_layers": 1}
        return transformers.DiffLlamaForCausalLM(transformers.DiffLlamaConfig(vocab_size=VOCABULARY, **sizes))

    model = randomize(make())
    register_family("diffllama", families._FAMILIES["llama"](model.config))  # type: ignore[operator]
    with pytest.raises(StrongTicketError, match=r"attention\.output does not read the output of .*v_proj, from which"):
        construct_pretrained(model, items=4)


class UsesTheScaleAgain(ViTLayer):
    def forward(self, *args: object, **named: object) -> Tensor:
        return super().forward(*args, **named) * self.attention.scaling


def test_what_is_changed_beside_the_parts_is_refused() -> None:
    """Every part by itself is right."""
    model = small("vit")
    model.layers[0].__class__ = UsesTheScaleAgain
    with pytest.raises(StrongTicketError, match="the ticket changed something outside its parts"):
        construct_pretrained(model, items=16)


def test_a_certificate_for_too_small_inputs_is_refused() -> None:
    model = small("bert")
    ticket = construct_pretrained(model, items=16)
    assert ticket.certificate is not None
    ticket.certificate.details["parts"][1]["input_norm"] /= 10
    with pytest.raises(StrongTicketError, match=r"layer\.1\.attention is certified for inputs of norm 0"):
        check_ticket_in_model(Target(model), ticket)


def test_a_ticket_that_errs_by_more_than_its_certificate_is_refused() -> None:
    model = small("bert")
    ticket = construct_pretrained(model, items=4)
    assert ticket.certificate is not None
    ticket.certificate.details["parts"][1]["error"] = 0.0
    with pytest.raises(StrongTicketError, match=r"layer\.1\.attention has error .* but 0 is certified"):
        check_ticket_in_model(Target(model), ticket)


@pytest.mark.parametrize("name", ["Llama", "BERT"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_exactly(name: str, dtype: torch.dtype) -> None:
    model = from_zoo(name).to(dtype)
    ticket = construct_pretrained(model, items=12, what="attention+mlp")
    assert ticket == construct_pretrained(copy.deepcopy(model).float(), items=12, what="attention+mlp")
    assert next(attach(model, ticket).parameters()).dtype == dtype


def test_models_of_torch_stay_as_they_are() -> None:
    """They are opened in copies, which share their memory; opened, they compute the same with every kind of mask."""
    model = from_zoo("nn.TransformerDecoder, norm_first")
    before = copy.deepcopy(model.state_dict())
    inside = opened(model)
    generator = torch.Generator().manual_seed(0)
    tgt, memory = (torch.randn(n, 2, 16, generator=generator) for n in (5, 4))
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    named = {"tgt_mask": causal, "memory_key_padding_mask": padding}
    for more in ({}, named, {**named, "tgt_mask": causal < 0}):
        with torch.no_grad():
            torch.testing.assert_close(inside(tgt, memory, **more), model(tgt, memory, **more))
    construct_pretrained(model, items=4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert inside.layers[0].self_attn.q_proj.weight.data_ptr() == model.layers[0].self_attn.in_proj_weight.data_ptr()


@pytest.mark.parametrize("settings", [{}, {"batch_first": True}, {"bias": False}])
def test_an_opened_attention_is_the_attention(settings: dict) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(12, 3, **settings).eval()
    x, y = torch.randn(5, 2, 12), torch.randn(4, 2, 12)
    if model.batch_first:
        x, y = x.transpose(0, 1), y.transpose(0, 1)
    inside = opened(model)
    with torch.no_grad():
        for mask in (None, torch.randn(5, 4), torch.randn(6, 5, 4), torch.rand(5, 4) > 0.7):
            for mine, theirs in zip(inside(x, y, y, attn_mask=mask), model(x, y, y, attn_mask=mask), strict=True):
                torch.testing.assert_close(mine, theirs)
        one = x[0] if model.batch_first else x[:, 0]
        torch.testing.assert_close(inside(one, one, one)[0], model(one, one, one)[0])
        assert inside(x, x, x, need_weights=False)[1] is None
    with pytest.raises(StrongTicketError, match="add_bias_kv, add_zero_attn, kdim or vdim"):
        opened(nn.MultiheadAttention(12, 3, kdim=5))
    with pytest.raises(StrongTicketError, match="has no layers, or layers of different kinds"):
        opened(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 0))


@pytest.mark.parametrize("name", ["Llama", "BERT", "GPT-2", "T5", "nn.TransformerDecoder"])
@torch.no_grad()
def test_a_trial_keeps_no_copy_of_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models of a trial share the original's memory, and what was tried of a ticket is freed."""
    model = opened(from_zoo(name))
    ticket = construct_pretrained(model, items=8, what="attention+mlp", parts="linear")
    tried: list[Target] = []

    def remember(*settings: Any) -> Target:
        tried.append(Target(*settings))
        return tried[-1]

    monkeypatch.setattr(check, "Target", remember)
    check_ticket_in_model(Target(model, "attention+mlp", "linear"), ticket)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    before, *replaced = (each.model for each in tried)
    assert all(parameter.data_ptr() in own for parameter in before.parameters())
    for after in replaced:
        new = [parameter for parameter in after.parameters() if parameter.data_ptr() not in own]
        assert len(new) >= len(ticket.tensors) // 2
        assert all(parameter.untyped_storage().nbytes() <= 8 for parameter in new)


@pytest.mark.parametrize(("name", "more"), [("nn.MultiheadAttention", {}), ("BERT", {"output_attentions": True})])
def test_attention_maps_may_be_far_off(name: str, more: dict) -> None:
    """Certificates are about the outputs of parts; with few items, the maps that some models return too are others."""
    assert construct_pretrained(from_zoo(name, **more), items=4).strong


def test_notes_are_of_what_runs() -> None:
    target = Target(small("vit"))
    notes = Notes(target)
    target.backbone(**random_inputs(target))
    assert not notes.calls
    with notes.watching():
        target.backbone(**random_inputs(target))
    assert notes.calls.keys() == notes.outputs.keys() == target.parts.keys()


# The table of families in the documentation.

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
ONE_LAYER = {
    "feed_forward_proj",
    "num_hidden_layers",
    "n_layers",
    "n_layer",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "use_swiglu_ffn",
    "attention_types",  # GPT-Neo's, one for each layer
}


def one_layer(settings: dict) -> dict:
    """Keep of a configuration only how many layers there are, so that all else is the model's own default."""
    inner = {key: one_layer(value) for key, value in settings.items() if isinstance(value, dict)}
    return {key: value for key, value in settings.items() if key in ONE_LAYER} | inner


def row(name: str) -> str:
    if name in TORCH:
        model = opened(from_zoo(name))
    else:
        model_class = getattr(transformers, ZOO[name][0])
        with torch.device("meta"):
            model = model_class(model_class.config_class(**one_layer(ZOO[name][1])))
    target, linear = (Target(model, what(name), parts) for parts in ("merged", "linear"))
    words: dict[str, list[str]] = {}
    for _, part in linear.parts.values():
        of, _, word = part.name.rpartition(".")
        words.setdefault(of.partition(".")[0], []).append(word)
    listed = "; ".join(f"{of}: {', '.join(dict.fromkeys(each))}" for of, each in words.items())
    way = "linear" if target.family.linear else "merged"
    described = f"| {name} | `{target.model_type}` | {target.family.kind} | {way} | {listed} |"
    if name in TORCH:
        return f"{described} | | |"
    own = sum(4 * layer.linear_map(part.at).weight.numel() for layer, part in linear.parts.values())
    merged, small = (predict(all_pieces(each)).ticket_bytes for each in (target, linear))
    shown = f"{merged / 1e6:,.1f}" if way == "merged" else ""
    return f"{described} {own / 1e6:,.1f} | {shown} | {small / 1e6:,.1f} |"


def all_pieces(target: Target) -> list[Piece]:
    return [piece for pieces in target.pieces(20, 0).values() for piece in pieces]


def test_the_table_of_families_is_what_the_source_says() -> None:
    """`STRONGTICKET_WRITE_DOCS=1` with this test writes it."""
    page = PAGE.read_text(encoding="utf-8")
    before, behind = page.index("| family |"), page.index("\n\n", page.index("| family |"))
    head = "| family | `model_type` | reads | parts | linear maps of a layer | own MB | merged MB | linear MB |\n"
    table = (
        head
        + "| --- | --- | --- | --- | --- | ---: | ---: | ---: |\n"
        + "\n".join(row(name) for name in [*ZOO, *TORCH])
    )
    if os.environ.get("STRONGTICKET_WRITE_DOCS"):
        PAGE.write_text(page[:before] + table + page[behind:], encoding="utf-8")
    assert table in PAGE.read_text(encoding="utf-8")
    listed = {Target(from_zoo(name)).model_type for name in [*ZOO, *TORCH]}
    assert families._FAMILIES.keys() == listed
