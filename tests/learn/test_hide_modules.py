from collections.abc import Callable

import pytest
import torch
from search_models import (
    IMAGES,
    TOKENS,
    QkvAttention,
    TorchAttention,
    hugging_face_gpt2,
    nano,
    output_of,
    search,
    vision_transformer,
)
from torch import Tensor, nn

from strongticket.learn.hidden import Hidden
from strongticket.learn.hide import hide
from strongticket.learn.policy import Policy
from strongticket.ops.rng import random_weights
from strongticket.ops.supermask import reference
from strongticket.tickets.restore import load_ticket

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "hugging face": hugging_face_gpt2,
    "qkv": lambda: vision_transformer(QkvAttention),
    "torch attention": lambda: vision_transformer(TorchAttention),
}
ANY_MODULE = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@ANY_MODULE
def test_a_search_learns_and_changes_scores_alone(make: Callable[[], nn.Module]) -> None:
    hidden = hide(make(), Policy(output_gain=4.0), seed=3)
    frozen = {n: p.clone() for n, p in hidden.model.named_parameters() if not p.requires_grad}
    losses = search(hidden, steps=20)
    assert losses[-1] < 0.8 * losses[0]
    for name, before in frozen.items():
        assert torch.equal(hidden.model.get_parameter(name), before), name
    for name, supermask in hidden.supermasks.items():
        assert torch.equal(supermask.mask, reference.top_mask(supermask.scores, 0.3)), name
    trained = [p for p in hidden.model.parameters() if p.requires_grad]
    assert {id(p) for p in trained} == {id(p) for _, p in hidden.trainable()}


@ANY_MODULE
def test_weights_are_those_the_ticket_names_and_biases_are_gone(make: Callable[[], nn.Module]) -> None:
    stds = {name: p.std(correction=0).item() or 0.02 for name, p in make().named_parameters()}
    hidden = hide(make(), Policy(), seed=3)
    for row, tensor in zip(hidden.describe(), (h.tensor for h in hidden.tensors), strict=True):
        if row["treatment"] == "masked":
            drawn = random_weights(3, row["name"], tuple(row["shape"]), row["distribution"], row["scale"])
            assert torch.equal(original_of(hidden, row["name"]), drawn), row["name"]
            key_width = 32 if "c_attn" in tensor.parameter else 16
            factor = key_width**0.25 if row["name"].endswith((".query", ".key")) else 1
            assert row["scale"] == pytest.approx(factor * stds[tensor.parameter], rel=0.05), row["name"]
        else:
            values = hidden.model.get_parameter(row["name"]).unique().tolist()
            assert values == [row["scale"]] == [0.0 if "bias" in row["name"] else 1.0], row["name"]


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@ANY_MODULE
def test_compiled(make: Callable[[], nn.Module], compiler: str) -> None:
    if make is hugging_face_gpt2 and not hasattr(torch.compiler, "is_exporting"):
        pytest.skip("transformers asks torch.compiler what only torch 2.7 and newer answer")
    hidden = hide(make(), Policy(), seed=3)
    results = []
    for run in (hidden.model, torch.compile(hidden.model, backend=compiler)):
        output = run(IMAGES if "VisionTransformer" in type(hidden.model).__name__ else TOKENS)
        logits = output if isinstance(output, Tensor) else output.logits
        logits.backward(torch.linspace(-1, 1, logits.numel()).view_as(logits))
        results.append([logits, *(p.grad for _, p in hidden.trainable())])
        hidden.model.zero_grad()
    assert all(tensor.abs().max() > 0 for tensor in results[0])
    torch.testing.assert_close(results[1], results[0])


# --- Hugging Face's GPT-2 against ours -------------------------------------------------------------------------------


def tensors_of_both() -> list[tuple[str, str, bool]]:
    """Our name, their name, and whether theirs is stored the other way round."""
    pairs = [("tokens.weight", "transformer.wte.weight", False), ("positions.weight", "transformer.wpe.weight", False)]
    for i in range(2):
        ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
        for part in ("query", "key", "value"):
            pairs.append((f"{ours}.attention.{part}.weight", f"{theirs}.attn.c_attn.weight.{part}", True))
        pairs.append((f"{ours}.attention.output.weight", f"{theirs}.attn.c_proj.weight", True))
        pairs.append((f"{ours}.mlp.up.weight", f"{theirs}.mlp.c_fc.weight", True))
        pairs.append((f"{ours}.mlp.down.weight", f"{theirs}.mlp.c_proj.weight", True))
    return pairs


def original_of(hidden: Hidden, name: str) -> Tensor:
    """The drawn weight of a tensor."""
    (tensor,) = (h.tensor for h in hidden.tensors if h.name == name)
    holder, dot, attribute = tensor.parameter.rpartition(".")
    return tensor.of(hidden.model.get_parameter(f"{holder}{dot}parametrizations.{attribute}.original").data)


