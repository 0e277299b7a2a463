"""`strongticket bench`: how fast, against whom, and is it right."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strongticket.cli.help_page import Command
from strongticket.cli.options import AsJson, chosen_device
from strongticket.cli.terminal import bad_usage
from strongticket.environment import environment

if TYPE_CHECKING:
    from strongticket.bench.pensia import Outcome
    from strongticket.bench.subset_sum import Comparison, Settings
    from strongticket.report.records import SearchSteps, SubsetSums

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

    with _refusing(as_json):
        chosen = choose(peers)
        counts = _parse_items(items)
        chosen_device(device)
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
    comparisons = _run_subset_sum(settings, out, as_json)
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
    from strongticket.bench import pensia, render
    from strongticket.cli.terminal import console, print_json, step_bar

    with _refusing(as_json):
        chosen_device(device)
        with step_bar(2) as step:
            outcome = pensia.run(
                weights=weights, threads=threads, device=device, repeats=repeats, seed=seed, progress=step
            )
        _keep([outcome], out, device)
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
    from strongticket.bench import render, search
    from strongticket.cli.terminal import console, print_json, step_bar
    from strongticket.models.gpt2 import gpt2_config

    with _refusing(as_json):
        chosen_device(device)
        sizes = tuple(models.split(",")) if models is not None else None
        settings = replace(search.default_settings(device, sizes), repeats=repeats)
        for size in settings.models:
            gpt2_config(size)
    with _refusing(as_json), step_bar(search.count_steps(settings)) as step:
        measured = []
        for rows in search.run(settings, progress=step):
            measured += rows
            _keep(rows, out, device)
    if as_json:
        print_json({"ok": True, "rows": [measurement._asdict() for measurement in measured]})
        return
    batch = f"{settings.micro_batches} x {settings.sequences} x {settings.length} tokens"
    console().print(render.search_table(measured, f"Steps of {batch}, {device}, {settings.step.precision}"))


def _run_subset_sum(settings: "Settings", out: Path, as_json: bool) -> "list[Comparison]":
    from strongticket.bench import subset_sum
    from strongticket.cli.terminal import step_bar

    comparisons = []
    with _refusing(as_json), step_bar(subset_sum.count_steps(settings)) as step:
        for comparison in subset_sum.run(settings, progress=step):
            comparisons.append(comparison)
            _keep(comparison.measurements, out, settings.device)
    return comparisons


def _keep(rows: "Iterable[SubsetSums | SearchSteps | Outcome]", out: Path, device: str) -> None:
    """Put rows on disk as they come, so that Ctrl-C loses only those under way."""
    from strongticket.bench.measure import append_row

    for row in rows:
        append_row(out / "results.jsonl", **row._asdict(), **environment(device))


@contextmanager
def _refusing(as_json: bool) -> Iterator[None]:
    """End the command, without a speed, where a setting or an answer is wrong."""
    from strongticket.bench.measure import WrongAnswerError
    from strongticket.cli.terminal import print_json, say_error

    try:
        yield
    except ValueError as error:
        bad_usage(error)
    except WrongAnswerError as error:
        say_error(error)
        if as_json:
            print_json({"ok": False, "error": str(error)})
        raise typer.Exit(1) from None


def _draw(comparisons: "list[Comparison]", path: Path, settings: "Settings") -> Path | None:
    """Draw the figure, or say what is missing for it."""
    from importlib.util import find_spec

    from strongticket.charts.parts import Section
    from strongticket.charts.picture import draw
    from strongticket.report.records import Made, Timed, typed
    from strongticket.report.speed import sums_chart

    if find_spec("matplotlib") is None:
        typer.echo("matplotlib: not installed, no figure. Install it with: pip install matplotlib", err=True)
        return None
    made = typed(Made, environment(settings.device))
    rows = [Timed(row, made) for comparison in comparisons for row in comparison.measurements]
    where = made.gpu or f"{made.cpu}, {_threads(settings)}"
    chart = sums_chart(rows, f"{where}; identical random problems, medians of runs with 20th and 80th percentiles.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(Section(anchor="speed", name="Speed", title="Subset sums solved per second", lead="", blocks=(chart,)), path)
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


if __name__ == "__main__":
    bench_app()
