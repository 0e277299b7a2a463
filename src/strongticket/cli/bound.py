"""`strongticket bound`: evaluate the theorems, from an error to widths or from widths to an error."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from strongticket.cli.help_page import Command, Group
from strongticket.cli.options import NEEDED, AsJson, flag_of, option, set_signature
from strongticket.cli.terminal import bad_usage, echo, print_json, print_table, print_wrapped, say_error

if TYPE_CHECKING:
    from strongticket.bounds import Bound, Stack

bound_app = typer.Typer(
    cls=Group,
    help="""Compute how wide a random network must be for a given error.

    Or, the other way round, which error given widths guarantee, by the paper's theorems.

    A theorem is about a network before it is drawn, so it can fail. The probability printed is over the draw of the
    random weights: one subset sum misses with probability at most exp(-items / C), added up over all of them. Nobody
    knows the constant C; the default is the smallest that is not ruled out, so the widths are optimistic
    (docs/theory.md, sections 5 and 6). A ticket's certificate (strongticket show) needs neither probability nor C.
    """,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_VARIANT = Literal["paper", "tight"]
# Options by the argument names of the theorems' functions: type, default, option.
_ASKED: dict[str, tuple[Any, Any, Any]] = {
    "d_model": (int, NEEDED, option("Input dimension d_1.", shown=False)),
    "blocks": (int, NEEDED, option("Number of blocks B of the target.", shown=False)),
    "d_out": (int | None, None, option("Output dimension d_2.", shown="d-model")),
    "n_heads": (int, 1, option("Heads H.", "--n-heads", "--heads")),
    "layers": (int, 1, option("Layers L of the target's feed-forward network.", min=1)),
    "hidden": (int | None, None, option("Size of that network's hidden layers.", min=1, shown="d-model")),
    "input_norm": (float, 1.0, option("Largest norm of an input (alpha).")),
    "tol": (float | None, None, option("Error to guarantee; prints the widths.", shown=False)),
    "key_width": (str | None, None, option("Key width n_K; prints the error.", metavar="N", shown=False)),
    "value_width": (str | None, None, option("Value width n_V; prints the error.", metavar="N", shown=False)),
    "hidden_width": (str | None, None, option("Hidden width n_FC; prints the error.", metavar="N", shown=False)),
    "constant": (
        float | None,
        None,
        option("The universal constant C; its value is not known.", shown="smallest not ruled out"),
    ),
    "variant": (_VARIANT, "paper", option("The paper's widths, or those of the tighter softmax lemma.")),
    "as_json": (bool, False, option("Print one JSON object instead of text.", "--json")),
}


def _add(name: str, asks: str, example: str, words: str) -> None:
    """Add the command of one theorem, which takes a tolerance or widths, a constant and `asks`."""
    wanted = {*asks.split(), "d_model", "tol", "constant", "as_json"}

    def command(**given: Any) -> None:
        as_json, tol, variant = given.pop("as_json"), given.pop("tol"), given.get("variant")
        widths = {name: given.pop(name) for name in [*given] if name.endswith("_width")}
        if "d_out" in given and given["d_out"] is None:
            given["d_out"] = given["d_model"]
        try:
            _answer(_bound_of(name, given), tol, widths, variant, as_json)
        except ValueError as error:
            bad_usage(error)

    options = {key: asked for key, asked in _ASKED.items() if key in wanted}
    set_signature(command, options)
    bound_app.command(name, cls=Command, help=words, epilog=f"Example: strongticket bound {name} {example}")(command)


_add(
    "linear",
    "d_out hidden_width",
    "--d-model 64 --d-out 32 --tol 0.01",
    """Two pruned random matrices against a given one (Lemma 7).

    No entry is off by more than tol / (d_1 d_2).
    """,
)
_add(
    "feedforward",
    "d_out layers hidden input_norm hidden_width variant",
    "--d-model 64 --layers 2 --tol 0.01",
    """A pruned random ReLU network against a given one (Lemma 2).

    The random one has 2 L layers, the given one L; from L = 2 this is Theorem 10. A width is one number for all layers,
    or one for each, separated by commas.
    """,
)
_add(
    "attention",
    "d_out n_heads input_norm key_width value_width variant",
    "--d-model 64 --input-norm 8 --tol 0.01",
    """A pruned random attention against a given one (Theorem 9).

    Theorem 3 is its short form. Widths are per head.
    """,
)
_add(
    "block",
    "n_heads layers hidden input_norm key_width value_width hidden_width variant",
    "--d-model 64 --tol 0.01 --variant tight",
    """A pruned random block against a given one (Theorem 11).

    The given block has no normalisation.
    """,
)
_add(
    "transformer",
    "blocks n_heads layers hidden input_norm key_width value_width hidden_width variant",
    "--d-model 64 --blocks 6 --tol 0.01",
    """A pruned random transformer against a given one (Theorem 14).

    Theorem 6 is its short form. The given transformer has no normalisation. A width is one number for all blocks, or
    one for each, separated by commas.
    """,
)


_OF = option("Of an attention (Lemma 12), or of a block (Lemma 13).")
_MOVED = option("Largest change; prints the error.", shown=False)


def _add_lemma(name: str, moved: str, more: dict[str, Any], example: str, words: str) -> None:
    """Add the command of a lemma on how far outputs move: from the change of `moved`, or back from a tolerance."""
    options = {"d_model": _ASKED["d_model"], **more, "input_norm": _ASKED["input_norm"]}
    options |= {moved: (float | None, None, _MOVED), "tol": (float | None, None, _ASKED["tol"][2])}
    options |= {key: _ASKED[key] for key in ("variant", "as_json")}

    def command(**given: Any) -> None:
        from strongticket import bounds

        as_json, move, tol, of = given.pop("as_json"), given.pop(moved), given.pop("tol"), given.pop("of", None)
        if (move is None) == (tol is None):
            bad_usage(f"give {flag_of(moved)} to get the error, or --tol to get the largest change allowed.")
        try:
            if tol is None:
                error = getattr(bounds, f"{of}_drift" if of else "softmax_error")(move, **given)
            else:
                backward = f"largest_{of}_input_error" if of else "largest_score_error"
                move, error = getattr(bounds, backward)(tol, **given), tol
        except ValueError as wrong:
            bad_usage(wrong)
        if as_json:
            kind = {"of": of} if of else {}
            print_json({**kind, **given, moved: move if math.isfinite(move) else None, "error": error})
        else:
            echo(f"{moved.replace('_', ' ')} at most {move:.6g}: outputs move by at most {error:.6g}")

    set_signature(command, options)
    bound_app.command(name, cls=Command, help=words, epilog=f"Example: strongticket bound {name} {example}")(command)


_add_lemma(
    "softmax",
    "score_error",
    {},
    "--d-model 64 --score-error 0.01",
    """How far a softmax moves with its scores (Lemma 8).

    Lemma 5 is the paper's form for score errors of at most 1/2; the tight form is below both.
    """,
)
_add_lemma(
    "drift",
    "input_error",
    {"of": (Literal["attention", "block"], "attention", _OF), "n_heads": _ASKED["n_heads"]},
    "--d-model 64 --input-error 0.001",
    """How far a target moves with its inputs (Lemmas 12, 13).""",
)


@bound_app.command(
    "given",
    cls=Command,
    epilog="Example: strongticket bound given --target target.safetensors --tol 0.01",
)
def given(
    target: Annotated[
        Path, option("Safetensors file of a matrix, a ReLU network, an attention or a transformer.", shown=False)
    ],
    tol: Annotated[float, option("A certified error above this is a failure.", shown=False)],
    failure: Annotated[float, option("Share of random networks that may fail.", min=0)] = 0.05,
    sources: Annotated[int, option("Random networks per width.", min=1)] = 100,
    assignment: Annotated[Literal["adaptive", "equal"], option("How hidden units are shared out.")] = "adaptive",
    input_norm: Annotated[float, option("Largest norm of an input (alpha).")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Find the width for your own target by trying (no constant C).

    A theorem covers all targets; yours may be easier. Tickets are constructed from many seeds, and failures are
    counted. Beside them stands the computed chance that some entry is out of reach of equal blocks: these fail at least
    as often, unless an entry is missed by less than the tolerance.
    """
    from dataclasses import asdict

    from strongticket.charts.parts import table_of
    from strongticket.construct.target import load_target
    from strongticket.construct.width_for import MOST_ITEMS, target_of, width_for
    from strongticket.progress import count_bar

    settings: dict[str, Any] = {"tol": tol, "failure": failure, "sources": sources, "assignment": assignment}
    settings["input_norm"] = input_norm
    with count_bar("random networks") as tell:
        try:
            given = target_of(load_target(target))
            answer = width_for(given, **settings, progress=lambda items, done, total: tell(done, total))
        except ValueError as error:
            bad_usage(error)
    if as_json:
        print_json({**settings, **asdict(answer)})
        return
    columns: dict[str, Callable[[Any], str]] = {
        "items": lambda tried: str(tried.items),
        "failed": lambda tried: f"{tried.failures.count} of {tried.failures.sources}",
        "chance of failure, 95 %": lambda tried: f"{tried.failures.low:.2g} to {tried.failures.high:.2g}",
        "out of reach of equal blocks, at least": lambda tried: f"{tried.out_of_reach:.2g}",
    }
    tried = sorted(answer.tried, key=lambda tried: tried.items)
    print_table(table_of(f"{target}, error at most {tol:g}", tried, columns, words=0))
    if answer.found is None:
        say_error(f"{MOST_ITEMS} items per entry are not enough; allow a larger --tol or --failure.")
        raise typer.Exit(1)
    widths = ", ".join(f"{name.replace('_', ' ')} {width}" for name, width in answer.found.widths.items())
    best = answer.found.failures
    echo(f"With {answer.found.items} items {best.count} of {best.sources} failed: {widths}.")
    if best.high > failure:
        echo(f"The true share may be up to {best.high:.2g}; more --sources narrow it down.")
    echo(f"For all targets with weights of norm at most 1 the theorem needs {answer.theorem_items} items.")


