"""Each family's matrices are found, and what cannot be pruned into is refused with the reason."""

import copy
import inspect
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BloomConfig, GPT2Config, LlamaConfig, NemotronConfig

from strongticket.errors import StrongTicketError
from strongticket.pretrained import (
    Behind,
    Family,
    Heads,
    LinearMap,
    Norm,
    ReluPair,
    construct_pretrained,
    families,
    gated_mlp,
    register_family,
)
from strongticket.pretrained.families import family_of
from strongticket.pretrained.heads import Mixed
from strongticket.pretrained.layer import Affine
from strongticket.pretrained.target import Target
from tests.pretrained.small_models import FAMILIES, inputs, make_bert, make_vit, randomize, small


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_numbers_found_are_the_attention_and_the_mlp(family: str) -> None:
    """What is read, put through the formulas, gives what the model's own modules give."""
    model = small(family)
    target = Target(model, "attention+mlp")
    noted: dict[str, Tensor] = {}
    for layer, part in target.parts.values():
        if layer.index == 1:
            part.output(layer).register_forward_hook(lambda _, __, out, name=part.name: noted.update({name: out}))
            if isinstance(part.input, Norm):
                norm = target.backbone.get_submodule(part.input.made_at(layer))
                norm.register_forward_hook(lambda _, __, out, name=part.name: noted.update({f"{name} reads": out}))
    batch = inputs(family)
    batch.pop("attention_mask", None)
    model(**batch)
    numbers, x = target.tensors(), noted["attention reads"]

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ numbers[f"layer.1.{name}.weight"].T + numbers[f"layer.1.{name}.bias"]

    n_heads = target.describe(items=4)["n_heads"]
    q, k, v = (linear(name, x).unflatten(-1, (n_heads, -1)).transpose(1, 2) for name in ("query", "key", "value"))
    scores = q @ k.mT * numbers["layer.1.attention.scaling"].item()
    if family == "gpt2":
        scores = scores.masked_fill(~torch.ones_like(scores[0, 0], dtype=torch.bool).tril(), -math.inf)
    heads = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(linear("output", heads), noted["attention"])
    up = linear("up", noted["mlp.up reads"])
    torch.testing.assert_close(up, noted["mlp.up"])
    act = {"bert": nn.functional.gelu, "vit": nn.functional.gelu}.get(
        family, lambda z: nn.functional.gelu(z, approximate="tanh")
    )
    torch.testing.assert_close(linear("down", act(up)), noted["mlp.down"])


class Place:
    """A layer of given numbers: a norm, and one linear map."""

    def __init__(self, norm: Affine, map: Affine | dict[str, Affine] | None = None, **config: int) -> None:
        self._norm, self._map, self.index, self.config = norm, map, 0, SimpleNamespace(**config)

    def place(self, path: str) -> str:
        return path

    def norm(self, path: str) -> Affine:
        return self._norm

    def linear_map(self, path: str) -> Affine:
        return self._map[path] if isinstance(self._map, dict) else self._map

    def module(self, path: str) -> SimpleNamespace:
        return self.config


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("norm", [nn.LayerNorm(6, eps=0.0), nn.RMSNorm(6, eps=0.0)])
def test_inputs_stay_within_the_bound_of_the_norm_before(norm: nn.Module) -> None:
    norm.double().weight.data = draw(6, seed=0)
    if (shift := getattr(norm, "bias", None)) is not None:
        shift.data = draw(6, seed=1)
    place = Place(Affine(norm.weight.detach(), shift.detach() if shift is not None else None))
    seen = norm(draw(1000, 6, seed=2)).norm(dim=-1).max()
    assert 0.5 * Norm("norm").largest(place) < seen <= Norm("norm").largest(place)
    # With equal weights and no bias every output has exactly this norm.
    equal = Place(Affine(torch.full((6,), 2.0), None))
    assert Norm("norm").largest(equal) == pytest.approx(2 * math.sqrt(6), rel=1e-12)


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_a_bias_counts_in_the_bound_behind_its_map(scale: float) -> None:
    """Large beside the weights or small: inputs of one direction through maps of rank 1 show it exactly."""
    gain, direction, other = torch.full((4,), 0.5), draw(4, seed=0), draw(5, seed=1)
    weight, bias = torch.outer(other, direction), scale * other
    place = Place(Affine(gain, None), Affine(weight, bias))
    x = direction / direction.norm()  # of norm 1, as all inputs are
    up = LinearMap("mlp.up", "up", Norm("norm"))
    assert Behind(up).largest(place) == pytest.approx((weight @ x + bias).norm().item(), rel=1e-9)


