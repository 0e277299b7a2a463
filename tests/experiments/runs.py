"""Small real runs of the figures, shared by the tests."""

import sys
from pathlib import Path
from typing import Any

from strongticket.experiments import fig4, fig5, fig6, scans, theorem3
from strongticket.experiments.figure import Figure, How, reproduce_figure
from strongticket.experiments.targets import TargetConfig

# A second of training: fewer and shorter sequences, otherwise as in the paper.
TRAINED = TargetConfig(samples=512, batch=256, epochs=3, longest=16)
UNTRAINED = TargetConfig(kind="untrained")

SMALL: dict[str, tuple[Figure[Any], Any]] = {
    "fig4": (fig4.FIGURE, fig4.Config(sources=5, targets=2, widths=(8, 24, 66), inputs=50, target=TRAINED)),
    "fig5": (
        fig5.FIGURE,
        fig5.Config(
            sources=3,
            widths=(16, 32),
            lengths=(4, 16, 64),
            inputs=20,
            all_tokens_up_to=16,
            all_tokens_inputs=6,
            target=UNTRAINED,
        ),
    ),
    "fig6": (fig6.FIGURE, fig6.Config(sources=4, n_blocks=3, widths=(8, 32, 48), inputs=50)),
    "theorem3": (theorem3.FIGURE, theorem3.Config(sources=5, widths=(24, 48), inputs=5)),
    "scans": (scans.FIGURE, scans.Config(sources=2, targets=len(scans.CELLS), inputs=5)),
}


def run_small(name: str, out: Path, **how: Any) -> Any:
    """Run a small figure and give its result."""
    figure, config = SMALL[name]
    return reproduce_figure(figure, config, out, How(**how))


def command(*arguments: object) -> list[str]:
    """Give the command line that reproduces, as a user would type it."""
    return [sys.executable, "-m", "strongticket", "reproduce", *map(str, arguments)]
