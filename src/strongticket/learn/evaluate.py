"""How well a language model predicts a text: the loss a run reports, and the same loss from a ticket alone."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from strongticket.data.text import Text, validation_batches
from strongticket.data.windows import Tokens, window_count
from strongticket.errors import StrongTicketError
from strongticket.learn.learner import evaluating
from strongticket.learn.recorded import Recorded, check_tokenizer, recorded_of
from strongticket.learn.step import Precision
from strongticket.models.gpt2 import GPT2
from strongticket.tickets.from_bits import Run, runs_from_bits
from strongticket.tickets.ticket import Ticket

SEQUENCES = 8  # per forward pass, unless the ticket says otherwise
_MOST_TOKENS = 1 << 17  # per forward pass: a ticket must not decide how much memory it takes
_ANOTHER_ORDER = 2.0**-14  # float32 sums of a thousand terms, in another device's order
_BFLOAT16 = 2.0**-8  # unit roundoff
MANY_WEIGHTS = 10_000_000  # more float32 weights exceed most caches
_LARGEST_LOSS = 700.0  # with a finite perplexity

# Called with the number of windows done, and their total.
Progress = Callable[[int, int], object]


@torch.no_grad()
def validation_loss(
    model: Callable[[Tensor, Tensor], Tensor],
    tokens: Tokens,
    *,
    length: int,
    sequences: int,
    device: torch.device | str,
    precision: Precision = "float32",
    progress: Progress | None = None,
) -> float:
    """Return the mean loss in nats over all windows of a text, equally weighted and summed in float64.

    Args:
        model: (inputs, targets), (B, T) each -> their mean loss. A module runs in evaluation mode.
        tokens: (N,) unsigned integers.
        length: tokens per window.
        sequences: windows per forward pass. It affects memory, and the order of float32 sums.
        device: where the model is.
        precision: "bfloat16" runs the model under autocast.
        progress: called after each pass.
    """
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be {' or '.join(get_args(Precision))}; got {precision!r}.")
    place = torch.device(device)
    windows = window_count(tokens, length)
    batches = validation_batches(tokens[: windows * length + 1], length=length, sequences=sequences)
    losses, counts = [], []
    with (
        evaluating(model) if isinstance(model, nn.Module) else nullcontext(),
        torch.autocast(place.type, torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        for inputs, targets in batches:
            losses.append(model(inputs.to(place), targets.to(place)))
            counts.append(len(inputs))
            if progress:
                progress(sum(counts), windows)
    # Fetched together at the end, so that nothing waits for a GPU in between.
    total = torch.stack(losses).cpu().double() @ torch.tensor(counts, dtype=torch.float64)
    return float(total) / windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A ticket's loss on a text, and what it means for the loss the ticket has on record."""

    data: str
    split: str
    loss: float  # nats per token
    perplexity: float
    bits_per_byte: float  # of the text as UTF-8
    tokens: int  # predicted
    length: int
    sequences: int
    precision: Precision
    recorded_loss: float | None  # only if measured on the same tokens in windows of the same length
    reproduced: bool | None

    def as_json(self) -> dict[str, object]:
        """Return everything as JSON."""
        return asdict(self)


def faster_run(ticket: Ticket, device: torch.device | str) -> Run:
    """Return the faster way to generate: "bits" where possible, on a CPU, for weights too large for its caches."""
    large = ticket.numel >= MANY_WEIGHTS and torch.device(device).type == "cpu"
    return "bits" if large and runs_from_bits(ticket) else "dense"


def load_model(ticket: Ticket, device: torch.device | str, run: Run = "dense") -> GPT2:
    """Build the language model a ticket holds."""
    if (family := ticket.architecture.get("family")) != "gpt2":
        raise StrongTicketError(f"the ticket holds a network of the family {family!r:.40}; text needs a gpt2.")
    model = ticket.build(device=device, run=run)
    assert isinstance(model, GPT2)
    return model.eval()


def evaluate_ticket(
    ticket: Ticket,
    text: Text,
    split: str = "valid",
    *,
    length: int | None = None,
    sequences: int | None = None,
    device: torch.device | str = "cpu",
    precision: Precision | None = None,
    run: Run = "dense",
    progress: Progress | None = None,
) -> Evaluation:
    """Measure a ticket's loss on a text; only the ticket's file and the text are needed.

    Args:
        ticket: of the family gpt2.
        text: the text, in splits.
        split: which split to use.
        length: tokens per window; by default as recorded, or the model's whole context.
        sequences: windows per forward pass; by default as recorded, if the precision is also as recorded, but no
            more than have 131,072 tokens.
        device: where to compute.
        precision: by default as recorded on a GPU, and float32 on a CPU.
        run: "bits" leaves signed constants in bit planes, to save memory; whole sequences are as fast dense.
        progress: called with the number of windows done and their total.
    """
    recorded = recorded_of(ticket)
    model, place = load_model(ticket, device, run), torch.device(device)
    check_tokenizer(text.tokenizer, recorded, model.config.vocabulary)
    length = length or (recorded.length if recorded else model.config.context)
    precision = precision or (recorded.precision if recorded and place.type != "cpu" else "float32")
    # In another precision the last digits differ anyway, and a batch that fits a GPU's memory may not fit here.
    as_recorded = recorded is not None and recorded.precision == precision
    usual = recorded.sequences if recorded and as_recorded else SEQUENCES
    sequences = sequences or min(usual, max(1, _MOST_TOKENS // length))
    tokens, windows = text.tokens(split), window_count(text.tokens(split), length, f"the {split} text")
    if length > model.config.context:
        raise ValueError(f"the ticket's model sees at most {model.config.context:,} tokens; got length {length:,}.")
    loss = validation_loss(
        model, tokens, length=length, sequences=sequences, device=place, precision=precision, progress=progress
    )
    if not loss < _LARGEST_LOSS:
        raise StrongTicketError(f"the loss is {loss} nats per token: the ticket's network does not predict text.")
    tolerance = _tolerance(loss, windows * length, rounded="bfloat16" in (precision, recorded and recorded.precision))
    recorded_loss = _comparable_loss(recorded, text.splits[split].digest, length)
    return Evaluation(
        data=text.name,
        split=split,
        loss=loss,
        perplexity=math.exp(loss),
        bits_per_byte=loss * len(tokens) / text.text_bytes(split) / math.log(2),
        tokens=windows * length,
        length=length,
        sequences=sequences,
        precision=precision,
        recorded_loss=recorded_loss,
        reproduced=None if recorded_loss is None else abs(loss - recorded_loss) <= tolerance,
    )


def _comparable_loss(recorded: Recorded | None, digest: str, length: int) -> float | None:
    """Return the recorded loss if it was measured on the same tokens in windows of the same length."""
    if recorded is None or recorded.valid_digest != digest or recorded.length != length:
        return None
    return recorded.validation_loss


def _tolerance(loss: float, tokens: int, *, rounded: bool) -> float:
    """Return how far a loss may be from the recorded one; `rounded`: one of them was computed in bfloat16.

    bfloat16 rounds each token's loss by about one roundoff, up or down, so the error of the mean shrinks with the root
    of their number; four standard deviations are allowed. Rounding of the weights affects all tokens alike: it moves
    GPT-2 mini's loss on 330,000 tokens by a fortieth of a roundoff, and an eighth is allowed.
    """
    return _ANOTHER_ORDER + rounded * _BFLOAT16 * (0.125 + 4 * loss / math.sqrt(tokens))
