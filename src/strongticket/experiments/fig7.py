"""Figure 7: loss against nonzero parameters, for tickets with and without Q/K scaling and for trained models."""

import math
from collections.abc import Sequence

from strongticket.charts.parts import Chart, Colour, Comparison, Section, Series, View, number
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import paired_difference, spread
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextRuns
from strongticket.experiments.text_rows import BEST, MEASURES, by_seed, on_common_seeds, on_other_texts, tokens_of
from strongticket.files import Json
from strongticket.learn.config import RunConfig

SCALED = "n_K^(1/4)"
LABELS = {
    "unscaled": "tickets, Q and K as drawn",
    "scaled": f"tickets, Q and K times {SCALED}",
    "dense": "trained models",
}
COLOURS: dict[str, Colour] = {"unscaled": "miss", "scaled": "median", "dense": "mean"}
NO_PAIR = " No ticket was searched both with and without that scale yet, so what it changes cannot be read off here."


def plan(choice: Choice) -> list[RunConfig]:
    """For each seed and model: both kinds of ticket, for each treatment of the embeddings, and trained models."""
    runs = []
    for seed, size in choice.seeds_and_sizes():
        base = schedules.base(choice.schedule, size)
        for embeddings in choice.treatments():
            for scale in (1.0, schedules.theory_scale(size)):
                runs.append(schedules.ticket(base, embeddings=embeddings, scale=scale, seed=seed))
        runs += schedules.baselines(choice.schedule, size, seed=seed)
    return runs


