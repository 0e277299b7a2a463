import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from strongticket import Policy, hide
from strongticket.models.gpt2 import (
    GPT2,
    from_hugging_face,
    gpt2_config,
    group_of,
    initial_scales,
    to_hugging_face,
)
from strongticket.ops.rng import random_weights

TOKENS = torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(0))


def hugging_face(**settings: Any) -> nn.Module:
    """A random model of theirs in which every tensor matters: biases and norms are random too."""
    transformers = pytest.importorskip("transformers", reason="comparing with Hugging Face needs transformers")
    config = {"n_layer": 2, "n_embd": 48, "n_head": 3, "n_positions": 64, "vocab_size": 256}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config | settings)).eval()
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def roughened(**changes: Any) -> GPT2:
    model = GPT2(gpt2_config("nano", **changes))
    torch.manual_seed(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize(
    "settings",
    [{}, {"tie_word_embeddings": False}, {"activation_function": "relu", "layer_norm_epsilon": 1e-3}],
    ids=str,
)
@torch.no_grad()
def test_a_hugging_face_model_computes_the_same_here(settings: dict[str, Any]) -> None:
    theirs = hugging_face(**settings)
    expected = theirs(TOKENS).logits
    torch.testing.assert_close(from_hugging_face(theirs)(TOKENS), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied": False, "output_gain": 4.0}, {"bias": False, "activation": "relu"}, {"norm_epsilon": 0.1}],
    ids=str,
)
@torch.no_grad()
def test_a_model_saved_for_hugging_face_computes_the_same_there(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="comparing with Hugging Face needs transformers")
    model = roughened(**changes)
    to_hugging_face(model).save_pretrained(tmp_path)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(theirs(TOKENS).logits, model(TOKENS), rtol=0, atol=1e-4 * changes.get("output_gain", 1))


def test_the_way_there_and_back_keeps_every_bit() -> None:
    model = roughened()
    back = from_hugging_face(to_hugging_face(model))
    assert back.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name


def test_a_copy_shares_no_memory() -> None:
    theirs = hugging_face()
    copy = from_hugging_face(theirs)
    before = copy(TOKENS)
    for parameter in theirs.parameters():
        parameter.data.zero_()
    assert torch.equal(copy(TOKENS), before)


@pytest.mark.parametrize(
    "setting", [{"activation_function": "silu"}, {"n_inner": 7}, {"scale_attn_by_inverse_layer_idx": True}], ids=str
)
def test_settings_that_mean_another_function_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        from_hugging_face(hugging_face(**setting))


@torch.no_grad()
def test_a_masked_model_gives_its_masked_weights_to_hugging_face() -> None:
    pytest.importorskip("transformers", reason="comparing with Hugging Face needs transformers")
    model = GPT2(gpt2_config("nano", output_gain=4.0))
    ticket = hide(model, Policy(density=0.5, output_gain=4.0), seed=1).to_ticket()
    for masked in (model, ticket.build()):
        theirs = to_hugging_face(masked).eval()
        torch.testing.assert_close(theirs(TOKENS).logits, ticket.build()(TOKENS), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("vocabulary", "end"), [(256, None), (50257, 50256)])
def test_the_end_of_a_text_is_a_token_that_there_is(vocabulary: int, end: int | None) -> None:
    pytest.importorskip("transformers", reason="comparing with Hugging Face needs transformers")
    theirs = to_hugging_face(GPT2(gpt2_config("nano", vocabulary=vocabulary)))
    assert theirs.config.eos_token_id == theirs.config.bos_token_id == end


# Published sizes; mini by the same formula: 12 d^2 + 13 d a block, 2 d for the last norm, (50257 + 1024) d embedded.
@pytest.mark.parametrize(
    ("size", "total"),
    [("mini", 4 * (12 * 512**2 + 13 * 512) + 51283 * 512), ("small", 124_439_808), ("medium", 354_823_168)],
)
def test_parameter_counts(size: str, total: int) -> None:
    counts = GPT2(gpt2_config(size), device="meta").parameter_counts()
    assert sum(counts.values()) == total
    d, b = gpt2_config(size).d_model, gpt2_config(size).n_layers
    assert counts == {
        "attention": 4 * b * d * d,
        "mlp": 8 * b * d * d,
        "embeddings": 51281 * d,
        "norms": (4 * b + 2) * d,
        "head": 0,
        "biases": 9 * b * d,
    }


def test_initial_weights_are_those_the_seed_names() -> None:
    model = GPT2(gpt2_config("nano", tied=False), seed=7)
    scales = initial_scales(model.config)
    for name, parameter in model.named_parameters():
        if name in scales:
            assert torch.equal(parameter, random_weights(7, name, tuple(parameter.shape), *scales[name])), name
        else:
            assert group_of(name) in ("norms", "biases")
            assert parameter.unique().tolist() == [0.0 if name.endswith("bias") else 1.0], name
    assert set(scales) <= dict(model.named_parameters()).keys()


def test_the_layers_that_end_a_branch_are_drawn_smaller() -> None:
    model = GPT2(gpt2_config("nano", d_model=256, n_layers=3))
    for name, (_, scale) in initial_scales(model.config).items():
        ends = name.endswith(("output.weight", "down.weight"))
        assert scale == pytest.approx(0.02 / math.sqrt(6) if ends else 0.02)
        assert model.get_parameter(name).std().item() == pytest.approx(scale, rel=0.03)


def test_no_token_sees_a_later_one() -> None:
    model, changed = roughened(), TOKENS.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 256
    before, after = model(TOKENS), model(changed)
    torch.testing.assert_close(after[:, :20], before[:, :20])
    assert (after[:, 20:] - before[:, 20:]).abs().amax(dim=(0, 2)).min() > 1e-2


def test_loss_is_the_cross_entropy_of_the_logits() -> None:
    model, targets = roughened(vocabulary=257), TOKENS.roll(-1, dims=1)
    logits = model(TOKENS)
    assert logits.shape == (2, 40, 257)  # the padding is gone
    expected = -logits.log_softmax(dim=-1).gather(2, targets.unsqueeze(2)).mean()
    loss = model(TOKENS, targets)
    torch.testing.assert_close(loss, expected)
    parameters = list(model.parameters())
    for actual, gradient in zip(*(torch.autograd.grad(x, parameters) for x in (loss, expected)), strict=True):
        torch.testing.assert_close(actual, gradient)


def test_output_gain_scales_the_logits() -> None:
    model = roughened()
    louder = GPT2(gpt2_config("nano", output_gain=4.0))
    louder.load_state_dict(model.state_dict())
    torch.testing.assert_close(louder(TOKENS), 4 * model(TOKENS))


def test_dropout_acts_in_training_alone() -> None:
    model = roughened(dropout=0.5)
    assert not torch.equal(model(TOKENS), model(TOKENS))
    assert torch.equal(model.eval()(TOKENS), model(TOKENS))


def test_a_pass_reads_every_parameter_once() -> None:
    """A mask on a parameter then costs one product a pass, and tied embeddings share it."""

    class Counter(nn.Module):
        reads = 0

        def forward(self, x: Tensor) -> Tensor:
            self.reads += 1
            return x

    model, counters = GPT2(gpt2_config("nano")), []
    for name in [name for name, _ in model.named_parameters() if name.endswith("weight")]:
        layer, counter = model.get_submodule(name.removesuffix(".weight")), Counter()
        parametrize.register_parametrization(layer, "weight", counter)
        counter.reads = 0
        counters.append(counter)
    model(TOKENS)
    assert [counter.reads for counter in counters] == [1] * len(counters)


@pytest.mark.parametrize(
    "run", [lambda f: f, lambda f: torch.compile(f, fullgraph=True, backend="aot_eager")], ids=["eager", "compiled"]
)
def test_autocast_stays_near_float32(run: Callable[[nn.Module], nn.Module]) -> None:
    model, targets = roughened(), TOKENS.roll(-1, dims=1)
    model(TOKENS, targets).backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    # Some virtual machines list AMX among the features of their CPU and refuse its instructions, which bfloat16
    # products by oneDNN use; those by torch itself do not.
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(model)(TOKENS, targets)
        loss.backward()
    torch.testing.assert_close(loss, model(TOKENS, targets), rtol=0.02, atol=0)
    for (name, parameter), gradient in zip(model.named_parameters(), expected, strict=True):
        assert parameter.grad.dtype == torch.float32
        error = (parameter.grad - gradient).norm() / gradient.norm()
        assert error < 0.1 or name.endswith("key.bias"), (name, error)  # a key bias has no gradient but rounding


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 7}, "multiple of n_heads"),
        ({"n_layers": 0}, "positive sizes"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"activation": "tanh"}, "gelu or relu"),
    ],
    ids=str,
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpt2_config("nano", **changes)


def test_unknown_size_and_too_many_tokens() -> None:
    with pytest.raises(ValueError, match="choose nano, mini, small, medium"):
        gpt2_config("huge")
    with pytest.raises(ValueError, match="at most 128 tokens; got 129"):
        GPT2(gpt2_config("nano"))(torch.zeros(1, 129, dtype=torch.long))


@pytest.mark.parametrize(("size", "key"), [("5x160", 32), ("4x512", 64), ("4x352", 32), ("1x16", 16), ("2x240", 16)])
def test_sizes_by_layers_and_width(size: str, key: int) -> None:
    config = gpt2_config(size)
    assert (f"{config.n_layers}x{config.d_model}", config.key_width) == (size, key)


@pytest.mark.parametrize("size", ["0x64", "4x0", "4x", "x64", "4x60", "4X64", "4x64x8", "-1x64", "1000x64"])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(ValueError, match=r"unknown GPT-2 size|must be a multiple of 16"):
        gpt2_config(size)
