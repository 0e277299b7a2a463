"""Tokenizers by name: "bytes", "gpt2", or a folder with the files. Files are loaded at first use."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from strongticket.data.byte_level import BpeCodec, BytesCodec, bpe_from_folder
from strongticket.data.hub import fetch_gpt2
from strongticket.data.text_files import name_of
from strongticket.errors import StrongTicketError

Codec = BytesCodec | BpeCodec
BYTES, GPT2 = "bytes", "gpt2"
GPT2_VOCABULARY = 50257
GPT2_DIGEST = "4e8d48d206a353429f9a10c2f12692b30382000e9924efe264c1d02ffb88746c"


class TokenizerRecord(TypedDict):
    """What tickets, results and folders of tokens say of a tokenizer."""

    name: str
    vocabulary: int
    digest: str


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer: its name, its number of tokens, and the SHA-256 of its rules.

    These are known without its files; encoding and decoding load the files.

    Example:
        >>> find_tokenizer("bytes").encode("né")
        [110, 195, 169]
    """

    name: str
    vocabulary: int
    digest: str
    load: Callable[[], Codec] = field(repr=False, compare=False)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self.codec.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; incomplete characters become U+FFFD."""
        return self.to_bytes(tokens).decode("utf-8", "replace")

    def to_bytes(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of tokens, which may end inside a character."""
        return self.codec.to_bytes(tokens)

    @cached_property
    def codec(self) -> Codec:
        """The loaded rules."""
        return self.load()

    def describe(self) -> TokenizerRecord:
        """Return name, vocabulary and digest as JSON, for tickets and results."""
        return {"name": self.name, "vocabulary": self.vocabulary, "digest": self.digest}


def find_tokenizer(name: str) -> Tokenizer:
    """Find a tokenizer.

    Args:
        name: "bytes"; "gpt2", which `transformers` fetches at first use; or a folder with vocab.json and merges.txt,
            or tokenizer.json.
    """
    if name == BYTES:
        return Tokenizer(BYTES, BytesCodec.vocabulary, BytesCodec.digest, BytesCodec)
    if name == GPT2:
        return Tokenizer(GPT2, GPT2_VOCABULARY, GPT2_DIGEST, _load_gpt2)
    folder = Path(name)
    if not folder.is_dir():
        raise StrongTicketError(
            f"tokenizer must be bytes, gpt2 or a folder; got {name!r}. A folder needs vocab.json and merges.txt, or "
            "tokenizer.json."
        )
    codec = bpe_from_folder(folder)
    digest = codec.digest
    called = GPT2 if digest == GPT2_DIGEST else name_of(folder)
    return Tokenizer(called, codec.vocabulary, digest, lambda: codec)


def _load_gpt2() -> Codec:
    codec = fetch_gpt2()
    if codec.digest != GPT2_DIGEST:
        raise StrongTicketError("the tokenizer that transformers calls gpt2 is not GPT-2's; use --tokenizer.")
    return codec
