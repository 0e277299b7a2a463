"""Ctrl-C and SIGTERM as a wish: the step that is under way is finished and kept before the run ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; a second one ends the process at once."""
        self.asked = True
        for chosen in SIGNALS:
            signal.signal(chosen, signal.SIG_DFL)


@contextmanager
def stop_when_asked() -> Iterator[Stop]:
    """Take note of Ctrl-C and SIGTERM while the block runs; outside the main thread they stay as they are."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # A process in the background ignores Ctrl-C, and should go on doing so.
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
