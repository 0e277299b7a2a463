"""What Figures 4 to 6 found, worded from their numbers: runs of other settings may find the opposite."""

from collections.abc import Sequence
from itertools import pairwise

from strongticket.charts.parts import number, share
from strongticket.experiments.statistics import Decay
from strongticket.files import Json

_AGREES = 0.1  # of the theory's rate: a measured one within this is called the same


def carried_in_words(points: Sequence[Json]) -> str:
    """Say how much of the mean error comes from sources with an entry out of reach; nothing where there are none."""
    missed = [point for point in points if point["unreachable_sources"] > 0]
    if not missed:
        return ""
    least = min(float(point["mean_from_unreachable"]) for point in missed)
    carried = f"{share(least)}{'' if least == 1 else ' or more'} of the mean error"
    return f"Up to width {missed[-1]['width']} some sources cannot reach some entry at all; they carry {carried}."


def rate_in_words(slope: Json, widths: Sequence[int]) -> str:
    """Hold the rate at which the median source's error falls against the theory's.

    Example:
        >>> rate_in_words({"widths": [24, 64], "slope": 0.35, "predicted": 0.3466}, [8, 24, 48])
        'The median source’s error falls at rate 0.3500 from width 24 to 48, as the theory predicts: 0.3466.'
    """
    rate, theory = slope["slope"], float(slope["predicted"])
    if rate is None:
        return f"There are too few widths to tell the median source’s rate; the theory’s is {theory:.4f}."
    low, high = slope["widths"]
    inside = [n for n in widths if low <= n <= high]
    where = f"from width {inside[0]} to {inside[-1]}"
    if rate <= 0:
        return f"The median source’s error does not fall {where}; the theory’s rate is {theory:.4f}."
    falls = f"The median source’s error falls at rate {rate:.4f} {where}"
    if abs(rate / theory - 1) <= _AGREES:
        return f"{falls}, as the theory predicts: {theory:.4f}."
    return f"{falls}, not as the theory predicts: {share(rate / theory)} of its {theory:.4f}."


def lengths_in_words(lines: Sequence[Json]) -> str:
    """Say at which widths the median error is larger at the greatest length than at the smallest."""
    changes: dict[str, list[str]] = {}
    for line in lines:
        first, last = (float(line["token"][place]["median"]) for place in (0, -1))
        change = "rises" if last > first else "falls" if last < first else "stays the same"
        changes.setdefault(change, []).append(str(line["width"]))
    if len(changes) == 1:
        return f"{next(iter(changes))} at every width"
    return ", and ".join(f"{change} at n = {', '.join(widths)}" for change, widths in changes.items())


def depths_in_words(fits: Sequence[Decay | None]) -> str:
    """Write the rate of each number of blocks, and whether they are in its order.

    Example:
        >>> depths_in_words([Decay(1.0, 0.05), Decay(2.0, 0.04), Decay(3.0, 0.03)])
        '0.05, 0.04, 0.03: the deeper, the slower'
    """
    told = ", ".join(number(fit.delta if fit else None) for fit in fits)
    rates = [fit.delta for fit in fits if fit is not None]
    if len(rates) < max(2, len(fits)):
        return told
    steps = [later - before for before, later in pairwise(rates)]
    order = ": the deeper, the slower" if max(steps) < 0 else ": the deeper, the faster" if min(steps) > 0 else ""
    return told + (order or ", in no order of depth")
