"""`strongticket bound`: the theorems from the command line, either way: widths for an error, or the error of widths."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from strongticket.cli.help_page import Command
from strongticket.cli.options import AsJson
from strongticket.cli.terminal import bad_usage

if TYPE_CHECKING:
    from strongticket.bounds import Bound, Stack

bound_app = typer.Typer(
    help="""Say how wide a random network must be for an error.

    Or, the other way, what error given widths promise, by the paper's theorems.

    A theorem speaks of a network before it is drawn, so it may fail. The probability printed is over the draw of the
    random weights: one subset sum misses with probability at most exp(-items / C), and this is added up over all of
    them. Nobody knows the constant C; the default is the least that is not ruled out, so the widths are the most
    hopeful ones (docs/theory.md, sections 5 and 6). The certificate of a ticket (strongticket show) has neither a
    probability nor a C in it.
    """,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DModel = Annotated[int, typer.Option(help="Input dimension d_1.", show_default=False)]
DOut = Annotated[int | None, typer.Option(help="Output dimension d_2.", show_default="as d-model")]
NHeads = Annotated[int, typer.Option(help="Heads H.")]
InputNorm = Annotated[float, typer.Option(help="No input is longer than this (alpha).")]
Layers = Annotated[int, typer.Option(min=1, help="Layers L of the target's feed-forward network.")]
Blocks = Annotated[int, typer.Option(help="Blocks B of the target.", show_default=False)]
Tol = Annotated[float | None, typer.Option(help="Error to promise; prints widths.", show_default=False)]
KeyWidth = Annotated[str | None, typer.Option(metavar="N", help="Key width n_K; prints the error.", show_default=False)]
ValueWidth = Annotated[
    str | None, typer.Option(metavar="N", help="Value width n_V; prints the error.", show_default=False)
]
HiddenWidth = Annotated[
    str | None, typer.Option(metavar="N", help="Hidden width n_FC; prints the error.", show_default=False)
]
Constant = Annotated[
    float | None,
    typer.Option(help="The universal constant C; its value is not known.", show_default="least not ruled out"),
]
Form = Annotated[
    Literal["paper", "tight"], typer.Option(help="The paper's widths, or those of the tighter softmax lemma.")
]


@bound_app.command(cls=Command, epilog="Example: strongticket bound linear --d-model 64 --d-out 32 --tol 0.01")
def linear(
    d_model: DModel,
    d_out: DOut = None,
    tol: Tol = None,
    hidden_width: HiddenWidth = None,
    constant: Constant = None,
    as_json: AsJson = False,
) -> None:
    """Two pruned random matrices against a given one (Lemma 7).

    No entry is off by more than tol / (d_1 d_2).
    """
    from strongticket.bounds import linear_bound

    with _usage_errors():
        bound = linear_bound(d_model=d_model, d_out=_default(d_out, d_model), constant=constant)
        _answer(bound, tol, {"hidden_width": hidden_width}, None, as_json)


@bound_app.command(cls=Command, epilog="Example: strongticket bound feedforward --d-model 64 --layers 2 --tol 0.01")
def feedforward(
    d_model: DModel,
    d_out: DOut = None,
    layers: Layers = 1,
    input_norm: InputNorm = 1.0,
    tol: Tol = None,
    hidden_width: HiddenWidth = None,
    constant: Constant = None,
    variant: Form = "paper",
    as_json: AsJson = False,
) -> None:
    """A pruned random ReLU network against a given one (Lemma 2).

    The random one has 2 L layers, the given one L, its hidden layers d-model units; from L = 2 this is Theorem 10. A
    width is one number for all layers, or one for each, separated by commas.
    """
    from strongticket.bounds import feedforward_bound, relu_bound

    end = _default(d_out, d_model)
    with _usage_errors():
        bound: Bound | Stack
        if layers == 1:
            bound = relu_bound(d_model=d_model, d_out=end, input_norm=input_norm, variant=variant, constant=constant)
        else:
            dims = [d_model] * layers + [end]
            bound = feedforward_bound(dims, input_norm=input_norm, variant=variant, constant=constant)
        _answer(bound, tol, {"hidden_width": hidden_width}, variant, as_json)


@bound_app.command(cls=Command, epilog="Example: strongticket bound attention --d-model 64 --input-norm 8 --tol 0.01")
def attention(
    d_model: DModel,
    d_out: DOut = None,
    n_heads: NHeads = 1,
    input_norm: InputNorm = 1.0,
    tol: Tol = None,
    key_width: KeyWidth = None,
    value_width: ValueWidth = None,
    constant: Constant = None,
    variant: Form = "paper",
    as_json: AsJson = False,
) -> None:
    """A pruned random attention against a given one (Theorem 9).

    Theorem 3 is its short form. Widths are per head.
    """
    from strongticket.bounds import attention_bound

    with _usage_errors():
        bound = attention_bound(
            d_model=d_model,
            d_out=_default(d_out, d_model),
            n_heads=n_heads,
            input_norm=input_norm,
            variant=variant,
            constant=constant,
        )
        _answer(bound, tol, {"key_width": key_width, "value_width": value_width}, variant, as_json)


@bound_app.command(cls=Command, epilog="Example: strongticket bound block --d-model 64 --tol 0.01 --variant tight")
def block(
    d_model: DModel,
    n_heads: NHeads = 1,
    layers: Layers = 1,
    input_norm: InputNorm = 1.0,
    tol: Tol = None,
    key_width: KeyWidth = None,
    value_width: ValueWidth = None,
    hidden_width: HiddenWidth = None,
    constant: Constant = None,
    variant: Form = "paper",
    as_json: AsJson = False,
) -> None:
    """A pruned random block against a given one (Theorem 11).

    The given block has no normalisation.
    """
    from strongticket.bounds import block_bound

    widths = {"key_width": key_width, "value_width": value_width, "hidden_width": hidden_width}
    with _usage_errors():
        bound = block_bound(
            d_model=d_model,
            n_heads=n_heads,
            layers=layers,
            input_norm=input_norm,
            variant=variant,
            constant=constant,
        )
        _answer(bound, tol, widths, variant, as_json)


@bound_app.command(cls=Command, epilog="Example: strongticket bound transformer --d-model 64 --blocks 6 --tol 0.01")
def transformer(
    d_model: DModel,
    blocks: Blocks,
    n_heads: NHeads = 1,
    layers: Layers = 1,
    input_norm: InputNorm = 1.0,
    tol: Tol = None,
    key_width: KeyWidth = None,
    value_width: ValueWidth = None,
    hidden_width: HiddenWidth = None,
    constant: Constant = None,
    variant: Form = "paper",
    as_json: AsJson = False,
) -> None:
    """A pruned random transformer against a given one (Theorem 14).

    Theorem 6 is its short form. The given transformer has no normalisation. A width is one number for all blocks, or
    one for each, separated by commas.
    """
    from strongticket.bounds import transformer_bound

    widths = {"key_width": key_width, "value_width": value_width, "hidden_width": hidden_width}
    with _usage_errors():
        bound = transformer_bound(
            d_model=d_model,
            blocks=blocks,
            n_heads=n_heads,
            layers=layers,
            input_norm=input_norm,
            variant=variant,
            constant=constant,
        )
        _answer(bound, tol, widths, variant, as_json)


def _answer(
    bound: "Bound | Stack", tol: float | None, texts: dict[str, str | None], variant: str | None, as_json: bool
) -> None:
    """Print widths if a tolerance was given, the error if widths were; exit with 1 if they promise nothing."""
    from strongticket.bounds import Stack
    from strongticket.cli.terminal import print_json

    stack = bound if isinstance(bound, Stack) else Stack(statement=bound.statement, parts=(bound,))
    _check_question(tol, texts)
    widths = stack.widths(tol) if tol is not None else _parse_widths(texts, len(stack.parts))
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
    typer.echo(f"{named}, inputs of norm at most {stack.input_norm:g}")
    for number, (part, own) in enumerate(zip(stack.parts, widths, strict=True), start=1):
        for line in part.requirements:
            label = line.name if len(widths) == 1 else f"{number}: {line.name}"
            typer.echo(f"  {label:<18}{own[line.name]:>12,}   {own[line.name] // line.blocks:,} items a sum")
    failure = stack.failure(widths)
    typer.echo(f"  {'error, at most':<18}{f'{error:.4g}':>12}   except with probability {failure:.2g}")
    sums = sum(line.sums for part in stack.parts for line in part.requirements)
    typer.echo(
        f"Note: the probability is over the draw of the random weights: exp(-items / C), added up over all {sums:,} "
        "subset sums."
    )
    for note in stack.notes:
        typer.echo(f"Note: {note}")
    constants = ", ".join(f"{C:g} for {name}" for name, C in stack.constants.items())
    typer.echo(
        f"Note: the constant C is assumed: {constants}. Its true value is not known (docs/theory.md, section 6)."
    )


def _refuse_silent(stack: "Stack", widths: list[dict[str, int]]) -> NoReturn:
    """Say which widths are too small for any promise, and what would do."""
    least = stack.widths(math.nextafter(1.0, 0.0))
    small = [
        f"{line.name}={own[line.name]} (at least {need[line.name]})"
        for part, own, need in zip(stack.parts, widths, least, strict=True)
        for line in part.requirements
        if own[line.name] < need[line.name]
    ]
    shown = ", ".join(small[:3]) + (f" and {len(small) - 3} more" if len(small) > 3 else "")
    typer.echo(f"Error: {stack.statement} promises nothing for so small a width: {shown}.", err=True)
    raise typer.Exit(1)


def _check_question(tol: float | None, texts: dict[str, str | None]) -> None:
    given = [_option(name) for name, text in texts.items() if text is not None]
    if tol is None and not given:
        raise ValueError(f"give --tol to get widths, or {_listed(texts)} to get the error; got neither.")
    if tol is not None and given:
        raise ValueError(f"give --tol or {_listed(texts)}; got both --tol and {', '.join(given)}.")


def _parse_widths(texts: dict[str, str | None], count: int) -> list[dict[str, int]]:
    columns = {name: _parse_width(name, text, count) for name, text in texts.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def _parse_width(name: str, text: str | None, count: int) -> list[int]:
    if text is None:
        raise ValueError(f"{_option(name)} is missing; all widths are needed to get the error.")
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{_option(name)} must be whole numbers separated by commas; got {text!r}.") from None
    if len(numbers) not in (1, count):
        raise ValueError(f"{_option(name)} must be one number, or {count} of them; got {len(numbers)}.")
    return numbers * count if len(numbers) == 1 else numbers


def _listed(texts: dict[str, str | None]) -> str:
    return " and ".join(_option(name) for name in texts)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _default(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        bad_usage(error)
