"""Tokens on disk, made once per text and tokenizer, and memory-mapped.

An entry is a folder: tokens.json describes it, one .npy file per split holds the tokens, and tokenizer.json holds the
tokenizer's rules. It is found by the SHA-256 of the text files and the tokenizer, is written completely or not at all,
and is checked whenever it is opened. It can be copied elsewhere and used as data there.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np

from strongticket.data.byte_level import TOKENIZER_JSON, BpeCodec, bpe_from_folder, token_dtype
from strongticket.data.text_files import Advance, read_pieces
from strongticket.data.tokenizer import BYTES, Codec, Tokenizer, find_tokenizer
from strongticket.data.windows import Tokens
from strongticket.errors import StrongTicketError
from strongticket.files import Json, canonical_json, lock_file, named, regular
from strongticket.ops.arrays import load_npy

DESCRIPTION = "tokens.json"
FORMAT = 1

# The errors that damaged files can cause.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, EOFError, RecursionError)

# The text files of each split.
Files = Mapping[str, Sequence[Path]]
# Called with the bytes of text read so far and in total.
Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split's tokens, (N,) and memory-mapped, and their SHA-256."""

    tokens: Tokens
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text's tokens by split, memory-mapped, and the tokenizer they were made with."""

    name: str
    tokenizer: Tokenizer
    splits: Mapping[str, Split]

    @property
    def train(self) -> Tokens:
        """Tokens of the training text, (N,)."""
        return self.tokens("train")

    @property
    def valid(self) -> Tokens:
        """Tokens of the validation text, (N,)."""
        return self.tokens("valid")

    def tokens(self, split: str) -> Tokens:
        """Return the tokens of a split, (N,)."""
        if split not in self.splits:
            raise StrongTicketError(f"{self.name}: the {split} split was not loaded, only {', '.join(self.splits)}.")
        return self.splits[split].tokens

    def text_bytes(self, split: str) -> int:
        """Count the bytes of text that a split's tokens stand for."""
        return self.tokenizer.codec.count_bytes(self.tokens(split))

    @property
    def digest(self) -> str:
        """SHA-256 of all loaded tokens."""
        return hashlib.sha256(canonical_json(self._digests()).encode()).hexdigest()

    def describe(self) -> dict[str, object]:
        """Describe the text as JSON, for a result or a ticket."""
        return {
            "data": self.name,
            "digest": self.digest,
            "digests": self._digests(),
            "tokenizer": self.tokenizer.describe(),
        }

    def _digests(self) -> dict[str, str]:
        return {name: split.digest for name, split in self.splits.items()}


class BrokenEntryError(StrongTicketError):
    """A folder of tokens is incomplete or damaged."""


def is_entry(folder: Path) -> bool:
    """Return whether a folder holds tokens rather than text."""
    return (folder / DESCRIPTION).is_file()


