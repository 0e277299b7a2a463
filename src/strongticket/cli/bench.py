"""`strongticket bench`: how fast, against whom, and is it right."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from strongticket.cli.help_page import Command
from strongticket.cli.options import AsJson, chosen_device
from strongticket.cli.terminal import bad_usage
from strongticket.environment import environment

if TYPE_CHECKING:
    from strongticket.bench.subset_sum import Comparison, Settings

bench_app = typer.Typer(
    help="Measure speed, after checking that the answers are right.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Threads = Annotated[int, typer.Option(min=1, help="CPU threads for every engine.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where our engine runs: cpu or cuda.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for results.jsonl (appended to) and figures.")]


@bench_app.command(
    "subset-sum",
    cls=Command,
    epilog="Example: strongticket bench subset-sum --items 16,20 --peers gurobi,highs",
)
def subset_sum_command(
    peers: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Solvers to compare with: gurobi, highs, cp-sat, separated by commas, or none."
        ),
    ] = "gurobi,highs,cp-sat",
    device: Device = "cpu",
    items: Annotated[str, typer.Option(metavar="LIST", help="Numbers of items in a sum, 2 to 32.")] = "8,12,16,20,24",
    rows: Annotated[
        int | None, typer.Option(min=1, help="Most problems an engine is given.", show_default="by items and device")
    ] = None,
    threads: Threads = 1,
    budget: Annotated[
        float, typer.Option(min=0.1, help="Seconds for each peer at each number of items; also a problem's limit.")
    ] = 20.0,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs of each batched engine.")] = 7,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random problems.")] = 0,
    out: Out = Path("results/bench"),
    figure: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Where to draw the figure.", show_default="OUT/subset-sum-DEVICE.png"),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table for a document.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time our subset sums and other solvers on the same problems.

    The table has rates, errors and shares of true optima. A rate is only printed once every answer of ours is at least
    as good as the reference's and each peer's.
    """
    from strongticket.bench import render, subset_sum
    from strongticket.bench.peers import choose
    from strongticket.cli.terminal import print_json

    try:
        chosen = choose(peers)
        counts = _parse_items(items)
        chosen_device(device)
    except ValueError as error:
        bad_usage(error)
    missing = [peer for peer in chosen if not peer.installed]
    for peer in missing:
        typer.echo(peer.missing, err=True)
    settings = subset_sum.Settings(
        items=counts,
        rows=rows,
        peers=tuple(peer for peer in chosen if peer not in missing),
        device=device,
        threads=threads,
        budget=budget,
        repeats=repeats,
        seed=seed,
    )
    comparisons = _run_subset_sum(settings, out / "results.jsonl", as_json)
    drawn = _draw(comparisons, figure or out / f"subset-sum-{device}.png", settings)
    if as_json:
        print_json(
            {
                "ok": True,
                "rows": [measured._asdict() for comparison in comparisons for measured in comparison.measurements],
                "unreachable": {str(comparison.n): comparison.unreachable for comparison in comparisons},
                "missing": [{"peer": peer.name, "install": f"pip install {peer.package}"} for peer in missing],
                "notes": [note for comparison in comparisons for note in comparison.notes],
                "figure": str(drawn) if drawn else None,
            }
        )
    elif as_markdown:
        typer.echo(render.comparison_markdown(comparisons))
    else:
        _print_comparisons(comparisons, settings, drawn)


