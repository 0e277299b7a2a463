"""How much seeds differ, at two lengths: how many runs show the effect of Figures 7 and 8.

Run before them. The difference of two runs that share a seed varies less than either run; how much less decides how
many seeds make an effect of 0.03 nats distinguishable from zero.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from strongticket.charts.parts import Section, grouped, number, sentence
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import Pair, Spread, paired_difference, pairs_needed, spread
from strongticket.experiments.text_figure import Choice, TextRuns
from strongticket.experiments.text_rows import FINAL, RunRow, TextResult, by_scale, by_seed, tokens_of
from strongticket.learn.config import RunConfig

EFFECT = 0.03  # nats


class ScaleLosses(Spread):
    """Final losses at one scale, seed by seed."""

    scale: float
    seeds: list[int]


class Length(TypedDict):
    """Runs of one length: their losses, the scale's effect, and the seeds it takes to see `EFFECT`."""

    size: str
    steps: int
    tokens: int
    losses: list[ScaleLosses]
    difference: Pair | None
    seeds_needed: int | None


class Found(TypedDict):
    """What the runs show."""

    effect: float
    lengths: list[Length]


class Result(TextResult, Found):
    """What `result.json` holds."""


def plan(choice: Choice) -> list[RunConfig]:
    """List tickets without and with the theory's scale for each length and seed, embeddings trained."""
    runs = []
    for size, seeds in choice.models.items():
        full = schedules.origin(choice.schedule, size)
        # The last sees as many tokens as the first, in batches four times as large: the effect of fewer steps.
        coarse = schedules.shortened(replace(full, sequences=4 * full.sequences), full.steps // 8)
        for config in (schedules.shortened(full, full.steps // 2), full, coarse):
            for seed in range(seeds):
                for scale in (1.0, schedules.theory_scale(size)):
                    runs.append(schedules.ticket(config, embeddings="trained", scale=scale, seed=seed))
    return runs


def summarize(rows: Sequence[RunRow]) -> Found:
    """Compute, for each length, the spread of both kinds of ticket and of their difference, and the seeds needed."""
    groups = grouped(rows, lambda row: (row["config"]["size"], row["config"]["steps"]))
    return {"effect": EFFECT, "lengths": [_length(members) for _, members in sorted(groups.items())]}


def _length(rows: Sequence[RunRow]) -> Length:
    config = rows[0]["config"]
    by_scales = {scale: by_seed(members, FINAL) for scale, members in by_scale(rows).items()}
    difference = paired_difference(*by_scales.values()) if len(by_scales) == 2 else None
    deviation = difference and difference["std"]
    return {
        "size": config["size"],
        "steps": config["steps"],
        "tokens": tokens_of(config),
        "losses": [
            {"scale": scale, "seeds": list(found), **spread(list(found.values()))} for scale, found in by_scales.items()
        ],
        "difference": difference,
        "seeds_needed": None if deviation is None else pairs_needed(EFFECT, deviation),
    }


def describe(result: Result) -> Section:
    """Show each seed's losses at both scales, their differences, and how many seeds the effect needs."""
    lengths, effect = result["lengths"], number(result["effect"])
    names = [(str(line["size"]), losses.million(line["tokens"]), f"{int(line['steps']):,}") for line in lengths]
    single: list[losses.Line[Spread]] = [
        ((*name, f"{float(found['scale']):.3g}"), found, "miss" if found["scale"] == 1 else "median")
        for name, length in zip(names, lengths, strict=True)
        for found in length["losses"]
    ]
    paired = [(name, line, line["difference"]) for name, line in zip(names, lengths, strict=True) if line["difference"]]
    needed = [line["seeds_needed"] for line in lengths if line["seeds_needed"] is not None]
    few, many = min(needed, default=0), max(needed, default=0)
    pairs, why = (str(many), "") if few == many else (f"{few} to {many}", ", depending on steps and batch")
    words = ("model", "tokens", "steps")
    found = f"seeing an effect of {effect} nats takes {pairs} pairs of runs{why}" if needed else ""
    apart = number(max(max(line["values"]) - min(line["values"]) for _, line, _ in single))
    differ = f"Seeds of one setting differ by up to {apart} nats"
    differences = losses.compare_pairs(
        [((*name, str(line["seeds_needed"] or "–")), pair, "median") for name, line, pair in paired],
        title=sentence(found) or "The effect of the scale, seed by seed",
        caption=f"Seeds needed: to find {effect} nats four times in five, by a paired t-test at the 5 % level.",
        words=(*words, "seeds needed"),
        axis="difference in final loss, nats per token",
    )
    return Section(
        anchor="spread",
        name="Spread over seeds",
        title=differ,
        lead=f"{losses.setting(result)}. Before claiming an effect of the scale, the spread over seeds shows how many "
        "runs it takes to see one.",
        finding=found,
        blocks=(
            losses.compare_losses(
                single,
                title=differ,
                words=(*words, "scale"),
                axis=losses.FINAL_LOSS,
                key=(("miss", "scale 1"), ("median", "the theory’s scale")),
            ),
            *differences,
        ),
    )


FIGURE = Figure(name="spread", plan=TextRuns(runs=plan, summarize=summarize), describe=describe)