def test_hugging_faces_gpt2_and_ours_are_the_same_search() -> None:
    """With the same weights and scores: the same masks, logits and gradients."""
    ours, theirs = hide(nano(), Policy(), seed=3), hide(hugging_face_gpt2(), Policy(), seed=3)
    assert len(ours.supermasks) == len(theirs.supermasks) == len(tensors_of_both())
    for our_name, their_name, turned in tensors_of_both():
        weight, scores = original_of(ours, our_name), ours.supermasks[our_name].scores.data
        original_of(theirs, their_name).copy_(weight.T if turned else weight)
        theirs.supermasks[their_name].scores.data.copy_(scores.T if turned else scores)
    theirs.after_restore()
    torch.testing.assert_close(output_of(theirs.model), output_of(ours.model), rtol=0, atol=1e-5)
    ours.model(TOKENS[:, :-1], TOKENS[:, 1:]).backward()
    theirs.model(TOKENS, labels=TOKENS).loss.backward()
    for our_name, their_name, turned in tensors_of_both():
        our_mask, their_mask = ours.supermasks[our_name], theirs.supermasks[their_name]
        assert torch.equal(their_mask.mask, our_mask.mask.T if turned else our_mask.mask), their_name
        gradient, expected = their_mask.scores.grad, our_mask.scores.grad
        assert gradient is not None
        assert expected is not None
        error = (gradient - (expected.T if turned else expected)).norm() / expected.norm()
        assert error < 1e-4, (their_name, error)
    without_biases = {group: count for group, count in theirs.counts().items() if group != "biases"}
    assert without_biases == ours.counts()


def test_a_tied_parameter_has_one_mask_used_in_both_places() -> None:
    hidden = hide(hugging_face_gpt2(), Policy(), seed=3)
    table, head = hidden.model.transformer.wte, hidden.model.lm_head
    assert table.parametrizations.weight[0] is head.parametrizations.weight[0]
    assert torch.equal(table.weight, head.weight)
    assert int((head.weight != 0).sum()) == 256 * 64 - reference.dropped_count(256 * 64, 0.3)
    assert sum(name.endswith("wte.weight.scores") for name, _ in hidden.trainable()) == 1
    assert hidden.nonzero()["without_embeddings"] == hidden.nonzero()["all"] - hidden.counts()["embeddings"]
    search(hidden, steps=2)
    assert torch.equal(table.weight, head.weight)
    untied = hide(hugging_face_gpt2(tie_word_embeddings=False), Policy(), seed=3)
    assert {"lm_head.weight", "transformer.wte.weight"} <= untied.supermasks.keys()


def test_a_module_used_twice_is_masked_once() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    hidden = hide(nn.Sequential(layer, nn.ReLU(), layer), Policy(), seed=0)
    assert list(hidden.supermasks) == ["0.weight"]
    assert len(layer.parametrizations.weight) == 1
    hidden.model(torch.randn(3, 8)).sum().backward()
    assert hidden.supermasks["0.weight"].scores.grad is not None


# --- Counts ----------------------------------------------------------------------------------------------------------


def test_counts_of_a_vision_transformer() -> None:
    # By hand: a block has 4 d^2 in attention, 8 d^2 in its MLP; patches of 48, 5 positions, a class token, 4 classes.
    d = 32
    counts = {
        "embeddings": 6 * d,
        "mlp": 2 * 8 * d * d + 48 * d,
        "attention": 2 * 4 * d * d,
        "norms": 5 * d,
        "head": 4 * d,
        "biases": 0,
    }
    for policy, expected in (
        (Policy(density=1.0), counts),
        (
            Policy(density=1.0, norms="trained", biases="trained"),
            counts | {"norms": 10 * d, "biases": 2 * 9 * d + d + 4},
        ),
        (
            Policy(density=0.5, head="trained", attention="frozen"),
            counts | {"embeddings": 3 * d, "mlp": counts["mlp"] // 2},
        ),
    ):
        for attention in (QkvAttention, TorchAttention):
            hidden = hide(vision_transformer(attention), policy, seed=0)
            assert hidden.counts() == expected


# --- torch's own attention has a fast path of its own ---------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_torchs_attention_uses_the_masked_weights(training: bool) -> None:
    torch.manual_seed(0)
    hidden = hide(nn.MultiheadAttention(32, 2, batch_first=True), Policy(), seed=0)
    plain = nn.MultiheadAttention(32, 2, batch_first=True).train(training)
    hidden.model.train(training)
    with torch.no_grad():
        plain.in_proj_weight.copy_(hidden.model.in_proj_weight)
        plain.out_proj.weight.copy_(hidden.model.out_proj.weight)
        for bias in (plain.in_proj_bias, plain.out_proj.bias):
            bias.zero_()
    assert int((plain.in_proj_weight != 0).sum()) == 3 * (1024 - reference.dropped_count(1024, 0.3))
    x = torch.randn(3, 7, 32)
    torch.testing.assert_close(hidden.model(x, x, x)[0], plain(x, x, x)[0])
    with torch.no_grad(), torch.profiler.profile() as profile:
        fast = hidden.model(x, x, x)[0]
    assert ("aten::_native_multi_head_attention" in {event.key for event in profile.key_averages()}) != training
    torch.testing.assert_close(fast, plain(x, x, x)[0])


def test_torchs_encoder_takes_its_fast_path_with_the_masked_weights() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    hidden = hide(layer, Policy(), seed=0)
    x = torch.randn(3, 7, 32)
    expected = hidden.model.train()(x)
    with torch.no_grad(), torch.profiler.profile() as profile:
        fast = hidden.model.eval()(x)
    assert "aten::_transformer_encoder_layer_fwd" in {event.key for event in profile.key_averages()}
    torch.testing.assert_close(fast, expected)


# --- Other modules ---------------------------------------------------------------------------------------------------


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))


