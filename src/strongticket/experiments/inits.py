"""Does the scale of Q and K help for every weight distribution? The loss at scale 1 and at n_K^(1/4), by init."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import TypedDict

from strongticket.charts.parts import SERIES, Chart, Section, Series, Table, grouped, table_of
from strongticket.experiments import fig8, losses, schedules
from strongticket.experiments.figure import Figure, NothingToDrawError
from strongticket.experiments.paired import Pair
from strongticket.experiments.text_figure import Choice, TextRuns
from strongticket.experiments.text_rows import (
    BEST,
    DIFFERENCE,
    RunRow,
    ScalePoint,
    TextResult,
    on_common_seeds,
    scale_points,
)
from strongticket.learn.config import RunConfig
from strongticket.learn.draw import weight_distribution
from strongticket.learn.policy import Init, Policy
from strongticket.learn.tensors import tensors_of
from strongticket.models.gpt2 import GPT2, gpt2_config

# GPT-2's own weights are normal, so "own" stands for normal and shares its runs with the other figures.
INITS: tuple[Init, ...] = ("own", "uniform", "xavier", "kaiming", "sign")
# Trained, since masked ones would be drawn from the init as well, which changes their largest possible logit.
EMBEDDINGS: schedules.Embeddings = "trained"


class Drawn(TypedDict):
    """Losses of one model and init, against the scale."""

    size: str
    init: str
    embeddings: str
    points: list[ScalePoint]


class Result(TextResult):
    """What `result.json` holds."""

    inits: list[Drawn]


def plan(choice: Choice) -> list[RunConfig]:
    """List tickets at all scales of each seed, model and init."""
    runs = []
    for seed, size in choice.seeds_and_sizes():
        for init in INITS:
            for scale in scales_of(init, size, choice.schedule):
                base = schedules.base(choice.schedule, size)
                config = schedules.ticket(base, embeddings=EMBEDDINGS, scale=scale, seed=seed)
                runs.append(replace(config, policy=replace(config.policy, init=init)))
    return runs


def scales_of(init: Init, size: str, schedule: schedules.ScheduleName) -> tuple[float, ...]:
    """List the scales of an init: 1 and the theory's; GPT-2's own also at the others of Figure 8.

    Kaiming's weights are three times as large as mini's own. They are also tried at scales that make Q and K as large
    as the own ones in Figure 8: is the loss lowest at the same size of Q and K, regardless of the other weights?
    """
    pair = (1.0, schedules.theory_scale(size))
    if schedule == "quick" or init not in ("own", "kaiming"):
        return pair
    own = fig8.scales_of(size, schedule)
    if init == "own":
        return own
    ratio = deviation(size, "own", 1.0) / deviation(size, init, 1.0)
    return (*pair, *(float(f"{ratio * scale:.3g}") for scale in own))


def summarize(rows: Sequence[RunRow]) -> dict[str, list[Drawn]]:
    """Compute losses of each init and scale over seeds and, seed by seed, their difference from scale 1."""
    found: list[Drawn] = []
    groups = grouped(rows, lambda row: (row["config"]["size"], row["config"]["policy"]["init"]))
    for (size, init), members in groups.items():
        points = scale_points(members)
        # A single scale cannot be compared yet; its rows count once there is another.
        if any(point[DIFFERENCE] is not None for point in points):
            for point in points:
                point["deviation"] = deviation(size, init, point["scale"])
            found.append({"size": size, "init": label(init), "embeddings": EMBEDDINGS, "points": points})
    if not found:
        raise NothingToDrawError("inits has no init with the same seed at two scales yet.")
    return {"inits": found}


@cache
def deviation(size: str, init: Init, scale: float) -> float:
    """Return the standard deviation of the drawn weights of Q and K, to four digits.

    Example:
        >>> deviation("mini", "own", 2.0), deviation("mini", "kaiming", 1.0)
        (0.04, 0.0625)
    """
    first_block = GPT2(gpt2_config(size, n_layers=1, context=1, vocabulary=1))
    query = next(tensor for tensor in tensors_of(first_block) if tensor.is_query_or_key)
    distribution, width = weight_distribution(query, Policy(init=init, qk_scale=scale))
    return float(f"{width / math.sqrt(3) if distribution == 'uniform' else width:.4g}")


def label(init: str) -> str:
    """Name an init for people."""
    return {"own": "normal", "sign": "signed constant"}.get(init, init)


def describe(result: Result) -> Section:
    """Show losses against the size of Q's and K's weights and, seed by seed, their difference from scale 1."""
    lines = result["inits"]
    several = len({line["size"] for line in lines}) > 1
    # Of points at the same size, only the lowest is labelled.
    as_drawn = sorted((p for line in lines for p in line["points"] if p["scale"] == 1), key=lambda p: -p[BEST]["mean"])
    unscaled = [*{point["deviation"]: point for point in as_drawn}.values()]
    series, tables, differences = list[Series](), list[Table](), list[losses.Line[Pair]]()
    for place, line in enumerate(lines):
        points, colour = line["points"], SERIES[place % len(SERIES)]
        series.append(
            losses.over_seeds(
                f"{line['init']}, {line['size']}" if several else line["init"],
                [point["deviation"] for point in points],
                [point[BEST] for point in points],
                colour=colour,
                notes=[f"scale {point['scale']:g}, {losses.loss(point[BEST])}" for point in points],
                labels=["×1" if point in unscaled else "" for point in points],
            )
        )
        columns = {"scale": lambda point: f"{point['scale']:.3g}", "size": lambda point: f"{point['deviation']:.3g}"}
        caption = f"{line['init']} weights, {line['size']}, embeddings {line['embeddings']}"
        tables.append(table_of(caption, points, columns | losses.loss_columns(points), words=0))
        differences += [
            ((line["init"], line["size"], f"{point['scale']:g}"), pair, colour)
            for point in points
            if (pair := point[DIFFERENCE])
        ]
    counts = [int(pair["n"]) for _, pair, _ in differences]
    chart = Chart(
        title=_message(lines),
        caption=f"{losses.setting(result)}, {losses.seeds(counts)}. ×1: as drawn; the others are scaled from there. "
        f"Mean and standard deviation over seeds. {losses.DOTS}",
        views=[losses.view("standard deviation of the weights of Q and K, the scale included", series)],
        tables=tables,
    )
    return Section(
        anchor="inits",
        name="Ways to draw",
        title=_at_theory(lines),
        lead=f"{losses.setting(result)}, {losses.seeds(counts)}. Does the theory’s scale help for every distribution "
        "of the random weights, or is it the size of the scaled weights that counts?",
        finding=f"lowest loss: {', '.join(map(_lowest, lines))}",
        blocks=(
            chart,
            *losses.compare_pairs(
                differences,
                title=_at_theory(lines),
                caption=f"Left of zero: the scale lowers the loss. {losses.caution(counts)}",
                words=("weights", "model", "scale"),
                axis="difference in best loss, nats per token",
            ),
        ),
    )


def _message(lines: Sequence[Drawn]) -> str:
    """Name the size of the weights of Q and K where losses are lowest."""
    best = [min(line["points"], key=lambda point: float(point[BEST]["mean"])) for line in lines]
    low, high = (f"{float(end(point['deviation'] for point in best)):.2g}" for end in (min, max))
    size = low if low == high else f"{low} to {high}"
    return f"The loss is lowest at a standard deviation of Q and K of {size}"


def _at_theory(lines: Sequence[Drawn]) -> str:
    """Count the ways to draw for which the theory's scale lowers the mean loss."""
    pairs = [
        point[DIFFERENCE]
        for line in lines
        for point in line["points"]
        if math.isclose(point["scale"], schedules.theory_scale(line["size"]), rel_tol=0.01)
    ]
    lower = sum(pair["mean"] < 0 for pair in pairs if pair)
    return f"The theory’s scale lowers the mean loss for {lower} of {len(lines)} ways to draw the weights"


def _lowest(line: Drawn) -> str:
    found = on_common_seeds(
        {point["scale"]: dict(zip(point["seeds"], point[BEST]["values"], strict=True)) for point in line["points"]}
    )
    if not all(found.values()):
        return f"{line['init']}: no seed at all scales"
    scale = min(found, key=lambda scale: fmean(found[scale].values()))
    once = " (one seed)" if len(found[scale]) == 1 else ""
    return f"{line['init']} {fmean(found[scale].values()):.3f} at scale {scale:g}{once}"


FIGURE = Figure(name="inits", plan=TextRuns(runs=plan, summarize=summarize), describe=describe)
