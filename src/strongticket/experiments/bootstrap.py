r"""Confidence intervals of fitted rates: fits repeated on sources resampled with replacement.

A result file holds every source's error at every width. Resampling the sources of each width, fitting again, and
taking the middle 95 % of the fits gives an interval that assumes nothing about the distribution of errors.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]
Statistic = Literal["mean", "median"]

DRAWS = 1000
SEED = 0
_COARSE = np.linspace(0.0, 2.0, 401)  # rates tried first; those of all figures lie well inside
_SHRINK = (np.sqrt(5) - 1) / 2


def fit_many(widths: Sequence[float], errors: Floats) -> tuple[Floats, Floats]:
    r"""Fit $\gamma \exp(-\delta n)$ by least squares to all rows of (draws, widths) at once.

    For a given rate the best $\gamma$ has a closed form, so only the rate is searched: a coarse grid, then golden
    sections. It finds the same minimum as `scipy.optimize.curve_fit`, and needs no starting point.

    Returns:
        gamma and delta, (draws,) each.

    Example:
        >>> gamma, delta = fit_many([8, 16, 24], np.array([0.8 * np.exp(-0.06 * np.array([8, 16, 24]))]))
        >>> round(float(gamma[0]), 6), round(float(delta[0]), 6)
        (0.8, 0.06)
    """
    n = np.asarray(widths, dtype=np.float64)

    def gamma_at(delta: Floats) -> Floats:
        curve = np.exp(-delta[:, None] * n)  # (draws, widths)
        gamma: Floats = (errors * curve).sum(axis=1) / (curve * curve).sum(axis=1)
        return gamma

    def loss_at(delta: Floats) -> Floats:
        curve = np.exp(-delta[:, None] * n)
        loss: Floats = np.square(errors - gamma_at(delta)[:, None] * curve).sum(axis=1)
        return loss

    losses = np.stack([loss_at(np.full(len(errors), rate)) for rate in _COARSE])  # (rates, draws)
    best = losses.argmin(axis=0)
    low, high = _COARSE[np.maximum(best - 1, 0)], _COARSE[np.minimum(best + 1, len(_COARSE) - 1)]
    for _ in range(60):
        left, right = high - _SHRINK * (high - low), low + _SHRINK * (high - low)
        smaller = loss_at(left) < loss_at(right)
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
    delta = (low + high) / 2
    return gamma_at(delta), delta


def slopes_in_logs(widths: Sequence[float], errors: Floats) -> Floats:
    """Fit a straight line to the logarithms of each row of (draws, widths), and return its rate."""
    logs = np.log(np.maximum(errors, np.finfo(np.float64).tiny))
    slopes: Floats = -np.polyfit(widths, logs.T, 1)[0]
    return slopes


def redraw(sources: Sequence[Sequence[float]], statistic: Statistic) -> Floats:
    """Resample the errors of each width's sources, and return a statistic of each draw, (draws, widths)."""
    of_rows: Callable[..., Floats] = np.mean if statistic == "mean" else np.median
    generator, columns = np.random.default_rng(SEED), []
    for errors in sources:
        values = np.asarray(errors, dtype=np.float64)
        columns.append(of_rows(values[generator.integers(len(values), size=(DRAWS, len(values)))], axis=1))
    return np.stack(columns, axis=1)


def interval(values: Floats) -> Interval:
    """Return the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
