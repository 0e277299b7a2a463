"""Each family's matrices are found, and what cannot be pruned into is refused with the reason."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BertConfig, BloomConfig, GPT2Config, LlamaConfig, MPNetConfig, T5Config

from strongticket.errors import StrongTicketError
from strongticket.pretrained.adapters import Adapter, Norm, Target, adapter_of, register_adapter
from tests.pretrained.small_models import FAMILIES, inputs, make_bert, make_vit, randomize, small


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_numbers_found_are_the_attention_and_the_mlp(family: str) -> None:
    """What is read, put through the formulas, gives what the model's own modules give."""
    model = small(family)
    target = Target(model)
    noted: dict[str, Tensor] = {}
    modules = {part: target.module(part, 1) for part in ("output", "attention_norm", "up", "mlp_norm", "down")}
    for part, module in modules.items():
        module.register_forward_hook(lambda _, __, out, part=part: noted.__setitem__(part, out))
    batch = inputs(family)
    batch.pop("attention_mask", None)
    model(**batch)
    layer, x = target.layer(1), noted["attention_norm"]
    q, k, v = (
        (x @ part.weight.T + part.bias).unflatten(-1, (layer.n_heads, -1)).transpose(1, 2)
        for part in (layer.query, layer.key, layer.value)
    )
    scores = q @ k.mT * layer.scaling
    if family == "gpt2":
        scores = scores.masked_fill(~torch.ones_like(scores[0, 0], dtype=torch.bool).tril(), -math.inf)
    heads = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(heads @ layer.output.weight.T + layer.output.bias, noted["output"])
    up = noted["mlp_norm"] @ layer.up.weight.T + layer.up.bias
    torch.testing.assert_close(up, noted["up"])
    act = {"bert": nn.functional.gelu, "vit": nn.functional.gelu}.get(
        family, lambda z: nn.functional.gelu(z, approximate="tanh")
    )
    torch.testing.assert_close(act(up) @ layer.down.weight.T + layer.down.bias, noted["down"])
    for module in modules.values():
        module._forward_hooks.clear()


def test_inputs_stay_within_the_bound_of_the_norm_before() -> None:
    generator = torch.Generator().manual_seed(0)
    norm = nn.LayerNorm(6, eps=0.0, dtype=torch.float64)
    norm.weight.data, norm.bias.data = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    bound = Norm(norm.weight.detach(), norm.bias.detach()).largest_output()
    assert norm(torch.randn(1000, 6, generator=generator, dtype=torch.float64)).norm(dim=-1).max() <= bound
    # With equal weights and no bias every output has exactly this norm.
    assert Norm(torch.full((6,), 2.0), None).largest_output() == pytest.approx(2 * math.sqrt(6), rel=1e-12)


@pytest.mark.parametrize("bias", [None, 0.0, 30.0])
def test_what_reaches_down_stays_within_its_bound(bias: float | None) -> None:
    """A bias of `up` is as much a part of it as what the norm lets through."""
    model = make_bert(hidden_act="relu").eval()
    target = Target(model)
    up, norm = target.module("up", 0), target.module("mlp_norm", 0)
    assert isinstance(up, nn.Linear)
    up.bias = None if bias is None else nn.Parameter(torch.full_like(up.bias, bias))
    generator = torch.Generator().manual_seed(0)
    reaching = up(norm(torch.randn(1000, up.in_features, generator=generator))).relu().norm(dim=-1).max().item()
    assert reaching <= target.layer(0).down_input_norm() < 10 * reaching


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_fast", "quick_gelu", "relu", "silu"])
def test_activations_on_the_list_never_enlarge(name: str) -> None:
    from transformers.activations import ACT2FN

    x = torch.linspace(-40, 40, 100_001, dtype=torch.float64)
    assert (ACT2FN[name](x).abs() <= x.abs()).all()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LlamaConfig(num_attention_heads=4, num_key_value_heads=2), "grouped-query attention: 4 heads share 2 keys"),
        (LlamaConfig(num_attention_heads=4, num_key_value_heads=4), "rotary positions, which turn queries and keys"),
        (T5Config(), "t5 has relative position biases, which add to the scores"),
        (MPNetConfig(), "mpnet has relative position biases, which add to the scores"),
        (BartConfig(), "bart has cross-attention, whose keys come from another model"),
        (BloomConfig(), "no adapter for the family 'bloom'; there are bert"),
        (BertConfig(position_embedding_type="relative_key"), "position_embedding_type 'relative_key', which adds"),
        (GPT2Config(add_cross_attention=True), "cross-attention, whose keys come from another model"),
    ],
)
def test_what_cannot_be_pruned_into_is_refused_with_the_reason(config: object, reason: str) -> None:
    with pytest.raises(StrongTicketError, match=reason):
        adapter_of(config)


def test_broken_numbers_are_named() -> None:
    model = copy.deepcopy(small("gpt2"))
    model.transformer.h[1].attn.c_attn.weight.data[3, 17] = math.nan
    with pytest.raises(ValueError, match=r"layer 1's key.weight must be finite; entry \(1, 3\) is nan"):
        Target(model).layer(1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_numbers_is_told(family: str) -> None:
    with pytest.raises(
        ValueError, match=r"layer 0's query.weight is on meta, where tensors have shapes and no numbers"
    ):
        Target(copy.deepcopy(small(family)).to("meta")).layer(0)


def test_other_layouts_and_wrapped_layers_are_told() -> None:
    model = copy.deepcopy(small("vit"))
    model.layers[0].mlp.fc1 = nn.Sequential(model.layers[0].mlp.fc1)
    with pytest.raises(StrongTicketError, match="a linear map was expected where the model has a Sequential"):
        Target(model).layer(0)
    del model.layers[0].attention.q_proj
    with pytest.raises(StrongTicketError, match=r"this vit has no 'layers.0.attention.q_proj'"):
        Target(model).layer(0)
    with pytest.raises(ValueError, match="a Hugging Face model is needed"):
        Target(nn.Linear(2, 2))
    with pytest.raises(StrongTicketError, match="has no layers"):
        Target(make_bert(num_hidden_layers=0))
    with pytest.raises(ValueError, match="needs an Adapter"):
        register_adapter("x", "encoder")  # type: ignore[arg-type]


def test_float64_is_taken_if_it_holds_float32_numbers() -> None:
    model = copy.deepcopy(small("vit")).double()
    assert torch.equal(Target(model).layer(0).query.weight, Target(small("vit")).layer(0).query.weight)
    model.layers[0].attention.q_proj.weight.data[0, 0] = 0.1
    with pytest.raises(StrongTicketError, match="must be float32 numbers"):
        Target(model).layer(0)


def test_a_map_without_bias_is_fine() -> None:
    layer = Target(randomize(make_vit(qkv_bias=False))).layer(0)
    assert layer.query.bias is None
    assert [name for name, _ in layer.tensors("attention")][:2] == ["query.weight", "key.weight"]


def test_activations_not_on_the_list_are_refused() -> None:
    target = Target(copy.deepcopy(small("bert")))
    target.config.hidden_act = "tanh_x2"
    with pytest.raises(StrongTicketError, match="activation 'tanh_x2' is not known to keep norms"):
        target.check_activation()


def test_fused_is_told_by_equal_paths() -> None:
    assert adapter_of(GPT2Config()).fused
    assert not adapter_of(BertConfig()).fused
    assert isinstance(adapter_of(BertConfig()), Adapter)