def default_root() -> Path:
    """Return the default folder for entries."""
    if chosen := os.environ.get("STRONGTICKET_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strongticket"
    except RuntimeError:
        raise StrongTicketError(
            "this user has no home folder; set STRONGTICKET_CACHE to a folder for tokens."
        ) from None


def open_entry(folder: Path, splits: Sequence[str], *, key: str | None = None) -> Text:
    """Open some splits of an entry and check them; anything wrong raises `BrokenEntryError`.

    Args:
        folder: the entry's folder.
        splits: which to open; all must exist.
        key: the hash of what the entry must have been made from, if known.
    """
    try:
        about = json.loads(regular(folder / DESCRIPTION).read_bytes())
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']!r:.40} is not the {FORMAT} this release reads")
        if key is not None and about["key"] != key:
            raise ValueError("it was made from another text or tokenizer")
        tokenizer = _tokenizer_of(folder, about["tokenizer"])
        opened = {}
        for split in splits:
            if split not in about["splits"]:
                raise ValueError(f"it has no {split} split, only {', '.join(about['splits'])}")
            opened[split] = _open_split(folder / f"{split}.npy", about["splits"][split], tokenizer.vocabulary)
        return Text(name=str(about["name"]), tokenizer=tokenizer, splits=opened)
    except (*_DAMAGE, OSError) as error:
        reason = str(error) if isinstance(error, ValueError | OSError) else repr(error)
        raise BrokenEntryError(f"{folder} cannot be used as tokens: {reason:.200}.") from None


def find_or_make_entry(
    root: Path, name: str, files: Files, tokenizer: Tokenizer, progress: Progress | None = None
) -> Text:
    """Open a text's entry below `root`; make it first if it is missing or damaged."""
    key, splits = _key(files, tokenizer), tuple(files)
    folder = root / "tokens" / key
    lock = folder.with_name(f".{key}.lock")
    try:
        entry = open_entry(folder, splits, key=key)
        if lock.exists():  # left by a process that was killed just after it made the entry
            with suppress(OSError), lock_file(lock):
                pass
        return entry
    except BrokenEntryError:
        pass  # usually, it has not been made yet
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with named(folder), lock_file(lock):
            try:
                return open_entry(folder, splits, key=key)
            except BrokenEntryError:
                pass  # nobody made it while we waited
            _make_entry(folder, name, files, tokenizer, progress)
            return open_entry(folder, splits, key=key)
    except OSError as error:
        raise StrongTicketError(
            f"cannot store tokens: {error}. Set STRONGTICKET_CACHE to a writable folder with free space."
        ) from None


def _key(files: Files, tokenizer: Tokenizer) -> str:
    """Hash what an entry is made from, but not its name, so that the same text elsewhere shares the entry."""
    splits = {split: [_sha256(path) for path in paths] for split, paths in files.items()}
    made_from = canonical_json({"format": FORMAT, "splits": splits, "tokenizer": tokenizer.digest})
    return hashlib.sha256(made_from.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_entry(folder: Path, name: str, files: Files, tokenizer: Tokenizer, progress: Progress | None) -> None:
    """Make an entry under a temporary name, then rename it; we hold the lock, so anything else there is left over."""
    for left_over in (folder, *folder.parent.glob(f".{folder.name}.*.part")):
        shutil.rmtree(left_over, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
    temporary.mkdir()
    try:
        splits = _write_splits(temporary, files, tokenizer, progress)
        if isinstance(tokenizer.codec, BpeCodec):
            (temporary / TOKENIZER_JSON).write_text(tokenizer.codec.to_json(), "utf-8")
        about = {"format": FORMAT, "key": folder.name, "name": name, "tokenizer": tokenizer.describe()}
        (temporary / DESCRIPTION).write_text(json.dumps(about | {"splits": splits}, indent=1) + "\n", "utf-8")
        os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class SplitRecord(TypedDict):
    """What an entry says of the tokens of a split."""

    tokens: int
    sha256: str


def _write_splits(
    folder: Path, files: Files, tokenizer: Tokenizer, progress: Progress | None
) -> dict[str, SplitRecord]:
    total = sum(path.stat().st_size for paths in files.values() for path in paths)
    done = 0

    def advance(stored: int) -> None:
        nonlocal done
        done += stored
        if progress:
            progress(done, total)

    return {split: _write_split(folder / f"{split}.npy", paths, tokenizer, advance) for split, paths in files.items()}


def _write_split(path: Path, files: Sequence[Path], tokenizer: Tokenizer, advance: Advance) -> SplitRecord:
    """Write the tokens of all files in sequence, each encoded separately; only a few MB are in memory at a time."""
    dtype = token_dtype(tokenizer.vocabulary)
    digest, count = hashlib.sha256(), 0
    with open(path, "wb") as out:
        _write_header(out, dtype, 0)
        start = out.tell()
        for file in files:
            for tokens in tokenizer.codec.encode_pieces(read_pieces(file, advance)):
                data = tokens.astype(dtype).tobytes()
                out.write(data)
                digest.update(data)
                count += len(tokens)
        out.seek(0)
        _write_header(out, dtype, count)
        assert out.tell() == start, "NumPy leaves room in the header for the array to grow"
    if not count:
        raise StrongTicketError(f"{files[0]} contains no text.")
    return {"tokens": count, "sha256": digest.hexdigest()}


def _write_header(file: BinaryIO, dtype: np.dtype[Any], count: int) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})


def _open_split(path: Path, about: SplitRecord, vocabulary: int) -> Split:
    tokens = load_npy(path, mmap_mode="r")
    if tokens.ndim != 1 or tokens.dtype != token_dtype(vocabulary) or len(tokens) != about["tokens"]:
        raise ValueError(f"{path.name} does not hold {about['tokens']} tokens")
    if hashlib.sha256(tokens.data).hexdigest() != about["sha256"]:
        raise ValueError(f"the SHA-256 of {path.name} differs from the one in {DESCRIPTION}")
    if tokens.max() >= vocabulary:
        raise ValueError(f"{path.name} has token {tokens.max()}, but the vocabulary ends at {vocabulary - 1}")
    return Split(tokens=tokens, digest=about["sha256"])


def _tokenizer_of(folder: Path, about: Json) -> Tokenizer:
    """Return the tokenizer an entry was made with; its rules are read from the entry when needed."""
    plain = find_tokenizer(BYTES)
    if about == plain.describe():
        return plain
    name, vocabulary, digest = str(about["name"]), int(about["vocabulary"]), str(about["digest"])

    def load() -> Codec:
        if not (folder / TOKENIZER_JSON).is_file():
            raise StrongTicketError(f"{folder} has tokens but no {TOKENIZER_JSON}; use --tokenizer.")
        codec = bpe_from_folder(folder)
        if codec.digest != digest:
            raise StrongTicketError(f"{folder / TOKENIZER_JSON} is not the tokenizer the tokens were made with.")
        return codec

    return Tokenizer(name, vocabulary, digest, load)