def test_convolutions_and_running_means() -> None:
    hidden = hide(convolutions(), Policy(), seed=0)
    assert hidden.to_ticket().strong
    for _ in range(3):
        hidden.model(IMAGES)
    ticket = hidden.to_ticket()
    assert ticket.strong, "running means are measured, not trained"
    assert ticket.architecture["measured"] == ["1.running_mean", "1.running_var"]
    again = load_ticket(convolutions(), ticket)
    assert torch.equal(again.eval()(IMAGES), hidden.model.eval()(IMAGES))


def test_scales_that_are_all_alike_stay_and_others_become_1() -> None:
    class LayerScale(nn.Module):
        def __init__(self, gamma: Tensor) -> None:
            super().__init__()
            self.linear, self.gamma = nn.Linear(4, 4), nn.Parameter(gamma)

    for gamma, expected in ((torch.full((4,), 0.125), 0.125), (torch.arange(4.0), 1.0)):
        model = LayerScale(gamma)
        hide(model, Policy(), seed=0)
        assert model.gamma.tolist() == [expected] * 4


def test_output_gain_goes_into_the_last_norm() -> None:
    for policy, gain in ((Policy(), 4.0), (Policy(norms="trained"), 2.0)):
        plain = hide(hugging_face_gpt2(), policy, seed=3)
        louder = hide(hugging_face_gpt2(), Policy(norms=policy.norms, output_gain=gain), seed=3)
        torch.testing.assert_close(output_of(louder.model), gain * output_of(plain.model))
        assert louder.model.transformer.ln_f.weight.unique().tolist() == [gain]
    with pytest.raises(ValueError, match="output_gain multiplies the last norm's weight; this Sequential has none"):
        hide(nn.Sequential(nn.Linear(2, 2)), Policy(output_gain=2.0), seed=0)


def test_a_norm_that_counts_from_0_cannot_carry_a_gain() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    nn.init.zeros_(model[1].weight)
    with pytest.raises(ValueError, match=r"cannot multiply 1\.weight, which is 0"):
        hide(model, Policy(output_gain=2.0), seed=0)
    assert hide(model, Policy(), seed=0).describe()[2]["scale"] == 0.0


def test_float64_modules_hold_the_same_weights() -> None:
    single, double = (
        hide(make(), Policy(), seed=0) for make in (vision_transformer, lambda: vision_transformer().double())
    )
    for name, supermask in single.supermasks.items():
        assert torch.equal(supermask.mask, double.supermasks[name].mask)
    with torch.no_grad():
        torch.testing.assert_close(double.model(IMAGES.double()).float(), single.model(IMAGES))


def test_groups_of_the_callers_own() -> None:
    hidden = hide(
        vision_transformer(),
        Policy(embeddings="trained"),
        seed=0,
        groups={"patch_embed.*": "embeddings", "norm.*": "mlp"},
    )
    rows = {row["name"]: row for row in hidden.describe()}
    assert rows["patch_embed.weight"]["treatment"] == rows["patch_embed.bias"]["treatment"] == "trained"
    assert rows["norm.weight"]["treatment"] == "masked"
    assert rows["norm.weight"]["scale"] == pytest.approx(1 / (3 * 32) ** 0.5)


def test_what_cannot_be_hidden() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.ModuleDict({"mixed": nn.Linear(4, 12), "out": nn.Linear(4, 4)})

    with pytest.raises(
        ValueError,
        match=r"no query or key was identified among.*attention\.mixed\.weight.*Pass policy=Policy\(qk_scale=1\)",
    ):
        hide(Odd(), Policy(), seed=0)
    assert len(hide(Odd(), Policy(qk_scale=1), seed=0).supermasks) == 2
    assert len(hide(Odd(), Policy(qk_scale=1.0, mlp="trained", head="trained"), seed=0).supermasks) == 2
    with pytest.raises(ValueError, match="LSTM keeps lists of its weights"):
        hide(nn.LSTM(3, 4), Policy(), seed=0)
    with pytest.raises(ValueError, match=r"0\.weight has no values yet; run a lazy module once"):
        hide(nn.Sequential(nn.LazyLinear(3)), Policy(), seed=0)
    with pytest.raises(ValueError, match=r"letters, digits, '_' and '-'.*got 'a b\.weight'"):
        hide(nn.ModuleDict({"a b": nn.Linear(2, 2)}), Policy(), seed=0)
    with pytest.raises(ValueError, match=r"masks no tensor of this module, which has none\.$"):
        hide(nn.ReLU(), Policy(), seed=0)
    with pytest.raises(ValueError, match=r"the module has a parametrization.*copy\.deepcopy\(model\).*remove_param"):
        hide(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), Policy(), seed=0)
