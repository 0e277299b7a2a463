"""`strongticket evaluate` and `strongticket generate`: the loss of a ticket's language model, and its text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from strongticket.cli.options import AsJson, TicketFile, chosen_device, device_option, option
from strongticket.cli.terminal import bad_usage, echo, print_json, tell, write

if TYPE_CHECKING:
    from strongticket.learn.evaluate import Evaluation
    from strongticket.learn.recorded import Recorded

TokenizerName = Annotated[
    str | None,
    option(
        "bytes, gpt2, or a folder with vocab.json and merges.txt or tokenizer.json.",
        metavar="NAME_OR_DIR",
        shown="the one of the search",
    ),
]
Device = Annotated[str | None, device_option()]
HowToRun = Annotated[
    Literal["auto", "dense", "bits"],
    option("dense: every weight as a float; bits: signed constants stay bits; auto: the faster of the two.", "--run"),
]


def evaluate(
    file: TicketFile,
    data: Annotated[
        str | None,
        option(
            "Text: sample, wikitext-103, or a folder of text files or tokens.",
            metavar="NAME_OR_DIR",
            shown="the text of the ticket's search",
        ),
    ] = None,
    split: Annotated[Literal["valid", "test", "train"], option("Split of the text.")] = "valid",
    tokenizer: TokenizerName = None,
    length: Annotated[
        int | None, option("Tokens per sequence.", min=1, shown="as in the search, or all the model can see")
    ] = None,
    sequences: Annotated[
        int | None, option("Sequences per forward pass.", min=1, shown="as in the search, or 8")
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None,
        option("Precision of products.", shown="as in the search; float32 on a CPU"),
    ] = None,
    run: HowToRun = "auto",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure a ticket's loss on a text.

    The network is built from the ticket's file alone. If the ticket records its loss on this text, the two are
    compared: exit status 1 if they differ.
    """
    place = chosen_device(device)
    from strongticket.data.text import load_text
    from strongticket.data.token_cache import is_entry
    from strongticket.learn.evaluate import evaluate_ticket
    from strongticket.learn.recorded import recorded_of
    from strongticket.parallel import one_thread_for_small
    from strongticket.progress import count_bar
    from strongticket.tickets.ticket import Ticket

    ticket = Ticket.load(file)
    one_thread_for_small(ticket.numel, place)
    recorded = recorded_of(ticket)
    if data is None:
        data = _recorded_text(recorded)
    if tokenizer is None and recorded and not is_entry(Path(data)):  # an entry has its own tokenizer
        tokenizer = recorded.tokenizer_name
    with count_bar("making tokens") as show:
        text = load_text(data, tokenizer=tokenizer, splits=[split], progress=show)
    with count_bar("evaluating") as show:
        result = evaluate_ticket(
            ticket,
            text,
            split,
            length=length,
            sequences=sequences,
            precision=precision,
            run="dense" if run == "auto" else run,  # equally fast for whole sequences
            device=place,
            progress=show,
        )
    if as_json:
        print_json({"file": str(file), "identity": ticket.identity, **result.as_json()})
    else:
        _print_evaluation(result)
    if result.reproduced is False:
        raise typer.Exit(1)


def _recorded_text(recorded: "Recorded | None") -> str:
    """Return the text of a ticket's search, if its name is enough to find it."""
    from strongticket.data.hub import WIKITEXT
    from strongticket.data.text import SAMPLE

    if recorded is None:
        bad_usage("--data is needed: the ticket does not record a text.")
    if recorded.data not in (SAMPLE, WIKITEXT):
        bad_usage(f"--data is needed: the ticket was found on {recorded.data!r:.60}; give the folder of that text.")
    tell(f"text: {recorded.data}, as the ticket records")
    return recorded.data


def generate(
    file: TicketFile,
    prompt: Annotated[str, option("Start of the text.")] = "",
    tokens: Annotated[int, option("Tokens to write.", min=1)] = 200,
    temperature: Annotated[float, option("Randomness of the draws; 0 always takes the likeliest token.", min=0)] = 0.8,
    top_k: Annotated[int, option("Draw from this many of the likeliest tokens; 0 for all.", min=0)] = 40,
    seed: Annotated[int, option("Seed of the draws.", min=0, max=2**63 - 1)] = 0,
    tokenizer: TokenizerName = None,
    run: HowToRun = "auto",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write text with the language model a ticket holds.

    The text appears as it is written; speed and memory are printed at the end. On a CPU, large tickets of signed
    constants run from their bits, several times as fast as from floats.
    """
    place = chosen_device(device)
    from strongticket.environment import peak_memory
    from strongticket.learn.evaluate import faster_run, load_model
    from strongticket.learn.generate import EMPTY_PROMPT, Pace, decode_stream, generate_tokens
    from strongticket.learn.recorded import tokenizer_of
    from strongticket.models.signed import weight_bytes
    from strongticket.parallel import one_thread_for_small
    from strongticket.progress import doing
    from strongticket.tickets.ticket import Ticket

    ticket = Ticket.load(file)
    one_thread_for_small(ticket.numel, place)
    chosen = faster_run(ticket, place) if run == "auto" else run
    with doing("building the network"):
        model = load_model(ticket, place, chosen)
    words = tokenizer_of(ticket, model.config.vocabulary, tokenizer)
    begin = words.encode(prompt or EMPTY_PROMPT)
    if len(begin) > model.config.context:
        echo(
            f"The prompt has {len(begin):,} tokens; the model sees the last {model.config.context:,} of them.", err=True
        )
    made = generate_tokens(model, begin, tokens=tokens, temperature=temperature, top_k=top_k or None, seed=seed)
    pieces = decode_stream(words, pace := Pace(made))
    if as_json:
        written = {"file": str(file), "identity": ticket.identity, "prompt": prompt, "text": "".join(pieces)}
        memory = {"weight_bytes": weight_bytes(model), "peak_bytes": peak_memory(place)}
        print_json({**written, "run": chosen, **pace.as_json(), **memory})
        return
    write(prompt)
    for piece in pieces:
        write(piece)
    echo()
    where = "GPU memory" if place == "cuda" else "the process"
    echo(
        f"{pace}, run {'from bits' if chosen == 'bits' else 'dense'}: weights {_size(weight_bytes(model))}, "
        f"{where} {_size(peak_memory(place))} at most.",
        err=True,
    )


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _print_evaluation(result: "Evaluation") -> None:
    echo(f"loss            {result.loss:.6f} nats per token")
    echo(f"perplexity      {result.perplexity:.4g}")
    echo(f"bits per byte   {result.bits_per_byte:.4f}")
    echo(f"tokens          {result.tokens:,} of {result.data} {result.split}, in sequences of {result.length:,}")
    if result.recorded_loss is None:
        echo("recorded loss   none for this text and length")
    else:
        verdict = "reproduced" if result.reproduced else "NOT reproduced"
        difference = result.loss - result.recorded_loss
        echo(f"recorded loss   {result.recorded_loss:.6f}, {verdict} (difference {difference:.1e})")