def summarize(rows: Sequence[Json]) -> dict[str, Json]:
    """Means and deviations over seeds, and the effect of the scale seed by seed."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    groups = {group: _at_best_settings(members) for group, members in groups.items()}
    points = []
    for (size, kind, embeddings), members in groups.items():
        points.append(
            {
                "size": size,
                "kind": kind,
                "embeddings": embeddings,
                "scale": members[0]["config"]["policy"]["qk_scale"] if kind != "dense" else None,
                "lr": members[0]["config"]["lr"],
                "warmup": members[0]["config"]["warmup"],
                "tokens": tokens_of(members[0]["config"]),
                "nonzero": members[0]["nonzero"],
                "seeds": [row["config"]["seed"] for row in members],
                **{measure: spread([row[measure] for row in members]) for measure in MEASURES},
                "also": on_other_texts(members),
            }
        )
    return {"points": points, "effects": _effects(groups), "gaps": _gaps(groups)}


def _at_best_settings(rows: Sequence[Json]) -> list[Json]:
    """Keep the runs with the best learning rate and warm-up: trained models may have been given several.

    Each two are compared on the seeds both have; the best is what the fewest others beat, with the more seeds if alike.
    """
    settings: dict[tuple[float, int], list[Json]] = {}
    for row in rows:
        settings.setdefault((row["config"]["lr"], row["config"]["warmup"]), []).append(row)
    losses = {setting: by_seed(found, BEST) for setting, found in settings.items()}

    def beats(one: tuple[float, int], other: tuple[float, int]) -> bool:
        common = on_common_seeds({one: losses[one], other: losses[other]})
        return math.fsum(common[one].values()) < math.fsum(common[other].values())

    def rank(setting: tuple[float, int]) -> tuple[int, int, tuple[float, int]]:
        return sum(beats(other, setting) for other in settings), -len(losses[setting]), setting

    return settings[min(settings, key=rank)]


def _effects(groups: dict[tuple[str, str, str], list[Json]]) -> list[Json]:
    effects = []
    for (size, kind, embeddings), members in groups.items():
        if kind != "scaled" or (size, "unscaled", embeddings) not in groups:
            continue
        for measure in MEASURES:
            plain, scaled = (by_seed(rows, measure) for rows in (groups[size, "unscaled", embeddings], members))
            if (difference := paired_difference(plain, scaled)) is not None:
                effects.append({"size": size, "embeddings": embeddings, "measure": measure, **difference})
    return effects


def _gaps(groups: dict[tuple[str, str, str], list[Json]]) -> list[Json]:
    """How far tickets are above trained models of the same seed, which saw the same text in the same order."""
    gaps = []
    for (size, kind, embeddings), members in groups.items():
        trained = groups.get((size, "dense", "trained"), [])
        if kind != "dense" and (gap := paired_difference(by_seed(trained, BEST), by_seed(members, BEST))) is not None:
            gaps.append({"size": size, "kind": kind, "embeddings": embeddings, **gap})
    return gaps


def _group(row: Json) -> tuple[str, str, str]:
    config = row["config"]
    if config["mode"] == "dense":
        return config["size"], "dense", "trained"
    policy = config["policy"]
    return config["size"], "unscaled" if policy["qk_scale"] == 1 else "scaled", policy["embeddings"]


def describe(result: Json) -> Section:
    """Losses over all nonzero parameters and over those outside the embeddings; the scale's effect; the gap left."""
    points = result["points"]
    several = "Mean and standard deviation over seeds. " if any(len(point["seeds"]) > 1 for point in points) else ""
    seen = "Points are joined only where all models saw the same amount of text."
    chart = Chart(
        title="Loss against nonzero parameters",
        caption=f"{losses.setting(result)}; {losses.seeds(len(point['seeds']) for point in points)}. {several}"
        + (f"Every model saw {_text_seen(points[0])}." if _comparable(points) else seen)
        + f" Learning rates: {rates_in_words(points)}, trained models at the best of all rates and warm-ups tried.",
        views=[
            _view(points, counted, name)
            for counted, name in (("all", "All parameters"), ("without_embeddings", "Without embeddings"))
        ],
        tables=[
            losses.table(
                "Losses over seeds",
                points,
                {
                    "model": lambda point: str(point["size"]),
                    "what": lambda point: "trained" if point["kind"] == "dense" else f"scale {point['scale']:g}",
                    "embeddings": lambda point: str(point["embeddings"]),
                    **losses.loss_columns(points),
                    "nonzero": lambda point: losses.million(point["nonzero"]["all"]),
                    "without embeddings": lambda point: losses.million(point["nonzero"]["without_embeddings"]),
                    "learning rate": lambda point: number(point.get("lr")),
                    "text seen": _text_seen,
                },
                words=3,
            )
        ],
    )
    measured = {effect["measure"] for effect in result["effects"] if _shown(effect, points)}
    effects = [effect for effect in result["effects"] if effect["measure"] in measured]
    best, gaps = [effect for effect in effects if effect["measure"] == BEST], result.get("gaps", [])
    return Section(
        anchor="fig7",
        name="Figure 7",
        title="Figure 7: loss against nonzero parameters",
        lead="GPT-2 models on text: tickets found by edge-popup, no weight trained unless it says embeddings trained, "
        "beside models trained in full. The paper draws query and key weights larger, by the fourth root of a head’s "
        f"width, as its theory asks, and reports better tickets.{'' if best else NO_PAIR}",
        finding=_finding(points, best),
        blocks=(chart, *([_effect_lines(effects)] if effects else []), *([_gap_lines(gaps)] if gaps else [])),
    )


def _shown(effect: Json, points: Sequence[Json]) -> bool:
    """Whether an effect says more than that on the best loss: where the final one is another somewhere."""
    return effect["measure"] == BEST or "final loss" in losses.loss_columns(points)


def _finding(points: Sequence[Json], effects: Sequence[Json]) -> str:
    if effects:
        found = [
            f"{losses.difference(effect)} ({effect['size']}, embeddings {effect['embeddings']}, "
            f"{'one seed' if effect['interval'] is None else f'95 % {losses.interval(effect)}'})"
            for effect in effects
        ]
        return f"Q/K scaling changes the loss by {', '.join(found)}"
    for size in dict.fromkeys(point["size"] for point in points):
        own = [point for point in points if point["size"] == size]
        tickets = [float(point[BEST]["mean"]) for point in own if point["kind"] != "dense"]
        trained = [float(point[BEST]["mean"]) for point in own if point["kind"] == "dense"]
        if tickets and trained:
            return f"{size}: loss {min(tickets):.3f} as a ticket, {min(trained):.3f} trained"
    return ""


