"""Attention maps that Figure 4 keeps: of the target, and of the first source's ticket at each width."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from strongticket.charts import parts
from strongticket.charts.parts import Section, Table, number
from strongticket.experiments import curves
from strongticket.experiments.tasks import Indexed
from strongticket.models.attention import MergedAttention

SAMPLES, DIGITS = 3, 6
Maps = list[list[list[float]]]  # (inputs, T, T)


class Mapped(curves.Width):
    """One target's sources of one width, with the maps of the first."""

    maps: Maps


class Result(TypedDict):
    """The parts of Figure 4's `result.json` that are shown here."""

    targets: Sequence[Indexed]
    target_maps: Sequence[Maps]
    widths: Sequence[Mapped]


def sample_maps(attention: MergedAttention, x: Tensor) -> Maps:
    """Return the first head's attention maps of a few inputs as rounded lists."""
    with torch.inference_mode():
        maps = attention.weights(x[:SAMPLES])[:, 0].tolist()
    return [[[round(weight, DIGITS) for weight in row] for row in each] for each in maps]


def describe_maps(result: Result) -> Section:
    """Show the target's attention maps beside those of the first source at each width."""
    points = curves.of_target(result["widths"], result["targets"][0]["index"])
    widths, maps = [point["width"] for point in points], [point["maps"] for point in points]
    theirs = result["target_maps"][0]
    if any(np.shape(each) != np.shape(theirs) or np.ndim(each) != 3 for each in maps):
        raise ValueError("attention maps of target and sources differ in shape")
    gaps = [np.abs(np.subtract(each, theirs, dtype=np.float64)).max(axis=(1, 2)) for each in maps]
    closer = gaps[-1].max() < gaps[0].max()
    grows = "As the network grows, its ticket looks where the target looks"
    block = parts.Maps(
        title=grows if closer else "Attention of the target, of the ticket, and their difference",
        caption="Move the slider to widen the random network. Each row is a token, and says how much of its attention "
        "goes to the token of each column; the first is the regression token. One random network per width. Weights "
        "are stored to six digits.",
        widths=widths,
        target=theirs,
        sources=maps,
        tables=(
            Table(
                caption="Largest difference of an attention weight",
                columns=("n", *(f"input {k + 1}" for k in range(len(theirs)))),
                rows=[(str(n), *map(_in_words, each.tolist())) for n, each in zip(widths, gaps, strict=True)],
                words=0,
            ),
        ),
    )
    return Section(
        anchor="maps",
        name="Attention maps",
        title="What the ticket attends to",
        lead="The same input, seen by the target and by a ticket that was never trained. Move the slider: "
        "does its attention become the target’s as the random network grows?",
        blocks=(block,),
    )


def _in_words(gap: float) -> str:
    """Write a difference of stored weights; below their last digit it is only rounding."""
    return "≤ 10⁻⁶" if gap < 1.5 * 10.0**-DIGITS else number(gap)
