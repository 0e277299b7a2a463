"""What a search shows of itself."""

import sys
from io import StringIO

import pytest
from rich.console import Console

from strongticket.search.run import Moment
from strongticket.search.watch import watched

GROUPS = {"embeddings": 0.3, "attention": 0.3, "mlp": 0.3}


@pytest.mark.parametrize("width", [80, 160])
def test_a_narrow_terminal_shows_the_steps_too(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    terminal = Console(file=file, width=width, force_terminal=True, color_system=None)
    # By the module itself: `strongticket.search` is a function, too.
    monkeypatch.setattr(sys.modules["strongticket.search.watch"], "Console", lambda stderr: terminal)
    with watched("nano search, seed 0", shown=True) as show:
        show(Moment(30, 60, loss=5.5, tokens_per_second=45e3, densities=GROUPS))
    assert "nano search, seed 0 30/60" in file.getvalue()
    assert "loss 5.500" in file.getvalue()
    assert ("mlp 0.300" in file.getvalue()) == (width == 160)
