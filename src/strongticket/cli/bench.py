"""`strongticket bench`: check the answers, then measure speed against other solvers."""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strongticket.bench.settings import DecodeSettings, PensiaSettings, RulesSettings, SearchSettings, SubsetSumSettings
from strongticket.cli.help_page import Command, Group
from strongticket.cli.options import AsJson, chosen_device, option, with_settings
from strongticket.cli.terminal import (
    bad_usage,
    echo,
    print_json,
    print_section,
    print_table,
    say_error,
    say_stopped,
    write,
)
from strongticket.environment import environment

if TYPE_CHECKING:
    from strongticket.bench.subset_sum import Comparison
    from strongticket.charts.parts import Section
    from strongticket.report.records import RuleRun

T = TypeVar("T")

bench_app = typer.Typer(
    cls=Group,
    help="Measure speed, after checking that the answers are right.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path, option("Folder for results.jsonl, which is appended to, and figures.", file_okay=False)]


@bench_app.command(
    "subset-sum",
    cls=Command,
    epilog="Example: strongticket bench subset-sum --items 16,20 --peers gurobi,highs",
)
@with_settings(SubsetSumSettings)
def subset_sum_command(
    out: Out = Path("results/bench"),
    figure: Annotated[
        Path | None, option("Where to draw the figure.", dir_okay=False, shown="OUT/subset-sum-DEVICE.png")
    ] = None,
    as_markdown: Annotated[bool, option("Print the table as Markdown.", "--markdown")] = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Time our subset sums and other solvers on the same problems.

    The table has rates, errors and shares of true optima. A rate is printed only if every answer of ours is at least as
    good as the reference's and each peer's.
    """
    from strongticket.bench import render, subset_sum
    from strongticket.bench.peers import choose

    try:
        missing = [peer for peer in choose(options["peers"]) if not peer.installed]
    except ValueError as error:
        bad_usage(error)
    for peer in missing:
        echo(peer.missing, err=True)
    options["peers"] = tuple(name for name in options["peers"] if all(peer.installed for peer in choose([name])))
    settings = _settings(SubsetSumSettings, options)
    comparisons: list[Comparison] = _run(subset_sum, settings, out, as_json)
    drawn = _draw(comparisons, figure or out / f"subset-sum-{settings.device}.png", settings)
    if as_json:
        _print_rows(
            chain(*comparisons),
            unreachable={str(comparison.n): comparison.unreachable for comparison in comparisons},
            missing=[{"peer": peer.name, "install": f"pip install {peer.package}"} for peer in missing],
            notes=[note for comparison in comparisons for note in comparison.notes],
            figure=str(drawn) if drawn else None,
        )
    elif as_markdown:
        write(f"{render.comparison_markdown(comparisons)}\n")
    else:
        print_table(render.comparison_table(comparisons, f"Subset sums, {settings.device}, {_threads(settings)}"))
        for comparison in comparisons:
            echo(
                f"n = {comparison.n}: {comparison.unreachable:,} of {comparison.drawn:,} targets unreachable; "
                f"no answer is worse than the reference's or a peer's."
            )
            for note in comparison.notes:
                echo(note)
        if drawn:
            echo(f"figure: {drawn}")


@bench_app.command("pensia", cls=Command, epilog="Example: strongticket bench pensia --threads 2")
@with_settings(PensiaSettings)
def pensia_command(out: Out = Path("results/bench"), as_json: AsJson = False, **options: Any) -> None:
    """Repeat experiment 1 of Pensia et al., 2020.

    That is 397,000 weights with 21 candidates each. They report 77,266 s on 36 cores with Gurobi; our time excludes the
    one-off compilation.
    """
    from strongticket.bench import pensia, render

    ((outcome,),) = _run(pensia, _settings(PensiaSettings, options), out, as_json)
    if as_json:
        print_json({"ok": True, **outcome._asdict()})
    else:
        print_table(render.pensia_table(outcome))


@bench_app.command("search", cls=Command, epilog="Example: strongticket bench search --models mini --device cuda")
@with_settings(SearchSettings)
def search_command(out: Out = Path("results/bench"), as_json: AsJson = False, **options: Any) -> None:
    """Time a search step of GPT-2 against a training step.

    Search masks every matrix, by edge-popup or other rules; dense trains the same tensors of the same network; gpt2
    trains biases and norms as well. The table has times and memory.

    Nothing is printed until masks match the published rule after some steps, and loss and gradient match eager float32.
    On cuda, steps are compiled, in bfloat16, and have 4 micro-batches of 32 x 1024 tokens.
    """
    from strongticket.bench import render, search

    settings = _settings(SearchSettings, options)
    rows = [*chain(*_run(search, settings, out, as_json))]
    if as_json:
        _print_rows(rows)
        return
    batch = " x ".join(map(str, settings.batch))
    title = f"Steps of {batch} tokens, {settings.device}, {settings.step.precision}"
    print_table(render.search_table(rows, title))


@bench_app.command("rules", cls=Command, epilog="Example: strongticket bench rules --jobs 16")
@with_settings(RulesSettings)
def rules_command(
    quick: Annotated[bool, option("All rules for 40 steps on the smallest network.", "--quick")] = False,
    out: Out = Path("results/rules"),
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Try every rule on digits: accuracy, bytes, seconds.

    Also times a step of each rule on one CPU thread, against a dense step and one that sorts all scores.

    Ctrl-C keeps what is done; the same command resumes. Needs scikit-learn (the extra `digits`).
    """
    from strongticket.bench import rules
    from strongticket.bench.measure import append_row
    from strongticket.progress import step_bar
    from strongticket.report.find import find
    from strongticket.report.rules import rules_section

    if quick:
        options |= {"networks": ("48-24",), "densities": (0.5,), "seeds": 1, "steps": 40}
    settings = _settings(RulesSettings, options)
    rules.digits()  # fails early if scikit-learn is missing
    file, made = out / "results.jsonl", environment("cpu")
    before = find([file]).benchmarks if file.exists() else []
    done = [row.row for rows in before for row in rows.rules]
    timed = [row.row for rows in before for row in rows.rule_steps]
    with step_bar(len(rules.tasks_of(settings)) + 1, "bench rules") as step:
        if not timed:
            step("timing steps")
            timed = rules.step_times()
            for steps in timed:
                append_row(file, **steps._asdict(), **made)

        def keep(row: "RuleRun") -> None:
            step(f"{row.network}, {row.rule}, density {row.density:g}, seed {row.seed}: {row.accuracy:.1%}")
            append_row(file, **row._asdict(), **made)

        try:
            rows = rules.run(settings, done, keep)
        except KeyboardInterrupt:
            say_stopped()
    if as_json:
        _print_rows(rows, steps=[row._asdict() for row in timed])
        return
    # All rows of the file, as on the page, not only those of this command.
    found = find([file]).benchmarks[0]
    _show(rules_section(file, found.rules, found.rule_steps), out, "rules")


@bench_app.command("decode", cls=Command, epilog="Example: strongticket bench decode --models small --threads 1")
@with_settings(DecodeSettings)
def decode_command(
    quick: Annotated[bool, option("The smallest network, two engines, few tokens.", "--quick")] = False,
    out: Out = Path("results/decode"),
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Time GPT-2 from bits, token by token, against torch.

    float32, bfloat16, dynamic int8 and torch.compile run the same random ticket as floats, each in its own process.
    Nothing is timed until our logits match those of float64.
    """
    from strongticket.bench import decode
    from strongticket.report.decode import decode_section
    from strongticket.report.find import find

    if quick:
        few = {"prompt": 16, "context": 8, "tokens": 2, "repeats": 3}
        options |= {"models": ("nano",), "engines": ("bits", "float32"), "threads": (1,), **few}
    found = _run(decode, _settings(DecodeSettings, options), out, as_json)
    if as_json:
        _print_rows(chain(*found))
        return
    file = out / "results.jsonl"
    _show(decode_section(file, find([file]).benchmarks[0].decoding), out, "decode")


def _show(section: "Section", out: Path, name: str) -> None:
    """Draw a section into a folder, and print it."""
    from strongticket.charts.picture import draw

    draw(section, out / name)
    print_section(section)
    echo(f"{out / 'results.jsonl'}, {name}.png, {name}.svg")


def _print_rows(rows: Iterable[Any], **more: object) -> None:
    print_json({"ok": True, "rows": [row._asdict() for row in rows], **more})


def _settings(kind: Callable[..., T], options: dict[str, Any]) -> T:
    """Make settings from options; invalid values are bad usage."""
    chosen_device(options.get("device", "cpu"))
    try:
        return kind(**{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        bad_usage(error)


def _run(benchmark: Any, settings: Any, out: Path, as_json: bool) -> list[Any]:
    """Run a module of `bench`, and return its parts, of some rows each.

    If a setting or an answer is wrong, the command ends without printing a speed. Rows are written as they finish, so
    that Ctrl-C loses only unfinished ones.
    """
    from strongticket.bench.measure import WrongAnswerError, append_row
    from strongticket.progress import step_bar

    found = []
    try:
        with step_bar(benchmark.count_steps(settings), "bench") as step:
            for part in benchmark.run(settings, progress=step):
                found.append(part)
                for row in part:
                    append_row(out / "results.jsonl", **row._asdict(), **environment(settings.device))
    except ValueError as error:
        bad_usage(error)
    except WrongAnswerError as error:
        say_error(error)
        if as_json:
            print_json({"ok": False, "error": str(error)})
        raise typer.Exit(1) from None
    return found


def _draw(comparisons: "list[Comparison]", path: Path, settings: SubsetSumSettings) -> Path | None:
    """Draw the figure, or say which package it needs."""
    from importlib.util import find_spec

    from strongticket.charts.parts import Section
    from strongticket.charts.picture import draw
    from strongticket.report.records import Made, Timed, typed
    from strongticket.report.speed import sums_chart

    if find_spec("matplotlib") is None:
        echo("matplotlib: not installed, no figure. Install it with: pip install matplotlib", err=True)
        return None
    made = typed(Made, environment(settings.device))
    rows = [Timed(row, made) for row in chain(*comparisons)]
    where = made.gpu or f"{made.cpu}, {_threads(settings)}"
    chart = sums_chart(rows, f"{where}; identical random problems, medians of runs with 20th and 80th percentiles.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(Section(anchor="speed", name="Speed", title="Subset sums solved per second", lead="", blocks=(chart,)), path)
    return path


def _threads(settings: SubsetSumSettings) -> str:
    return "1 thread" if settings.threads == 1 else f"{settings.threads} threads"


if __name__ == "__main__":
    bench_app()
