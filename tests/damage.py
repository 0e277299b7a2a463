"""Damage every kind of file that the program reads: it must be refused by one line, do no harm, or be made good.

    python -m tests.damage [--count 5000] [--seed 0]

Each kind of file is read by what reads it in a command. After a damage this gives what it gave before or does the work
again ("harmless"), says what is wrong ("refused"), or gives what the file says now ("another content"). Failures are
errors that `main` does not turn into a line, and another content of a file that a digest guards. Text, models and notes
on a run have none; and handmade damages whose digest was made anew are forged, so that of these only errors count.
"""

import argparse
import json
import lzma
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from strongticket.data.text import Text, load_text
from strongticket.data.token_cache import open_entry
from strongticket.errors import StrongTicketError
from strongticket.experiments import fig4, fig8
from strongticket.experiments.figure import How
from strongticket.experiments.language import Rows
from strongticket.experiments.results import PARTIAL, ResultFolder, naming
from strongticket.files import Json, as_json, sealed
from strongticket.learn import rounded_file
from strongticket.learn.config import RunConfig
from strongticket.learn.folder import CHECKPOINT, RunFolder
from strongticket.learn.rounded import Rounded
from strongticket.learn.run import Means, Moment
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run
from strongticket.models.gpt2 import GPT2, gpt2_config
from strongticket.pretrained.checkpoint import Checkpoint
from strongticket.pretrained.target import Target
from strongticket.pretrained.text import read_sentences
from strongticket.report.find import Found, find
from strongticket.tickets.content import digest_of_tensors
from tests.experiments.runs import UNTRAINED
from tests.experiments.text_results import QUICK, fill
from tests.fuzz_ticket import flip_bits, splice, truncate
from tests.golden.make import TICKETS
from tests.little_bpe import pairs_bpe
from tests.pretrained.small_models import small

CPU = torch.device("cpu")
DIGEST = b'"sha256"'
ROOT = Path(__file__).parents[1]
# What `strongticket.cli.main.main` turns into a line.
TOLD = (StrongTicketError, ValueError, OSError, MemoryError)
SMALL = RunConfig(size="nano", length=32, sequences=2, micro_batch=2, steps=12, warmup=2, validate_every=6)


@dataclass(frozen=True)
class Kind:
    """A kind of file: one of them, what a command gets out of it, and whether a digest guards it."""

    name: str
    file: Path
    read: Callable[[], object]
    guarded: bool


# ---- damages ----

Damage = Callable[[bytes, random.Random], bytes]


def zero_a_block(data: bytes, rng: random.Random) -> bytes:
    """Overwrite a block with zeros, as a disk does that lost one."""
    start = rng.randrange(len(data))
    return data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :]


def exchange_digits(data: bytes, rng: random.Random) -> bytes:
    """Put another digit in the place of one."""
    places = [place for place, byte in enumerate(data[:100_000]) if chr(byte).isdigit()]
    if not places:
        return flip_bits(data, rng)
    place = rng.choice(places)
    return data[:place] + str(rng.randrange(10)).encode() + data[place + 1 :]


def lose_a_line(data: bytes, rng: random.Random) -> bytes:
    """Take a line out, or write it twice."""
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    return b"".join(lines[:place] + lines[place : place + 1] * rng.choice((0, 2)) + lines[place + 1 :])


RANDOM: tuple[Damage, ...] = (flip_bits, truncate, splice, zero_a_block, exchange_digits, lose_a_line)
STRANGE: tuple[Json, ...] = (None, -1, 1e308, "x\x1b[31m", [], {}, True, [[0]], 10**400)