def _bound_of(name: str, given: dict[str, Any]) -> "Bound | Stack":
    from strongticket import bounds

    if name != "feedforward":
        found: Bound | Stack = getattr(bounds, f"{name}_bound")(**given)
        return found
    layers, hidden = given.pop("layers"), given.pop("hidden")
    if layers == 1:
        return bounds.relu_bound(**given)
    d_model, d_out = given.pop("d_model"), given.pop("d_out")
    return bounds.feedforward_bound([d_model, *[hidden or d_model] * (layers - 1), d_out], **given)


def _answer(
    bound: "Bound | Stack", tol: float | None, texts: dict[str, str | None], variant: str | None, as_json: bool
) -> None:
    """Print widths for a tolerance, or the error for widths; exit with 1 if they guarantee nothing."""
    from strongticket.bounds import Stack

    stack = bound if isinstance(bound, Stack) else Stack(statement=bound.statement, parts=(bound,))
    widths = _widths(stack, tol, texts)
    error = stack.error(widths)
    if as_json:
        print_json(
            {
                "statement": stack.statement,
                "variant": variant,
                "constants": stack.constants,
                "input_norm": stack.input_norm,
                "tol": tol,
                "widths": widths,
                "error": error if math.isfinite(error) else None,
                "failure_probability": stack.failure(widths),
                "notes": list(stack.notes),
            }
        )
    elif math.isfinite(error):
        _print_answer(stack, variant, error if tol is None else tol, widths)
    if not math.isfinite(error):
        _refuse_silent(stack, widths)


