"""What figures on text read off their rows."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from strongticket.experiments.paired import paired_difference, spread
from strongticket.files import Json

Setting = TypeVar("Setting", bound=Hashable)
BEST, FINAL = MEASURES = ("best_validation_loss", "final_validation_loss")


def tokens_of(config: Json) -> int:
    """How much text a run learned from."""
    return int(config["steps"] * config["sequences"] * config["length"])


def by_seed(rows: Iterable[Json], measure: str) -> dict[int, float]:
    """Give a measure of each row by its seed."""
    return {row["config"]["seed"]: row[measure] for row in rows}


def by_scale(rows: Iterable[Json]) -> dict[float, list[Json]]:
    """Sort rows by the scale of their Q and K."""
    found: dict[float, list[Json]] = {}
    for row in rows:
        found.setdefault(row["config"]["policy"]["qk_scale"], []).append(row)
    return dict(sorted(found.items()))


def on_other_texts(rows: Sequence[Json]) -> dict[str, Json]:
    """Give the losses on each other text that all of some rows were measured on."""
    names = set.intersection(*(set(row["also"]) for row in rows))
    return {name: spread([row["also"][name] for row in rows]) for name in sorted(names)}


def mean_of(losses: Mapping[int, float]) -> float:
    """Average over seeds."""
    return math.fsum(losses.values()) / len(losses)


def on_common_seeds(losses: Mapping[Setting, Mapping[int, float]]) -> dict[Setting, dict[int, float]]:
    """Of losses by setting and seed, leave out seeds that not all settings have: means of others cannot be compared.

    Example:
        >>> on_common_seeds({1.0: {0: 4.2, 1: 4.6}, 2.0: {0: 4.3}})
        {1.0: {0: 4.2}, 2.0: {0: 4.3}}
    """
    common = sorted(set.intersection(*(set(found) for found in losses.values())))
    return {setting: {seed: found[seed] for seed in common} for setting, found in losses.items()}


def scale_points(rows: Sequence[Json]) -> list[Json]:
    """Sort rows that differ in scale and seed alone: for each scale the losses, and the difference to scale 1."""
    found = by_scale(rows)
    return [_point(scale, members, found.get(1.0, [])) for scale, members in found.items()]


def _point(scale: float, rows: Sequence[Json], plain: Sequence[Json]) -> dict[str, Json]:
    point: dict[str, Json] = {"scale": scale, "seeds": [row["config"]["seed"] for row in rows]}
    for measure in MEASURES:
        point[measure] = spread([row[measure] for row in rows])
        point[f"{measure}_difference"] = (
            paired_difference(by_seed(plain, measure), by_seed(rows, measure)) if scale != 1 else None
        )
    return point | {"also": on_other_texts(rows)}


def lowest_in_words(found: Json | None) -> str:
    """Write where a loss is lowest, as far as the seeds can tell.

    Example:
        >>> lowest_in_words({"scale": 4.0, "seeds": [0], "not_told_apart": [2.0, 2.83], "one_seed": [8.0]})
        'lowest at 4 (2, 2.83 not ruled out, one seed at 8)'
    """
    if found is None:
        return "no seed at all scales"
    if found["one_seed"] == "all":
        return f"lowest at {found['scale']:g} (one seed)"
    alike, once = (", ".join(f"{scale:g}" for scale in found[key]) for key in ("not_told_apart", "one_seed"))
    doubts = ([f"{alike} not ruled out"] if alike else []) + ([f"one seed at {once}"] if once else [])
    return f"lowest at {found['scale']:g}" + (f" ({', '.join(doubts)})" if doubts else "")
