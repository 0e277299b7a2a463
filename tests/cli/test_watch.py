"""What a search shows of itself."""

import sys
from io import StringIO

import pytest
from rich.console import Console

from strongticket.cli.watch import watched
from strongticket.learn.run import Moment

GROUPS = {"embeddings": 0.3, "attention": 0.3, "mlp": 0.3}


@pytest.mark.parametrize("width", [80, 160])
def test_a_narrow_terminal_shows_the_steps_too(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    terminal = Console(file=file, width=width, force_terminal=True, color_system=None)
    # By the module itself: `strongticket.search` is a function, too.
    monkeypatch.setattr(sys.modules["strongticket.cli.watch"], "Console", lambda stderr: terminal)
    with watched("nano search, seed 0", shown=True) as show:
        show(Moment(30, 60, loss=5.5, tokens_per_second=45e3, densities=GROUPS))
    assert "nano search, seed 0 30/60" in file.getvalue()
    assert "loss 5.500" in file.getvalue()
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
