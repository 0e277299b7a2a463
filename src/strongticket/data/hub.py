"""Downloads from the Hugging Face hub: GPT-2's tokenizer and WikiText-103. Without a network, fail fast in one line."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from strongticket.data.byte_level import BpeCodec, bpe_from_json
from strongticket.data.text_files import LAYOUT
from strongticket.errors import MissingExtraError, StrongTicketError, first_line
from strongticket.files import atomic_write

WIKITEXT = "wikitext-103"
_SECONDS_TO_ANSWER = 10
_SPLIT_NAMES = {"train": "train", "valid": "validation", "test": "test"}


def fetch_gpt2() -> BpeCodec:
    """Get GPT-2's tokenizer with `transformers`, which keeps a copy."""
    instead = "set --tokenizer to a folder with GPT-2's vocab.json and merges.txt, or to bytes if the model reads bytes"
    transformers = _import("transformers", "GPT-2's tokenizer needs transformers", instead)
    unreachable = _why_unreachable()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained("gpt2", local_files_only=unreachable is not None)
    except OSError as error:
        reason = unreachable or first_line(error)
        raise StrongTicketError(f"GPT-2's tokenizer cannot be fetched ({reason}); {instead}.") from None
    return bpe_from_json(tokenizer.backend_tokenizer.to_str(), "transformers' GPT-2 tokenizer")


def fetch_wikitext(folder: Path) -> None:
    """Write WikiText-103 (raw) as train.txt, valid.txt and test.txt; existing files are not fetched again.

    The `datasets` package fetches it and keeps a copy; once that exists, the hub is no longer needed.
    """
    missing = [split for split in _SPLIT_NAMES if not (folder / f"{split}.txt").is_file()]
    if not missing:
        return
    instead = f"use --data sample, a short text that is packaged, or --data DIR. {LAYOUT}"
    datasets = _import("datasets", f"{WIKITEXT} needs datasets", instead)
    unreachable = _why_unreachable()
    try:
        with _copies_only(datasets.config, unreachable is not None):
            loaded = datasets.load_dataset("Salesforce/wikitext", "wikitext-103-raw-v1")
    except (OSError, ValueError) as error:
        reason = unreachable or first_line(error)
        raise StrongTicketError(f"{WIKITEXT} cannot be fetched ({reason}); {instead}.") from None
    folder.mkdir(parents=True, exist_ok=True)
    for split in missing:
        batches = loaded[_SPLIT_NAMES[split]].iter(batch_size=1000)
        write_rows((row for batch in batches for row in batch["text"]), folder / f"{split}.txt")


def write_rows(rows: Iterable[str], path: Path) -> None:
    r"""Write the data set's rows as in the original file: its lines `" \n"` have become empty rows."""
    with atomic_write(path) as file:
        for row in rows:
            file.write((row or " \n").encode())


def _why_unreachable() -> str | None:
    """Return why the hub does not answer, or None: its own library would retry for half a minute, with messages."""
    constants: Any = import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE:
        return None  # the user's choice: the library then uses only its own copies
    try:
        urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=_SECONDS_TO_ANSWER).close()
    except HTTPError:
        return None  # it answers
    except OSError as error:
        return f"the Hugging Face hub does not answer: {getattr(error, 'reason', error)}"
    return None


@contextmanager
def _copies_only(config: Any, wanted: bool) -> Iterator[None]:
    """Make `datasets` use only its own copies; it has a setting for this, but no argument."""
    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = before or wanted
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


def _import(name: str, need: str, instead: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(f"{need}: pip install 'strongticket[hf]', or {instead}.") from None
