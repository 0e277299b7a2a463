"""Runs that repeat."""

from pathlib import Path

import pytest
import torch

from strongticket.data.text import load_text
from strongticket.learn.config import RunConfig
from strongticket.learn.policy import Policy
from strongticket.learn.repeat import repeatable
from strongticket.learn.run import Means
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run


def test_torch_is_asked_for_kernels_that_repeat_and_left_as_it_was() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with repeatable(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with repeatable(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compiler", ["inductor", None])
def test_the_same_run_gives_the_same_ticket(compiler: str | None, tmp_path: Path) -> None:
    config = RunConfig(
        size="nano",
        policy=Policy(output_gain=8.0),
        length=128,
        sequences=16,
        micro_batch=8,
        steps=150,
        warmup=15,
        lr=1e-2,
        precision="bfloat16",
    )
    means = Means(share=Share(0, 1, torch.device("cuda")), compiler=compiler, deterministic=True)
    text = load_text("sample")
    results = [run(config, text, tmp_path / name, means) for name in ("one", "two")]
    assert results[0]["found"]["identity"] == results[1]["found"]["identity"]
    # It learns, too: a wrong gradient would repeat as well.
    assert results[0]["best_validation_loss"] < 3.6
