"""Runs that share everything but one setting are compared seed by seed: what seeds have in common cancels."""

import math
from collections.abc import Mapping, Sequence

from strongticket.container import Json
from strongticket.errors import MissingExtraError


def spread(values: Sequence[float]) -> dict[str, Json]:
    """Give mean and standard deviation over seeds (n - 1 in the denominator; None of a single one)."""
    n, mean = len(values), math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
    return {"n": n, "mean": mean, "std": deviation, "values": list(values)}


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> dict[str, Json] | None:
    """Compare the seeds both have: mean of second - first, its standard error and a 95 % t-interval.

    Example:
        >>> found = paired_difference({0: 5.0, 1: 5.2, 2: 5.1}, {0: 4.9, 1: 5.0, 2: 5.0})
        >>> round(found["mean"], 3), round(found["standard_error"], 3), [round(x, 2) for x in found["interval"]]
        (-0.133, 0.033, [-0.28, 0.01])
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    return {"seeds": seeds, **estimate([second[seed] - first[seed] for seed in seeds])}


def estimate(values: Sequence[float]) -> dict[str, Json]:
    """Give the mean with its standard error and a 95 % t-interval (None of a single value)."""
    found = spread(values)
    error, interval = None, None
    if found["std"] is not None:
        error = found["std"] / math.sqrt(found["n"])
        reach = _t_quantile(found["n"] - 1) * error
        interval = [found["mean"] - reach, found["mean"] + reach]
    return {**found, "standard_error": error, "interval": interval}


def _t_quantile(degrees: int) -> float:
    try:
        from scipy.stats import t
    except ModuleNotFoundError:
        raise MissingExtraError("confidence intervals need scipy: pip install 'strongticket[report]'") from None
    return float(t.ppf(0.975, degrees))
