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

import numpy as np
from numpy.typing import NDArray

from strongticket.construct.slots import Signs
from strongticket.ops.compiled import kernel, part

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# Plain numbers, which numba treats as constants; `OWN_SIGN` has slots 2 j and 2 j + 1 for coordinate j.
EITHER_SIGN, POSITIVE, OWN_SIGN = (int(signs) for signs in (Signs.EITHER, Signs.POSITIVE, Signs.OWN))

# No unit, or no slot. Not a plain number: numba would compile what is called with it for that very number.
_NONE = np.int64(-1)
# Exchanges evaluated per round, and units searched for them.
_WEIGHED = 4
_LOOKED_AT = 256
# A slot is left alone after this many of its units found no exchange that helps.
_PATIENCE = 6


@kernel
def share_out(own: F32, quotas: I64, wanted: F32, near: F32, signs: int) -> I64:
    """Assign each unit to a slot that wants a weight like its own, and fill each slot's quota; -1 if none can use it.

    Slots fill up evenly, so that late units still have a choice. The few units that fit no slot with room replace, if
    possible, a unit that does.

    Args:
        own: weights (units, coordinates).
        quotas: how many units each slot should have; they add up to all units.
        wanted: the size of weight each slot wants.
        near: how far a weight should be from that at most.
        signs: which weights a slot takes.
    """
    units, slots = own.shape[0], wanted.size
    slot, count, room = np.full(units, -1), np.zeros(slots, np.int64), np.empty(slots, np.int64)
    for k in range(units):
        if k % slots == 0:
            # Two more than an even share so far, and never more than the quota.
            for s in range(slots):
                room[s] = min((k + slots) * quotas[s] // units + 2, quotas[s])
        s = _nearest(own[k], wanted, near, signs, count, room)
        if s >= 0:
            slot[k] = s
            count[s] += 1
    anything, endless = np.full(slots, np.float32(np.inf)), np.full(slots, units)
    for k in range(units):
        if slot[k] >= 0:
            continue
        s, other = _nearest(own[k], wanted, near, signs, count, quotas), -1
        if s < 0:
            other = _who_makes_room(own, wanted, near, slot, count, quotas, signs, k)
        if other >= 0:
            s, slot[other] = slot[other], _nearest(own[other], wanted, near, signs, count, quotas)
            count[slot[other]] += 1
        else:
            if s < 0:
                s = _nearest(own[k], wanted, anything, signs, count, quotas)
            if s < 0:
                # A slot may exceed its quota without harm.
                s = _nearest(own[k], wanted, anything, signs, count, endless)
            if s >= 0:
                count[s] += 1
        slot[k] = s
    return slot


@part
def _nearest(own: F32, wanted: F32, near: F32, signs: int, count: I64, room: I64) -> int:
    """Return the slot with room that wants a weight most like one of these; -1 if none is near."""
    best, nearest = -1, np.float32(np.inf)
    for j in range(own.size):
        u = own[j]
        s = 2 * j + int(u < 0) if signs == OWN_SIGN else j
        distance = abs(abs(u) - wanted[s])
        if distance < nearest and count[s] < room[s] and distance <= near[s] and _usable(u, s, signs):
            best, nearest = s, distance
    return best


@part
def _who_makes_room(own: F32, wanted: F32, near: F32, slot: I64, count: I64, room: I64, signs: int, k: int) -> int:
    """Find a unit whose slot suits unit k and that itself fits a slot with room; -1 if there is none nearby."""
    units = own.shape[0]
    per = 2 if signs == OWN_SIGN else 1
    for step in range(1, min(units, _LOOKED_AT)):
        other = (k + step) % units
        s = slot[other]
        if s < 0 or not _usable(own[k, s // per], s, signs) or abs(abs(own[k, s // per]) - wanted[s]) > near[s]:
            continue
        if _nearest(own[other], wanted, near, signs, count, room) >= 0:
            return int(other)
    return -1


@part
def _usable(u: float, s: int, signs: int) -> bool:
    """Return whether a weight has the sign that slot s takes."""
    return (signs == EITHER_SIGN) | ((u < 0) if (signs == OWN_SIGN) & (s % 2 == 1) else (u > 0))


# Whole arrays and the number of a row are passed below, not rows: counting references to views takes longer than the
# arithmetic.


@kernel
def sums_of_slots(own: F32, by_unit: F32, slot: I64, slots: int, signs: int, divisor: float) -> tuple[F64, I64]:
    r"""Return $\mu$, R and V of every sum, (slots, 3, outputs), and the number of units per slot."""
    units, outputs = by_unit.shape
    per = 2 if signs == OWN_SIGN else 1
    sums, count = np.zeros((slots, 3, outputs)), np.zeros(slots, np.int64)
    for k in range(units):
        s = slot[k]
        if s < 0:
            continue
        count[s] += 1
        u = np.float64(own[k, s // per]) / divisor
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
    squares: F64,
) -> float:
    """Predict the total of slot s after one unit has replaced another; u is a unit's weight to the slot."""
    for i in range(squares.size):
        a, b = u * by_unit[leaving, i], new_u * by_unit[coming, i]
        middle, reach = sums[s, 0, i] + (b - a) / 2, sums[s, 1, i] + (abs(b) - abs(a)) / 2
        squares[i] = _square(middle, reach, sums[s, 2, i] + (b * b - a * a) / 4, target[s, i], scale)
    return _total(squares)


@part
def _exchange(sums: F64, s: int, by_unit: F32, leaving: int, u: float, coming: int, new_u: float) -> None:
    """Update the sums of slot s: one unit has replaced another."""
    for i in range(sums.shape[2]):
        a, b = u * by_unit[leaving, i], new_u * by_unit[coming, i]
        sums[s, 0, i] += (b - a) / 2
        sums[s, 1, i] += (abs(b) - abs(a)) / 2
        sums[s, 2, i] += (b * b - a * a) / 4


@kernel
def predicted_squares(own: F32, by_unit: F32, slot: I64, target: F64, signs: int, divisor: float) -> float:
    """Predict the sum of all squared errors."""
    slots, outputs = target.shape
    sums, count = sums_of_slots(own, by_unit, slot, slots, signs, divisor)
    cost, squares = np.empty(slots), np.empty(outputs)
    for s in range(slots):
        cost[s] = squares_of_slot(sums, target, 0.25 ** count[s], s, squares)
    return _total(cost)


@kernel
def exchange(
    own: F32,
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
        own: weights (units, coordinates).
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
    squares = np.empty(outputs)
    for s in range(slots):
        cost[s] = squares_of_slot(sums, target, scale[s], s, squares)
    pulls, candidates, top = np.empty(min(units, _LOOKED_AT)), np.empty(_WEIGHED, np.int64), np.empty(_WEIGHED)
    # Minus infinity for a slot that cannot use a unit; the last is for units without a slot, -1.
    refused, first = np.full(slots + 1, -np.inf), 0
    # The entry of each slot that contributes most; -1 if its sums have changed since it was found.
    worst_entry, together = np.full(slots, -1), np.empty(pulls.size, np.float32)
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
        place = _pulls_least(own, free, members, count[s], s // per, s, worst, sign, failed[s])
        if place < 0:
            failed[s] = _PATIENCE
            continue
        k = members[s, place]
        for j in range(own.shape[1]):
            u = own[k, j]
            for t in range(per * j, per * j + per):
                fits = (abs(abs(u) - wanted[t]) <= near[t]) & _usable(u, t, signs) & (t != s)
                refused[t] = 0.0 if fits else -np.inf
        # The next units, from the beginning again after the last.
        ahead = min(pulls.size, units - first)
        for some_pulls, start in ((pulls[:ahead], first), (pulls[ahead:], 0)):
            some = slice(start, start + some_pulls.size)
            # Copied, so that the weights lie together.
            here, j = own[some], s // per
            for x in range(some_pulls.size):
                together[x] = here[x, j]
            _pull(
                together,
                free[worst, some],
                slot[some],
                refused,
                wanted[s],
                near[s],
                signs,
                s,
                sign,
                some_pulls,
            )
        found = _strongest(pulls, candidates, top)
        u_here = own[k, s // per] / divisor
        least, best, best_cost_here, best_cost_there = 0.0, int(_NONE), 0.0, 0.0
        for at in range(found):
            other = (first + candidates[at]) % units
            t = slot[other]
            new = own[other, s // per] / divisor
            cost_here = _after_exchange(sums, target, scale[s], s, by_unit, k, u_here, other, new, squares)
            if cost_here >= cost[s] + cost[t] + least:
                continue
            u, new = own[other, t // per] / divisor, own[k, t // per] / divisor
            cost_there = _after_exchange(sums, target, scale[t], t, by_unit, other, u, k, new, squares)
            gained = cost_here + cost_there - cost[s] - cost[t]
            if gained < least:
                least, best, best_cost_here, best_cost_there = gained, other, cost_here, cost_there
        first = (first + pulls.size) % units
        if best < 0:
            failed[s] += 1
            continue
        t = slot[best]
        for x in range(count[t]):
            if members[t, x] == best:
                members[t, x] = k
        members[s, place] = best
        _exchange(sums, s, by_unit, k, u_here, best, own[best, s // per] / divisor)
        _exchange(sums, t, by_unit, best, own[best, t // per] / divisor, k, own[k, t // per] / divisor)
        slot[k], slot[best], cost[s], cost[t] = t, s, best_cost_here, best_cost_there
        worst_entry[s], worst_entry[t], failed[s] = -1, -1, 0
    return _total(cost)


@part
def _pulls_least(
    own: F32, free: F32, members: I64, count: int, j: int, s: int, worst: int, sign: float, passed: int
) -> int:
    """Find the unit of slot s that pulls an entry most in the wrong direction after `passed` others; -1 if none."""
    least, place = -np.inf, -1
    for _ in range(passed + 1):
        before, before_place = least, place
        least, place = np.inf, -1
        for x in range(count):
            k = members[s, x]
            pull = sign * own[k, j] * free[worst, k]
            if pull < least and (pull > before or (pull == before and x > before_place)):
                least, place = pull, x
        if place < 0:
            break
    return place


@part
def _pull(
    own: F32,
    free: F32,
    slot: I64,
    refused: F64,
    wanted: float,
    near: float,
    signs: int,
    s: int,
    sign: float,
    pulls: F64,
) -> None:
    """Compute how much units would pull an entry of slot s: minus infinity for those that do not fit."""
    for x in range(pulls.size):
        fits = (abs(abs(own[x]) - wanted) <= near) & _usable(own[x], s, signs)
        pulls[x] = sign * own[x] * free[x] if fits else -np.inf
    for x in range(pulls.size):
        pulls[x] += refused[slot[x]]


@part
def _strongest(pulls: F64, found: I64, top: F64) -> int:
    """Find the units that pull most; return how many. Of equals, the first wins."""
    count, least = 0, -np.inf
    for x in range(pulls.size):
        pull = pulls[x]
        if pull > least:
            count = min(count + 1, top.size)
            at = count - 1
            while at > 0 and top[at - 1] < pull:
                found[at], top[at] = found[at - 1], top[at - 1]
                at -= 1
            found[at], top[at] = x, pull
            if count == top.size:
                least = top[-1]
    return count
