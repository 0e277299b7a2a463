"""`strongticket reproduce`: the paper's figures from one command."""

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strongticket.cli.options import chosen_device, given_options, refuse_in_vain
from strongticket.cli.reproduce_text import TextOptions, reproduce_text_figures
from strongticket.cli.terminal import bad_usage
from strongticket.errors import StrongTicketError
from strongticket.experiments import TEXT_FIGURES

if TYPE_CHECKING:
    from strongticket.experiments.figure import Options

_TEXT = "Figures on text, from fig7 on"
_CONSTRUCTION_OPTIONS = ("sources", "targets", "seed", "init", "target", "normalize", "workers", "dask")
_RUN_OPTIONS = ("also", "tokenizer", "minutes", "only", "device", "keep")
_TEXT_OPTIONS = ("schedule", "models", "seeds", "data", *_RUN_OPTIONS)


class FigureName(StrEnum):
    """The figures there are, and what Figures 7 and 8 rest on: the spread over seeds, the choice of settings, inits."""

    fig4 = "fig4"
    fig5 = "fig5"
    fig6 = "fig6"
    fig7 = "fig7"
    fig8 = "fig8"
    spread = "spread"
    ablation = "ablation"
    inits = "inits"


class InitName(StrEnum):
    """How source weights are drawn."""

    theory = "theory"
    printed = "printed"
    xavier = "xavier"


class TargetKind(StrEnum):
    """Whether targets are trained."""

    trained = "trained"
    untrained = "untrained"


