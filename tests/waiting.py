"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something to happen, and fail if it does not."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
