"""The errors a caller may want to catch; everything else is a ValueError or a bug."""


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
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def printable(text: str) -> str:
    """Show text from a file as it is, but with control characters spelled out, so that it cannot drive the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
