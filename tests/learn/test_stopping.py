import signal
import subprocess
import sys

import pytest

from strongticket.learn.stopping import SIGNALS, stop_when_asked

TWICE = """
import signal
from strongticket.learn.stopping import stop_when_asked
with stop_when_asked() as stop:
    signal.raise_signal(signal.SIGTERM)
    print(stop.asked, flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still here")
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_wish_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    signal.signal(number, signal.SIG_DFL)  # a test run in the background may ignore it
    try:
        with stop_when_asked() as stop:
            assert not stop.asked
            signal.raise_signal(number)
            assert stop.asked
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_second_signal_ends_the_process_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "True\n")
