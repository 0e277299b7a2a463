"""What a ticket records of the run that found it: text, tokenizer, loss, and how the loss was measured."""

import math
from dataclasses import dataclass
from typing import TypedDict, get_args

from strongticket.data.text import Text
from strongticket.data.tokenizer import BYTES, GPT2, Tokenizer, TokenizerRecord, find_tokenizer
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.learn.step import Precision
from strongticket.tickets.ticket import Ticket

KEY = "search"  # in a ticket's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The part of a ticket's metadata that `evaluate` and `generate` use."""

    data: str
    valid_digest: str  # of the validation tokens
    tokenizer: TokenizerRecord
    length: int
    sequences: int  # windows per forward pass
    precision: Precision
    validation_loss: float

    @property
    def tokenizer_name(self) -> str | None:
        """The tokenizer's name for `find_tokenizer`; None if it must be given as a folder."""
        name = self.tokenizer["name"]
        return name if name in (BYTES, GPT2) else None


class How(TypedDict):
    """How a loss is measured."""

    length: int
    sequences: int  # windows per forward pass
    precision: Precision


def record(text: Text, validation_loss: float, how: How) -> dict[str, object]:
    """Describe a run's text and validation loss as JSON, for the "search" entry of its ticket's metadata."""
    return {**text.describe(), **how, "validation_loss": validation_loss}


def recorded_of(ticket: Ticket) -> Recorded | None:
    """Read and check what `record` wrote; None if the ticket has no such record."""
    found = ticket.metadata.get(KEY)
    if found is None:
        return None
    try:
        return _read(found)
    except (ValueError, TypeError, LookupError) as error:
        raise StrongTicketError(f"the ticket's record of its search is invalid: {error!r:.120}") from None


def tokenizer_of(ticket: Ticket, vocabulary: int, chosen: str | None) -> Tokenizer:
    """Return the tokenizer a ticket's model was trained with.

    Args:
        ticket: its record names the tokenizer.
        vocabulary: of the model.
        chosen: for `find_tokenizer`; by default the recorded one, which works for "bytes" and "gpt2".
    """
    recorded = recorded_of(ticket)
    name = chosen or (recorded.tokenizer_name if recorded else None)
    if name is None:
        needed = f"was trained with the tokenizer {recorded.tokenizer['name']!r:.40}" if recorded else "names none"
        raise StrongTicketError(f"a tokenizer is needed, and the ticket {needed}; give --tokenizer.")
    tokenizer = find_tokenizer(name)
    check_tokenizer(tokenizer, recorded, vocabulary)
    return tokenizer


def check_tokenizer(tokenizer: Tokenizer, recorded: Recorded | None, vocabulary: int) -> None:
    """Refuse a tokenizer other than the one the model was trained with."""
    if tokenizer.vocabulary != vocabulary:
        raise StrongTicketError(
            f"the model has {vocabulary:,} tokens, the tokenizer {tokenizer.name} {tokenizer.vocabulary:,}; "
            "use the one it was trained with."
        )
    if recorded and tokenizer.digest != recorded.tokenizer["digest"]:
        raise StrongTicketError(
            f"the tokenizer {tokenizer.name} is not the one the ticket's model was trained with "
            f"({recorded.tokenizer['name']!r:.40}, SHA-256 {recorded.tokenizer['digest']!r:.20})."
        )


def _read(found: Json) -> Recorded:
    numbers = [found["length"], found["sequences"], found["validation_loss"]]
    if any(type(n) not in (int, float) or not math.isfinite(n) for n in numbers) or min(numbers[:2]) < 1:
        raise ValueError(f"length, sequences and validation_loss are {numbers}")
    if found["precision"] not in get_args(Precision):
        raise ValueError(f"precision is {found['precision']!r:.40}")
    name, vocabulary, digest = (found["tokenizer"][key] for key in ("name", "vocabulary", "digest"))
    return Recorded(
        data=str(found["data"]),
        valid_digest=str(found["digests"]["valid"]),
        tokenizer={"name": name, "vocabulary": vocabulary, "digest": digest},
        length=int(found["length"]),
        sequences=int(found["sequences"]),
        precision=found["precision"],
        validation_loss=float(found["validation_loss"]),
    )
