r"""How wide a random network must be for a given target: probabilities, computed or counted, with no constant C.

An entry w is out of reach if the items of its sign add up to less than $|w|$. With equal blocks its items are
independent of the target, so the probability is known: an item $uv$ with both factors uniform on [-1, 1] has
$P(uv > x) = \frac12 (1 - x + x \log x)$, and half of that behind a ReLU. How often the total error exceeds a tolerance
is found by experiment: construct from many seeds, and count.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from strongticket.construct.plan import Plan
from strongticket.construct.slots import Signs
from strongticket.construct.source import equal_blocks

CONFIDENCE = 0.95
_GRID = 1024  # grid cells between 0 and the largest item; more make the bound tighter
_FFT_ERROR = 1e-12


def chance_out_of_reach(wanted: float, items: int, *, relu: bool = False, upper: bool = False) -> float:
    """Bound from below or above the probability that n random items cannot reach a sum, in units of the largest item.

    Items are rounded up to a grid. A sum that falls short on the grid therefore falls short, and one that falls short
    exceeds the target on the grid by at most one cell per item.

    Example:
        >>> chance_out_of_reach(0.0, 8), chance_out_of_reach(9.0, 8)
        (0.0, 1.0)
        >>> 0.001 < chance_out_of_reach(0.5, 8) < 0.5
        True
    """
    if wanted == 0:
        return 0.0
    if items < abs(wanted):
        return 1.0
    cells = math.ceil(abs(wanted) * _GRID) + items * upper  # sums of fewer cells than these fall short
    chance = float(_short(items, relu)[: min(cells, items * _GRID + 1)].sum())
    return min(1.0, max(0.0, chance + (_FFT_ERROR if upper else -_FFT_ERROR)))


def chance_some_is_out_of_reach(plan: Plan) -> float:
    """Bound from below the probability that equal blocks leave some entry of a target out of reach.

    Each column of a target has its own block, so columns are independent; only the worst entry of a column is counted.
    """
    in_reach = 1.0
    for column, items, signs in _columns(plan):
        in_reach *= (1 - chance_out_of_reach(max(column), items, relu=signs is not Signs.EITHER)) ** signs.slots
    return 1 - in_reach


def expected_out_of_reach(plan: Plan) -> float:
    """Bound from above the expected number of entries out of reach of equal blocks, and so the probability of any."""
    return math.fsum(
        signs.slots * chance_out_of_reach(wanted, items, relu=signs is not Signs.EITHER, upper=True)
        for column, items, signs in _columns(plan)
        for wanted in column
    )


def _columns(plan: Plan) -> Iterator[tuple[list[float], int, Signs]]:
    """Yield the sizes of the entries that share a block, in units of the largest item, and its number of items."""
    for product, target, _ in plan.products.values():
        blocked = product.blocked
        sizes = equal_blocks(product.width, blocked.units, blocked.coordinates)
        unit = blocked.scale * product.free.scale / product.divisor
        columns = (target.T if product.transposed else target).abs().T / unit
        yield from zip(columns.tolist(), sizes, [product.signs] * len(sizes), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How many of `sources` constructions missed a tolerance, and an interval for the probability of that."""

    count: int
    sources: int
    low: float
    high: float


def count_failures(errors: Sequence[float], tol: float) -> Failures:
    """Count errors above a tolerance, with a Clopper-Pearson interval at 95 % confidence.

    Example:
        >>> found = count_failures([0.0] * 99 + [1.0], tol=0.5)
        >>> found.count, round(found.low, 5), round(found.high, 4)
        (1, 0.00025, 0.0545)
    """
    count, sources, tail = sum(error > tol for error in errors), len(errors), (1 - CONFIDENCE) / 2
    low = 0.0 if count == 0 else _bisected(lambda p: _at_least(count, sources, p) < tail)
    high = 1.0 if count == sources else _bisected(lambda p: 1 - _at_least(count + 1, sources, p) > tail)
    return Failures(count=count, sources=sources, low=low, high=high)


@lru_cache(maxsize=4)
def _short(items: int, relu: bool) -> NDArray[np.float64]:
    """Return the distribution of a sum of items rounded up to the grid: the probability of each number of cells."""
    edges = np.arange(_GRID + 1) / _GRID
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(edges > 0, 1 - edges + edges * np.log(edges), 1.0) / (4 if relu else 2)
    one = np.concatenate([[1 - above[0]], above[:-1] - above[1:]])  # the probability of 0, 1, ... cells
    size = 1 << (items * _GRID).bit_length()
    summed: NDArray[np.float64] = np.fft.irfft(np.fft.rfft(one, size) ** items, size)
    return np.maximum(summed[: items * _GRID + 1], 0.0)


def _at_least(count: int, sources: int, p: float) -> float:
    """Return the probability of at least `count` successes, each with probability p."""
    if not 0 < p < 1:
        return float(p >= 1 or count == 0)
    logs = [
        math.lgamma(sources + 1)
        - math.lgamma(k + 1)
        - math.lgamma(sources - k + 1)
        + k * math.log(p)
        + (sources - k) * math.log1p(-p)
        for k in range(count, sources + 1)
    ]
    return min(1.0, math.fsum(map(math.exp, logs)))


def _bisected(below: Callable[[float], bool]) -> float:
    """Find where a condition on a probability, true at 0, becomes false."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high