def _view(points: Sequence[Json], counted: str, name: str) -> View:
    series: list[Series] = []
    kinds = [point["kind"] for point in points]
    labelled = "dense" if "dense" in kinds else kinds[0]  # one name for each model is enough, and leaves room
    for kind, embeddings in dict.fromkeys((point["kind"], point["embeddings"]) for point in points):
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: float(point["nonzero"][counted]))
        series.append(
            losses.over_seeds(
                LABELS[kind] + ("" if kind == "dense" else f", embeddings {embeddings}"),
                [point["nonzero"][counted] for point in chosen],
                [point[BEST] for point in chosen],
                colour=COLOURS[kind],
                dash="dashed" if embeddings == "masked" else "solid",
                line=_comparable(chosen),
                notes=[f"{point['size']}, {_text_seen(point)}" for point in chosen],
                labels=[_label(point, points) for point in chosen] if kind == labelled else (),
            )
        )
    return View(
        name=name,
        x="nonzero parameters",
        y=losses.BEST_LOSS,
        series=series,
        x_scale="log",
        y_scales=("linear", "log"),
        apart=True,
    )


def _label(point: Json, points: Sequence[Json]) -> str:
    """Name a model, with the text it saw where models differ in that."""
    return str(point["size"]) if _comparable(points) else f"{point['size']}, {_text_seen(point)}"


def _comparable(points: Sequence[Json]) -> bool:
    """A line says that larger is better or worse, which nobody can say of models that saw different amounts of text."""
    return len({point.get("tokens") for point in points}) == 1


def _text_seen(point: Json) -> str:
    return f"{losses.million(point['tokens'])} tokens" if point.get("tokens") else "text seen not recorded"


def rates_in_words(points: Sequence[Json]) -> str:
    """Write the learning rates of each model: trained ones may have another than tickets.

    Example:
        >>> trained = {"size": "small", "kind": "dense", "lr": 3e-3}
        >>> ticket = {"size": "small", "kind": "scaled", "lr": 1e-3}
        >>> rates_in_words([ticket, trained]), rates_in_words([ticket | {"lr": 3e-3}, trained])
        ('small 0.003 (tickets 0.001)', 'small 0.003')
    """
    found = []
    for size in dict.fromkeys(point["size"] for point in points):
        kinds: dict[bool, set[str]] = {True: set(), False: set()}
        for point in points:
            if point["size"] == size and point.get("lr") is not None:
                kinds[point["kind"] == "dense"].add(f"{point['lr']:.2g}")
        trained, tickets = (" or ".join(sorted(kinds[dense])) for dense in (True, False))
        of_tickets = f" (tickets {tickets})" if tickets not in ("", trained) else ""
        found.append(f"{size} {trained or 'none'}{of_tickets}" if trained else f"{size} tickets {tickets}")
    return ", ".join(found)


def _effect_lines(effects: Sequence[Json]) -> Comparison:
    both = len({effect["measure"] for effect in effects}) > 1
    return losses.compare_pairs(
        "What the scale of Q and K changes, seed by seed",
        f"Left of zero: the scale lowers the loss. {losses.caution([effect['n'] for effect in effects])}",
        ("model", "embeddings", "loss") if both else ("model", "embeddings"),
        "scaled − unscaled, nats a token",
        [
            (
                (effect["size"], effect["embeddings"], *([effect["measure"].split("_")[0]] if both else [])),
                effect,
                "median" if effect["measure"] == BEST else "ink",
            )
            for effect in effects
        ],
        standard_error=True,
    )


def _gap_lines(gaps: Sequence[Json]) -> Comparison:
    return losses.compare_pairs(
        "How far tickets are above trained models, seed by seed",
        "At zero a ticket is as good as the trained model that saw the same text in the same order. "
        + losses.caution([gap["n"] for gap in gaps]),
        ("model", "embeddings", "scale"),
        "ticket − trained model, nats a token",
        [
            (
                (gap["size"], gap["embeddings"], "1" if gap["kind"] == "unscaled" else SCALED),
                gap,
                COLOURS[gap["kind"]],
            )
            for gap in gaps
        ],
        standard_error=True,
    )


FIGURE = Figure(name="fig7", plan=TextRuns(runs=plan, summarize=summarize, usual=MINI_AND_SMALL), describe=describe)