@pytest.mark.parametrize("fused", [False, True])
def test_gated_outputs_stay_within_their_bound(fused: bool) -> None:
    """A gate that lets one entry through, and the input that makes this entry largest."""
    gate, up = torch.zeros(5, 4, dtype=torch.float64), draw(5, 4, seed=1)
    gate[2], gate_bias, up_bias = up[2], 0.3 * torch.eye(5, dtype=torch.float64)[2], draw(5, seed=2)
    maps = {"gate": Affine(gate, gate_bias), "up": Affine(up, up_bias)}
    maps["both"] = Affine(torch.cat([gate, up]), torch.cat([gate_bias, up_bias]))
    place = Place(Affine(torch.full((4,), 1.5), None), maps)
    first, second, both = (LinearMap(f"mlp.{name}", name, Norm("norm")) for name in ("gate", "up", "both"))
    bound = (Behind(both, halves=True) if fused else Behind(first, times=second)).largest(place)
    x = 3 * up[2] / up[2].norm()  # of norm 3, as all inputs are
    seen = ((gate @ x + gate_bias) * (up @ x + up_bias)).norm().item()
    assert 0.2 * bound < seen <= bound
    # Cheaper bounds hold as well, and are larger.
    longest = [3 * torch.linalg.matrix_norm(m.weight, ord=2) + m.bias.norm() for m in (maps["gate"], maps["up"])]
    assert bound < float(longest[0] * longest[1])


@pytest.mark.parametrize(
    ("groups", "arrangement"), [(4, "apart"), (2, "apart"), (1, "apart"), (4, "fused"), (2, "fused"), (4, "by head")]
)
def test_heads_that_mix_values_stay_within_their_bound(groups: int, arrangement: str) -> None:
    d, width = 6, 3
    values = Affine(draw(groups * width, d, seed=0), draw(groups * width, seed=1))
    other = Affine(
        torch.full((4 * width, d), 9.0), torch.zeros(4 * width)
    )  # queries, keys: larger, and not in the bound
    value = values
    if arrangement == "fused":
        parts = [other, Affine(*(x[: groups * width] for x in other)), values]
        value = Affine(*(torch.cat(x) for x in zip(*parts, strict=True)))
    elif arrangement == "by head":
        heads = zip(other.chunk(4), other.chunk(4), values.chunk(4), strict=True)
        value = Affine(*(torch.cat(x) for x in zip(*(part for head in heads for part in head), strict=True)))
    place = Place(
        Affine(torch.ones(d), None), {"v": value, "o": Affine(draw(d, 4 * width, seed=3), None)}, head_dim=width
    )
    x = draw(500, d, seed=2)
    x = x / x.norm(dim=-1, keepdim=True) * math.sqrt(d)
    made = (x @ values.weight.T + values.bias).unflatten(-1, (groups, width)).repeat_interleave(4 // groups, 1)
    # Every head gives all its weight to the token that is worst for it.
    seen = made.norm(dim=-1).max(dim=0).values.norm().item()
    maps = ("q", "k", "v", "o") if arrangement == "apart" else ("v", "v", "v", "o")
    bound = Mixed(Heads(at="", maps=maps, input=Norm("norm"), by_head=arrangement == "by head")).largest(place)
    assert 0.8 * bound < seen <= bound


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_fast", "quick_gelu", "relu", "silu"])
def test_activations_on_the_list_never_enlarge(name: str) -> None:
    from transformers.activations import ACT2FN

    x = torch.linspace(-40, 40, 100_001, dtype=torch.float64)
    assert (ACT2FN[name](x).abs() <= x.abs()).all()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (NemotronConfig(num_attention_heads=4, num_key_value_heads=2), "grouped-query attention: 4 heads share 2 keys"),
        (NemotronConfig(num_attention_heads=4, num_key_value_heads=4), "rotary positions, which rotate queries"),
        (NemotronConfig(), "unknown family 'nemotron'; .* Known are .*, bert, camembert, clip"),
        (BloomConfig(), "unknown family 'bloom'; `.* --describe` prints a skeleton"),
        (BertConfig(position_embedding_type="relative_key"), "position_embedding_type 'relative_key', which adds"),
    ],
)
def test_what_cannot_be_pruned_into_is_refused_with_the_reason(config: object, reason: str) -> None:
    with pytest.raises(StrongTicketError, match=reason):
        family_of(config)


def test_a_family_of_ones_own_that_merges_rotary_heads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (parts,) = family_of(LlamaConfig()).layers.values()
    monkeypatch.setitem(families._FAMILIES, "llama", Family({"layers": parts}))
    with pytest.raises(StrongTicketError, match=r"rotary positions.* describe its family with linear=True"):
        family_of(LlamaConfig(num_attention_heads=4, num_key_value_heads=4))
    family_of(LlamaConfig(), "linear")


