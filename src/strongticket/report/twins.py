"""Results with the same settings: one of them is shown, and the page says how far the others' numbers are from it."""

import math
from collections.abc import Iterable

from strongticket.charts.parts import number
from strongticket.experiments import FIGURES
from strongticket.experiments.figure import load_figure
from strongticket.report.find import Result

_NOISE = 1e-11  # of outputs near 1: training a target turns differences in rounding into some 1e-12
_ROUNDING = 1e-6  # of a number
_DERIVED = ("fits",)  # follow from the other numbers, and in logarithms make much of the smallest


def twins_of(result: Result, others: Iterable[Result]) -> list[Result]:
    """Return the others with the same settings; a setting that an older file lacks is filled in."""
    own = _settings(result)
    return [other for other in others if own and _settings(other) == own]


def _settings(result: Result) -> object:
    name = result.config.get("figure")
    return load_figure(str(name)).plan.full(result.config) if name in FIGURES else result.config


def in_words(shown: Result, other: Result) -> str:
    """Say how far the numbers of another result are from those shown."""
    apart = furthest(*({key: part for key, part in each.content.items() if key != "config"} for each in (shown, other)))
    if apart <= _ROUNDING:
        relative = f" or, for larger ones, by {number(apart)} of their size" if apart else ""
        return (
            f"numbers differ by at most {number(_NOISE)}{relative}. That is rounding: another CPU or another version "
            "of a package adds numbers in a different order."
        )
    return "numbers differ by more than rounding; a page of that file alone shows its own."


def furthest(ours: object, theirs: object) -> float:
    """Return by how much two numbers at the same place differ at most, relative to the larger; inf if the forms differ.

    Differences up to 1e-11 do not count, nor do fits.

    Example:
        >>> furthest({"mean": [1.0, 3e-12]}, {"mean": [1.25, 4e-12]}), furthest([1], [1, 2])
        (0.2, inf)
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return max((furthest(part, theirs[key]) for key, part in ours.items() if key not in _DERIVED), default=0.0)
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return max((furthest(*pair) for pair in zip(ours, theirs, strict=True)), default=0.0)
    if ours == theirs:
        return 0.0
    if not (isinstance(ours, int | float) and isinstance(theirs, int | float)):
        return math.inf
    apart = abs(ours - theirs)
    return apart / max(abs(ours), abs(theirs)) if apart > _NOISE else 0.0
