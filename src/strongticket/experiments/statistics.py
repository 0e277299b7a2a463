"""What is said about a set of sources: mean and spread, median and quartiles; and exponential fits to them."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from strongticket.errors import MissingExtraError


class Decay(NamedTuple):
    r"""$\gamma \exp(-\delta n)$."""

    gamma: float
    delta: float

    def at(self, n: float) -> float:
        """Evaluate at a width."""
        return self.gamma * math.exp(-self.delta * n)


PAPER = Decay(0.8, 0.06)  # section 4.2


class Summary(TypedDict):
    """A measure over sources."""

    mean: float
    std: float
    median: float
    quartile_low: float
    quartile_high: float
    min: float
    max: float


class Fit(TypedDict):
    """A `Decay` in JSON."""

    gamma: float
    delta: float


def summarize(values: Sequence[float]) -> Summary:
    """Describe the values of all sources.

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
    r"""Fit $\gamma \exp(-\delta n)$ by `scipy.optimize.curve_fit` as it comes: least squares of the errors themselves.

    The largest errors, those of the smallest widths, decide such a fit. None if there is nothing to fit or the
    optimiser does not settle.

    Args:
        widths: n.
        errors: one for each width.
        delta: a rate to keep fixed, so that only $\gamma$ is fitted.
    """
    n, e = np.asarray(widths, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    # The first two widths have the largest errors, which decide the fit, so it begins at the curve through them.
    start = fit_decay_in_logs(widths[:2], errors[:2])
    if start is None:
        return None
    try:
        if delta is not None:
            (gamma,) = _curve_fit(lambda n, gamma: gamma * np.exp(-delta * n), n, e, [start.gamma])
            return Decay(gamma, delta)
        gamma, rate = _curve_fit(lambda n, gamma, rate: gamma * np.exp(-rate * n), n, e, list(start))
    except RuntimeError:
        return None
    return Decay(gamma, rate)


def fit_decay_in_logs(widths: Sequence[int], errors: Sequence[float]) -> Decay | None:
    r"""Fit a straight line to $\log$ error against n: every width counts alike. None below two positive errors."""
    points = [(n, math.log(e)) for n, e in zip(widths, errors, strict=True) if e > 0]
    if len(points) < 2:
        return None
    slope, intercept = np.polyfit([n for n, _ in points], [e for _, e in points], 1)
    return Decay(float(np.exp(intercept)), float(-slope))


def decay_json(decay: Decay | None) -> Fit | None:
    """Give a fit as JSON."""
    return {"gamma": decay.gamma, "delta": decay.delta} if decay is not None else None


def decay_of(content: Fit | None) -> Decay | None:
    """Read a fit from JSON."""
    return Decay(**content) if content is not None else None


def formula(decay: Decay | None) -> str:
    """Write a fit, falling or rising.

    Example:
        >>> formula(Decay(0.8, 0.06)), formula(Decay(0.2, -0.06)), formula(None)
        ('0.8 exp(-0.06 n)', '0.2 exp(0.06 n)', 'no fit')
    """
    return f"{decay.gamma:.2g} exp({-decay.delta:.2g} n)" if decay is not None else "no fit"


def _curve_fit(curve: Callable[..., Any], x: Any, y: Any, start: list[float]) -> list[float]:
    """Call SciPy; RuntimeError if it does not settle."""
    try:
        from scipy.optimize import OptimizeWarning, curve_fit
    except ModuleNotFoundError:
        raise MissingExtraError("fits need scipy: pip install 'strongticket[report]'") from None
    # On its way the optimiser may try any rate; and it warns of covariances, which nobody asked for.
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        found, _ = curve_fit(curve, x, y, p0=start)
    return [float(value) for value in found]
