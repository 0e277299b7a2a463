"""Compare runs that differ in one setting seed by seed: variation shared by both runs of a seed cancels."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from strongticket.errors import MissingExtraError

_CERTAIN = 100.0  # standard errors: far above 12.7, the quantile for two pairs


class Spread(TypedDict):
    """A measure over seeds."""

    n: int
    mean: float
    std: float | None  # None for a single value
    values: list[float]


class Pair(Spread):
    """The difference of two settings, seed by seed."""

    seeds: list[int]
    standard_error: float | None
    interval: list[float] | None


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation over seeds (n - 1 in the denominator; None for a single value)."""
    n, mean = len(values), math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
    return {"n": n, "mean": mean, "std": deviation, "values": list(values)}


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Pair | None:
    """Compare common seeds: the mean of second - first, its standard error and a 95 % t-interval.

    Example:
        >>> found = paired_difference({0: 5.0, 1: 5.2, 2: 5.1}, {0: 4.9, 1: 5.0, 2: 5.0})
        >>> round(found["mean"], 3), round(found["standard_error"], 3), [round(x, 2) for x in found["interval"]]
        (-0.133, 0.033, [-0.28, 0.01])
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    found = spread([second[seed] - first[seed] for seed in seeds])
    if found["std"] is None:
        return {"seeds": seeds, **found, "standard_error": None, "interval": None}
    error = found["std"] / math.sqrt(found["n"])
    reach = _t_quantile(found["n"] - 1) * error
    interval = [found["mean"] - reach, found["mean"] + reach]
    return {"seeds": seeds, **found, "standard_error": error, "interval": interval}


def pairs_needed(effect: float, deviation: float, *, power: float = 0.8) -> int:
    """Return how many pairs a t-test at the 5 % level needs to find an effect, given the deviation of differences.

    Example:
        >>> pairs_needed(0.03, 0.03), pairs_needed(0.03, 0.3)
        (10, 787)
    """
    fewest, enough = 1, 2
    while _power(effect, deviation, enough) < power:
        fewest, enough = enough, 2 * enough
    while enough - fewest > 1:  # more pairs are never worse
        middle = (fewest + enough) // 2
        fewest, enough = (fewest, middle) if _power(effect, deviation, middle) >= power else (middle, enough)
    return enough


def _power(effect: float, deviation: float, pairs: int) -> float:
    shift = effect * math.sqrt(pairs) / max(deviation, 1e-300)
    # The chance of a significant difference of the wrong sign is negligible.
    return float(_scipy_stats().nct.sf(_t_quantile(pairs - 1), pairs - 1, shift)) if shift < _CERTAIN else 1.0


def _t_quantile(degrees: int) -> float:
    return float(_scipy_stats().t.ppf(0.975, degrees))


def _scipy_stats() -> Any:  # scipy has no types
    try:
        import scipy.stats as stats
    except ModuleNotFoundError:
        raise MissingExtraError("confidence intervals need scipy: pip install 'strongticket[report]'") from None
    return stats
