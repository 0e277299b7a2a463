from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.small_tickets import small_ticket

from strongticket.cli.show import render
from strongticket.cli.terminal import bar, console, count_bar, rate_bar
from strongticket.tickets.summary import summarize


@given(st.floats(0, 1), st.integers(1, 40), st.booleans())
def test_bars_are_as_long_as_the_share(share: float, cells: int, ascii_only: bool) -> None:
    drawn = bar(share, cells, ascii_only=ascii_only)
    assert len(drawn) == cells
    full = sum({" ": 0, "#": 8}.get(char, 8 - (ord(char) - 0x2588)) for char in drawn)
    assert abs(full / 8 - share * cells) <= (0.5 if ascii_only else 1 / 16) + 1e-9
    assert drawn.isascii() == ascii_only or share * cells < 1 / 8


def test_show_draws_densities_as_bars(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small_ticket().save(tmp_path / "small.ticket")
    for part in render(summarize(small_ticket(), tmp_path / "small.ticket"), "small.ticket", every=True):
        console().print(part)
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert lines["norm"].count("█") == 12
    assert "███" in lines["head.0.key"]  # density 0.57
    assert "█" not in lines["nothing"]


@pytest.mark.parametrize("kind", ["count", "rate"])
def test_progress_is_told_in_lines_where_there_is_no_terminal(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("strongticket.cli.terminal.time.monotonic", lambda: now)
    with ExitStack() as stack:
        if kind == "count":
            show = stack.enter_context(count_bar("sums"))
        else:
            advance = stack.enter_context(rate_bar("sums", 1200))
        for second, done in ((1.0, 1), (10.5, 2), (11.0, 3), (21.0, 4)):
            now = 100.0 + second
            if kind == "count":
                show(done, 1200)
            else:
                advance(1)
    # None for what is short, and one every ten seconds.
    assert capsys.readouterr().err == "sums: 2 of 1,200, 10 s\nsums: 4 of 1,200, 21 s\n"
