import math

import pytest
import torch
from search_models import hugging_face_gpt2, nano, vision_transformer
from torch import Tensor, nn

from strongticket.learn.draw import draw_scores, weight_distribution
from strongticket.learn.hide import hide
from strongticket.learn.policy import Init, Policy, ScoreInit
from strongticket.learn.tensors import ModelTensor, tensors_of
from strongticket.ops.rng import random_weights, round_scale

CPU = torch.device("cpu")


def tensor_called(model: nn.Module, name: str) -> ModelTensor:
    (found,) = (tensor for tensor in tensors_of(model) if tensor.name == name)
    return found


QUERY = tensor_called(nano(), "blocks.0.attention.query.weight")
UP = tensor_called(nano(), "blocks.0.mlp.up.weight")  # (256, 64)


@pytest.mark.parametrize(
    ("init", "distribution", "scale"),
    [
        ("own", "normal", 0.02),
        ("normal", "normal", 0.02),
        ("uniform", "uniform", 0.02 * math.sqrt(3)),
        ("sign", "sign", 0.02),
        ("packed-sign", "packed-sign", 0.02),
        ("xavier", "uniform", math.sqrt(6 / (64 + 256))),
        ("kaiming", "uniform", math.sqrt(6 / 64)),
        ("kaiming-normal", "normal", math.sqrt(2 / 64)),
        ("kaiming-sign", "sign", math.sqrt(2 / 64)),
    ],
)
def test_distributions(init: Init, distribution: str, scale: float) -> None:
    assert weight_distribution(UP, Policy(init=init)) == (distribution, round_scale(scale))
    assert weight_distribution(UP, Policy(init=init, rescale=True, density=0.25)) == (
        distribution,
        round_scale(2 * scale),
    )
    frozen = Policy(init=init, rescale=True, mlp="frozen")
    assert weight_distribution(UP, frozen) == (distribution, round_scale(scale))


@pytest.mark.parametrize("init", ["own", "uniform", "sign"])
def test_what_keeps_the_deviation_keeps_it(init: Init) -> None:
    drawn = random_weights(0, UP.name, UP.shape, *weight_distribution(UP, Policy(init=init)))
    assert drawn.std().item() == pytest.approx(0.02, rel=0.02)


def test_torchs_own_initialisations_have_the_widths_drawn_here() -> None:
    for init, torchs in (("xavier", nn.init.xavier_uniform_), ("kaiming", nn.init.kaiming_uniform_)):
        _, width = weight_distribution(UP, Policy(init=init))  # type: ignore[arg-type]
        assert torchs(torch.empty(UP.shape)).abs().max().item() == pytest.approx(width, rel=0.01)
    published = nn.init.kaiming_uniform_(torch.empty(UP.shape), a=math.sqrt(5))
    assert draw_scores(UP, Policy(), 0, CPU).abs().max().item() == pytest.approx(published.abs().max().item(), rel=0.01)


def test_queries_and_keys_are_scaled() -> None:
    assert weight_distribution(QUERY, Policy()) == ("normal", round_scale(0.02 * 32**0.25))
    assert weight_distribution(QUERY, Policy(qk_scale=3)) == ("normal", round_scale(0.06))
    assert weight_distribution(UP, Policy(qk_scale=3)) == ("normal", round_scale(0.02))


@pytest.mark.parametrize(
    ("score_init", "largest", "std"),
    [
        ("kaiming", 1 / 8, 1 / 8 / math.sqrt(3)),
        ("uniform", 1.0, 1 / math.sqrt(3)),
        ("normal", None, 1 / 8 / math.sqrt(3)),
        ("constant", 1 / 8, 0.0),
    ],
)
def test_scores(score_init: ScoreInit, largest: float | None, std: float) -> None:
    scores = draw_scores(UP, Policy(score_init=score_init), 5, CPU)
    assert scores.shape == UP.shape
    assert scores.std().item() == pytest.approx(std, rel=0.02)
    if largest is not None:
        assert scores.abs().max().item() == pytest.approx(largest, rel=1e-3)
    assert torch.equal(scores, draw_scores(UP, Policy(score_init=score_init), 5, CPU))
    if score_init != "constant":
        other = draw_scores(UP, Policy(score_init=score_init), 6, CPU)
        assert not torch.equal(scores, other)


def test_scores_are_no_echo_of_the_weights() -> None:
    scores = draw_scores(UP, Policy(score_init="normal"), 3, CPU).flatten()
    weights = random_weights(3, UP.name, UP.shape, "normal").flatten()
    assert torch.corrcoef(torch.stack([scores, weights]))[0, 1].abs() < 4 / math.sqrt(scores.numel())


def fans_and_std(model: nn.Module) -> dict[str, tuple[int, int, float]]:
    return {t.name: (t.fan_in, t.fan_out, t.std) for t in tensors_of(model)}


def test_fans_follow_the_layout_of_each_layer() -> None:
    hugging_face, vision = fans_and_std(hugging_face_gpt2()), fans_and_std(vision_transformer())
    assert hugging_face["transformer.h.0.mlp.c_fc.weight"][:2] == (64, 256)  # stored as (in, out)
    assert hugging_face["transformer.h.0.attn.c_attn.weight.key"][:2] == (64, 64)
    assert hugging_face["transformer.wte.weight"][:2] == (64, 256)
    assert vision["patch_embed.weight"][:2] == (3 * 16, 32 * 16)
    assert vision["blocks.0.mlp.0.weight"][:2] == (32, 128)
    assert vision["pos_embed"][:2] == (32, 5)
    turned = fans_and_std(nn.ModuleList([nn.ConvTranspose2d(3, 7, 2)]))
    assert turned["0.weight"][:2] == (3 * 4, 7 * 4)


def filled(values: Tensor) -> nn.Module:
    layer = nn.Linear(4, 6)
    layer.weight = nn.Parameter(values)
    return nn.ModuleList([layer])


def test_the_own_deviation_is_measured_to_four_digits() -> None:
    values = torch.arange(24.0).view(6, 4)
    assert fans_and_std(filled(values))["0.weight"][2] == 6.922  # sqrt((24^2 - 1) / 12)
    assert fans_and_std(filled(values.double()))["0.weight"][2] == 6.922


def test_a_tensor_without_a_deviation_gets_torchs_default() -> None:
    assert fans_and_std(filled(torch.zeros(6, 4)))["0.weight"][2] == 1 / math.sqrt(12)
    assert fans_and_std(filled(torch.full((6, 4), torch.nan)))["0.weight"][2] == 1 / math.sqrt(12)
    assert fans_and_std(vision_transformer())["cls_token"][2] == 0.02
    hidden = hide(vision_transformer(), Policy(), seed=0)
    assert hidden.model.cls_token.count_nonzero() == 10  # 30 % of 32, and the draw has no zeros


def test_no_width_of_a_head_no_automatic_scale() -> None:
    model = vision_transformer()
    for block in model.blocks:
        del block["attn"].num_heads
    before = {name: p.clone() for name, p in model.named_parameters()}
    with pytest.raises(ValueError, match=r"blocks\.0\.attn\.qkv\.weight\.query.*Pass qk_scale as a number"):
        hide(model, Policy(), seed=0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    scales = {row["name"]: row["scale"] for row in hide(model, Policy(qk_scale=2.0), seed=0).describe()}
    own = {tensor.name: tensor.std for tensor in tensors_of(vision_transformer())}
    for part, factor in (("query", 2), ("key", 2), ("value", 1)):
        name = f"blocks.1.attn.qkv.weight.{part}"
        assert scales[name] == round_scale(factor * own[name])
