"""Statistics of a set of sources: mean and spread, median and quartiles, and exponential fits."""

import math
import warnings
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from strongticket.errors import MissingExtraError


class Decay(TypedDict):
    r"""$\gamma \exp(-\delta n)$."""

    gamma: float
    delta: float


PAPER: Decay = {"gamma": 0.8, "delta": 0.06}  # section 4.2


class Summary(TypedDict):
    """A measure over sources."""

    mean: float
    std: float
    median: float
    quartile_low: float
    quartile_high: float
    min: float
    max: float


def summarize(values: Sequence[float]) -> Summary:
    """Summarize the values of all sources.

    Example:
        >>> summarize([1.0, 2.0, 3.0, 6.0])["mean"], summarize([1.0, 2.0, 3.0, 6.0])["median"]
        (3.0, 2.5)
    """
    array = np.asarray(values, dtype=np.float64)
    low, middle, high = np.percentile(array, [25, 50, 75])
    return {
        "mean": float(array.mean()),
        "std": float(array.std()),
        "median": float(middle),
        "quartile_low": float(low),
        "quartile_high": float(high),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def fit_decay(widths: Sequence[int], errors: Sequence[float], delta: float | None = None) -> Decay | None:
    r"""Fit $\gamma \exp(-\delta n)$ by `scipy.optimize.curve_fit` with its defaults: least squares of the errors.

    The largest errors, those of the smallest widths, decide such a fit. None if there is nothing to fit or the
    optimiser does not converge. With `delta`, the rate is fixed, and only $\gamma$ is fitted.
    """
    # The first two widths have the largest errors, which decide the fit, so it starts at the curve through them.
    start = fit_decay_in_logs(widths[:2], errors[:2])
    if start is None:
        return None
    try:
        from scipy.optimize import OptimizeWarning, curve_fit
    except ModuleNotFoundError:
        raise MissingExtraError("fits need scipy: pip install 'strongticket[report]'") from None
    first = [start["gamma"], start["delta"]] if delta is None else [start["gamma"]]
    # The optimiser may try any rate; its warnings are about covariances, which are not used.
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        try:
            found, _ = curve_fit(lambda n, gamma, rate=delta: gamma * np.exp(-rate * n), widths, errors, p0=first)
        except RuntimeError:
            return None
    return {"gamma": float(found[0]), "delta": float(found[1]) if delta is None else delta}


def fit_decay_in_logs(widths: Sequence[int], errors: Sequence[float]) -> Decay | None:
    r"""Fit a straight line to $\log$ error against n, all widths weighted equally. None below two positive errors."""
    points = [(n, math.log(e)) for n, e in zip(widths, errors, strict=True) if e > 0]
    if len(points) < 2:
        return None
    slope, intercept = np.polyfit([n for n, _ in points], [e for _, e in points], 1)
    return {"gamma": float(np.exp(intercept)), "delta": float(-slope)}


def decay_at(decay: Decay, n: float) -> float:
    """Evaluate a decay at a width."""
    return decay["gamma"] * math.exp(-decay["delta"] * n)
