r"""Which slot each hidden unit serves, compiled: assigned by weight, then exchanged where a sum is hard to meet.

A *slot* is a coordinate or, behind a ReLU, one sign of it. Its units make one subset sum per output, of items
$a_k = u_k v_{i,k} / c$. Of all $2^n$ sums the fraction

$$\exp\!\big(-\tfrac{R^2}{V} D(t)\big), \quad t = \frac{w - \mu}{R}, \quad
  D(t) = \tfrac12 \big[(1 + t) \log (1 + t) + (1 - t) \log (1 - t)\big]$$

lies as close to $w$ as others do to the middle $\mu = \frac12 \sum a_k$, where $R = \frac12 \sum |a_k|$ is how far they
reach and $V = \frac14 \sum a_k^2$ their variance. For items of one size that is the entropy of a coin; for others it
was measured (`docs/theory.md`, section 7). So the square of the error is about $4^{-n} V \exp(2 R^2 D(t) / V)$.

Everything runs in float64 on one thread, one IEEE operation after another, and exp is a power computed by squaring:
every machine gets the same result.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strongticket.construct.slots import Signs
from strongticket.construct.source import Own
from strongticket.ops.compiled import kernel, part
from strongticket.ops.philox.cpu import uniform_weight, uniform_weights

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# Plain numbers, which numba treats as constants; `OWN_SIGN` has slots 2 j and 2 j + 1 for coordinate j.
EITHER_SIGN, POSITIVE, OWN_SIGN = (int(signs) for signs in (Signs.EITHER, Signs.POSITIVE, Signs.OWN))

# No unit, or no slot. Not a plain number: numba would compile what is called with it for that very number.
_NONE = np.int64(-1)
# Targets are clamped here, in units of the largest item: this is far out of reach, and squares do not overflow.
_OUT_OF_REACH = 1e6
# A slot wants weights whose sums spread over this many times its largest target. Larger weights increase the error,
# smaller ones leave entries out of reach. Between 1 and 2 the errors were within a fifth of each other.
_SPREAD = 1.5
# If possible, a weight differs from the wanted one by at most half of that plus this much. The second number is divided
# by the number of slots: where there are few, a unit has little choice.
_NEAR, _NEAR_OF_FEW = 0.05, 2.0
# A slot with large targets gets up to this many items; each of the others gives up at most this many for it.
_MOST_ITEMS, _GIVEN_AWAY = 64, 2
# What `_put_in_order` makes of the bits of minus infinity.
_ALL_BUT_SIGN = np.int64(2**63 - 1)
_MINUS_INFINITY = np.array(-np.inf).view(np.int64)[()] ^ _ALL_BUT_SIGN
# Exchanges evaluated per round, and units searched for them.
_WEIGHED = 4
_LOOKED_AT = 256
# Rows of a tile: as many float32 as a line of the cache has.
_TILE = 16
# A slot is left alone after this many of its units found no exchange that helps.
_PATIENCE = 6


@part
def _weight(own: Own, k: int, j: int) -> Any:  # a float32
    """Return the weight of unit k to coordinate j."""
    return _element(own.kept, own, k, j)


@part
def _element(kept: F32 | None, own: Own, k: int, j: int) -> Any:
    # Decided when compiled, by the type of an argument: kernels for weights that are kept have no code to draw them.
    if kept is None:
        return uniform_weight(k * own.coordinates + j if own.by_unit else j * own.units + k, own.stream, own.scale)
    return kept[np.uint64(k), np.uint64(j)]  # unsigned, since numba would look for negative indices


@part
def _weights(own: Own, k: int, row: F32) -> None:
    """Write the weight of unit k to each slot's coordinate into a row."""
    _elements(own.kept, own, k, row)
    if row.size > own.coordinates:
        for s in range(row.size - 1, 0, -1):
            row[s] = row[s // 2]


@part
def _elements(kept: F32 | None, own: Own, k: int, row: F32) -> None:
    if kept is None and own.by_unit:
        uniform_weights(row[: own.coordinates], k * own.coordinates, own.stream, own.scale)
    else:
        for j in range(own.coordinates):
            row[j] = _element(kept, own, k, j)


@kernel
def transposed(matrix: F32) -> F32:
    """Copy a matrix, rows to columns, by tiles whose lines all stay in the first-level cache."""
    rows, columns = matrix.shape
    copy = np.empty((columns, rows), np.float32)
    for first in range(0, rows, _TILE):
        for j in range(columns):
            for i in range(first, min(first + _TILE, rows)):
                copy[np.uint64(j), np.uint64(i)] = matrix[np.uint64(i), np.uint64(j)]
    return copy


@kernel
def weights_to(own: Own, owners: I64) -> F32:
    """Return each unit's weight to its own coordinate; 0 for a unit that has none, -1."""
    found = np.zeros(owners.size, np.float32)
    for k in range(owners.size):
        if owners[k] >= 0:
            found[k] = _weight(own, k, owners[k])
    return found


def copy_by_coordinate(own: Own, rounds: int) -> F32:
    """Copy the blocked matrix for `exchange`, (coordinates, units); no row of it if few of its weights will be read."""
    if own.kept is None or own.kept.size > rounds * min(own.units, _LOOKED_AT):
        return np.empty((0, own.units), np.float32)
    return transposed(own.kept)


@kernel
def sums_by_slot(target: F64, divisor: float, slots: int) -> F64:
    """Multiply targets (outputs, coordinates) by the divisor, clamp them, and list those of each slot."""
    outputs, per = len(target), slots // target.shape[1]
    wanted = np.empty((slots, outputs))
    for s in range(slots):
        for i in range(outputs):
            wanted[s, i] = min(max(target[i, s // per] * divisor, -_OUT_OF_REACH), _OUT_OF_REACH)
    return wanted


@kernel
def wishes(target: F64, units: int, scale: float) -> tuple[I64, F32, F32]:
    """Decide how many units each slot gets, the size of weight it wants, and how far from that a weight should be."""
    slots = len(target)
    largest = np.zeros(slots)
    for s in range(slots):
        for i in range(target.shape[1]):
            largest[s] = max(largest[s], abs(target[s, i]))
    quotas = _quotas(largest, units)
    wanted, near = np.empty(slots, np.float32), np.empty(slots, np.float32)
    more = np.float32((_NEAR + _NEAR_OF_FEW / slots) * scale)
    for s in range(slots):
        # For n items u v with v uniform on [-1, 1], each kept with probability 1/2, the standard deviation of the sums
        # is u sqrt(n / 12).
        wanted[s] = min(largest[s] * _SPREAD * math.sqrt(12 / quotas[s]), 1.0) * scale
        near[s] = wanted[s] / np.float32(2) + more
    return quotas, wanted, near


@part
def _quotas(largest: F64, units: int) -> I64:
    """Divide units evenly, with more for a slot whose largest target would otherwise be out of reach."""
    slots = largest.size
    even = units // slots
    needed, quotas, most = np.empty(slots, np.int64), np.empty(slots, np.int64), even
    for s in range(slots):
        # Of n items u v with u = 1, the positive ones add up to n / 4 on average; allow half as many again.
        needed[s] = min(math.ceil(6 * largest[s]) + 4, _MOST_ITEMS)
        most = max(most, needed[s])
    while True:
        spare = units
        for s in range(slots):
            quotas[s] = max(min(needed[s], most), even - _GIVEN_AWAY)
            spare -= quotas[s]
        if spare >= 0 or most <= even:
            break
        most -= 1
    if spare < 0:
        quotas[:], spare = even, units - even * slots
    fill(quotas, spare)
    return quotas


@kernel
def fill(quotas: I64, spare: int) -> None:
    """Add spare units one at a time, each to the first of the slots with the fewest."""
    while spare:
        least = quotas.min()
        for s in range(quotas.size):
            if quotas[s] == least and spare:
                quotas[s] += 1
                spare -= 1


@kernel
def share_out(own: Own, quotas: I64, wanted: F32, near: F32, signs: int) -> tuple[I64, int]:
    """Assign each unit to a slot that wants a weight like its own, and fill each slot's quota; -1 if none can use it.

    Slots fill up evenly, so that late units still have a choice. The few units that fit no slot with room replace, if
    possible, a unit that does. No slot with targets stays empty if any assignment fills all of these.

    Args:
        own: the weights of the blocked matrix.
        quotas: how many units each slot should have; they add up to all units.
        wanted: the size of weight each slot wants, 0 where all targets are.
        near: how far a weight should be from that at most.
        signs: which weights a slot takes.

    Returns:
        Each unit's slot, and a slot that has targets but that no assignment can serve together with the others; -1
        if there is none.
    """
    units, slots = own.units, wanted.size
    here, there, distance = np.empty(slots, np.float32), np.empty(slots, np.float32), np.empty(slots, np.float32)
    slot, count, room = np.full(units, -1), np.zeros(slots, np.int64), np.empty(slots, np.int64)
    for k in range(units):
        if k % slots == 0:
            # Two more than an even share so far, and never more than the quota.
            for s in range(slots):
                room[s] = min((k + slots) * quotas[s] // units + 2, quotas[s])
        _weights(own, k, here)
        s = _nearest(here, wanted, near, signs, count, room, distance)
        if s >= 0:
            slot[k] = s
            count[s] += 1
    anything, endless = np.full(slots, np.float32(np.inf)), np.full(slots, units)
    for k in range(units):
        if slot[k] >= 0:
            continue
        _weights(own, k, here)
        s, other = _nearest(here, wanted, near, signs, count, quotas, distance), -1
        if s < 0:
            other = _who_makes_room(own, here, there, distance, wanted, near, slot, count, quotas, signs, k)
        if other >= 0:
            s, slot[other] = slot[other], _nearest(there, wanted, near, signs, count, quotas, distance)
            count[slot[other]] += 1
        else:
            if s < 0:
                s = _nearest(here, wanted, anything, signs, count, quotas, distance)
            if s < 0:
                # A slot may exceed its quota without harm.
                s = _nearest(here, wanted, anything, signs, count, endless, distance)
            if s >= 0:
                count[s] += 1
        slot[k] = s
    for s in range(slots):
        if count[s] == 0 and wanted[s] > 0 and not _serve(own, slot, count, wanted, s, signs):
            return slot, s
    return slot, int(_NONE)


@part
def _serve(own: Own, slot: I64, count: I64, wanted: F32, empty: int, signs: int) -> bool:
    """Move a unit into an empty slot, another into the one it left, and so on from a slot that can do without one.

    If there is no such chain, all slots that can be reached have only as many units together as there are others of
    them: by Hall's theorem no assignment serves them all.
    """
    per = 2 if signs == OWN_SIGN else 1
    # From each slot that was reached: the unit that would leave it, and the slot it would move into.
    leaving, into = np.full(count.size, _NONE), np.full(count.size, _NONE)
    reached, last = np.empty(count.size, np.int64), 1
    reached[0] = empty
    for at in range(count.size):
        if at == last:
            break
        s = reached[at]
        for k in range(slot.size):
            t = slot[k]
            if t == empty or (t >= 0 and leaving[t] >= 0) or not _usable(_weight(own, k, s // per), s, signs):
                continue
            if t >= 0 and count[t] == 1 and wanted[t] > 0:
                leaving[t], into[t], reached[last] = k, s, t
                last += 1
                continue
            if t >= 0:
                count[t] -= 1
            count[empty] += 1
            slot[k] = s
            while s != empty:
                other, s = leaving[s], into[s]
                slot[other] = s
            return True
    return False


@part
def _nearest(own: F32, wanted: F32, near: F32, signs: int, count: I64, room: I64, distance: F32) -> int:
    """Return the slot with room that wants a weight most like one of these, the first of equals; -1 if none is near."""
    # Without branches, so that these are computed by vectors.
    for s in range(own.size):
        off = abs(abs(own[s]) - wanted[s])
        fits = (count[s] < room[s]) & (off <= near[s]) & _usable(own[s], s, signs)
        distance[s] = off if fits else np.float32(np.inf)
    best, nearest = -1, np.float32(np.inf)
    for s in range(own.size):
        if distance[s] < nearest:
            best, nearest = s, distance[s]
    return best


@part
def _who_makes_room(
    own: Own,
    here: F32,
    there: F32,
    distance: F32,
    wanted: F32,
    near: F32,
    slot: I64,
    count: I64,
    room: I64,
    signs: int,
    k: int,
) -> int:
    """Find a unit whose slot suits unit k and that itself fits a slot with room; -1 if there is none nearby.

    `here` has the weights of unit k; those of the unit that is found are left in `there`.
    """
    units = own.units
    for step in range(1, min(units, _LOOKED_AT)):
        other = (k + step) % units
        s = slot[other]
        if s < 0 or not _usable(here[s], s, signs) or abs(abs(here[s]) - wanted[s]) > near[s]:
            continue
        _weights(own, other, there)
        if _nearest(there, wanted, near, signs, count, room, distance) >= 0:
            return int(other)
    return -1


@part
def _usable(u: float, s: int, signs: int) -> bool:
    """Return whether a weight has the sign that slot s takes."""
    return (signs == EITHER_SIGN) | ((u < 0) if (signs == OWN_SIGN) & (s % 2 == 1) else (u > 0))


# Whole arrays and the number of a row are passed below, not rows: counting references to views takes longer than the
# arithmetic.


@kernel
def sums_of_slots(own: Own, by_unit: F32, slot: I64, slots: int, signs: int, divisor: float) -> tuple[F64, I64]:
    r"""Return $\mu$, R and V of every sum, (slots, 3, outputs), and the number of units per slot."""
    units, outputs = by_unit.shape
    per = 2 if signs == OWN_SIGN else 1
    sums, count = np.zeros((slots, 3, outputs)), np.zeros(slots, np.int64)
    for k in range(units):
        s = slot[k]
        if s < 0:
            continue
        count[s] += 1
        u = np.float64(_weight(own, k, s // per)) / divisor
        for i in range(outputs):
            a = u * by_unit[k, i]
            sums[s, 0, i] += a
            sums[s, 1, i] += abs(a)
            sums[s, 2, i] += a * a
    for s in range(slots):
        for i in range(outputs):
            sums[s, 0, i] /= 2
            sums[s, 1, i] /= 2
            sums[s, 2, i] /= 4
    return sums, count


@part
def _square(middle: float, reach: float, variance: float, target: float, scale: float) -> float:
    """Predict the squared error of a sum; for one out of reach, at least the square of its miss."""
    off, v = abs(target - middle), max(variance, 1e-300)
    square, missed = off * off, max(off - reach, 0.0)
    t2 = min(square / max(reach * reach, 1e-300), 1.0)
    # 2 D(t) / t^2, by its series
    x = square / v * (1 + t2 * (1 / 6 + t2 * (1 / 15 + t2 * (1 / 28 + t2 / 45))))
    e = 1 + min(x, 256.0) / 256
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return v * e * scale if off < reach else v + missed * missed


@part
def _total(values: F64) -> float:
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@kernel
def squares_of_slot(sums: F64, target: F64, scale: float, s: int, squares: F64) -> float:
    """Predict the squared errors of slot s; return their total."""
    for i in range(squares.size):
        squares[i] = _square(sums[s, 0, i], sums[s, 1, i], sums[s, 2, i], target[s, i], scale)
    return _total(squares)


@part
def _after_exchange(
    sums: F64,
    target: F64,
    scale: float,
    s: int,
    by_unit: F32,
    leaving: int,
    u: float,
    coming: int,
    new_u: float,
    at: int,
    squares: F64,
) -> None:
    """Predict the squared errors of slot s after one unit has replaced another; u is a unit's weight to the slot."""
    for i in range(squares.shape[1]):
        a, b = u * by_unit[leaving, i], new_u * by_unit[coming, i]
        middle, reach = sums[s, 0, i] + (b - a) / 2, sums[s, 1, i] + (abs(b) - abs(a)) / 2
        squares[at, i] = _square(middle, reach, sums[s, 2, i] + (b * b - a * a) / 4, target[s, i], scale)


@part
def _totals(squares: F64, totals: F64) -> None:
    """Add up each row; every addition waits for the one before, so all rows go on at once."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(squares.shape[1]):
        a, b, c, d = a + squares[0, i], b + squares[1, i], c + squares[2, i], d + squares[3, i]
    totals[0], totals[1], totals[2], totals[3] = a, b, c, d


@part
def _exchange(sums: F64, s: int, by_unit: F32, leaving: int, u: float, coming: int, new_u: float) -> None:
    """Update the sums of slot s: one unit has replaced another."""
    for i in range(sums.shape[2]):
        a, b = u * by_unit[leaving, i], new_u * by_unit[coming, i]
        sums[s, 0, i] += (b - a) / 2
        sums[s, 1, i] += (abs(b) - abs(a)) / 2
        sums[s, 2, i] += (b * b - a * a) / 4


@kernel
def predicted_squares(own: Own, by_unit: F32, slot: I64, target: F64, signs: int, divisor: float) -> float:
    """Predict the sum of all squared errors."""
    slots, outputs = target.shape
    sums, count = sums_of_slots(own, by_unit, slot, slots, signs, divisor)
    cost, squares = np.empty(slots), np.empty(outputs)
    for s in range(slots):
        cost[s] = squares_of_slot(sums, target, 0.25 ** count[s], s, squares)
    return _total(cost)


@kernel
def exchange(
    own: Own,
    by_coordinate: F32,
    free: F32,
    by_unit: F32,
    slot: I64,
    target: F64,
    wanted: F32,
    near: F32,
    signs: int,
    divisor: float,
    rounds: int,
) -> float:
    """Exchange units of the worst slots with others while the predicted squared errors fall; return their sum.

    Each round takes the slot with the largest predicted square and, in it, the entry that contributes most. The unit
    that pulls this entry most in the wrong direction leaves. Of the units that would pull it most in the right
    direction, the one whose exchange helps both slots most replaces it.

    Args:
        own: the weights of the blocked matrix.
        by_coordinate: the same, (coordinates, units), or none: see `copy_by_coordinate`.
        free: weights (outputs, units).
        by_unit: the same, (units, outputs).
        slot: each unit's slot; changed in place.
        target: (slots, outputs).
        wanted: the size of weight each slot wants.
        near: how far a weight may be from that. One much larger than the others would split a slot's sums into two
            clusters, and the prediction assumes one.
        signs: which weights a slot takes.
        divisor: every item is divided by it.
        rounds: the most rounds to run.
    """
    slots, outputs = target.shape
    per, units = 2 if signs == OWN_SIGN else 1, slot.size
    sums, count = sums_of_slots(own, by_unit, slot, slots, signs, divisor)
    most = 0
    for s in range(slots):
        most = max(most, count[s])
    members = np.empty((slots, most), np.int64)
    count[:] = 0
    for k in range(units):
        if slot[k] >= 0:
            members[slot[k], count[slot[k]]] = k
            count[slot[k]] += 1
    scale, cost, failed = 0.25**count, np.empty(slots), np.zeros(slots, np.int64)
    squares, after = np.empty(outputs), np.zeros((_WEIGHED, outputs))
    cost_here, cost_there = np.empty(_WEIGHED), np.empty(_WEIGHED)
    for s in range(slots):
        cost[s] = squares_of_slot(sums, target, scale[s], s, squares)
    looked_at, candidates = min(units, _LOOKED_AT), np.empty(_WEIGHED, np.int64)
    # The same memory as numbers and as bits.
    pulls = np.empty(max(looked_at, most))
    order = pulls.view(np.int64)
    # Minus infinity for a slot that cannot use a unit; the first is for units without one.
    refused, first = np.full(slots + 1, -np.inf), 0
    # The entry of each slot that contributes most; -1 if its sums have changed since it was found.
    worst_entry, together = np.full(slots, -1), np.empty(looked_at, np.float32)
    row = np.empty(slots, np.float32)
    for _ in range(rounds):
        s = int(_NONE)
        for x in range(slots):
            if failed[x] < _PATIENCE and (s < 0 or cost[x] > cost[s]):
                s = x
        if s < 0:
            break
        if worst_entry[s] < 0:
            squares_of_slot(sums, target, scale[s], s, squares)
            worst_entry[s] = np.argmax(squares)
        worst = worst_entry[s]
        sign = np.float64(1.0 if target[s, worst] > sums[s, 0, worst] else -1.0)
        place = _pulls_least(own, free, members, count[s], s // per, s, worst, sign, failed[s], pulls, order)
        if place < 0:
            failed[s] = _PATIENCE
            continue
        k = members[s, place]
        _weights(own, k, row)
        for t in range(slots):
            fits = (abs(abs(row[t]) - wanted[t]) <= near[t]) & _usable(row[t], t, signs) & (t != s)
            refused[t + 1] = 0.0 if fits else -np.inf
        # The next units, from the beginning again after the last.
        ahead = min(looked_at, units - first)
        for begin, end, start in ((0, ahead, first), (ahead, looked_at, first - units)):
            if by_coordinate.size:
                for x in range(begin, end):
                    together[np.uint64(x)] = by_coordinate[s // per, np.uint64(start + x)]
            else:
                for x in range(begin, end):
                    together[np.uint64(x)] = _weight(own, start + x, s // per)
            _pull(together, free, worst, slot, start, refused, wanted[s], near[s], signs, s, sign, begin, end, pulls)
        found = _strongest(pulls, order, looked_at, candidates)
        for at in range(found):
            candidates[at] = (first + candidates[at]) % units
        first = (first + looked_at) % units
        u_here = row[s] / divisor
        for at in range(found):
            other = candidates[at]
            new = _weight(own, other, s // per) / divisor
            _after_exchange(sums, target, scale[s], s, by_unit, k, u_here, other, new, at, after)
        _totals(after, cost_here)
        for at in range(found):
            other, t = candidates[at], slot[candidates[at]]
            if cost_here[at] < cost[s] + cost[t]:
                u, new = _weight(own, other, t // per) / divisor, row[t] / divisor
                _after_exchange(sums, target, scale[t], t, by_unit, other, u, k, new, at, after)
        _totals(after, cost_there)
        least, best = 0.0, int(_NONE)
        for at in range(found):
            t = slot[candidates[at]]
            gained = cost_here[at] + cost_there[at] - cost[s] - cost[t]
            if cost_here[at] < cost[s] + cost[t] + least and gained < least:
                least, best = gained, at
        if best < 0:
            failed[s] += 1
            continue
        other, t = candidates[best], slot[candidates[best]]
        for x in range(count[t]):
            if members[t, x] == other:
                members[t, x] = k
        members[s, place] = other
        _exchange(sums, s, by_unit, k, u_here, other, _weight(own, other, s // per) / divisor)
        _exchange(sums, t, by_unit, other, _weight(own, other, t // per) / divisor, k, row[t] / divisor)
        slot[k], slot[other], cost[s], cost[t] = t, s, cost_here[best], cost_there[best]
        worst_entry[s], worst_entry[t], failed[s] = -1, -1, 0
    return _total(cost)


@part
def _pulls_least(
    own: Own,
    free: F32,
    members: I64,
    count: int,
    j: int,
    s: int,
    worst: int,
    sign: float,
    passed: int,
    pulls: F64,
    order: I64,
) -> int:
    """Find the unit of slot s that pulls an entry most in the wrong direction after `passed` others; -1 if none."""
    for x in range(count):
        k = members[s, x]
        pulls[x] = -sign * _weight(own, k, j) * free[worst, k]
    _put_in_order(order, count)
    for _ in range(passed):
        _take_last(order, count)
    return _take_last(order, count)


@part
def _pull(
    own: F32,
    free: F32,
    worst: int,
    slot: I64,
    start: int,
    refused: F64,
    wanted: float,
    near: float,
    signs: int,
    s: int,
    sign: float,
    begin: int,
    end: int,
    pulls: F64,
) -> None:
    """Compute how much units start + x would pull an entry of slot s: minus infinity for those that do not fit."""
    for at in range(begin, end):
        x, unit = np.uint64(at), np.uint64(start + at)
        fits = (abs(abs(own[x]) - wanted) <= near) & _usable(own[x], s, signs)
        pulls[x] = sign * own[x] * free[np.uint64(worst), unit] if fits else -np.inf
    for at in range(begin, end):
        pulls[np.uint64(at)] += refused[np.uint64(slot[np.uint64(start + at)] + 1)]


@part
def _strongest(pulls: F64, order: I64, count: int, found: I64) -> int:
    """Find the units that pull most; return how many. Of equals, the first wins."""
    _put_in_order(order, count)
    for at in range(found.size):
        found[at] = _take_last(order, count)
        if found[at] < 0:
            return at
    return int(found.size)


@part
def _put_in_order(bits: I64, count: int) -> None:
    """Make the bits of numbers whole numbers in the same order, among which LLVM finds the largest by vectors.

    Branches instead, of which many would be predicted wrongly, would take twice as long.
    """
    for x in range(count):
        bits[np.uint64(x)] ^= (bits[np.uint64(x)] >> 63) & _ALL_BUT_SIGN


@part
def _take_last(order: I64, count: int) -> int:
    """Take out the last, of equals the first; return its place, or -1 if only minus infinity is left."""
    last = _MINUS_INFINITY
    for x in range(count):
        last = max(last, order[np.uint64(x)])
    if last == _MINUS_INFINITY:
        return -1
    place = count
    for x in range(count):
        place = min(place, x if order[np.uint64(x)] == last else count)
    order[np.uint64(place)] = _MINUS_INFINITY
    return place
