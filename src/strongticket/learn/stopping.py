"""Ctrl-C and SIGTERM as requests: the current step is finished and saved before the run ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a stop was requested."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second one ends the process at once."""
        self.asked = True
        for chosen in SIGNALS:
            signal.signal(chosen, signal.SIG_DFL)


@contextmanager
def stop_when_asked() -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM while the block runs; outside the main thread they keep their usual effect."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # A background process ignores Ctrl-C, and should continue to.
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
