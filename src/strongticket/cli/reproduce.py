"""`strongticket reproduce`: the paper's figures from one command."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strongticket.cli.options import (
    Dask,
    DaskTimeout,
    chosen_cluster,
    chosen_device,
    device_option,
    flag_of,
    given_options,
    option,
    refuse_unused,
    with_settings,
)
from strongticket.cli.terminal import bad_usage, echo, print_json, print_section, say_stopped
from strongticket.errors import StrongTicketError
from strongticket.experiments import FIGURES, TEXT_FIGURES
from strongticket.experiments.options import ON_TEXT, VARIANT, Options

if TYPE_CHECKING:
    from strongticket.experiments.figure import Figure, How, Work

_on_text = partial(option, panel=ON_TEXT)
_RUN_OPTIONS = ("also", "tokenizer", "minutes", "only", "device", "keep")


@with_settings(Options)
def reproduce(
    context: typer.Context,
    figures: Annotated[
        list[str],
        typer.Argument(
            metavar="FIGURE",
            show_default=False,
            help=f"One or more of {', '.join(FIGURES)}.",
            autocompletion=lambda incomplete: [name for name in FIGURES if name.startswith(incomplete)],
        ),
    ],
    workers: Annotated[int | None, option("Local processes.", min=1, shown="one per core; 1 with --quick")] = None,
    dask: Dask = None,
    dask_timeout: DaskTimeout = None,
    data: Annotated[
        str | None,
        _on_text(
            "Text for the missing runs, as in `search`. Without it, finished runs are drawn.",
            metavar="NAME_OR_DIR",
            shown="none; sample with --quick",
        ),
    ] = None,
    also: Annotated[
        str | None, _on_text("Another text whose validation split is measured too.", metavar="NAME_OR_DIR")
    ] = None,
    tokenizer: Annotated[str | None, _on_text("As in `search`.", metavar="NAME_OR_DIR")] = None,
    minutes: Annotated[
        float | None,
        _on_text("Time for all runs: start none that would end later, judging by earlier ones on this machine.", min=0),
    ] = None,
    device: Annotated[str | None, device_option(ON_TEXT)] = None,
    keep: Annotated[bool, _on_text("Keep each run's folder with its ticket.", "--keep")] = False,
    out: Annotated[
        Path | None,
        option(
            "Folder for the results; each figure has its own in it.",
            file_okay=False,
            shown="out; a variant: out/VARIANT; from fig7 on: results",
        ),
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object instead of tables.", "--json")] = False,
    **settings: Any,
) -> None:
    """Reproduce the paper's figures, or a variant of your own.

    Each figure gets result.json, run.json, a PNG and an SVG in OUT/FIGURE. fig4 to scans take minutes on two cores;
    from fig7 on, runs need a GPU. --quick shows any of them at work.

    Ctrl-C keeps what is done; the same command resumes. The numbers do not depend on --workers or --dask.
    """
    from strongticket.experiments.figure import How, load_figure
    from strongticket.parallel import available_cores

    chosen = list(dict.fromkeys(figures))
    if unknown := [name for name in chosen if name not in FIGURES]:
        bad_usage(f"{unknown[0]!r} is not one of {', '.join(FIGURES)}.")
    _refuse_what_is_not_used(context, chosen)
    cluster = chosen_cluster(workers, dask, dask_timeout)
    # Before any work, so that errors show at once.
    loaded, device = [load_figure(name) for name in chosen], chosen_device(device)
    try:
        options = Options(**{name: value for name, value in settings.items() if value is not None})
        configs = [figure.plan.configure(options) for figure in loaded]
    except ValueError as error:
        bad_usage(str(error))
    quick = options.quick
    data = data or ("sample" if quick else None)
    how = How(workers=workers or (1 if quick else available_cores()), dask=cluster)
    results: dict[str, Any] = {}
    for figure, config in zip(loaded, configs, strict=True):
        on_text = figure.name in TEXT_FIGURES
        if on_text and data is not None and how.work is None:
            models = options.models or ("nano" if quick else "mini",)
            how = replace(how, work=_work(data, also, tokenizer, minutes, device, keep, models))
        folder = out or _usual_folder(options, on_text)
        results[figure.name] = _reproduce(figure, config, folder, how, options.only, as_json)
    if as_json:
        print_json(results)
    if empty := [result["error"] for result in results.values() if "error" in result]:
        raise StrongTicketError(" ".join(empty))
    if violations := sum(result.get("violations", 0) for result in results.values()):
        raise StrongTicketError(f"{violations} errors exceed their certificate. This is a bug: please report it.")


def _usual_folder(options: Options, on_text: bool) -> Path:
    """Choose the folder for results without --out; a variant has its own folder beside the standard figures."""
    if on_text and not options.quick:  # such runs are collected over days, and the repository's are there
        return Path("results")
    variant = "_".join(f"{name}-{value}".rstrip("-") for name, value in options.variant().items())
    return Path("out") / variant


def _refuse_what_is_not_used(context: typer.Context, chosen: list[str]) -> None:
    given = given_options(context)
    on_text = [name for name in chosen if name in TEXT_FIGURES]
    panels = {option.name: getattr(option, "rich_help_panel", None) for option in context.command.params}
    for_any = {"figures", "quick", "out", "as_json"}
    for_text = [name for name, panel in panels.items() if panel == ON_TEXT]
    for_others = [name for name, panel in panels.items() if panel in (None, VARIANT) and name not in for_any]
    about = "figures {}, and none was given"
    if not on_text:
        refuse_unused([flag_of(name) for name in for_text if name in given], about.format("on text, from fig7 on"))
    if len(on_text) == len(chosen):
        others = [flag_of(name) for name in for_others if name in given]
        refuse_unused(others, about.format("of constructions, fig4 to scans"))
    if context.params["quick"]:
        if "schedule" in given:
            bad_usage("--quick has its own schedule; leave out --quick or --schedule.")
    elif context.params["data"] is None:
        refuse_unused([flag_of(name) for name in _RUN_OPTIONS if name in given], "new runs, which need --data")


def _reproduce(figure: "Figure[Any]", config: Any, out: Path, how: "How", only: str, as_json: bool) -> dict[str, Any]:
    """Make one figure, print it, and return a summary."""
    from strongticket.cli.watch import watched_runs
    from strongticket.experiments.figure import NothingToDrawError, reproduce_figure
    from strongticket.experiments.results import RESULT
    from strongticket.files import read_json

    folder = out / figure.name
    before = read_json(folder / RESULT)
    warnings: list[str] = []
    try:
        with watched_runs(figure.name) as (begin, watch, say):
            how = replace(how, progress=begin, watch=watch, row=say, warn=warnings.append)
            result = reproduce_figure(figure, config, out, how)
    except NothingToDrawError as error:
        return {"folder": str(folder), "runs": 0, "error": str(error)}
    except KeyboardInterrupt:
        say_stopped()
    for line in warnings:
        echo(line, err=True)
    if not as_json:
        print_section(figure.section(result))
        if result.get("missing"):
            echo(_missing_line(result["missing"], how.work is not None, only))
        echo(f"{folder / RESULT}, {figure.name}.png, {figure.name}.svg")
        if isinstance(before, dict) and before.get("config") != result["config"]:
            echo(
                "These files showed other models, seeds or another schedule before. All runs are kept: repeat the "
                "earlier command to draw them again."
            )
    summed_up = ("config", "violations", "fits", "runs", "missing")
    return {"folder": str(folder), **{key: result[key] for key in summed_up if key in result}}


def _missing_line(missing: Sequence[str], working: bool, only: str) -> str:
    which, them = ("One run is", "it") if len(missing) == 1 else (f"{len(missing)} runs are", "them")
    chosen = [name for name in missing if re.search(only, name)]
    way = "the same command resumes with"
    if not working:
        way = "with --data the same command does"
    elif not chosen:
        way = "--only leaves out all of" if len(missing) > 1 else "--only leaves out"
    elif len(chosen) < len(missing):
        way = f"--only chooses {len(chosen)} of"
    return f"{which} missing; {way} {them}. Next: {(chosen or missing)[0]}"


def _work(
    data: str,
    also: str | None,
    tokenizer: str | None,
    minutes: float | None,
    device: str,
    keep: bool,
    models: tuple[str, ...],
) -> "Work":
    """Load the texts, and set the device and the time limit of missing runs."""
    import torch

    from strongticket.data.text import load_text
    from strongticket.environment import command_line
    from strongticket.experiments.figure import Work
    from strongticket.learn.config import RunConfig
    from strongticket.learn.run import Means
    from strongticket.learn.shared import Share
    from strongticket.parallel import one_thread_for_small

    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    text = load_text(data, tokenizer=tokenizer)
    other = load_text(also, tokenizer=tokenizer, splits=("valid",)) if also else None
    if other and other.tokenizer.digest != text.tokenizer.digest:
        bad_usage(f"--also {other.name} has tokens of {other.tokenizer.name}, --data those of {text.tokenizer.name}.")
    weights = max(RunConfig(size=size).weights(text.tokenizer.vocabulary) for size in models)
    one_thread_for_small(weights, device)
    means = Means(
        share=Share(0, 1, torch.device(device)),
        compiler="inductor" if device == "cuda" else None,
        deterministic=True,
        keep=keep,
        command=command_line(),
        also={other.name: other.valid} if other else {},
    )
    return Work(text=text, means=means, deadline=deadline)
