"""The errors a caller may want to catch; everything else is a ValueError or a bug."""


class StrongTicketError(Exception):
    """Base of every error this package raises on purpose, bad arguments (ValueError) aside."""


class InfeasibleError(StrongTicketError):
    """A strict solver could not reach its tolerance."""


class TicketFormatError(StrongTicketError):
    """A file or byte string is not a ticket this release can read."""


class MissingExtraError(StrongTicketError):
    """An optional package is needed; the message names the pip command."""
