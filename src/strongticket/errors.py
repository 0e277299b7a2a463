"""The errors a caller may want to catch; everything else is a ValueError or a bug."""

from textwrap import shorten


class StrongTicketError(Exception):
    """Base of every error this package raises on purpose, bad arguments (ValueError) aside."""

    exit_code = 1


class InfeasibleError(StrongTicketError):
    """A strict solver could not reach its tolerance."""


class TicketFormatError(StrongTicketError):
    """A file or byte string is not a ticket this release can read."""


class MissingExtraError(StrongTicketError):
    """An optional package is needed; the message names the pip command."""


def first_line(error: BaseException) -> str:
    r"""Tell another package's error in one short line; one that says nothing, by its type.

    Example:
        >>> first_line(OSError("no such model\ncheck the spelling")), first_line(KeyboardInterrupt())
        ('no such model', 'KeyboardInterrupt')
        >>> first_line(ValueError("bad configuration:\n    7 heads"))
        'bad configuration: 7 heads'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # What ends with a colon is the head of what follows.
    return shorten(" ".join(lines[: 1 + lines[0].endswith(":")]), 200, placeholder=" [...]")


def printable(text: str) -> str:
    """Show text from a file as it is, but with control characters spelled out, so that it cannot drive the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
