"""Figure 7: loss against nonzero parameters, for tickets with and without Q/K scaling and for trained models."""

import math
from collections.abc import Sequence
from typing import TypedDict

from strongticket.charts.parts import Chart, Colour, Section, View, grouped, number, sentence, signed, table_of
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import Pair, paired_difference
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextRuns
from strongticket.experiments.text_rows import (
    BEST,
    FINAL,
    MEASURES,
    Losses,
    Measure,
    RunRow,
    TextResult,
    at_best_settings,
    by_seed,
    losses_of,
    tokens_of,
)
from strongticket.learn.config import RunConfig

SCALED = "n_K^(1/4)"
LABELS = {
    "unscaled": "tickets, Q and K as drawn",
    "scaled": f"tickets, Q and K times {SCALED}",
    "dense": "trained models",
}
COLOURS: dict[str, Colour] = {"unscaled": "miss", "scaled": "median", "dense": "mean"}
NO_PAIR = " No ticket was searched both with and without that scale yet, so its effect cannot be shown."


class Point(Losses):
    """A ticket or a trained model, over seeds."""

    size: str
    kind: str
    embeddings: str
    scale: float | None
    lr: float
    warmup: int
    tokens: int
    nonzero: dict[str, int]


class Effect(Pair):
    """The effect of the scale."""

    size: str
    embeddings: str
    measure: Measure


class Gap(Pair):
    """How far a ticket is above a trained model."""

    size: str
    kind: str
    embeddings: str


class Found(TypedDict):
    """What the runs show."""

    points: list[Point]
    effects: list[Effect]
    gaps: list[Gap]


class Result(TextResult, Found):
    """What `result.json` holds."""


def plan(choice: Choice) -> list[RunConfig]:
    """List, for each seed and model, both kinds of ticket per treatment of the embeddings, and trained models."""
    runs = []
    for seed, size in choice.seeds_and_sizes():
        base = schedules.base(choice.schedule, size)
        for embeddings in choice.treatments():
            for scale in (1.0, schedules.theory_scale(size)):
                runs.append(schedules.ticket(base, embeddings=embeddings, scale=scale, seed=seed))
        runs += schedules.baselines(choice.schedule, size, seed=seed)
    return runs


def summarize(rows: Sequence[RunRow]) -> Found:
    """Compute means and deviations over seeds and, seed by seed, the scale's effect and the gap to trained models.

    A trained model of the same seed saw the same text in the same order.
    """
    # Of trained models, several learning rates and warm-ups were tried.
    groups = {
        group: at_best_settings(members, lambda row: (row["config"]["lr"], row["config"]["warmup"]))
        for group, members in grouped(rows, _group).items()
    }
    points: list[Point] = [
        {
            "size": size,
            "kind": kind,
            "embeddings": embeddings,
            "scale": members[0]["config"]["policy"]["qk_scale"] if kind != "dense" else None,
            "lr": members[0]["config"]["lr"],
            "warmup": members[0]["config"]["warmup"],
            "tokens": tokens_of(members[0]["config"]),
            "nonzero": members[0]["nonzero"],
            **losses_of(members),
        }
        for (size, kind, embeddings), members in groups.items()
    ]
    effects, gaps = list[Effect](), list[Gap]()
    for (size, kind, embeddings), members in groups.items():
        plain, trained = groups.get((size, "unscaled", embeddings), []), groups.get((size, "dense", "trained"), [])
        for measure in MEASURES if kind == "scaled" else ():
            if (effect := paired_difference(by_seed(plain, measure), by_seed(members, measure))) is not None:
                effects.append({"size": size, "embeddings": embeddings, "measure": measure, **effect})
        if kind != "dense" and (gap := paired_difference(by_seed(trained, BEST), by_seed(members, BEST))) is not None:
            gaps.append({"size": size, "kind": kind, "embeddings": embeddings, **gap})
    return {"points": points, "effects": effects, "gaps": gaps}


