"""What a command says while it works."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import StringIO

import pytest
from rich.console import Console

from strongticket import progress
from strongticket.progress import Lines, count_bar, doing, rate_bar, step_bar
from tests.waiting import wait_until

Work = Callable[[], AbstractContextManager[object]]


@contextmanager
def steps() -> Iterator[None]:
    with step_bar(1200, "bench") as step:
        step("first")
        step("second")
        yield


@contextmanager
def counts() -> Iterator[None]:
    with count_bar("sums") as show:
        show(0, 1200)
        show(2, 1200)
        yield


@contextmanager
def rates() -> Iterator[None]:
    with rate_bar("sums", 1200) as advance:
        advance(2)
        yield


BARS: dict[str, tuple[Work, str]] = {
    "step": (steps, r"bench: second, 1 of 1,200, \d+ s, about \d+ s left"),
    "count": (counts, r"sums: 2 of 1,200, \d+ s, about \d+ s left"),
    "rate": (rates, r"sums: 2 of 1,200, \d+ s, about \d+ s left"),
    "doing": (lambda: doing("reading"), r"reading: \d+ s"),
}


@pytest.mark.parametrize(("work", "said"), BARS.values(), ids=BARS)
def test_lines_say_what_goes_on_where_there_is_no_terminal(
    work: Work, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with work():
        pass
    assert capsys.readouterr().err == "", "nothing of what is short"
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    printed = ""

    def lines() -> int:
        nonlocal printed
        printed += capsys.readouterr().err
        return printed.count("\n")

    start = time.monotonic()
    with work():
        wait_until(lambda: lines() >= 3)
    # Waits double: three lines take seven of the first wait.
    assert time.monotonic() - start >= 0.07
    # On a busy machine the first line may be of what was before: of "first", or of nothing done.
    assert re.fullmatch(said, printed.splitlines()[-1])


def test_the_time_left_does_not_count_what_was_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = Lines("fig4", wanted=False)
    lines.note(60, 100)
    now = 110.0
    lines.note(70, 100)
    assert lines.line() == "fig4: 70 of 100, 10 s, about 30 s left"


@pytest.mark.parametrize("name", ["step", "count", "rate"])
def test_bars_show_the_time_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    terminal = Console(file=file, width=100, force_terminal=True, color_system=None)
    monkeypatch.setattr(sys.modules["strongticket.progress"], "Console", lambda stderr: terminal)
    monkeypatch.setattr(progress.TimeRemainingColumn, "render", lambda self, task: "TIME LEFT")
    with BARS[name][0]():
        pass
    assert "TIME LEFT" in file.getvalue()


def test_a_narrow_bar_keeps_all_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    terminal = Console(file=file, width=60, force_terminal=True, color_system=None)
    monkeypatch.setattr(sys.modules["strongticket.progress"], "Console", lambda stderr: terminal)
    monkeypatch.setattr(progress.Task, "speed", 41_350_612.0)
    with progress.rate_bar("regenerating weights", 3) as advance:
        advance(1)
    assert "41.4M/s" in file.getvalue()
    assert "…" not in file.getvalue()