def reproduce(
    context: typer.Context,
    figures: Annotated[
        list[FigureName],
        typer.Argument(metavar="FIGURE", show_default=False, help=f"One or more of {', '.join(FigureName)}."),
    ],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer sources, widths and inputs: seconds, and rougher. From fig7 on: minutes."),
    ] = False,
    sources: Annotated[
        int | None, typer.Option(min=1, help="Random sources at each width.", show_default="100, fewer with --quick")
    ] = None,
    targets: Annotated[int, typer.Option(min=1, help="Targets, each with sources of its own.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**60, help="Seed of data, targets and sources.")] = 0,
    init: Annotated[
        InitName, typer.Option(help="Source weights: section 3.1, as printed in 4.1, or appendix B.1 of the paper.")
    ] = InitName.theory,
    target: Annotated[
        TargetKind | None,
        typer.Option(help="What sources are pruned into.", show_default="trained; fig6: untrained, as in the paper"),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize", help="Targets of spectral norm at most 1.", show_default="only in fig6"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Local processes.", show_default="one a core; 1 with --quick")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler to run on, such as tcp://host:8786.")
    ] = None,
    schedule: Annotated[
        Literal["short", "paper"],
        typer.Option(help="Minutes a run on one GPU, or the paper's 6e9 tokens.", rich_help_panel=_TEXT),
    ] = "short",
    models: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="GPT-2 sizes, separated by commas.",
            rich_help_panel=_TEXT,
            show_default="mini and small, or what the figure needs; quick: nano",
        ),
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs of each setting; beyond the first, larger models and ablation have fewer settings.",
            rich_help_panel=_TEXT,
            show_default="3",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_DIR",
            help="Text for the missing runs, as in `search`; without it finished runs are drawn.",
            rich_help_panel=_TEXT,
            show_default="none; quick: sample",
        ),
    ] = None,
    also: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_DIR", help="Another text whose validation part is measured too.", rich_help_panel=_TEXT
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME_OR_DIR", help="As in `search`.", rich_help_panel=_TEXT)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Begin no run that would end after this time, as far as earlier ones on this machine tell.",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="REGEX",
            help="Begin only runs whose name has this in it.",
            rich_help_panel=_TEXT,
            show_default=False,
        ),
    ] = "",
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cpu or cuda.",
            show_default="cuda if there is one",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep each run's folder with its ticket.", rich_help_panel=_TEXT)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder for the results, one folder a figure.",
            show_default="out; from fig7 on results, unless --quick",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Rebuild figures of the paper.

    Each gets result.json, run.json, a PNG and an SVG in OUT/FIGURE. Figures 4 to 6 take half a minute each on two
    cores, Figures 7 and 8 want a GPU; --quick shows any of them at work.

    Ctrl-C keeps what is done; the same command goes on from there. The numbers do not depend on --workers or --dask.
    """
    from strongticket.experiments.figure import Options
    from strongticket.parallel import available_cores

    chosen = list(dict.fromkeys(name.value for name in figures))
    _refuse_what_is_not_used(context, chosen)
    if dask is not None and workers is not None:
        bad_usage("--workers and --dask exclude each other: a cluster has its own number of workers.")
    options = Options(
        quick=quick,
        sources=sources,
        targets=targets,
        seed=seed,
        init=init.value,
        target=target.value if target is not None else None,
        normalize=normalize,
    )
    # Before anything is begun: the figures that need no text may take a while.
    text_options = TextOptions(
        schedule="quick" if quick else schedule,
        sizes=_sizes(models),
        seeds=seeds,
        only=_pattern(only),
        data=data or ("sample" if quick else None),
        also=also,
        tokenizer=tokenizer,
        minutes=minutes,
        device=chosen_device(device),
        keep=keep,
    )
    processes = workers or (1 if quick else available_cores())
    short = [name for name in chosen if name not in TEXT_FIGURES]
    results = _run_all(short, options, out or Path("out"), processes, dask, as_json)
    if on_text := [name for name in chosen if name in TEXT_FIGURES]:
        # Their runs are gathered over days, and those of the repository are there.
        folder = out or Path("out" if quick else "results")
        results |= reproduce_text_figures(on_text, text_options, folder, as_json)
    if as_json:
        from strongticket.cli.terminal import print_json

        print_json(results)
    if empty := [result["error"] for result in results.values() if "error" in result]:
        raise StrongTicketError(" ".join(empty))
    if violations := sum(result.get("violations", 0) for result in results.values()):
        raise StrongTicketError(f"{violations} errors exceed their certificate. This is a bug: please report it.")


def _refuse_what_is_not_used(context: typer.Context, chosen: list[str]) -> None:
    given = given_options(context)
    on_text = [name for name in chosen if name in TEXT_FIGURES]
    for unused, options, about in (
        (not on_text, _TEXT_OPTIONS, "figures on text, from fig7 on"),
        (len(on_text) == len(chosen), _CONSTRUCTION_OPTIONS, "Figures 4 to 6"),
    ):
        if unused:
            vain = [f"--{name}" for name in options if name in given]
            refuse_in_vain(vain, f"{about}, none of which is asked for")
    if context.params["quick"]:
        if "schedule" in given:
            bad_usage("--quick is a schedule of its own; leave out --quick or --schedule.")
    elif context.params["data"] is None:
        refuse_in_vain(
            [f"--{name}" for name in _RUN_OPTIONS if name in given], "runs to do, and without --data none is done"
        )


def _run_all(
    names: list[str], options: "Options", out: Path, workers: int, dask: str | None, as_json: bool
) -> dict[str, Any]:
    from strongticket.cli.terminal import console, count_bar
    from strongticket.experiments.figure import load_figure, reproduce_figure
    from strongticket.experiments.textplot import result_plot

    figures = [load_figure(name) for name in names]
    try:
        configs = [figure.configure(options) for figure in figures]
    except ValueError as error:
        bad_usage(str(error))
    summaries = {}
    for figure, config in zip(figures, configs, strict=True):
        folder = out / figure.name
        try:
            with count_bar(figure.name) as progress:
                result = reproduce_figure(figure, config, out, workers=workers, dask=dask, progress=progress)
        except KeyboardInterrupt:
            typer.echo(f"Stopped. What is done is kept in {folder}; the same command goes on from there.", err=True)
            raise typer.Exit(130) from None
        if not as_json:
            for table in figure.tables(result):
                console().print(table)
            typer.echo(f"{result_plot(result)}\n")
            typer.echo(f"{folder / 'result.json'}, {figure.name}.png, {figure.name}.svg")
        summaries[figure.name] = {
            "folder": str(folder),
            "config": result["config"],
            "violations": result["violations"],
            "fits": result.get("fits"),
        }
    return summaries


def _pattern(only: str) -> str:
    try:
        re.compile(only)
    except re.error as error:
        bad_usage(f"--only {only!r} is no regular expression: {error}.")
    return only


def _sizes(models: str) -> tuple[str, ...]:
    from strongticket.models.gpt2_sizes import SIZES

    sizes = tuple(size.strip() for size in models.split(",")) if models else ()
    if unknown := [size for size in sizes if size not in SIZES]:
        bad_usage(f"unknown GPT-2 size {unknown[0]!r}; choose {', '.join(SIZES)}.")
    return sizes
