"""Byte-level BPE, GPT-2's kind of tokenizer: any text becomes tokens, and every token is a known sequence of bytes.

The `tokenizers` package does the encoding. Other kinds of tokenizer are refused, because encoding a text in pieces may
not give the tokens of the whole.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from strongticket.data.text_files import cut_pieces
from strongticket.data.windows import Tokens
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.files import Json, canonical_json

TOKENIZER_JSON, VOCAB, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
END_OF_TEXT = "<|endoftext|>"
_DOMAIN = b"strongticket tokenizer 1\x00"
# Pieces handed to the encoder at once: enough for its threads, and a few MB of text.
_BATCH = 32


def token_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Choose the narrower type that holds every token, little-endian as in files."""
    return np.dtype("<u2") if vocabulary <= 1 << 16 else np.dtype("<u4")


class BytesCodec:
    """One token per byte."""

    vocabulary = 256
    digest = hashlib.sha256(_DOMAIN + b"bytes").hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the text's bytes."""
        return list(text.encode())

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[Tokens]:
        """Yield the tokens of each piece of text."""
        for piece in pieces:
            yield np.frombuffer(piece.encode(), dtype=np.uint8).astype(token_dtype(self.vocabulary))

    def to_bytes(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes that tokens stand for."""
        return bytes(map(int, tokens))

    def count_bytes(self, tokens: Tokens) -> int:
        """Count these bytes."""
        return len(tokens)


@dataclass(frozen=True)
class BpeCodec:
    """A byte-level BPE."""

    vocab: Mapping[str, int]  # token as written in vocab.json -> number, without special tokens
    merges: Sequence[tuple[str, str]]  # pairs of tokens, in merge order
    special: Mapping[str, int]  # tokens found in the text before it is split: plain text -> number

    @property
    def vocabulary(self) -> int:
        """One more than the largest token."""
        return 1 + max((*self.vocab.values(), *self.special.values()))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines how text is encoded."""
        content = {"merges": [*map(list, self.merges)], "special": dict(self.special), "vocab": dict(self.vocab)}
        return hashlib.sha256(_DOMAIN + canonical_json(content).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        tokens: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return tokens

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[Tokens]:
        """Yield the tokens of each piece of text; several pieces are encoded in parallel threads."""
        dtype, pieces = token_dtype(self.vocabulary), iter(pieces)
        while batch := list(islice(pieces, _BATCH)):
            for encoding in self._engine.encode_batch_fast(batch, add_special_tokens=False):
                yield np.array(encoding.ids, dtype=dtype)

    def to_bytes(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes that tokens stand for; they may not be whole characters."""
        return b"".join(self._bytes[token] for token in tokens)

    def count_bytes(self, tokens: Tokens) -> int:
        """Count these bytes, a million tokens at a time."""
        lengths = np.array([len(self._bytes[token]) for token in range(self.vocabulary)])
        return sum(int(lengths[tokens[first : first + (1 << 20)]].sum()) for first in range(0, len(tokens), 1 << 20))

    def to_json(self) -> str:
        """Write a tokenizer.json, which `bpe_from_folder` and the `tokenizers` package read."""
        text: str = self._engine.to_str()
        return text

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        table = {number: bytes(map(_BYTE_OF_CHARACTER.__getitem__, token)) for token, number in self.vocab.items()}
        return table | {number: text.encode() for text, number in self.special.items()}

    @cached_property
    def _engine(self) -> Any:
        try:
            tokenizers: Any = import_module("tokenizers")
        except ImportError:
            raise MissingExtraError("GPT-2's tokenizer needs tokenizers: pip install 'strongticket[hf]'") from None
        vocab = dict(self.vocab) | dict(self.special)
        engine = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=list(self.merges)))
        engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        engine.decoder = tokenizers.decoders.ByteLevel()
        engine.add_special_tokens(sorted(self.special, key=self.special.__getitem__))
        return engine


def bpe_from_folder(folder: Path) -> BpeCodec:
    """Read tokenizer.json, or vocab.json and merges.txt."""
    if (folder / TOKENIZER_JSON).is_file():
        return bpe_from_json((folder / TOKENIZER_JSON).read_bytes(), str(folder / TOKENIZER_JSON))
    if not ((folder / VOCAB).is_file() and (folder / MERGES).is_file()):
        raise StrongTicketError(f"{folder}: no tokenizer here; it needs vocab.json and merges.txt, or tokenizer.json.")
    try:
        vocab = json.loads((folder / VOCAB).read_bytes())
        lines = (folder / MERGES).read_text("utf-8").split("\n")
        merges = [_pair(line) for line in lines if line.strip() and not line.startswith("#version")]
        return _codec(vocab, merges, {END_OF_TEXT: vocab[END_OF_TEXT]} if END_OF_TEXT in vocab else {})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StrongTicketError(f"{folder}: {VOCAB} and {MERGES} are not a byte-level BPE: {error!r:.120}") from None


def bpe_from_json(text: bytes | str, name: str) -> BpeCodec:
    """Read the content of a tokenizer.json; refuse settings that would encode differently."""
    try:
        content = json.loads(text)
        model = content["model"]
        if odd := _oddities(content):
            raise ValueError(odd)
        merges = [_pair(pair) for pair in model["merges"]]
        return _codec(model["vocab"], merges, {token["content"]: token["id"] for token in content["added_tokens"]})
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise StrongTicketError(f"{name} is not a byte-level BPE such as GPT-2's: {error!r:.120}") from None


def _codec(vocab: dict[str, int], merges: list[tuple[str, str]], special: dict[str, int]) -> BpeCodec:
    numbers = [*(number for token, number in vocab.items() if token not in special), *special.values()]
    if sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"its {len(numbers)} tokens are not numbered consecutively from 0")
    if missing := 256 - len(_BYTE_OF_CHARACTER.keys() & vocab.keys()):
        raise ValueError(f"the vocabulary lacks {missing} of the 256 single bytes")
    if unknown := {part for pair in merges for part in (*pair, "".join(pair))} - vocab.keys():
        raise ValueError(f"{len(unknown)} merged tokens are not in the vocabulary")
    if foreign := [token for token in vocab.keys() - special.keys() if not set(token) <= _BYTE_OF_CHARACTER.keys()]:
        raise ValueError(f"{len(foreign)} tokens are not made of bytes, for example {foreign[0]!r:.40}")
    return BpeCodec({token: vocab[token] for token in vocab if token not in special}, merges, special)


def _pair(merge: Json) -> tuple[str, str]:
    """Read a merge, written as one string or as a list."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right).rstrip("\r")


def _oddities(content: Json) -> str | None:
    """Name the first setting of a tokenizer.json that makes it differ from GPT-2's splitting and merging."""
    model, split = content["model"], content["pre_tokenizer"] or {}
    if model.get("type", "BPE") != "BPE":
        return f"the model is {model['type']}"
    if split.get("type") != "ByteLevel" or split.get("add_prefix_space", True) or not split.get("use_regex", True):
        return "the pre-tokenizer is not ByteLevel with add_prefix_space off and use_regex on"
    if content.get("normalizer"):
        return "it has a normalizer"
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(setting):
            return f"its {setting} is {model[setting]!r}"
    if any(token.get(flag) for token in content["added_tokens"] for flag in ("lstrip", "rstrip", "single_word")):
        return "an added token absorbs the spaces around it"
    for token in content["added_tokens"]:
        if len(list(cut_pieces([token["content"]]))) > 1:
            return f"texts are cut at white space, but the added token {token['content']!r:.40} contains some"
    return None


def _byte_characters() -> dict[str, int]:
    """Map the character that stands for each byte in vocab.json: itself if visible, otherwise one from 256 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF_CHARACTER = _byte_characters()
