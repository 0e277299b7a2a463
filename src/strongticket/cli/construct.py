"""`strongticket construct` and `strongticket compare`: turn a pretrained model into a ticket, and compare the two."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from strongticket.cli.options import (
    AsJson,
    Dask,
    DaskTimeout,
    Families,
    chosen_cluster,
    chosen_device,
    load_families,
    option,
)
from strongticket.cli.terminal import bad_usage, echo, print_json, print_table, say_stopped, tell, write
from strongticket.errors import StrongTicketError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from strongticket.charts.parts import Table
    from strongticket.pretrained.compare import Compared
    from strongticket.tickets.ticket import Ticket


Device = Literal["cpu", "cuda"]
ModelName = Annotated[
    str, option("A Hugging Face model, or its folder.", "--model", metavar="NAME_OR_DIR", shown=False)
]


def construct(
    model: ModelName,
    out: Annotated[Path | None, option("Ticket file to write.", dir_okay=False, shown=False)] = None,
    items: Annotated[int, option("Random products per entry of a matrix, 4 to 32; more are more exact.")] = 20,
    seed: Annotated[int, option("Seed of the random weights.", min=0, max=2**64 - 1)] = 0,
    what: Annotated[Literal["attention", "attention+mlp"], option("Which matrices to replace.")] = "attention",
    parts: Annotated[
        Literal["merged", "linear"],
        option("Merge heads as in the paper where possible, or treat every linear map by itself."),
    ] = "merged",
    assignment: Annotated[
        Literal["adaptive", "equal"],
        option("How hidden units are assigned to inputs: by their weights, or in equal blocks as in the paper."),
    ] = "adaptive",
    device: Annotated[Device, option("Where subset sums are computed.")] = "cpu",
    workers: Annotated[int | None, option("Local processes.", min=1, shown="one per core; 1 with cuda")] = None,
    dask: Dask = None,
    dask_timeout: DaskTimeout = None,
    families: Families = None,
    describe: Annotated[
        bool, option("Print the model's parts, or a draft of its family, and stop.", "--describe")
    ] = False,
    dry_run: Annotated[bool, option("Print the time and file size to expect, and stop.", "--dry-run")] = False,
    as_json: AsJson = False,
) -> None:
    """Prune a wide random network into a pretrained model.

    The result is a ticket: a seed and a bit per weight, nothing trained.

    Ctrl-C keeps what is done in OUT.partial; the same command resumes. Masks and identity do not depend on --device,
    --workers or --dask.
    """
    cluster = chosen_cluster(workers, dask, dask_timeout)
    if cluster is None:  # a cluster's workers may have a GPU that this machine lacks
        chosen_device(device)
    from strongticket.parallel import available_cores
    from strongticket.pretrained.checkpoint import remove_checkpoint
    from strongticket.pretrained.construct import FEWEST_ITEMS, MOST_ITEMS, construct_pretrained
    from strongticket.pretrained.load import load_model
    from strongticket.pretrained.target import Target
    from strongticket.progress import doing, rate_bar

    if not FEWEST_ITEMS <= items <= MOST_ITEMS:
        bad_usage(f"--items must be {FEWEST_ITEMS} to {MOST_ITEMS}; got {items}.")
    load_families(families)
    workers = workers or (1 if device == "cuda" else available_cores())
    if describe or dry_run:
        _look_at(model, what, parts, describe, items, device, workers)
        return
    if out is None:
        bad_usage("--out is needed: the ticket file to write. Only --describe and --dry-run work without it.")
    if not out.parent.is_dir():
        raise StrongTicketError(f"{out} cannot be written: there is no folder {out.parent}.")

    settings: dict[str, Any] = {"items": items, "seed": seed, "what": what, "parts": parts, "assignment": assignment}
    with doing(f"reading {model}"):
        loaded = load_model(model, parts)
    partial = out.with_name(f"{out.name}.partial")
    ticket = _finished(loaded, out, settings)
    if ticket is None:
        work = Target(loaded, what, parts).pieces(items, seed).values()
        means: dict[str, Any] = {"device": device, "dask": cluster, "checkpoint": partial, "workers": workers}
        try:
            with rate_bar("subset sums", sum(piece.sums for pieces in work for piece in pieces)) as advance:
                ticket = construct_pretrained(loaded, **settings, **means, progress=advance, warn=tell)
            ticket.save(out)
        except KeyboardInterrupt:
            say_stopped()
    remove_checkpoint(partial)
    _print_constructed(ticket, out, as_json)


def _look_at(model: str, what: Any, parts: Any, describe: bool, items: int, device: str, workers: int) -> None:
    """Print the parts of a model, or the time and size of its construction, without loading its weights."""
    from strongticket.pretrained import describe as words
    from strongticket.pretrained.families import is_known
    from strongticket.pretrained.load import load_skeleton
    from strongticket.pretrained.predict import check_memory, in_bytes, predict, seconds_of
    from strongticket.pretrained.target import Target

    skeleton = load_skeleton(model)
    if describe and not is_known(skeleton.config):
        write(words.skeleton(skeleton))
        return
    target = Target(skeleton, what, parts)
    if describe:
        made_of = "linear" if target.family.linear else parts
        echo(f"family {target.model_type}, parts {made_of}, {target.family.kind}")
        for line in words.describe(target):
            echo(line)
        return
    pieces = [piece for part in target.pieces(items, 0, device=device).values() for piece in part]
    predicted = predict(pieces)
    seconds = seconds_of(pieces) / workers
    echo(f"{predicted.sums:,} subset sums of {items} items, {predicted.weights:,} random weights")
    echo(f"{_duration(seconds)} with {workers} worker{'' if workers == 1 else 's'} on {device}, besides start-up")
    echo(f"a ticket of about {in_bytes(predicted.ticket_bytes)}")
    piece = f"{in_bytes(predicted.piece_bytes)} for {predicted.largest}, the largest part"
    echo(f"extra memory: {piece}, per worker, and the ticket's own size")
    check_memory(predicted, device, workers)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"about {seconds:.0f} seconds" if seconds >= 2 else f"about {seconds:.1f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:.1f} hours"


def _finished(model: "nn.Module", out: Path, settings: dict[str, Any]) -> "Ticket | None":
    """Return the ticket if an earlier run of the same command wrote it; never overwrite another file."""
    from strongticket.pretrained.attaching import check_ticket, parts_of
    from strongticket.tickets.ticket import Ticket

    if not out.exists():
        return None
    try:
        ticket = Ticket.load(out)
        target = check_ticket(model, ticket)
    except StrongTicketError:
        raise StrongTicketError(f"{out} exists and is not this model's ticket; choose another --out.") from None
    assert ticket.certificate is not None
    assignment = "adaptive" if "assignment" in ticket.certificate.details else "equal"
    # A family whose heads are never merged has only one kind of parts.
    parts = settings["parts"] if target.family.linear else parts_of(ticket)
    there = {"seed": ticket.seed, **ticket.architecture, "assignment": assignment, "parts": parts}
    for name, value in settings.items():
        if there.get(name) != value:
            raise StrongTicketError(
                f"{out} exists and was made with {name} {there.get(name)}, not {value}; choose another --out."
            )
    return ticket


def _print_constructed(ticket: "Ticket", out: Path, as_json: bool) -> None:
    assert ticket.certificate is not None
    details = ticket.certificate.details
    parts = details["parts"]
    summary = {
        "file": str(out),
        "identity": ticket.identity,
        "file_bytes": out.stat().st_size,
        "weights": ticket.numel,
        "kept": ticket.kept(),
        "unreachable": details["unreachable"]["count"],
        "worst_entry": max(part["worst_entry"] for part in parts),
        "worst_reached": max(part["worst_reached"] for part in parts),
        "target_sha256": ticket.certificate.target_sha256,
        "parts": [{key: part[key] for key in ("part", "input_norm", "error")} for part in parts],
    }
    if as_json:
        print_json(summary)
        return
    echo(f"{out}: {summary['file_bytes']:,} bytes, {ticket.numel:,} random weights, {summary['kept']:,} kept")
    echo(f"identity {ticket.identity}")
    echo(
        f"{summary['unreachable']:,} entries out of reach; worst entry off by {summary['worst_entry']:.1e}, "
        f"{summary['worst_reached']:.1e} among those in reach"
    )


def compare(
    model: ModelName,
    ticket: Annotated[Path, option("Ticket file.", exists=True, dir_okay=False, shown=False)],
    text: Annotated[Path, option("UTF-8 text, plain or .xz.", exists=True, dir_okay=False, shown=False)],
    sentences: Annotated[int, option("How many sentences of the text to use.", min=1)] = 1000,
    mode: Annotated[
        Literal["merged", "literal"], option("Run the ticket with its matrices multiplied out, or wide and random.")
    ] = "merged",
    device: Annotated[Device, option("Where to run both.")] = "cpu",
    families: Families = None,
    as_json: AsJson = False,
) -> None:
    """Compare a pretrained model with its ticket.

    Both run on the same sentences. Each part's error is measured on the original's own inputs and shown beside its
    certificate.
    """
    chosen_device(device)
    from strongticket.pretrained.compare import check_reads_text
    from strongticket.pretrained.compare import compare as run_comparison
    from strongticket.pretrained.load import load_model, load_tokenizer
    from strongticket.pretrained.text import read_sentences
    from strongticket.progress import doing, rate_bars
    from strongticket.tickets.ticket import Ticket

    load_families(families)
    chosen = read_sentences(text, sentences)
    with doing(f"reading {model}"):
        found, loaded = Ticket.load(ticket), load_model(model, "linear").to(device)
    check_reads_text(loaded)
    sums = sum(tensor.numel for tensor in found.tensors.values())
    tokenizer = load_tokenizer(model)
    with rate_bars() as begin:
        weights, read = begin("random weights", sums), begin("sentences", len(chosen))
        result = run_comparison(loaded, found, chosen, tokenizer, mode=mode, attaching=weights, progress=read)
    if as_json:
        print_json(result)
        return
    for line in _comparison_lines(result):
        echo(line)
    for table in _comparison_tables(result):
        print_table(table)


def _comparison_lines(result: "Compared") -> "Iterator[str]":
    yield f"{result['texts']:,} sentences, {result['tokens']:,} tokens; the ticket {result['mode']}"
    if result["cut"]:
        yield f"{result['cut']:,} of the sentences are longer than {result['most_tokens']} tokens and were cut to that"
    if "cosine" in result:
        cosine = result["cosine"]
        yield f"cosine similarity of embeddings: mean {cosine['mean']:.8f}, least {cosine['min']:.8f}"
    else:
        loss = result["loss"]
        yield f"loss per token: original {loss['original']:.6f}, ticket {loss['ticket']:.6f}; KL {result['kl']:.3e}"
    yield (
        f"outputs of up to {result['largest_output']:.3g} differ by at most {result['largest_difference']:.3e}; "
        f"float32 itself moves the original's by {result['float32_rounding']:.3e}"
    )


def _comparison_tables(result: "Compared") -> "Iterator[Table]":
    from strongticket.bounds.upward import down_digits, up_digits
    from strongticket.charts.parts import table_of

    # Never more than is proved: bounds are rounded up, the norms they cover down.
    parts = [
        {**part, "certified": up_digits(part["certified"], 3), "input_norm": down_digits(part["input_norm"], 3)}
        for part in result["parts"]
    ]
    distances = {"layer": "{layer}", "mean": "{mean_distance:.2e}", "largest": "{largest_distance:.2e}"}
    errors = {"part": "{part}", "error": "{error:.2e}", "certified": "{certified:.2e}"}
    errors |= {"largest input": "{largest_input:.2f}", "covered input": "{input_norm:.3g}"}
    for caption, rows, columns in (
        ("Attention maps, distance of rows in 1-norm", result["attention_maps"], distances),
        ("Each part on the original's inputs", parts, errors),
    ):
        yield table_of(caption, rows, {name: written.format_map for name, written in columns.items()})
