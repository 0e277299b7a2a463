from typing import Any

import pytest
import torch
from search_models import QkvAttention, TorchAttention, hugging_face_gpt2, nano, vision_transformer
from torch import nn

from strongticket.learn.groups import groups_of
from strongticket.models.gpt2 import group_of


@pytest.mark.parametrize("changes", [{"bias": True}, {"tied": False}], ids=str)
def test_our_gpt2_is_told_apart_as_it_tells_itself(changes: dict[str, Any]) -> None:
    model = nano(**changes)
    assert groups_of(model) == {name: group_of(name) for name, _ in model.named_parameters()}


def test_hugging_faces_gpt2_has_an_embedding_for_its_head() -> None:
    groups = groups_of(hugging_face_gpt2())
    block = {name.removeprefix("transformer.h.1."): group for name, group in groups.items() if ".h.1." in name}
    assert block == {
        "ln_1.weight": "norms",
        "ln_1.bias": "norms",
        "attn.c_attn.weight": "attention",
        "attn.c_attn.bias": "biases",
        "attn.c_proj.weight": "attention",
        "attn.c_proj.bias": "biases",
        "ln_2.weight": "norms",
        "ln_2.bias": "norms",
        "mlp.c_fc.weight": "mlp",
        "mlp.c_fc.bias": "biases",
        "mlp.c_proj.weight": "mlp",
        "mlp.c_proj.bias": "biases",
    }
    assert {name: group for name, group in groups.items() if ".h." not in name} == {
        "transformer.wte.weight": "embeddings",
        "transformer.wpe.weight": "embeddings",
        "transformer.ln_f.weight": "norms",
        "transformer.ln_f.bias": "norms",
    }
    assert groups_of(hugging_face_gpt2(tie_word_embeddings=False))["lm_head.weight"] == "head"


@pytest.mark.parametrize(
    ("attention", "weights"),
    [
        (QkvAttention, ("qkv.weight", "proj.weight")),
        (TorchAttention, ("inner.in_proj_weight", "inner.out_proj.weight")),
    ],
)
def test_a_vision_transformer(attention: type[nn.Module], weights: tuple[str, str]) -> None:
    groups = groups_of(vision_transformer(attention))
    for name in weights:
        assert groups[f"blocks.1.attn.{name}"] == "attention"
    for name, group in groups.items():
        if name.endswith("bias"):
            assert group == ("norms" if "norm" in name else "biases"), name
    rest = {name: group for name, group in groups.items() if "attn" not in name and "bias" not in name}
    assert rest == {
        "cls_token": "embeddings",
        "pos_embed": "embeddings",
        "patch_embed.weight": "mlp",
        **{f"blocks.{i}.norm{j}.weight": "norms" for i in range(2) for j in (1, 2)},
        **{f"blocks.{i}.mlp.{j}.weight": "mlp" for i in range(2) for j in (0, 2)},
        "norm.weight": "norms",
        "head.weight": "head",
    }


def test_the_head_is_the_last_matrix_of_what_is_called_one_or_of_what_a_module_ends_in() -> None:
    def heads(model: nn.Module) -> list[str]:
        return [name for name, group in groups_of(model).items() if group == "head"]

    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert heads(plain) == ["2.weight"]
    # A wrapper that adds nothing, as for a model that should give its loss, changes nothing.
    assert heads(nn.ModuleDict({"model": plain})) == ["model.2.weight"]
    classifier = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    assert heads(nn.ModuleDict({"classifier": classifier, "late": nn.Linear(4, 4)})) == ["classifier.2.weight"]
    assert heads(nn.ModuleDict({"body": plain, "conv": nn.Conv1d(2, 2, 3)})) == []
    assert heads(nn.ModuleDict({"inp": nn.Linear(3, 3), "body": plain, "act": nn.ReLU()})) == ["body.2.weight"]
    assert heads(nn.ModuleDict({"fc": nn.Linear(3, 3), "out": nn.Linear(3, 2)})) == ["out.weight"]
    assert heads(nn.ModuleDict({"inp": nn.Linear(3, 3), "body": nn.ModuleList(plain)})) == []
    assert heads(nn.Linear(3, 2)) == []


def test_a_tied_parameter_is_an_embedding_whichever_name_comes_first() -> None:
    model = nn.ModuleDict({"head": nn.Linear(4, 9, bias=False), "tokens": nn.Embedding(9, 4)})
    model["tokens"].weight = model["head"].weight
    assert groups_of(model) == {"head.weight": "embeddings"}


class MyRMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class LayerScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((4,), 1e-5))
        self.relative_position_bias_table = nn.Parameter(torch.randn(3, 4))


def test_norms_of_all_kinds_and_lone_vectors() -> None:
    norms = [nn.LayerNorm(4), nn.RMSNorm(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)]
    groups = groups_of(nn.ModuleList([*norms, MyRMSNorm()]))
    assert len(groups) == 10
    assert set(groups.values()) == {"norms"}
    assert groups_of(LayerScale()) == {"gamma": "norms", "relative_position_bias_table": "biases"}


def test_the_caller_may_group_otherwise() -> None:
    model = hugging_face_gpt2()
    plain = groups_of(model)
    changed = groups_of(model, {"*.wpe.weight": "mlp", "*.h.0.*": "head", "transformer.*.weight": "mlp"})
    assert changed["transformer.wpe.weight"] == "mlp"
    assert {group for name, group in changed.items() if ".h.0." in name} == {"head"}  # the first pattern that fits
    assert changed["transformer.h.1.attn.c_attn.weight"] == "mlp"
    assert changed["transformer.h.1.attn.c_attn.bias"] == "biases"
    by_function = groups_of(model, lambda name: "head" if name.endswith("c_fc.weight") else None)
    assert {name for name in plain if plain[name] != by_function[name]} == {
        f"transformer.h.{i}.mlp.c_fc.weight" for i in range(2)
    }
    with pytest.raises(ValueError, match=r"no parameter matches 'h\.\*'; the first is 'transformer\.wte\.weight'"):
        groups_of(model, {"h.*": "mlp"})
    with pytest.raises(ValueError, match=r"group of transformer\.wte\.weight must be one of attention.*got 'input'"):
        groups_of(model, {"*.wte.*": "input"})  # type: ignore[dict-item]
