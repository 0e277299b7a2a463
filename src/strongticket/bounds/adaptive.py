r"""Hidden units assigned after their weights are known: how often quotas cannot be met, and what no masks can do.

`docs/theory.md`, section 7, proves both.
"""

import math
from typing import Literal

from strongticket.bounds.checks import check_counts, check_positive

Takes = Literal["either", "positive", "own"]


def quota_failure(*, units: int, coordinates: int, quota: int, takes: Takes, fits: float = 1.0) -> float:
    r"""Bound the probability that not every slot can have its quota of units, with each unit in at most one slot.

    By Hall's theorem, this requires a set $A$ of slots that fewer than $q |A|$ units fit. So the probability is at most
    $\sum_A \Pr[\mathrm{Bin}(n, p_A) > n - q |A|]$, where $p_A$ is the probability that a unit fits no slot of $A$.

    Args:
        units: $n$.
        coordinates: $d$.
        quota: $q$, for every slot.
        takes: a coordinate is one slot for units of "either" sign or for "positive" ones, or two, one for each sign
            ("own").
        fits: the probability $p$ that a unit's weight to a coordinate has a wanted size, regardless of sign.

    Example:
        >>> quota_failure(units=640, coordinates=32, quota=20, takes="positive") < 2e-7
        True
    """
    check_counts(units=units, coordinates=coordinates, quota=quota)
    if not 0 < fits <= 1:
        raise ValueError(f"fits must be a probability above 0; got {fits}.")
    if takes not in ("either", "positive", "own"):
        raise ValueError(f"takes must be one of either, positive, own; got {takes!r}.")
    total = 0.0
    for single in range(coordinates + 1):
        # A set may contain one or both slots of a coordinate with two.
        for double in range(coordinates - single + 1 if takes == "own" else 1):
            miss = (1 - fits if takes == "either" else 1 - fits / 2) ** single * (1 - fits) ** double
            log_sets = _log_choose(coordinates, single) + _log_choose(coordinates - single, double)
            log_sets += single * math.log(2) if takes == "own" else 0.0
            total += math.exp(min(0.0, log_sets + _log_tail(units, miss, units - quota * (single + 2 * double) + 1)))
    return min(1.0, total)


def counting_width(*, d_model: int, d_out: int, largest: float, tol: float) -> float:
    r"""Return the width below which, for any source, no two masks bring most targets within `tol` at each entry.

    $n = \frac{d_1 d_2}{d_1 + d_2} \log_2 (\sigma / \varepsilon)$, for targets uniform on $[-\sigma, \sigma]$: there are
    $2^{n (d_1 + d_2)}$ pairs of masks, and each serves a fraction $(\varepsilon / \sigma)^{d_1 d_2}$ of the targets.

    Args:
        d_model: $d_1$.
        d_out: $d_2$.
        largest: $\sigma$.
        tol: $\varepsilon$.

    Example:
        >>> counting_width(d_model=32, d_out=32, largest=1.0, tol=2**-10)
        160.0
    """
    check_counts(d_model=d_model, d_out=d_out)
    check_positive(largest=largest, tol=tol)
    return max(0.0, d_model * d_out / (d_model + d_out) * math.log2(largest / tol))


def _log_tail(n: int, p: float, least: int) -> float:
    """Bound log P[Bin(n, p) >= least] by a union bound over sets of `least` successes, and by Chernoff."""
    if least <= 0:
        return 0.0
    if least > n or p == 0:
        return -math.inf
    sets = _log_choose(n, least) + least * math.log(p)
    share = least / n
    if share <= p:
        return 0.0
    chernoff = share * math.log(share / p) + ((1 - share) * math.log((1 - share) / (1 - p)) if share < 1 else 0.0)
    return min(0.0, sets, -n * chernoff)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
