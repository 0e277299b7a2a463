"""Options and arguments that several commands have, and what is the same about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from strongticket.cli.terminal import bad_usage

TicketFile = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default=False, help="Ticket file.")
]
Families = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, show_default=False, help="Python file to run first, which registers your families."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def given_options(context: typer.Context) -> set[str]:
    """Name the parameters that were set by the user, by command line or environment."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name != "DEFAULT"}


def refuse_in_vain(vain: Sequence[str], about: str) -> None:
    """Refuse options that nothing looks at: a misunderstanding, whose result would be taken for another."""
    if vain:
        bad_usage(f"{' and '.join(vain)} {'is' if len(vain) == 1 else 'are'} for {about}.")


def load_families(file: Path | None) -> None:
    """Run the file that `--families` names, if it was given."""
    if file is not None:
        from strongticket.pretrained.families import run_families

        run_families(file)


def chosen_device(asked: str | None) -> str:
    """Give the device a command should use; one that is not there is bad usage."""
    if asked not in (None, "cpu", "cuda"):
        bad_usage(f"--device must be cpu or cuda; got {asked!r}. CUDA_VISIBLE_DEVICES chooses among several GPUs.")
    if asked == "cpu":
        return asked
    import torch

    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        bad_usage("--device cuda was asked for, but torch finds no CUDA device here. Use --device cpu.")
    return "cuda" if there else "cpu"
