"""The command line as tests call it."""

from typing import NamedTuple, Protocol


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    """Runs `strongticket` with some arguments."""

    def __call__(self, *arguments: object) -> Done: ...