def _group(row: RunRow) -> tuple[str, str, str]:
    config = row["config"]
    if config["mode"] == "dense":
        return config["size"], "dense", "trained"
    policy = config["policy"]
    return config["size"], "unscaled" if policy["qk_scale"] == 1 else "scaled", policy["embeddings"]


def describe(result: Result) -> Section:
    """Show losses against nonzero parameters, with and without embeddings; the scale's effect; the remaining gap."""
    points = result["points"]
    several = "Mean and standard deviation over seeds. " if any(len(point["seeds"]) > 1 for point in points) else ""
    seen = "Points are joined only where all models saw the same amount of text."
    named = ((point, "trained" if point["kind"] == "dense" else "tickets") for point in points)
    rates = dict.fromkeys(f"{point['size']} {kind} {point['lr']:.2g}" for point, kind in named)
    # The effect on the final loss as well, unless it is the best one everywhere.
    shown = (BEST, FINAL) if "final loss" in losses.loss_columns(points) else (BEST,)
    effects = [effect for effect in result["effects"] if effect["measure"] in shown]
    best, gaps = [effect for effect in effects if effect["measure"] == BEST], result["gaps"]
    chart = Chart(
        title=_message(best, gaps),
        caption=f"{losses.setting(result)}; {losses.seeds(len(point['seeds']) for point in points)}. {several}"
        + (f"Every model saw {_text_seen(points[0])}." if _comparable(points) else seen)
        + f" Learning rates: {', '.join(rates)}: for trained models the best of those tried.",
        views=[
            _view(points, counted, name, _message(best, gaps))
            for counted, name in (("all", "All parameters"), ("without_embeddings", "Without embeddings"))
        ],
        tables=[
            table_of(
                "Losses over seeds",
                points,
                {
                    "model": lambda point: str(point["size"]),
                    "what": lambda point: "trained" if point["kind"] == "dense" else f"scale {point['scale']:g}",
                    "embeddings": lambda point: str(point["embeddings"]),
                    **losses.loss_columns(points),
                    "nonzero": lambda point: losses.million(point["nonzero"]["all"]),
                    "without embeddings": lambda point: losses.million(point["nonzero"]["without_embeddings"]),
                    "learning rate": lambda point: number(point["lr"]),
                    "text seen": _text_seen,
                },
                words=3,
            )
        ],
    )
    both = len({effect["measure"] for effect in effects}) > 1
    changes: list[losses.Line[Pair]] = [
        (
            (effect["size"], effect["embeddings"], effect["measure"].split("_")[0])[: 2 + both],
            effect,
            "median" if effect["measure"] == BEST else "ink",
        )
        for effect in effects
    ]
    scales = {"unscaled": "1", "scaled": SCALED}
    return Section(
        anchor="fig7",
        name="Figure 7",
        title=f"Figure 7: {_ahead(gaps) or 'loss against nonzero parameters'}",
        lead="GPT-2 models on text: tickets found by edge-popup, with no weight trained except embeddings where marked "
        "as trained, compared with fully trained models. The paper enlarges query and key weights by the fourth root "
        f"of a head’s width, as its theory requires, and reports better tickets.{'' if best else NO_PAIR}",
        finding=_finding(points, best),
        plain=_plain(points),
        blocks=(
            chart,
            *losses.compare_pairs(
                changes,
                title=_lowers(best) or "The effect of the scale of Q and K",
                caption=f"Left of zero: the scale lowers the loss. {losses.caution([pair['n'] for pair in effects])}",
                words=("model", "embeddings", "loss")[: 2 + both],
                axis="scaled − unscaled, nats per token",
                standard_error=True,
            ),
            *losses.compare_pairs(
                [((gap["size"], gap["embeddings"], scales[gap["kind"]]), gap, COLOURS[gap["kind"]]) for gap in gaps],
                title=_above(gaps),
                caption="At zero a ticket is as good as the trained model that saw the same text in the same order. "
                + losses.caution([gap["n"] for gap in gaps]),
                words=("model", "embeddings", "scale"),
                axis="ticket − trained model, nats per token",
                standard_error=True,
            ),
        ),
    )


