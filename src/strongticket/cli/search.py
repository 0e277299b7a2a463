"""`strongticket search`: find a ticket in a random GPT-2, or train the ordinary one beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strongticket.cli.options import chosen_device, given_options, refuse_in_vain
from strongticket.cli.terminal import bad_usage
from strongticket.environment import command_line
from strongticket.learn.rules import DEFAULT_RULE, RULES

if TYPE_CHECKING:
    from strongticket.data.text import Text
    from strongticket.learn.config import RunConfig
    from strongticket.learn.run import Means

# The words `Policy` knows, written again because importing it means importing torch, too slow for `-h`.
Treatment = Literal["masked", "frozen", "trained"]
Constant = Literal["frozen", "trained"]
_MASKS, _SCHEDULE, _MACHINE = "What is masked, and how it is drawn (search only)", "Schedule", "Machine"
_STEPS_AN_EPOCH, _EPOCHS = 227, 50


def _masks(help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=_MASKS, **more)


def _schedule(help_text: str, **more: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=_SCHEDULE, **more)


def _machine(help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=_MACHINE, **more)


def search(
    context: typer.Context,
    size: Annotated[str, typer.Option(metavar="NAME", help="GPT-2 size: nano, mini, small or medium.")] = "small",
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_DIR", help="Text: wikitext-103, sample, or a folder with train and valid text files."
        ),
    ] = "wikitext-103",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_DIR", help="bytes, gpt2, or a folder with its files.", show_default="gpt2; sample: bytes"
        ),
    ] = None,
    mode: Annotated[
        Literal["search", "dense"], typer.Option(help="Search for a ticket, or train all weights as usual.")
    ] = "search",
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the runs, one folder a seed.")] = Path(
        "out/search"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights, first scores and order of the text.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, with seeds that follow on each other.")] = 1,
    rule: Annotated[str, _masks(f"How it is found what to keep: {', '.join(RULES)}.", metavar="NAME")] = DEFAULT_RULE,
    density: Annotated[float, _masks("Fraction of weights kept, in (0, 1].")] = 0.3,
    qk_scale: Annotated[str, _masks("Factor on query and key weights; auto is n_K^(1/4).", metavar="X|auto")] = "auto",
    attention: Annotated[Treatment, _masks("Attention weights.")] = "masked",
    mlp: Annotated[Treatment, _masks("MLP weights.")] = "masked",
    embeddings: Annotated[Treatment, _masks("Token and position embeddings; the head is tied to them.")] = "masked",
    norms: Annotated[Constant, _masks("Norms; frozen ones stay 1.")] = "frozen",
    biases: Annotated[Constant, _masks("Biases; frozen ones stay 0.")] = "frozen",
    output_gain: Annotated[float, _masks("Constant factor on the last norm's output.")] = 1.0,
    scope: Annotated[Literal["tensor", "global"], _masks("Rank scores in each tensor, or all together.")] = "tensor",
    signed: Annotated[bool, _masks("Rank scores by value, not by absolute value.", "--signed")] = False,
    init: Annotated[
        Literal["own", "normal", "uniform", "xavier", "kaiming", "sign"],
        _masks("Distribution of the weights; own is GPT-2's."),
    ] = "own",
    rescale: Annotated[bool, _masks("Masked weights times 1 / sqrt(density).", "--rescale")] = False,
    score_init: Annotated[
        Literal["kaiming", "uniform", "normal", "constant"], _masks("Distribution of the first scores.")
    ] = "kaiming",
    length: Annotated[int | None, _schedule("Tokens in a sequence.", min=1, show_default="1024; nano: 128")] = None,
    sequences: Annotated[int, _schedule("Sequences in a step.", min=1)] = 512,
    epochs: Annotated[
        int | None, _schedule(f"Epochs of {_STEPS_AN_EPOCH} steps.", min=1, show_default=str(_EPOCHS))
    ] = None,
    steps: Annotated[int | None, _schedule("Steps, instead of epochs.", min=1, show_default=False)] = None,
    warmup: Annotated[
        int | None,
        _schedule("Steps of linear warm-up.", min=0, show_default="one epoch, a tenth of the steps at most"),
    ] = None,
    lr: Annotated[float, _schedule("Highest learning rate.")] = 1e-4,
    final_lr: Annotated[float | None, _schedule("Last learning rate.", show_default="a tenth of the highest")] = None,
    weight_decay: Annotated[float, _schedule("AdamW's weight decay, on scores or weights.", min=0)] = 0.01,
    clip: Annotated[float | None, _schedule("Scale longer gradients down to this norm.", show_default="none")] = None,
    validate_every: Annotated[
        int | None, _schedule("Steps between validations.", min=1, show_default="one epoch")
    ] = None,
    activation: Annotated[Literal["gelu", "relu"], _schedule("Activation of the MLP.")] = "gelu",
    micro_batch: Annotated[
        int, _machine("Sequences in a forward pass, a divisor of --sequences; less takes less memory.", min=1)
    ] = 32,
    device: Annotated[
        str | None, _machine("cpu or cuda.", metavar="DEVICE", show_default="cuda if there is one")
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None, _machine("Precision of products.", show_default="bfloat16 on cuda")
    ] = None,
    compiled: Annotated[
        bool | None, _machine("Use torch.compile.", "--compile/--no-compile", show_default="on cuda")
    ] = None,
    checkpoint_seconds: Annotated[float, _machine("Seconds of work that a sudden end may cost.", min=0)] = 300.0,
    keep: Annotated[
        bool, _machine("Write the ticket, or a dense run's weights; or keep numbers only.", "--keep/--no-keep")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Find a ticket in a random GPT-2: learn which weights to keep.

    With the usual rule every weight gets a score, and the best are kept; no weight is trained. The defaults are
    the paper's recipe (B.2), for a GPU; the example below is for a CPU. Each run has a folder OUT/seed-N with
    metrics.jsonl, result.json and best.ticket.

    Ctrl-C, SIGTERM or a crash cost little: the same command goes on from there.

    Several GPUs: torchrun --nproc-per-node 8 -m strongticket search ...
    """
    _refuse_what_is_not_used(context)
    place = chosen_device(device)
    from dataclasses import replace

    from strongticket.learn.config import RunConfig
    from strongticket.learn.policy import Policy
    from strongticket.models.gpt2 import gpt2_config

    total = steps or (epochs or _EPOCHS) * _STEPS_AN_EPOCH
    try:
        policy = Policy(
            attention=attention,
            mlp=mlp,
            embeddings=embeddings,
            norms=norms,
            biases=biases,
            density=density,
            scope=scope,
            signed=signed,
            qk_scale=_qk_scale(qk_scale),
            init=init,
            rescale=rescale,
            score_init=score_init,
            output_gain=output_gain,
            rule=rule,
        )
        config = RunConfig(
            size=size,
            mode=mode,
            policy=policy,
            length=length or gpt2_config(size).context,
            sequences=sequences,
            micro_batch=min(micro_batch, sequences),
            steps=total,
            warmup=min(_STEPS_AN_EPOCH, total // 10) if warmup is None else warmup,
            lr=lr,
            final_lr=lr / 10 if final_lr is None else final_lr,
            weight_decay=weight_decay,
            clip=clip,
            validate_every=validate_every or _STEPS_AN_EPOCH,
            activation=activation,
            precision=precision or ("bfloat16" if place == "cuda" else "float32"),
        )
        for end in (seed, seed + seeds - 1):
            replace(config, seed=end)  # refuses what is no seed
    except ValueError as error:
        bad_usage(str(error))
    compiler = "inductor" if (compiled if compiled is not None else place == "cuda") else None
    _run_seeds(
        config,
        range(seed, seed + seeds),
        (data, tokenizer),
        out,
        {"compiler": compiler, "checkpoint_seconds": checkpoint_seconds, "keep": keep},
        place,
        as_json,
    )


def _refuse_what_is_not_used(context: typer.Context) -> None:
    given = given_options(context)
    if {"steps", "epochs"} <= given:
        bad_usage("--steps and --epochs both say how long the run is; give one of them.")
    if context.params["mode"] == "dense":
        masks = [option for option in context.command.params if getattr(option, "rich_help_panel", None) == _MASKS]
        refuse_in_vain([option.opts[0] for option in masks if option.name in given], "--mode search, not dense")


def _run_seeds(
    config: "RunConfig",
    seeds: range,
    data: tuple[str, str | None],
    out: Path,
    means: dict[str, Any],
    device: str,
    as_json: bool,
) -> None:
    from dataclasses import replace

    from strongticket.cli.terminal import print_json
    from strongticket.learn.run import Means
    from strongticket.learn.shared import shared_search
    from strongticket.parallel import one_thread_for_small

    results = []
    with shared_search(device) as share:
        text = _load_text(*data)
        one_thread_for_small(config.weights(text.tokenizer.vocabulary), share.device)
        for seed in seeds:
            folder = out / f"seed-{seed}"
            result = _run_one(
                replace(config, seed=seed), text, folder, Means(share=share, command=command_line(), **means)
            )
            results.append({"folder": str(folder), "seed": seed, **{k: v for k, v in result.items() if k != "curve"}})
            if share.rank == 0 and not as_json:
                _report(folder, result)
        if share.rank == 0 and as_json:
            print_json({"runs": results})


def _run_one(config: "RunConfig", text: "Text", folder: Path, means: "Means") -> Any:
    from strongticket.cli.watch import watched
    from strongticket.learn.text_run import run

    with watched(f"{config.size} {config.mode}, seed {config.seed}", means.share.rank == 0) as watch:
        return run(config, text, folder, means, watch=watch)


def _load_text(data: str, tokenizer: str | None) -> "Text":
    from strongticket.cli.terminal import count_bar
    from strongticket.data.text import load_text

    with count_bar("reading text") as progress:
        return load_text(data, tokenizer=tokenizer, progress=progress)


def _report(folder: Path, result: dict[str, Any]) -> None:
    found, nonzero = result.get("found") or {}, result["nonzero"]
    typer.echo(
        f"{folder}: best validation loss {result['best_validation_loss']:.4f} at step {result['best_step']}, "
        f"final {result['final_validation_loss']:.4f}; {nonzero['all']:,} nonzero parameters, "
        f"{nonzero['without_embeddings']:,} without embeddings"
    )
    if "unwritable" in found:
        typer.echo(f"{folder}: no ticket was written: {found['unwritable']}")
    elif (name := found.get("ticket") or found.get("weights")) is None:
        typer.echo(
            f"{folder}: only the numbers were kept, as --no-keep asked; with another --out the run is done again."
        )
    elif not (file := folder / name).exists():
        typer.echo(f"{file}: no longer there; with another --out the run is done again.")
    else:
        kind = "strong" if found.get("strong") else "not strong: it has trained tensors"
        more = f", {kind}, identity {found['identity']}" if "ticket" in found else ""
        typer.echo(f"{file}: {file.stat().st_size:,} bytes{more}")


def _qk_scale(text: str) -> "float | Literal['auto']":
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--qk-scale must be auto or a number; got {text!r}.") from None
