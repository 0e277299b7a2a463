"""Real byte-level BPEs, small enough to make in a test."""

import lzma
from functools import cache
from pathlib import Path
from typing import Any

import strongticket.data
from strongticket.data.byte_level import BpeCodec


@cache
def train_bpe() -> Any:
    """Train a BPE of 600 tokens on the sample text, with the `tokenizers` package."""
    import tokenizers

    sample = Path(strongticket.data.__file__).with_name("sample") / "valid.txt.xz"
    text = lzma.decompress(sample.read_bytes()).decode()
    engine = tokenizers.ByteLevelBPETokenizer()
    engine.train_from_iterator([text], vocab_size=600, special_tokens=["<|endoftext|>"])
    return engine._tokenizer


def write_bpe(folder: Path) -> Path:
    """Write vocab.json and merges.txt."""
    folder.mkdir(exist_ok=True)
    train_bpe().model.save(str(folder))
    return folder


def pairs_bpe() -> BpeCodec:
    """Make a BPE whose tokens are all pairs of bytes and, from 65,536 on, all bytes."""
    import tokenizers

    characters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [(a, b) for a in characters for b in characters]
    vocab = {token: i for i, token in enumerate([*(a + b for a, b in merges), *characters])}
    return BpeCodec(vocab, merges, {})
