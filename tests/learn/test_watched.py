"""What a search shows of itself."""

import re
import sys
from io import StringIO

import pytest
import torch
from rich.console import Console
from torch import nn

import strongticket as st
from strongticket.learn.run import Moment
from strongticket.learn.watched import watched

GROUPS = {"embeddings": 0.3, "attention": 0.3, "mlp": 0.3}


@pytest.mark.parametrize("width", [50, 60, 80, 160])
def test_a_narrow_terminal_shows_the_steps_too(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    terminal = Console(file=file, width=width, force_terminal=True, color_system=None)
    # By the module itself: `strongticket.search` is a function, too.
    monkeypatch.setattr(sys.modules["strongticket.learn.watched"], "Console", lambda stderr: terminal)
    with watched("nano search, seed 0", shown=True) as show:
        show(Moment(30, 60, loss=5.5, tokens_per_second=45e3, densities=GROUPS))
    assert "nano search, seed 0 30/60" in file.getvalue()
    assert ("loss 5.500" in file.getvalue()) == (width > 50)
    assert ("loss" in file.getvalue()) == (width > 50), "no part of a number"
    assert "…" not in file.getvalue()
    assert ("mlp 0.300" in file.getvalue()) == (width == 160)


def test_a_log_says_where_a_run_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("nano search, seed 0", shown=True) as show:
        show(Moment(122, 400))
        show(Moment(130, 400, loss=5.5))
        show(Moment(200, 400, validated=200, validation_loss=5.25))
    assert capsys.readouterr().err.splitlines() == [
        "nano search, seed 0: resumes after step 122 of 400",
        "nano search, seed 0: step 200 of 400, validation 5.250",
    ]


@pytest.mark.parametrize("validated", [True, False])
def test_a_search_shows_its_progress_where_it_is_asked_to(validated: bool, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.linspace(-1, 1, 64).view(32, 2)
    pair = (x, (x.sum(1) > 0).long())
    moments: list[int] = []
    for progress in (None, False, True):
        model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        validation = [pair] if validated else None
        st.search(
            model,
            [pair] * 20,
            progress=progress,
            validation=validation,
            watch=lambda moment: moments.append(moment.step),
        )
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == (0 if not progress else 11 if validated else 1)
        assert moments[-1] == 20
    assert re.match(r"search, one pass over the batches: step 20 of 20, loss \d\.\d{3}", lines[-1])


def test_progress_that_is_neither_wanted_nor_a_function() -> None:
    model, before = nn.Linear(2, 2), torch.get_rng_state()
    weight = model.weight.clone()
    with pytest.raises(
        ValueError, match="progress must be True, False, or a function of a step and its loss; got 'yes'"
    ):
        st.search(model, [(torch.zeros(1, 2), torch.tensor([0]))], progress="yes")  # type: ignore[arg-type]
    assert torch.equal(model.weight, weight)
    assert torch.equal(torch.get_rng_state(), before)
