"""The errors a caller may want to catch; everything else is a ValueError or a bug."""

from textwrap import shorten


class StrongTicketError(Exception):
    """Base class of every error this package raises on purpose, except bad arguments (ValueError)."""

    exit_code = 1


class InfeasibleError(StrongTicketError):
    """What was asked for does not exist: a subset within a tolerance, or a hidden unit for every input."""


class TicketFormatError(StrongTicketError):
    """A file or byte string is not a ticket this release can read."""


class MissingExtraError(StrongTicketError):
    """An optional package is needed; the message names the pip command."""


def first_line(error: BaseException) -> str:
    r"""Shorten another package's error to one line; use its type if it has no message.

    Example:
        >>> first_line(OSError("no such model\ncheck the spelling")), first_line(KeyboardInterrupt())
        ('no such model', 'KeyboardInterrupt')
        >>> first_line(ValueError("bad configuration:\n    7 heads"))
        'bad configuration: 7 heads'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # A line that ends with a colon introduces the next one.
    return shorten(" ".join(lines[: 1 + lines[0].endswith(":")]), 200, placeholder=" [...]")


def printable(text: str) -> str:
    """Escape control characters in text from a file, so that it cannot control the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
