"""Figure 8 for tickets of signed constants with everything masked: does the scale help there, too?"""

from dataclasses import replace

from strongticket.charts.parts import Section
from strongticket.experiments import fig8, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.text_figure import Choice, TextRuns
from strongticket.learn.config import RunConfig

DENSITY = 0.5
WARMUP = 4  # times the usual one, the best for tickets with everything masked according to `ablation`


def plan(choice: Choice) -> list[RunConfig]:
    """List all scales of Figure 8 for each seed and model."""
    runs = []
    for seed, size in choice.seeds_and_sizes():
        base = schedules.times_warmup(schedules.base(choice.schedule, size), WARMUP)
        for scale in fig8.scales_of(size, choice.schedule, seed):
            config = schedules.ticket(base, embeddings="masked", scale=scale, seed=seed)
            runs.append(replace(config, policy=replace(config.policy, init="sign", density=DENSITY)))
    return runs


def describe(result: fig8.Result) -> Section:
    """Show the same as Figure 8 for these tickets."""
    return replace(
        fig8.describe(result),
        anchor="signs",
        name="Figure 8, signed constants",
        title="Loss against the scale of Q and K, all weights signed constants",
        lead="Figure 8 with everything masked, weights that are plus or minus one constant, and half of them kept, "
        "which makes better tickets than normal weights do. Is the theory’s scale the best one here?",
    )


FIGURE = Figure(name="signs", plan=TextRuns(runs=plan, summarize=fig8.summarize), describe=describe)
