"""Trained models in few bits: what they compute with is what their file holds, and its size is what is said."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from strongticket.data.text import load_text
from strongticket.errors import StrongTicketError
from strongticket.learn import rounded_file
from strongticket.learn.config import RunConfig, Stored
from strongticket.learn.evaluate import validation_loss
from strongticket.learn.folder import WEIGHTS
from strongticket.learn.rounded import GRIDS, Rounded, Rounding, coded, to_bfloat16
from strongticket.learn.run import Means
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run
from strongticket.models.gpt2 import GPT2, gpt2_config

KINDS: tuple[Stored, ...] = get_args(Stored)[1:]
TINY = RunConfig(
    size="1x16", mode="dense", length=128, sequences=32, micro_batch=32, steps=4, warmup=1, lr=1e-2, validate_every=4
)


@given(st.floats(-(2.0**99), 2.0**99, width=32))
def test_a_bfloat16_is_the_nearest(x: float) -> None:
    found, ours = torch.tensor([x]).bfloat16().float(), to_bfloat16(torch.tensor([x]))
    assert torch.equal(ours.bfloat16().float(), ours)
    # Halfway between two, torch takes the even one.
    assert abs(ours - x) == abs(found - x)


@pytest.mark.parametrize("stored", GRIDS)
@pytest.mark.parametrize("group", ["mlp", "embeddings"])
def test_codes_by_the_plain_formula(stored: Stored, group: str) -> None:
    weight = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    weight[1] = 0
    found = coded(weight, stored, group)  # type: ignore[arg-type]
    for i in range(3):
        row = weight[i].double()
        if stored.startswith("int"):
            scale = row.abs().max() / GRIDS[stored][-1]
        else:
            scale = row.abs().mean() if group == "embeddings" else weight.double().abs().mean()
        ours = found.scales[min(i, len(found.scales) - 1)].item()
        assert ours == pytest.approx(float(scale), rel=2**-8, abs=1e-20)
        for x, code in zip(row.tolist(), found.codes[i].tolist(), strict=True):
            nearest = min(GRIDS[stored], key=lambda level: abs(level * ours - x))
            assert abs(code * ours - x) <= abs(nearest * ours - x) + 1e-6
    assert set(found.codes.flatten().tolist()) <= set(GRIDS[stored])


def test_the_gradient_passes_the_rounding() -> None:
    weight = torch.randn(4, 8, requires_grad=True)
    factor = torch.randn(4, 8)
    (Rounding("ternary", "mlp")(weight) * factor).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, factor)


@pytest.mark.parametrize("stored", KINDS)
def test_a_file_holds_what_the_model_computes_with(stored: Stored) -> None:
    model = GPT2(gpt2_config("2x32", vocabulary=50, context=16), seed=3)
    nn.init.normal_(model.blocks[0].mlp.up.bias)  # type: ignore[union-attr, arg-type]
    learner, tokens = Rounded(model, stored), torch.arange(16)[None]
    data = rounded_file.to_bytes(learner)
    again = rounded_file.from_bytes(data)
    for name, weight in learner.rounded():
        assert torch.equal(again.get_parameter(name), weight), name
    assert torch.equal(model(tokens), again(tokens))
    assert sum(learner.counts().values()) == sum(int(p.count_nonzero()) for p in again.parameters())
    nested = (100_000).to_bytes(8, "little") + b"[" * 100_000
    for damaged in (data[: len(data) // 2], nested):
        with pytest.raises(StrongTicketError, match="not the file of a trained model"):
            rounded_file.from_bytes(damaged)


@pytest.mark.parametrize(
    ("stored", "most"), [("bfloat16", 16), ("int8", 8), ("int4", 4), ("ternary", 1.6), ("binary", 1)]
)
def test_bits_of_a_weight(stored: Stored, most: float) -> None:
    model = GPT2(gpt2_config("1x128", vocabulary=2000, context=16))
    weights = sum(p.numel() for p in model.parameters())
    bits = 8 * len(rounded_file.to_bytes(Rounded(model, stored))) / weights
    assert most / 2 < bits < most + 0.25  # scales, norms, and the header


def test_a_run_is_evaluated_as_it_is_stored(tmp_path: Path) -> None:
    text, means = load_text("sample"), Means(share=Share(0, 1, torch.device("cpu")))
    config = replace(TINY, stored="int4")
    result = run(config, text, tmp_path, means)
    data = (tmp_path / WEIGHTS).read_bytes()
    assert result["found"] == {"weights": WEIGHTS, "bytes": len(data)}
    loss = validation_loss(rounded_file.from_bytes(data), text.valid, length=128, sequences=32, device="cpu")
    assert loss == result["best_validation_loss"]
    assert result["best_validation_loss"] < result["curve"][0][1]


def test_only_trained_weights_are_rounded() -> None:
    with pytest.raises(ValueError, match="stored='int4' is for trained weights"):
        RunConfig(stored="int4")
    with pytest.raises(ValueError, match="stored must be one of float32, bfloat16"):
        RunConfig(mode="dense", stored="int5")  # type: ignore[arg-type]
