"""Text as tokens: the sample that ships with the package, WikiText-103, or a folder of files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from strongticket.data.hub import WIKITEXT, fetch_wikitext
from strongticket.data.text_files import LAYOUT, SPLITS, find_text_files, name_of
from strongticket.data.token_cache import Progress, default_root, find_or_make_entry, is_entry, open_entry
from strongticket.data.token_cache import Text as Text
from strongticket.data.tokenizer import BYTES, GPT2, find_tokenizer
from strongticket.data.windows import training_batch as training_batch
from strongticket.data.windows import validation_batches as validation_batches
from strongticket.errors import StrongTicketError

SAMPLE = "sample"
_SAMPLE_FOLDER = Path(__file__).with_name("sample")


def load_text(
    data: str,
    *,
    tokenizer: str | None = None,
    splits: Sequence[str] = ("train", "valid"),
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Text:
    """Load the tokens of a text; make them if the text is new.

    Args:
        data: "sample"; "wikitext-103", fetched by the `datasets` package; a folder of text files, plain or .xz, with
            train, valid (val, dev) or test in their names; or a folder of tokens made earlier.
        tokenizer: "bytes", "gpt2", or a folder with vocab.json and merges.txt or tokenizer.json. By default bytes for
            the sample and gpt2 for other text.
        splits: which of "train", "valid" and "test" to load; all must exist.
        cache: where tokens are stored; by default $STRONGTICKET_CACHE or the user's cache folder.
        progress: called with the bytes of text read so far and in total, while tokens are made.

    Example:
        >>> text = load_text("sample")
        >>> text.tokenizer.decode(text.valid[:18])
        '= Hurricane Cleo ='
    """
    if not splits or not set(splits) <= set(SPLITS):
        raise ValueError(f"splits must be some of {', '.join(SPLITS)}; got {', '.join(splits) or 'none'}.")
    root = cache or default_root()
    folder = _folder_of(data, root)
    name = data if data in (SAMPLE, WIKITEXT) else name_of(folder)
    if is_entry(folder):
        return _from_entry(folder, tokenizer, splits)
    files = _files_of(folder, splits)
    chosen = find_tokenizer(tokenizer or (BYTES if data == SAMPLE else GPT2))
    # The same text may have been seen under another name.
    return replace(find_or_make_entry(root, name, files, chosen, progress), name=name)


def _folder_of(data: str, root: Path) -> Path:
    if data == SAMPLE:
        return _SAMPLE_FOLDER
    if data == WIKITEXT:
        folder = root / "text" / WIKITEXT
        fetch_wikitext(folder)
        return folder
    if not Path(data).is_dir():
        what = "is a file" if Path(data).exists() else "does not exist"
        raise StrongTicketError(f"{data} {what}; data must be {SAMPLE}, {WIKITEXT} or a folder. {LAYOUT}.")
    return Path(data)


def _files_of(folder: Path, splits: Sequence[str]) -> Mapping[str, list[Path]]:
    found = find_text_files(folder)
    if missing := [split for split in splits if split not in found]:
        there = [path.name for files in found.values() for path in files] or sorted(p.name for p in folder.iterdir())
        listed = ", ".join(there[:5] + ["..."] * (len(there) > 5)) or "nothing"
        raise StrongTicketError(f"{folder} has no {' and no '.join(missing)} text; found {listed}. {LAYOUT}.")
    return {split: found[split] for split in splits}


def _from_entry(folder: Path, tokenizer: str | None, splits: Sequence[str]) -> Text:
    entry = open_entry(folder, splits)
    chosen = find_tokenizer(tokenizer) if tokenizer else entry.tokenizer
    if chosen.digest != entry.tokenizer.digest:
        made_with = entry.tokenizer
        raise StrongTicketError(
            f"{folder} holds tokens made with {made_with.name} ({made_with.vocabulary:,} tokens), not with "
            f"{chosen.name} ({chosen.vocabulary:,} tokens); leave --tokenizer out, or use a folder of text."
        )
    return replace(entry, tokenizer=chosen)
