"""`strongticket search`: find a ticket in a random GPT-2, or train an ordinary one for comparison."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from strongticket.cli.help_page import Command
from strongticket.cli.options import (
    AsJson,
    chosen_device,
    device_option,
    given_options,
    option,
    refuse_unused,
    with_settings,
)
from strongticket.cli.terminal import bad_usage, echo, print_json, tell
from strongticket.environment import command_line
from strongticket.experiments.budget import config_of, known_tickets, recommend
from strongticket.learn.config import EPOCHS, MACHINE, SCHEDULE, STEPS_PER_EPOCH, RunConfig
from strongticket.learn.policy import Policy
from strongticket.learn.result import RunResult
from strongticket.learn.rules import RULES
from strongticket.models.gpt2_sizes import gpt2_config


class SearchCommand(Command):
    """A command whose help lists the rules."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then one line per rule."""
        super().format_options(ctx, formatter)
        with formatter.section("Rules, and their settings"):
            formatter.write_dl([(name, about) for name, (_, about) in RULES.items()])


@with_settings(RunConfig)
def search(
    context: typer.Context,
    data: Annotated[
        str,
        option("Text: wikitext-103, sample, or a folder with train and valid text files.", metavar="NAME_OR_DIR"),
    ] = "wikitext-103",
    tokenizer: Annotated[
        str | None,
        option("bytes, gpt2, or a folder with its files.", metavar="NAME_OR_DIR", shown="gpt2; sample: bytes"),
    ] = None,
    out: Annotated[Path, option("Folder for the runs; each seed has its own in it.", file_okay=False)] = Path(
        "out/search"
    ),
    budget_bytes: Annotated[
        int | None,
        option(
            "Use the settings that are best for a file of this many bytes (GPT-2's tokens). Add --scales none for "
            "a strong ticket.",
            min=1,
            metavar="N",
            shown=False,
            hidden=not known_tickets(),  # the option then refuses in one line
        ),
    ] = None,
    seeds: Annotated[int, option("Number of runs, with consecutive seeds.", min=1)] = 1,
    epochs: Annotated[
        int | None, option(f"Epochs of {STEPS_PER_EPOCH} steps.", min=1, panel=SCHEDULE, shown=str(EPOCHS))
    ] = None,
    device: Annotated[str | None, device_option(MACHINE)] = None,
    compiled: Annotated[
        bool | None, option("Use torch.compile.", "--compile/--no-compile", panel=MACHINE, shown="on cuda")
    ] = None,
    deterministic: Annotated[
        bool,
        option(
            "Give the same ticket, bit for bit, in every run on the same kind of GPU; a little slower.", panel=MACHINE
        ),
    ] = True,
    checkpoint_seconds: Annotated[
        float, option("Seconds between checkpoints: the most work a crash can lose.", min=0, panel=MACHINE)
    ] = 300.0,
    keep: Annotated[
        bool, option("Write the ticket (or a dense run's weights), or only the numbers.", panel=MACHINE)
    ] = True,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Find a ticket in a random GPT-2: learn which weights to keep.

    By default every weight gets a score and the best are kept; no weight is trained. Other rules are listed below; a
    rule's settings follow its name, as in --rule iterand:every=100,rate=0.2. The defaults are the paper's recipe (B.2),
    for a GPU; the example below is for a CPU. Each run writes metrics.jsonl, result.json and best.ticket to OUT/seed-N.

    After Ctrl-C, SIGTERM or a crash, the same command resumes.

    Several GPUs: torchrun --nproc-per-node 8 -m strongticket search ...
    """
    _refuse_what_is_not_used(context)
    place = chosen_device(device)
    try:
        if budget_bytes is not None:
            config = _recommended(context, budget_bytes, settings, epochs, place)
        else:
            config = _config(settings, epochs, place)
        chosen = range(config.seed, config.seed + seeds)
        replace(config, seed=chosen[-1])  # refuses an invalid seed
        if config.mode == "search" and ":" in config.policy.rule:  # refuses settings that the rule does not have
            from strongticket.learn.rules.rule import as_rule

            as_rule(config.policy.rule)
    except ValueError as error:
        bad_usage(str(error))
    compiler = "inductor" if (compiled if compiled is not None else place == "cuda") else None
    means = {"compiler": compiler, "deterministic": deterministic, "checkpoint_seconds": checkpoint_seconds}
    _run_seeds(config, chosen, (data, tokenizer), out, {**means, "keep": keep}, place, as_json, budget_bytes)


def _recommended(
    context: typer.Context, budget: int, settings: dict[str, Any], epochs: int | None, device: str
) -> RunConfig:
    """Take the frontier's settings for a number of bytes; options that change the bytes are refused."""
    given = given_options(context)
    scales = settings["scales"] if "scales" in given else None
    if scales not in (None, "none"):
        bad_usage("--budget-bytes chooses the scales; leave out --scales, or give --scales none for a strong ticket.")
    decided = ({own.name for own in fields(Policy)} - {"scales"} | {"size", "mode", "stored", "activation"}) & given
    _refuse(context, decided, "searches without --budget-bytes, which chooses them")
    chosen = recommend(budget, strong=scales == "none")
    asked = {name: settings[name] for name in given & settings.keys() - {"scales"}}
    if epochs is not None:
        asked["steps"] = epochs * STEPS_PER_EPOCH
    tell(f"{chosen['name']}: loss {chosen['loss']:.3f} in {chosen['bytes']:,} bytes on the frontier's text.")
    length = gpt2_config(chosen["settings"]["size"]).context
    return config_of(chosen, {"length": length, "precision": _precision(device), **asked})


def _precision(device: str) -> str:
    return "bfloat16" if device == "cuda" else "float32"


def _refuse_what_is_not_used(context: typer.Context) -> None:
    given = given_options(context)
    if {"steps", "epochs"} <= given:
        bad_usage("--steps and --epochs both say how long the run is; give one of them.")
    if context.params["mode"] == "dense":
        _refuse(context, given & {own.name for own in fields(Policy)}, "--mode search, not dense")


def _refuse(context: typer.Context, unused: set[str], about: str) -> None:
    refuse_unused([option.opts[0] for option in context.command.params if option.name in unused], about)


def _config(settings: dict[str, Any], epochs: int | None, device: str) -> RunConfig:
    """Make a run's settings from the options; those not given follow from the others."""
    given = {name: value for name, value in settings.items() if value is not None}
    steps = given.get("steps", (epochs or EPOCHS) * STEPS_PER_EPOCH)
    found = {
        "length": gpt2_config(given["size"]).context,
        "steps": steps,
        "warmup": min(STEPS_PER_EPOCH, steps // 10),
        "final_lr": given["lr"] / 10,
        "precision": _precision(device),
        **given,
        "micro_batch": min(given["micro_batch"], given["sequences"]),
    }
    policy = {own.name: found.pop(own.name) for own in fields(Policy) if own.name in found}
    return RunConfig(policy=Policy(**policy), **found)


def _run_seeds(
    config: RunConfig,
    seeds: range,
    data: tuple[str, str | None],
    out: Path,
    means: dict[str, Any],
    device: str,
    as_json: bool,
    budget: int | None,
) -> None:
    from strongticket.data.text import load_text
    from strongticket.experiments.results import naming
    from strongticket.learn.folder import RESULT
    from strongticket.learn.run import Means
    from strongticket.learn.shared import shared_search
    from strongticket.learn.text_run import run
    from strongticket.learn.watched import watched
    from strongticket.parallel import one_thread_for_small
    from strongticket.progress import count_bar

    results = []
    with shared_search(device) as share:
        with count_bar("reading text") as progress:
            text = load_text(data[0], tokenizer=data[1], progress=progress)
        one_thread_for_small(config.weights(text.tokenizer.vocabulary), share.device)
        for seed in seeds:
            folder, own = out / f"seed-{seed}", Means(share=share, command=command_line(), warn=tell, **means)
            with watched(f"{config.size} {config.mode}, seed {seed}", share.rank == 0) as watch:
                result = run(replace(config, seed=seed), text, folder, own, watch=watch)
            results.append({"folder": str(folder), "seed": seed, **{k: v for k, v in result.items() if k != "curve"}})
            size = (result.get("found") or {}).get("bytes", 0)
            if budget is not None and size > budget and share.rank == 0:
                tell(
                    f"{folder}: {size:,} bytes, more than --budget-bytes {budget:,}: the text has more kinds of tokens."
                )
            if share.rank == 0 and not as_json:
                with naming(folder / RESULT):  # possibly written by an earlier command
                    _report(folder, result)
        if share.rank == 0 and as_json:
            print_json({"runs": results})


def _report(folder: Path, result: RunResult) -> None:
    found, nonzero = result.get("found") or {}, result["nonzero"]
    echo(
        f"{folder}: best validation loss {result['best_validation_loss']:.4f} at step {result['best_step']}, "
        f"final {result['final_validation_loss']:.4f}; {nonzero['all']:,} nonzero parameters, "
        f"{nonzero['without_embeddings']:,} without embeddings"
    )
    if "unwritable" in found:
        echo(f"{folder}: no ticket was written: {found['unwritable']}")
    elif (name := found.get("ticket") or found.get("weights")) is None:
        echo(f"{folder}: only the numbers were kept (--no-keep); to run again, choose another --out.")
    elif not (file := folder / name).exists():
        echo(f"{file}: no longer there; to run again, choose another --out.")
    else:
        more = f", {found['strength']}, identity {found['identity']}" if "ticket" in found else ""
        echo(f"{file}: {file.stat().st_size:,} bytes{more}")