def _print_answer(stack: "Stack", variant: str | None, error: float, widths: list[dict[str, int]]) -> None:
    named = stack.statement if variant is None else f"{stack.statement}, {variant} widths"
    echo(f"{named}, inputs of norm at most {stack.input_norm:g}")
    for number, (part, own) in enumerate(zip(stack.parts, widths, strict=True), start=1):
        for line in part.requirements:
            label = line.name if len(widths) == 1 else f"{number}: {line.name}"
            echo(f"  {label:<18}{own[line.name]:>12,}   {own[line.name] // line.blocks:,} items per sum")
    failure = stack.failure(widths)
    echo(f"  {'error, at most':<18}{f'{error:.4g}':>12}   except with probability {failure:.2g}")
    sums = sum(line.sums for part in stack.parts for line in part.requirements)
    print_wrapped(
        f"Note: the probability is over the draw of the random weights: exp(-items / C), added up over all {sums:,} "
        "subset sums."
    )
    for note in stack.notes:
        print_wrapped(f"Note: {note}")
    constants = ", ".join(f"{C:g} for {name}" for name, C in stack.constants.items())
    unknown = "Its true value is not known (docs/theory.md, section 6)."
    print_wrapped(f"Note: the constant C is assumed: {constants}. {unknown}")


def _refuse_silent(stack: "Stack", widths: list[dict[str, int]]) -> NoReturn:
    """Say which widths are too small to guarantee anything, and the smallest that suffice."""
    least = stack.widths(math.nextafter(1.0, 0.0))
    small = [
        f"{line.name}={own[line.name]} (at least {need[line.name]})"
        for part, own, need in zip(stack.parts, widths, least, strict=True)
        for line in part.requirements
        if own[line.name] < need[line.name]
    ]
    shown = ", ".join(small[:3]) + (f" and {len(small) - 3} more" if len(small) > 3 else "")
    say_error(f"{stack.statement} guarantees nothing for widths this small: {shown}.")
    raise typer.Exit(1)


def _widths(stack: "Stack", tol: float | None, texts: dict[str, str | None]) -> list[dict[str, int]]:
    """Return the widths for a tolerance, or the given ones."""
    given, listed = [flag_of(n) for n, text in texts.items() if text is not None], " and ".join(map(flag_of, texts))
    if tol is None and not given:
        raise ValueError(f"give --tol to get widths, or {listed} to get the error; got neither.")
    if tol is not None and given:
        raise ValueError(f"give --tol or {listed}; got both --tol and {', '.join(given)}.")
    if tol is not None:
        return stack.widths(tol)
    columns = {name: _parse_width(name, text, len(stack.parts)) for name, text in texts.items()}
    return [dict(zip(columns, own, strict=True)) for own in zip(*columns.values(), strict=True)]


def _parse_width(name: str, text: str | None, count: int) -> list[int]:
    if text is None:
        raise ValueError(f"{flag_of(name)} is missing; all widths are needed to get the error.")
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{flag_of(name)} must be whole numbers separated by commas; got {text!r}.") from None
    if len(numbers) not in (1, count):
        raise ValueError(f"{flag_of(name)} must be one number, or {count} of them; got {len(numbers)}.")
    return numbers * count if len(numbers) == 1 else numbers
