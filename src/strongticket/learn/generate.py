"""Generate text from a language model, token by token."""

import codecs
import time
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from strongticket.data.tokenizer import Tokenizer
from strongticket.models.gpt2 import GPT2
from strongticket.models.gpt2_decoder import Decoder

# Used for an empty prompt: the model needs some input, and text starts after a line end.
EMPTY_PROMPT = "\n"


def generate_tokens(
    model: GPT2,
    prompt: Sequence[int],
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = 40,
    seed: int = 0,
) -> Iterator[int]:
    """Continue a prompt, one token at a time.

    Args:
        model: the language model.
        prompt: at least one token; if longer than the model's context, its end is used.
        tokens: how many to generate.
        temperature: divides the logits; 0 always takes the likeliest token.
        top_k: draw among this many likeliest tokens; None: among all.
        seed: the same seed gives the same text on the same machine.
    """
    if not prompt:
        raise ValueError("a prompt needs at least one token; got none.")
    if not temperature >= 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature must be 0 or more and top_k at least 1; got {temperature} and {top_k}.")
    generator = torch.Generator().manual_seed(seed)
    context, seen = model.config.context, list(prompt)
    decoder, fresh = Decoder(model, room=len(prompt) + tokens), seen[-context:]
    for _ in range(tokens):
        if decoder.length + len(fresh) > context:
            # Every token has moved by one position, so everything is computed again.
            decoder, fresh = Decoder(model), seen[-context:]
        logits = decoder.feed(fresh)  # (V,)
        seen.append(_choose(logits.cpu().double(), temperature, top_k, generator))
        fresh = seen[-1:]
        yield seen[-1]


def _choose(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    best, tokens = logits.topk(min(top_k or len(logits), len(logits)))
    chosen = torch.multinomial((best / temperature).softmax(dim=0), 1, generator=generator)
    return int(tokens[chosen])


class Pace(Iterator[int]):
    """An iterator over tokens that measures their rate.

    Example:
        >>> pace = Pace(iter([5, 6]))
        >>> list(pace), pace.tokens
        ([5, 6], 2)
    """

    def __init__(self, tokens: Iterator[int]) -> None:
        self._made, self.tokens = tokens, 0
        self._begin = self._first = self._last = time.perf_counter()

    def __next__(self) -> int:
        token = next(self._made)
        self._last = time.perf_counter()
        self._first = self._last if self.tokens == 0 else self._first
        self.tokens += 1
        return token

    @property
    def first_seconds(self) -> float:
        """Seconds until the first token, prompt included."""
        return self._first - self._begin

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first; None if there were no others."""
        return (self.tokens - 1) / (self._last - self._first) if self._last > self._first else None

    def as_json(self) -> dict[str, int | float | None]:
        """Return everything as JSON."""
        return {"tokens": self.tokens, "tokens_per_second": self.rate, "first_token_seconds": self.first_seconds}

    def __str__(self) -> str:
        rate = f", then {self.rate:,.1f} per second" if self.rate else ""
        return f"{self.tokens:,} tokens, the first after {self.first_seconds:.2f} s{rate}"


def decode_stream(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """Turn tokens into text as they come; a character is emitted once all its bytes are there."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        if text := decoder.decode(tokenizer.to_bytes([token])):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