def test_broken_numbers_are_named() -> None:
    model = copy.deepcopy(small("gpt2"))
    model.transformer.h[1].attn.c_attn.weight.data[3, 17] = math.nan
    with pytest.raises(ValueError, match=r"layer 1's key.weight must be finite; entry \(1, 3\) is nan"):
        Target(model).tensors()
    # Where no part is, the ticket could not be tried.
    model = copy.deepcopy(small("gpt2"))
    model.transformer.h[1].mlp.c_fc.weight.data[0, 0] = math.inf
    with pytest.raises(ValueError, match=r"transformer\.h\.1\.mlp\.c_fc\.weight must be finite; with NaN or"):
        construct_pretrained(model, items=4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_numbers_is_told(family: str) -> None:
    with pytest.raises(
        ValueError, match=r"layer 0's query.weight is on meta, where tensors have shapes but no numbers"
    ):
        Target(copy.deepcopy(small(family)).to("meta")).tensors()


def test_other_layouts_and_wrapped_layers_are_told() -> None:
    model = copy.deepcopy(small("vit"))
    model.layers[0].mlp.fc1 = nn.Sequential(model.layers[0].mlp.fc1)
    with pytest.raises(StrongTicketError, match=r"expected a linear map at .*, but the model has a Sequential"):
        Target(model, "attention+mlp").tensors()
    del model.layers[0].attention.scaling
    with pytest.raises(StrongTicketError, match=r"ViTAttention has no attribute scaling or scale; .* --parts linear"):
        Target(model).tensors()
    del model.layers[0].attention.q_proj
    with pytest.raises(StrongTicketError, match=r"this vit has no 'layers.0.attention.q_proj'"):
        Target(model).tensors()
    model.layers[0].layernorm_before = nn.GroupNorm(1, 12)
    layer, part = next(iter(Target(model).parts.values()))
    with pytest.raises(StrongTicketError, match=r"expected a LayerNorm at .*, but the model has a GroupNorm"):
        part.input.largest(layer)
    with pytest.raises(ValueError, match="need a Hugging Face model"):
        Target(nn.Linear(2, 2))
    with pytest.raises(StrongTicketError, match="has no layers"):
        Target(make_bert(num_hidden_layers=0))
    with pytest.raises(ValueError, match="register_family needs a Family; got str"):
        register_family("x", "encoder")  # type: ignore[arg-type]


def test_a_family_that_makes_no_sense_is_refused() -> None:
    up = ReluPair("mlp.up", "mlp.fc1", Norm("norm"))
    with pytest.raises(ValueError, match=r"the parts of a layer need different names; got mlp.up, mlp.up"):
        Family({"layers": [up, up]})
    with pytest.raises(ValueError, match=r"mlp.down reads the output of mlp.up, which is not a part of the layer"):
        Family({"layers": [ReluPair("mlp.down", "mlp.fc2", Behind(up))]})
    # The bound of a gated MLP would be made of one map twice.
    with pytest.raises(ValueError, match=r"2 parts of a layer stand for the map at mlp.gate; only one can"):
        Family({"layers": gated_mlp("mlp.gate", "mlp.gate", "mlp.down", Norm("norm"))})
    with pytest.raises(ValueError, match=r"ends must have one norm for each of encoder, decoder; got norm"):
        Family({"encoder": [up], "decoder": [up]}, ends="norm")
    # As a skeleton has it where nothing was found.
    with pytest.raises(ValueError, match=r"mlp.up needs the source of its inputs: Norm, Behind or Given; got Ellipsis"):
        Family({"layers": [ReluPair("mlp.up", "mlp.fc1", ...)]})  # type: ignore[arg-type]


def test_two_tensors_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash that names a target would see only one of them."""
    parts = [
        LinearMap("attention.query", "attention.q_proj", Norm("layernorm_before")),
        LinearMap("attention.key", "attention.k_proj", Norm("layernorm_after")),
    ]
    monkeypatch.setitem(families._FAMILIES, "vit", Family({"layers": parts}))
    with pytest.raises(ValueError, match=r"two parts of layer\.0 have different attention_norm\.weight"):
        Target(small("vit")).tensors()


def test_float64_is_taken_if_it_holds_float32_numbers() -> None:
    model = copy.deepcopy(small("vit")).double()
    assert Target(model).sha256() == Target(small("vit")).sha256()
    model.layers[0].attention.q_proj.weight.data[0, 0] = 0.1
    with pytest.raises(StrongTicketError, match="must fit float32"):
        Target(model).tensors()


def test_a_map_without_bias_is_fine() -> None:
    named = Target(randomize(make_vit(qkv_bias=False))).tensors()
    assert "layer.0.query.weight" in named
    assert "layer.0.query.bias" not in named


def test_activations_not_on_the_list_are_refused() -> None:
    model = small("bert")
    model.config.hidden_act = "tanh_x2"
    with pytest.raises(StrongTicketError, match="activation 'tanh_x2' may increase norms"):
        construct_pretrained(model, items=4, what="attention+mlp")
    assert construct_pretrained(model, items=4).strong


def test_fused_is_told_by_equal_paths() -> None:
    for config, fused in ((GPT2Config(), True), (BertConfig(), False)):
        (parts,) = family_of(config).layers.values()
        assert isinstance(parts[0], Heads)
        assert parts[0].fused == fused


def test_each_family_takes_at_most_15_lines() -> None:
    for describe in families._FAMILIES.values():
        written: Any = getattr(describe, "func", describe)  # of a partial
        assert len(inspect.getsource(written).splitlines()) <= 15
