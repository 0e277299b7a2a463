"""Options and arguments that several commands have, and what is the same about them."""

from pathlib import Path
from typing import Annotated

import typer

from strongticket.terminal import bad_usage

TicketFile = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default=False, help="Ticket file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