@bench_app.command("pensia", cls=Command, epilog="Example: strongticket bench pensia --threads 2")
def pensia_command(
    threads: Threads = 1,
    device: Device = "cpu",
    weights: Annotated[int, typer.Option(min=1, help="Fewer for a quick look; the ratios are per weight.")] = 397_000,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random problems.")] = 0,
    out: Out = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Do the work of Pensia et al., 2020, experiment 1.

    That is 397,000 weights with 21 candidates each. They report 77,266 s on 36 cores with Gurobi; our time excludes the
    one-off compilation.
    """
    from strongticket.bench import measure, pensia, render
    from strongticket.cli.terminal import console, print_json, step_bar

    try:
        chosen_device(device)
        with step_bar(2) as step:
            outcome = pensia.run(
                weights=weights, threads=threads, device=device, repeats=repeats, seed=seed, progress=step
            )
    except ValueError as error:
        bad_usage(error)
    except measure.WrongAnswerError as error:
        _refuse(error, as_json)
    measure.append_row(out / "results.jsonl", **outcome._asdict(), **environment(device))
    if as_json:
        print_json({"ok": True, **outcome._asdict()})
    else:
        console().print(render.pensia_table(outcome))


@bench_app.command("search", cls=Command, epilog="Example: strongticket bench search --models mini --device cuda")
def search_command(
    models: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Sizes of GPT-2, separated by commas.", show_default="mini,small on cuda, nano on cpu"
        ),
    ] = None,
    device: Device = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Timed turns of each kind of step.")] = 7,
    out: Out = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Time a search step of GPT-2 beside a training step.

    Three kinds of steps: search masks every matrix; dense trains the same tensors of the same network; gpt2 trains
    biases and norms as well. The table has times and memory.

    Nothing is printed unless the masks are those of the published rule after some steps, and loss and gradient are
    those of eager float32. On cuda steps are compiled, in bfloat16, of 4 micro-batches of 32 x 1024 tokens.
    """
    from strongticket.bench import measure, render, search
    from strongticket.cli.terminal import console, print_json, step_bar
    from strongticket.models.gpt2 import gpt2_config

    try:
        chosen_device(device)
        sizes = tuple(models.split(",")) if models is not None else None
        settings = replace(search.default_settings(device, sizes), repeats=repeats)
        for size in settings.models:
            gpt2_config(size)
    except ValueError as error:
        bad_usage(error)
    measured = []
    try:
        with step_bar(search.count_steps(settings)) as step:
            for of_one_model in search.run(settings, progress=step):
                measured += of_one_model
                for measurement in of_one_model:
                    measure.append_row(out / "results.jsonl", **measurement._asdict(), **environment(device))
    except measure.WrongAnswerError as error:
        _refuse(error, as_json)
    if as_json:
        print_json({"ok": True, "rows": [measurement._asdict() for measurement in measured]})
        return
    batch = f"{settings.micro_batches} x {settings.sequences} x {settings.length} tokens"
    console().print(render.search_table(measured, f"Steps of {batch}, {device}, {settings.step.precision}"))


def _run_subset_sum(settings: "Settings", results: Path, as_json: bool) -> "list[Comparison]":
    """Measure, keeping each finished number of items on disk, so that Ctrl-C loses only the one under way."""
    from strongticket.bench import measure, subset_sum
    from strongticket.cli.terminal import step_bar

    comparisons = []
    try:
        with step_bar(subset_sum.count_steps(settings)) as step:
            for comparison in subset_sum.run(settings, progress=step):
                comparisons.append(comparison)
                for measured in comparison.measurements:
                    measure.append_row(results, **measured._asdict(), **environment(settings.device))
    except ValueError as error:
        bad_usage(error)
    except measure.WrongAnswerError as error:
        _refuse(error, as_json)
    return comparisons


def _draw(comparisons: "list[Comparison]", path: Path, settings: "Settings") -> Path | None:
    """Draw the figure, or say what is missing for it."""
    from importlib.util import find_spec

    from strongticket.bench import figure

    if find_spec("matplotlib") is None:
        typer.echo("matplotlib: not installed, no figure. Install it with: pip install matplotlib", err=True)
        return None
    machine = environment(settings.device)
    on_gpu = machine["gpu"] is not None
    where = machine["gpu"] if on_gpu else f"{machine['cpu']}, {_threads(settings)}"
    figure.draw(comparisons, path, f"{where}; identical random problems, median of runs, log scale")
    return path


def _print_comparisons(comparisons: "list[Comparison]", settings: "Settings", drawn: Path | None) -> None:
    from strongticket.bench import render
    from strongticket.cli.terminal import console

    out = console()
    out.print(render.comparison_table(comparisons, f"Subset sums, {settings.device}, {_threads(settings)}"))
    for comparison in comparisons:
        out.print(
            f"n = {comparison.n}: {comparison.unreachable:,} of {comparison.drawn:,} targets unreachable; "
            f"no answer worse than the reference's or a peer's."
        )
        for note in comparison.notes:
            out.print(note)
    if drawn:
        out.print(f"figure: {drawn}")


def _threads(settings: "Settings") -> str:
    return "1 thread" if settings.threads == 1 else f"{settings.threads} threads"


def _parse_items(text: str) -> tuple[int, ...]:
    from strongticket.bench.subset_sum import ITEMS

    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"items must be whole numbers separated by commas, such as 8,16; got {text!r}.") from None
    if not all(n in ITEMS for n in counts):
        raise ValueError(
            f"items must lie between {ITEMS[0]} and {ITEMS[-1]}, where the optimum can be known; got {text}."
        )
    return counts


def _refuse(error: Exception, as_json: bool) -> NoReturn:
    from strongticket.cli.terminal import print_json, say_error

    say_error(error)

    if as_json:
        print_json({"ok": False, "error": str(error)})
    raise typer.Exit(1)


if __name__ == "__main__":
    bench_app()