def handmade(data: bytes) -> Iterator[bytes]:
    """Give files that nobody wrote, then the file itself with a field missing or strange, its digest made anew."""
    yield from (b"", b"[]", b"{}", b"1", b"null", b'"text"', b"NaN", b"[" * 100_000, b"\xff\xfe{", b"\x00" * len(data))
    yield from (data[: len(data) // 2], data[:-1], data + b"\n{}", data + data, data[::-1])
    lines = data.splitlines()
    try:
        contents = [json.loads(data)]
    except (ValueError, RecursionError):
        try:
            contents = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return
    for place, content in enumerate(contents[:3]):
        if isinstance(content, dict):
            was_sealed = content.pop("sha256", None) is not None
            for changed in _strange(content):
                written = json.dumps(sealed(changed) if was_sealed else changed).encode()
                yield written if len(contents) == 1 else b"\n".join((*lines[:place], written, *lines[place + 1 :], b""))


def _strange(content: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Give an object with one field gone or replaced, down to the second level."""
    for number, (key, value) in enumerate(content.items()):
        yield {name: other for name, other in content.items() if name != key}
        yield {**content, key: STRANGE[number % len(STRANGE)]}
        if isinstance(value, dict):
            for deeper, name in enumerate(value):
                yield {**content, key: {**value, name: STRANGE[(number + deeper) % len(STRANGE)]}}


# ---- kinds ----


def kinds(folder: Path) -> list[Kind]:
    """Make a file of every kind."""
    return [
        *_tickets(folder / "tickets"),
        *_searches(folder / "searches"),
        *_constructions(folder / "constructions"),
        *_figures(folder / "figures"),
        *_texts(folder / "texts"),
        *_inputs(folder / "inputs"),
    ]


def _tickets(folder: Path) -> Iterator[Kind]:
    from strongticket import Ticket

    folder.mkdir()
    for name in ("every-feature", "owners"):
        file = folder / f"{name}.ticket"
        TICKETS[name]().save(file)
        yield Kind("tickets", file, lambda file=file: Ticket.load(file).to_bytes(), guarded=True)


def _searches(folder: Path) -> Iterator[Kind]:
    folder.mkdir()
    text = load_text("sample", cache=folder / "cache")
    text = replace(text, splits={name: replace(each, tokens=each.tokens[:500]) for name, each in text.splits.items()})
    means = Means(share=Share(0, 1, CPU), checkpoint_seconds=0.0, warn=lambda line: None)

    def stop(moment: Moment) -> None:
        if moment.step == 12:
            raise RuntimeError

    with suppress(RuntimeError):
        run(SMALL, text, folder / "begun", means, watch=stop)
    run(SMALL, text, folder / "done", means)
    settings = as_json({**SMALL.as_json(), "text": text.describe()})
    begun, done = (RunFolder(folder / name, settings, RunConfig) for name in ("begun", "done"))

    def check(state: Any) -> None:
        """Hold a checkpoint against its own run; what a run asks of one is tested in tests/learn/test_checkpoint.py."""
        if state["step"] not in range(SMALL.steps + 1):
            raise ValueError("step")

    def load() -> object:
        state = begun.load_checkpoint(CPU, check, lambda line: None)
        return None if state is None else sorted(state)

    def finished() -> object:
        return run(SMALL, text, folder / "done", means)

    def in_the_report() -> object:
        return _in_report(folder / "done").searches

    assert done.finished() is not None
    yield Kind("checkpoints", folder / "begun" / CHECKPOINT, load, guarded=True)
    yield Kind("result.json of a search", folder / "done" / "result.json", finished, guarded=True)
    yield Kind("result.json in a report", folder / "done" / "result.json", in_the_report, guarded=True)
    yield Kind("config.json of a search", folder / "done" / "config.json", finished, guarded=True)
    yield Kind("run.json", folder / "done" / "run.json", in_the_report, guarded=False)
    yield Kind("metrics.jsonl", folder / "begun" / "metrics.jsonl", lambda: begun.metrics(), guarded=False)
    yield Kind("metrics.jsonl in a report", folder / "done" / "metrics.jsonl", in_the_report, guarded=False)


def _in_report(path: Path) -> Found:
    """Find what a page would show; what it leaves out and names counts as refused."""
    found = find([path])
    if found.left_out:
        raise StrongTicketError(str(found.left_out))
    return found


def _constructions(folder: Path) -> Iterator[Kind]:
    folder.mkdir()
    piece = Target(small("vit")).pieces(4, 0)["layer.0.attention"][0]
    kept = Checkpoint(folder / "x.partial", {"seed": 0}, lambda line: None)

    def load() -> object:
        with kept.open():
            found = kept.load(piece)
        return None if found is None else str(asdict(found))

    with kept.open():
        kept.keep(piece.solve())
    yield Kind("pieces of a construction", folder / "x.partial" / f"{piece.name}.npz", load, guarded=True)
    yield Kind("settings of a construction", folder / "x.partial" / "settings.json", load, guarded=True)


def _figures(folder: Path) -> Iterator[Kind]:
    config = fig4.Config(sources=2, widths=(8, 16, 24), inputs=20, target=UNTRAINED)
    settings = as_json({"figure": "fig4", **asdict(config)})
    fig4.FIGURE.plan.carry_out("fig4", config, folder / "done", How())
    begun = ResultFolder(folder / "begun", settings, fig4.Config)
    rows = {f"task {number}": {"error": 0.5**number} for number in range(5)}
    with begun.partial() as partial:
        partial.keep_targets([{"index": 0}])
        for name, row in rows.items():
            partial.keep(name, row)

    def begin() -> object:
        with begun.partial(lambda line: None) as partial:
            wrong = {name: row for name, row in partial.rows.items() if rows.get(name) != row}
            return wrong, partial.targets in (None, [{"index": 0}])

    def drawn() -> object:
        result = fig4.FIGURE.plan.carry_out("fig4", config, folder / "done", How())
        with naming(folder / "done"):
            return str(fig4.FIGURE.describe(result))

    fill(folder / "text", fig8.FIGURE, QUICK)
    rows_kept = Rows(folder / "text" / "fig8").all()

    def from_rows() -> object:
        return [row for row in Rows(folder / "text" / "fig8").all() if row not in rows_kept]

    yield Kind("partial.jsonl", folder / "begun" / PARTIAL, begin, guarded=True)
    yield Kind("result.json of a figure", folder / "done" / "fig4" / "result.json", drawn, guarded=True)
    yield Kind("rows.jsonl", folder / "text" / "fig8" / "rows.jsonl", from_rows, guarded=True)


def _texts(folder: Path) -> Iterator[Kind]:
    text, tokenizer, cache = folder / "text", folder / "tokenizer", folder / "cache"
    text.mkdir(parents=True)
    tokenizer.mkdir()
    for split in ("train", "valid"):
        (text / f"{split}.txt").write_text("The river runs through old towns. " * 20)
    (tokenizer / "tokenizer.json").write_text(_little_bpe())
    made = load_text(str(text), tokenizer=str(tokenizer), cache=cache)
    (entry,) = (path for path in (cache / "tokens").iterdir() if path.is_dir())

    def content(opened: Text) -> object:
        return opened.digest, opened.text_bytes("train"), opened.tokenizer.decode(opened.valid)

    def opened() -> object:
        return content(open_entry(entry, ("train", "valid"), key=entry.name))

    assert content(made) == opened()
    for name in ("tokens.json", "train.npy", "tokenizer.json"):
        yield Kind(f"{name} of a token cache", entry / name, opened, guarded=True)
    (folder / "packed").mkdir()
    for split in ("train", "valid"):
        (folder / "packed" / f"{split}.txt.xz").write_bytes(lzma.compress((text / f"{split}.txt").read_bytes()))

    def read(data: Path, tokenizer: str = "bytes") -> object:
        with tempfile.TemporaryDirectory() as fresh:
            return content(load_text(str(data), tokenizer=tokenizer, cache=Path(fresh)))

    for file in (text / "train.txt", folder / "packed" / "train.txt.xz"):
        yield Kind(f"text in {file.suffix}", file, lambda file=file: read(file.parent), guarded=False)
        yield Kind(f"sentences in {file.suffix}", file, lambda file=file: read_sentences(file, 9), guarded=False)
    yield Kind("tokenizer.json", tokenizer / "tokenizer.json", lambda: read(text, str(tokenizer)), guarded=False)
    (pair := folder / "pair").mkdir()
    bpe = json.loads(_little_bpe())["model"]
    (pair / "vocab.json").write_text(json.dumps(bpe["vocab"]))
    (pair / "merges.txt").write_text("\n".join(" ".join(merge) for merge in bpe["merges"]))
    for name in ("vocab.json", "merges.txt"):
        yield Kind(name, pair / name, lambda: read(text, str(pair)), guarded=False)


def _little_bpe() -> str:
    """Write a byte-level BPE with a few merges."""
    content = json.loads(pairs_bpe().to_json())
    merges = content["model"]["merges"][:20]
    letters = sorted(token for token in content["model"]["vocab"] if len(token) == 1)
    tokens = [*letters, *("".join(pair if isinstance(pair, list) else pair.split(" ")) for pair in merges)]
    content["model"] |= {"merges": merges, "vocab": {token: number for number, token in enumerate(tokens)}}
    return json.dumps(content)


def _inputs(folder: Path) -> Iterator[Kind]:
    from safetensors.torch import save_file

    from strongticket.construct.target import load_samples, load_target
    from strongticket.pretrained import construct_pretrained
    from strongticket.pretrained.compare import compare
    from strongticket.pretrained.load import load_model, load_tokenizer

    folder.mkdir()
    np.save(folder / "samples.npy", np.arange(24.0).reshape(2, 3, 4))
    save_file({"samples": torch.arange(24.0).reshape(2, 3, 4)}, folder / "samples.safetensors")
    save_file({"weight": torch.arange(12.0).reshape(3, 4)}, folder / "target.safetensors")
    small("bert").save_pretrained(folder / "bert")  # type: ignore[operator]
    model, words = small("bert"), [f"word{number}" for number in range(20)]
    model.save_pretrained(folder / "shards", max_shard_size="10KB")  # type: ignore[operator]
    ticket = construct_pretrained(model, items=4)
    (named := folder / "words").mkdir()
    _write_tokenizer(named, words)

    def compared() -> object:
        found = compare(model, ticket, [" ".join(words[:9])], load_tokenizer(str(named)))
        return found["tokens"], found["largest_difference"]

    (folder / "compared").mkdir()
    report = folder / "compared" / "bert.json"
    report.write_text(json.dumps(compare(model, ticket, [" ".join(words[:9])], load_tokenizer(str(named)))))
    few = folder / "few.safetensors"
    few.write_bytes(
        rounded_file.to_bytes(Rounded(GPT2(gpt2_config("2x32", vocabulary=50, context=16), seed=3), "int4"))
    )
    rows = folder / "results.jsonl"
    rows.write_bytes(b"\n".join((ROOT / "results/bench/results.jsonl").read_bytes().splitlines()[:3]) + b"\n")

    def loaded() -> object:
        return Target(load_model(str(folder / "bert"))).sha256()

    for name in ("samples.npy", "samples.safetensors"):
        file = folder / name
        yield Kind(f"{name[8:]} samples", file, lambda file=file: str(load_samples(file)), guarded=False)
    yield Kind("targets", folder / "target.safetensors", lambda: str(load_target(folder / "target.safetensors")), False)
    yield Kind("config.json of a model", folder / "bert" / "config.json", loaded, guarded=False)
    yield Kind("weights of a model", folder / "bert" / "model.safetensors", loaded, guarded=False)
    index = folder / "shards" / "model.safetensors.index.json"
    yield Kind("list of a model's files", index, lambda: Target(load_model(str(index.parent))).sha256(), guarded=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        yield Kind(f"{name} of a model", named / name, compared, guarded=False)
    yield Kind("a comparison in a report", report, lambda: str(_in_report(report.parent).comparisons), guarded=False)
    yield Kind("weights in few bits", few, lambda: _weights(rounded_file.from_bytes(few.read_bytes())), False)
    yield Kind("results.jsonl", rows, lambda: str(_in_report(rows)), guarded=False)


def _weights(model: GPT2) -> str:
    return digest_of_tensors(dict(model.named_parameters()))


def _write_tokenizer(folder: Path, words: Sequence[str]) -> None:
    """Write a tokenizer of whole words, as Hugging Face does."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}, "[UNK]")
    engine = tokenizers.Tokenizer(model)
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="[UNK]", pad_token="[PAD]")
    made.save_pretrained(folder)


# ---- trials ----


@dataclass
class Trials:
    """Damage after damage, and what came of them."""

    kinds: Sequence[Kind]

    def __post_init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self.expected = [kind.read() for kind in self.kinds]

    def random(self, count: int, seed: int) -> None:
        """Damage files by chance, one kind after the other."""
        rng = random.Random(seed)
        for number in range(count):
            damage = rng.choice(RANDOM)
            place = number % len(self.kinds)
            self._try(place, f"{damage.__name__} {number}", "random", damage(self.kinds[place].file.read_bytes(), rng))

    def handmade(self, most: int | None = None, seed: int = 0) -> None:
        """Damage each kind in every way of the list, or by some chosen at random."""
        for place, kind in enumerate(self.kinds):
            damages = list(handmade(kind.file.read_bytes()))
            if most is not None:
                damages = random.Random(seed).sample(damages, min(most, len(damages)))
            for number, data in enumerate(damages):
                self._try(place, f"handmade {number}", "handmade", data)

    def _try(self, place: int, what: str, how: str, data: bytes) -> None:
        kind, expected = self.kinds[place], self.expected[place]
        keep = kind.file.parent.with_name(f"{kind.file.parent.name} as it was")
        shutil.copytree(kind.file.parent, keep)
        kind.file.write_bytes(data)
        try:
            with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                warnings.simplefilter("ignore")
                found = kind.read()
            outcome = "harmless" if str(found) == str(expected) or found is None else "another content"
        except TOLD:
            outcome = "refused"
        except Exception as error:
            outcome = "error"
            self.failures.append(f"{kind.name}, {what}: {type(error).__name__}: {error}")
        finally:
            shutil.rmtree(kind.file.parent)
            keep.rename(kind.file.parent)
        # Where the digest's own name is hit as well, the file looks like one of a release that wrote none.
        guarded = kind.guarded and data.count(DIGEST) >= kind.file.read_bytes().count(DIGEST)
        if outcome == "another content" and guarded and how == "random":
            self.failures.append(f"{kind.name}, {what}: another content, and nothing said")
        self.counts[kind.name, how] += 1
        self.counts[kind.name, outcome] += 1

    def table(self) -> str:
        """Write the counts for docs/reliability.md."""
        columns = ("handmade", "random", "refused", "harmless", "another content")
        names = list(dict.fromkeys(kind.name for kind in self.kinds))
        rows = [("file", *columns), ("---",) * (len(columns) + 1)]
        rows += [(name, *(f"{self.counts[name, column]:,}" for column in columns)) for name in names]
        rows += [("all", *(f"{sum(self.counts[name, column] for name in names):,}" for column in columns))]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Damage files in every way, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="random damages")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(kinds(Path(folder)))
        trials.handmade()
        trials.random(arguments.count, arguments.seed)
    print(trials.table())
    for failure in trials.failures:
        print(failure, file=sys.stderr)
    return int(bool(trials.failures))


if __name__ == "__main__":
    sys.exit(main())
