"""Rows as runs on text leave them, with made-up losses."""

from pathlib import Path

from strongticket.experiments import ablation, fig7, fig8, frontier, inits, longer, signs, spread
from strongticket.experiments.figure import Figure
from strongticket.experiments.language import Rows
from strongticket.experiments.text_figure import Choice, TextRuns
from strongticket.files import Json
from strongticket.learn.config import RunConfig

FIGURES = (
    *(fig7.FIGURE, fig8.FIGURE, spread.FIGURE, ablation.FIGURE, inits.FIGURE),
    *(frontier.FIGURE, signs.FIGURE, longer.FIGURE),
)
QUICK = Choice(schedule="quick", models={"nano": 2})


def made_up(config: RunConfig, loss: float) -> Json:
    """A row as a run would have left it."""
    return {
        "config": config.as_json(),
        "text": {"data": "sample", "digest": "0" * 64},
        "best_validation_loss": loss,
        "final_validation_loss": loss + 0.01,
        "best_step": config.steps,
        "curve": [[0, 5.5], [config.steps, loss + 0.01]],
        "nonzero": {"all": 40_000 if config.mode == "search" else 120_000, "without_embeddings": 30_000},
        "also": {"other": loss + 1},
        "found": {"identity": "1" * 64, "bytes": config.weights(vocabulary=256) // 8},
        "run": {"tokens_per_second": 1e5, "seconds": 2.0, "commit": f"c{config.seed}", "date": f"{2020 + config.seed}"},
    }


def runs_of(figure: Figure[Choice], choice: Choice) -> list[RunConfig]:
    """All runs that a figure on text has planned."""
    assert isinstance(figure.plan, TextRuns)
    return figure.plan.runs(choice)


def fill(folder: Path, figure: Figure[Choice], choice: Choice, leave_out: int = 0) -> list[RunConfig]:
    """Rows for all runs of a figure but some at the end: a loss that falls with the scale, and differs by seed."""
    rows, plan = Rows(folder / figure.name), runs_of(figure, choice)
    for config in plan[: len(plan) - leave_out]:
        scale = config.policy.qk_scale if config.mode == "search" else 50.0
        assert isinstance(scale, float)
        rows.keep(made_up(config, 4.0 + 0.25 * config.seed - 0.01 * scale))
    return plan