def _message(effects: Sequence[Effect], gaps: Sequence[Gap]) -> str:
    return (
        sentence("; ".join(filter(None, (_lowers(effects), _ahead(gaps))))) or "Losses of tickets and of trained models"
    )


def _ahead(gaps: Sequence[Gap]) -> str:
    return "trained models stay ahead of tickets" if gaps and min(gap["mean"] for gap in gaps) > 0 else ""


def _lowers(effects: Sequence[Effect]) -> str:
    """Say what the scale does, if it does the same everywhere."""
    if effects and max(effect["mean"] for effect in effects) < 0:
        return "Scaling Q and K lowers every ticket’s mean loss"
    return ""


def _above(gaps: Sequence[Gap]) -> str:
    if not _ahead(gaps):
        return "How far tickets are from trained models"
    low, high = (f"{float(end(gap['mean'] for gap in gaps)):.2f}" for end in (min, max))
    return f"Tickets are {low if low == high else f'{low} to {high}'} nats per token above trained models"


def _plain(points: Sequence[Point]) -> str:
    """Compare the best model found by masks alone with the same model trained; empty unless both exist."""
    strong = [point for point in points if point["kind"] != "dense" and point["embeddings"] == "masked"]
    for point in sorted(strong, key=lambda point: float(point[BEST]["mean"])):
        trained = [other for other in points if (other["size"], other["kind"]) == (point["size"], "dense")]
        if trained:
            losses_ = f"{point[BEST]['mean']:.2f} nats per token, where training gives {trained[0][BEST]['mean']:.2f}"
            return f"GPT-2 {point['size']}, found as a mask over random weights, reaches a loss of {losses_}."
    return ""


def _finding(points: Sequence[Point], effects: Sequence[Effect]) -> str:
    if effects:
        ends = dict.fromkeys(signed(end(effect["mean"] for effect in effects)) for end in (max, min))
        sure = sum(effect["interval"] is not None and math.prod(effect["interval"]) > 0 for effect in effects)
        certain = f"{sure} of {len(effects)} intervals (95 %) exclude zero"
        return f"Q/K scaling changes the loss by {' to '.join(ends)} nats; {certain}"
    for size in dict.fromkeys(point["size"] for point in points):
        own = [point for point in points if point["size"] == size]
        tickets = [float(point[BEST]["mean"]) for point in own if point["kind"] != "dense"]
        trained = [float(point[BEST]["mean"]) for point in own if point["kind"] == "dense"]
        if tickets and trained:
            return f"{size}: loss {min(tickets):.3f} as a ticket, {min(trained):.3f} trained"
    return ""


def _view(points: Sequence[Point], counted: str, name: str, says: str) -> View:
    series, alike = [], _comparable(points)
    for kind, embeddings in dict.fromkeys((point["kind"], point["embeddings"]) for point in points):
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: float(point["nonzero"][counted]))
        seen = [f"{point['size']}, {_text_seen(point)}" for point in chosen]
        series.append(
            losses.over_seeds(
                LABELS[kind] + ("" if kind == "dense" else f", embeddings {embeddings}"),
                [point["nonzero"][counted] for point in chosen],
                [point[BEST] for point in chosen],
                colour=COLOURS[kind],
                dash="dashed" if embeddings == "masked" else "solid",
                line=_comparable(chosen),
                notes=seen,
                # With the amount of text where models differ in it.
                labels=[point["size"] for point in chosen] if alike else seen,
            )
        )
    where = "nonzero parameters" if counted == "all" else "nonzero parameters outside the embeddings"
    says = says if counted == "all" else "The same, embeddings not counted"
    return losses.view(where, series, name=name, says=says)


def _comparable(points: Sequence[Point]) -> bool:
    """Tell whether models saw the same amount of text; otherwise no line may join them."""
    return len({point["tokens"] for point in points}) == 1


def _text_seen(point: Point) -> str:
    return f"{losses.million(point['tokens'])} tokens"


FIGURE = Figure(name="fig7", plan=TextRuns(runs=plan, summarize=summarize, usual=MINI_AND_SMALL), describe=describe)
