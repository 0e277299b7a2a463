from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongticket import show
from strongticket.terminal import bar, console, count_bar
from tests.tickets import small_ticket


@given(st.floats(0, 1), st.integers(1, 40), st.booleans())
def test_bars_are_as_long_as_the_share(share: float, cells: int, ascii_only: bool) -> None:
    drawn = bar(share, cells, ascii_only=ascii_only)
    assert len(drawn) == cells
    full = sum({" ": 0, "#": 8}.get(char, 8 - (ord(char) - 0x2588)) for char in drawn)
    assert abs(full / 8 - share * cells) <= (0.5 if ascii_only else 1 / 16) + 1e-9
    assert drawn.isascii() == ascii_only or share * cells < 1 / 8


def test_show_draws_densities_as_bars(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small_ticket().save(tmp_path / "small.ticket")
    for part in show.render(show.summarize(small_ticket(), tmp_path / "small.ticket"), "small.ticket", every=True):
        console().print(part)
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert lines["norm"].count("█") == 12
    assert "███" in lines["head.0.key"]  # density 0.57
    assert "█" not in lines["nothing"]


def test_progress_is_told_in_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with count_bar("fig4", line_seconds=3600) as show:
        show(0, 1200)
        show(1, 1200)
    assert capsys.readouterr().err == "fig4: 0 of 1,200 parts done, 0 s\n", "the second would come too soon"
    with count_bar("fig4", line_seconds=0) as show:
        show(0, 2)
        show(1, 2)
    assert capsys.readouterr().err.count("\n") == 2
    with count_bar("report") as show:
        show(0, 1)
    assert capsys.readouterr().err == "", "short ones stay silent"
