"""The rows of figures on text, and what figures compute from them."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, NotRequired, TypedDict, TypeVar

from strongticket.charts.parts import grouped
from strongticket.experiments.paired import Pair, Spread, paired_difference, spread
from strongticket.experiments.schedules import ScheduleName
from strongticket.learn.result import Found, RunRecord, RunSettings

Setting = TypeVar("Setting", bound=Hashable)
BEST: Final = "best_validation_loss"
FINAL: Final = "final_validation_loss"
DIFFERENCE: Final = "best_validation_loss_difference"
Measure = Literal["best_validation_loss", "final_validation_loss"]
MEASURES: tuple[Measure, ...] = (BEST, FINAL)


class RunRow(TypedDict):
    """A finished run: its settings and measurements."""

    config: RunSettings
    text: dict[str, str]
    best_validation_loss: float
    final_validation_loss: float
    nonzero: dict[str, int]
    also: dict[str, float]  # losses on other texts
    curve: list[tuple[int, float]]
    found: Found
    run: RunRecord


class Losses(TypedDict):
    """Runs with the same settings, over seeds."""

    seeds: list[int]
    best_validation_loss: Spread
    final_validation_loss: Spread
    also: NotRequired[dict[str, Spread]]  # on other texts


class ScalePoint(Losses):
    """Runs at one scale of Q and K; differences are from scale 1."""

    scale: float
    best_validation_loss_difference: Pair | None
    final_validation_loss_difference: Pair | None
    deviation: NotRequired[float]  # of the weights of Q and K


class Lowest(TypedDict):
    """Where a loss is lowest, and which scales the seeds cannot distinguish from it."""

    scale: float
    seeds: list[int]
    not_told_apart: list[float]
    one_seed: list[float] | Literal["all"]


class TextSettings(TypedDict):
    """The plan of a figure on text."""

    figure: str
    schedule: ScheduleName
    models: dict[str, int]


class TextResult(TypedDict):
    """What every figure on text has in its result."""

    config: TextSettings
    text: dict[str, str]
    runs: int
    missing: list[str]


def tokens_of(config: RunSettings) -> int:
    """Return how many tokens a run learned from."""
    return config["steps"] * config["sequences"] * config["length"]


def by_seed(rows: Iterable[RunRow], measure: Measure) -> dict[int, float]:
    """Return a measure of each row by its seed."""
    return {row["config"]["seed"]: row[measure] for row in rows}


def by_scale(rows: Iterable[RunRow]) -> dict[float, list[RunRow]]:
    """Group rows by the scale of Q and K, in ascending order."""
    return dict(sorted(grouped(rows, lambda row: row["config"]["policy"]["qk_scale"]).items()))


def on_other_texts(rows: Sequence[RunRow]) -> dict[str, Spread]:
    """Return the losses on each other text that all these rows were measured on."""
    names = set.intersection(*(set(row["also"]) for row in rows))
    return {name: spread([row["also"][name] for row in rows]) for name in sorted(names)}


def losses_of(rows: Sequence[RunRow]) -> Losses:
    """Return the losses of runs with the same settings."""
    return {
        "seeds": [row["config"]["seed"] for row in rows],
        "best_validation_loss": spread([row[BEST] for row in rows]),
        "final_validation_loss": spread([row[FINAL] for row in rows]),
        "also": on_other_texts(rows),
    }


def on_common_seeds(losses: Mapping[Setting, Mapping[int, float]]) -> dict[Setting, dict[int, float]]:
    """Keep only the seeds that all settings have, so that means over seeds can be compared.

    Example:
        >>> on_common_seeds({1.0: {0: 4.2, 1: 4.6}, 2.0: {0: 4.3}})
        {1.0: {0: 4.2}, 2.0: {0: 4.3}}
    """
    common = sorted(set.intersection(*(set(found) for found in losses.values())))
    return {setting: {seed: found[seed] for seed in common} for setting, found in losses.items()}


def at_best_settings(rows: Sequence[RunRow], settings: Callable[[RunRow], Setting]) -> list[RunRow]:
    """Keep the runs with the best of several settings tried, such as learning rates.

    Settings are compared in pairs on common seeds; the best is beaten by the fewest others, with more seeds on a tie.
    """
    tried = grouped(rows, settings)
    losses = {setting: by_seed(found, BEST) for setting, found in tried.items()}
    order = sorted(tried, key=str)

    def beats(one: Setting, other: Setting) -> bool:
        common = on_common_seeds({one: losses[one], other: losses[other]})
        return math.fsum(common[one].values()) < math.fsum(common[other].values())

    def rank(setting: Setting) -> tuple[int, int, int]:
        return sum(beats(other, setting) for other in tried), -len(losses[setting]), order.index(setting)

    return tried[min(tried, key=rank)]


def scale_points(rows: Sequence[RunRow]) -> list[ScalePoint]:
    """Compute losses at each scale and their difference from scale 1; rows may differ only in scale and seed."""
    found = by_scale(rows)

    def difference(scale: float, measure: Measure) -> Pair | None:
        plain, scaled = (by_seed(found.get(at, []), measure) for at in (1.0, scale))
        return paired_difference(plain, scaled) if scale != 1 else None

    return [
        {
            "scale": scale,
            "seeds": [row["config"]["seed"] for row in own],
            "best_validation_loss": spread([row[BEST] for row in own]),
            "best_validation_loss_difference": difference(scale, BEST),
            "final_validation_loss": spread([row[FINAL] for row in own]),
            "final_validation_loss_difference": difference(scale, FINAL),
            "also": on_other_texts(own),
        }
        for scale, own in found.items()
    ]


def lowest_in_words(found: Lowest | None) -> str:
    """Say where a loss is lowest, and which other scales the seeds do not rule out.

    Example:
        >>> lowest_in_words({"scale": 4.0, "seeds": [0], "not_told_apart": [2.0, 2.83], "one_seed": [8.0]})
        'lowest at 4 (2, 2.83 not ruled out, one seed at 8)'
    """
    if found is None:
        return "no seed at all scales"
    if found["one_seed"] == "all":
        return f"lowest at {found['scale']:g} (one seed)"
    alike, once = (", ".join(f"{scale:g}" for scale in at) for at in (found["not_told_apart"], found["one_seed"]))
    doubts = [words for scales, words in ((alike, f"{alike} not ruled out"), (once, f"one seed at {once}")) if scales]
    return f"lowest at {found['scale']:g}" + (f" ({', '.join(doubts)})" if doubts else "")
