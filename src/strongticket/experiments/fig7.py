"""Figure 7: loss against nonzero parameters, for tickets with and without Q/K scaling and for trained models."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strongticket.experiments import plotting, schedules
from strongticket.experiments.paired import paired_difference, seed_deviation, spread
from strongticket.experiments.text_figure import MINI_AND_SMALL, Choice, TextFigure, caption
from strongticket.experiments.text_rows import (
    BEST,
    LABELS,
    MEASURES,
    by_seed,
    on_common_seeds,
    on_other_texts,
    tokens_of,
)
from strongticket.files import Json
from strongticket.learn.config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {"unscaled": plotting.MISS, "scaled": plotting.MEDIAN, "dense": plotting.MEAN}


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


def draw(result: Json, path: Path) -> None:
    """Draw the losses over all nonzero parameters, and over those outside the embeddings."""
    figure = plotting.new_figure(9.2, 4.7)
    plotting.title(figure, "Figure 7: do Q/K-scaled tickets come closer to trained models?", _caption(result))
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.81, bottom=0.22, wspace=0.06)
    for axes, counted, heading in zip(
        panels, ("all", "without_embeddings"), ("all parameters", "without embeddings"), strict=True
    ):
        _draw_points(axes, result["points"], counted)
        _label_models(axes, result["points"], counted)
        axes.set_xscale("log")
        axes.margins(x=0.12, y=0.1)
        axes.xaxis.set_major_formatter(lambda count, place: f"{count / 1e6:g}M")
        axes.xaxis.set_minor_formatter(_few_minor_labels([point["nonzero"][counted] for point in result["points"]]))
        plotting.style(axes, heading, x="nonzero parameters", y="best validation loss" if axes is panels[0] else "")
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(low - 0.3 * (high - low))  # room for the models' names; both panels have this axis
    plotting.legend_below(figure, panels[1], columns=3)
    plotting.save(figure, path)


def _caption(result: Json) -> str:
    return f"{caption(result)}; {plotting.over_seeds(result['points'])}"


def _label_models(axes: plotting.Axes, points: Sequence[Json], counted: str) -> None:
    """Name each model under its trained one, with the text it saw and its learning rates: sizes may differ in both."""
    for point in points:
        if point["kind"] == "dense":
            place = point["nonzero"][counted], point[BEST]["mean"] - (point[BEST]["std"] or 0.0)
            label = f"{point['size']}\n{_amount(point['tokens'])} tokens\n{rates_in_words(points, point['size'])}"
            where = {"textcoords": "offset points", "ha": "center", "va": "top"}
            axes.annotate(label, place, (0, -8), fontsize=7.5, color=plotting.PALE, **where)


def _amount(tokens: int) -> str:
    """Write a number of tokens in a few characters.

    Example:
        >>> _amount(52_428_800), _amount(5_950_668_800)
        ('52.4M', '5.95B')
    """
    return f"{tokens / 1e6:.3g}M" if tokens < 1e9 else f"{tokens / 1e9:.3g}B"


def _few_minor_labels(counts: Sequence[int]) -> Callable[[float, float], str]:
    """Label some counts between powers of ten where these alone would leave an axis without numbers."""
    narrow = max(counts) < 10 * min(counts)

    def label(count: float, place: float) -> str:
        return f"{count / 1e6:g}M" if narrow and f"{count:e}"[0] in "2357" else ""

    return label


def rates_in_words(points: Sequence[Json], size: str) -> str:
    r"""Write the learning rates of a model: trained ones may have another than tickets.

    Example:
        >>> trained = {"size": "small", "kind": "dense", "lr": 3e-3}
        >>> ticket = {"size": "small", "kind": "scaled", "lr": 1e-3}
        >>> rates_in_words([ticket, trained], "small"), rates_in_words([ticket | {"lr": 3e-3}, trained], "small")
        ('rate 0.003\n(tickets 0.001)', 'rate 0.003')
    """
    own = [point for point in points if point["size"] == size]
    trained = _rates(point for point in own if point["kind"] == "dense")
    tickets = _rates(point for point in own if point["kind"] != "dense")
    return f"rate {trained}" + (f"\n(tickets {tickets})" if tickets not in ("", trained) else "")


def _rates(points: Iterable[Json]) -> str:
    return " or ".join(f"{rate:.2g}" for rate in sorted({point["lr"] for point in points}))


def _draw_points(axes: plotting.Axes, points: Sequence[Json], counted: str) -> None:
    series = dict.fromkeys((point["kind"], point["embeddings"]) for point in points)
    for kind, embeddings in series:
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: point["nonzero"][counted])
        losses = [point[BEST] for point in chosen]
        # A line says "larger is better or worse", which nobody can say of models that saw different amounts of text.
        joined = len({point["tokens"] for point in chosen}) == 1
        note = "" if kind == "dense" else f", embeddings {embeddings}"
        plotting.draw_means(
            axes,
            [point["nonzero"][counted] for point in chosen],
            [loss["mean"] for loss in losses],
            [*map(seed_deviation, losses)],
            color=_COLOURS[kind],
            marker="o" if embeddings == "trained" else "s",
            ls="-" if joined else "none",
            label=LABELS[kind].replace("n_K^(1/4)", "$n_K^{1/4}$") + note,
        )


def tables(result: Json) -> "list[Table]":
    """Show the losses, the effect of the scale, and how far tickets are from trained models."""
    from strongticket.experiments.text_tables import effect_table, gap_table, loss_table

    return [loss_table(result), effect_table(result), gap_table(result)]


FIGURE = TextFigure(name="fig7", plan=plan, summarize=summarize, draw=draw, tables=tables, usual=MINI_AND_SMALL)
