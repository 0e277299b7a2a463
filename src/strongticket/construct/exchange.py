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
from numba import njit
from numpy.typing import NDArray

from strongticket.construct.slots import Signs

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# Plain numbers, which numba treats as constants; `OWN_SIGN` has slots 2 j and 2 j + 1 for coordinate j.
EITHER_SIGN, POSITIVE, OWN_SIGN = (int(signs) for signs in (Signs.EITHER, Signs.POSITIVE, Signs.OWN))

# Exchanges evaluated per round, and units searched for them.
_WEIGHED = 4
_LOOKED_AT = 256
# A slot is left alone after this many of its units found no exchange that helps.
_PATIENCE = 6


@njit(nogil=True, cache=True)
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
            room[:] = np.minimum((k + slots) * quotas // units + 2, quotas)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _usable(u: float, s: int, signs: int) -> bool:
    if signs == EITHER_SIGN:
        return True
    return u > 0 if signs == POSITIVE or s % 2 == 0 else u < 0


@njit(nogil=True, cache=True)
def sums_of_slots(own: F32, free: F32, slot: I64, slots: int, signs: int, divisor: float) -> tuple[F64, F64, F64, I64]:
    r"""Return $\mu$, R and V of every sum, (slots, outputs) each, and the number of units per slot."""
    outputs, units = free.shape
    per = 2 if signs == OWN_SIGN else 1
    middle, reach, variance = np.empty((slots, outputs)), np.empty((slots, outputs)), np.empty((slots, outputs))
    count, u = np.zeros(slots, np.int64), np.zeros(units)
    for k in range(units):
        if slot[k] >= 0:
            count[slot[k]] += 1
            u[k] = np.float64(own[k, slot[k] // per]) / divisor
    row = np.empty((slots, 3))
    for i in range(outputs):
        row[:] = 0.0
        for k in range(units):
            s = slot[k]
            if s >= 0:
                a = u[k] * free[i, k]
                row[s, 0] += a
                row[s, 1] += abs(a)
                row[s, 2] += a * a
        for s in range(slots):
            middle[s, i], reach[s, i], variance[s, i] = row[s, 0] / 2, row[s, 1] / 2, row[s, 2] / 4
    return middle, reach, variance, count


@njit(nogil=True, cache=True)
def _squares(middle: F64, reach: F64, variance: F64, target: F64, scale: float, out: F64) -> None:
    """Predict the squared errors of one slot; for an entry out of reach, at least the square of its miss."""
    for i in range(target.size):
        off = abs(target[i] - middle[i])
        v, r = max(variance[i], 1e-300), reach[i]
        square, missed = off * off, max(off - r, 0.0)
        t2 = min(square / max(r * r, 1e-300), 1.0)
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
        out[i] = v * e * scale if off < r else v + missed * missed


@njit(nogil=True, cache=True)
def _total(values: F64) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


@njit(nogil=True, cache=True)
def predicted_squares(own: F32, free: F32, slot: I64, target: F64, signs: int, divisor: float) -> float:
    """Predict the sum of all squared errors."""
    slots, outputs = target.shape
    middle, reach, variance, count = sums_of_slots(own, free, slot, slots, signs, divisor)
    cost, squares = np.empty(slots), np.empty(outputs)
    for s in range(slots):
        _squares(middle[s], reach[s], variance[s], target[s], 0.25 ** count[s], squares)
        cost[s] = _total(squares)
    return _total(cost)


@njit(nogil=True, cache=True)
def _exchanged(
    middle: F64, reach: F64, variance: F64, out: float, leaving: F64, into: float, coming: F64, after: F64
) -> None:
    """Compute a slot's sums, (3, outputs), after one unit has replaced another."""
    for i in range(leaving.size):
        a, b = out * leaving[i], into * coming[i]
        after[0, i] = middle[i] + (b - a) / 2
        after[1, i] = reach[i] + (abs(b) - abs(a)) / 2
        after[2, i] = variance[i] + (b * b - a * a) / 4


@njit(nogil=True, cache=True)
def exchange(
    own: F32, free: F32, slot: I64, target: F64, wanted: F32, near: F32, signs: int, divisor: float, rounds: int
) -> float:
    """Exchange units of the worst slots with others while the predicted squared errors fall; return their sum.

    Each round takes the slot with the largest predicted square and, in it, the entry that contributes most. The unit
    that pulls this entry most in the wrong direction leaves. Of the units that would pull it most in the right
    direction, the one whose exchange helps both slots most replaces it.

    Args:
        own: weights (units, coordinates).
        free: weights (outputs, units).
        slot: each unit's slot; changed in place.
        target: (slots, outputs).
        wanted: the size of weight each slot wants.
        near: how far a weight may be from that. One much larger than the others would split a slot's sums into two
            clusters, and the prediction assumes one.
        signs: which weights a slot takes.
        divisor: every item is divided by it.
        rounds: the most rounds to run.
    """
    units = own.shape[0]
    slots, outputs = target.shape
    per = 2 if signs == OWN_SIGN else 1
    middle, reach, variance, count = sums_of_slots(own, free, slot, slots, signs, divisor)
    members = np.empty((slots, count.max()), np.int64)
    count[:] = 0
    for k in range(units):
        if slot[k] >= 0:
            members[slot[k], count[slot[k]]] = k
            count[slot[k]] += 1
    scale, cost, failed = 0.25**count, np.empty(slots), np.zeros(slots, np.int64)
    squares, leaving, coming = np.empty(outputs), np.empty(outputs), np.empty(outputs)
    here, there = np.empty((3, outputs)), np.empty((3, outputs))
    best_here, best_there = np.empty((3, outputs)), np.empty((3, outputs))
    for s in range(slots):
        _squares(middle[s], reach[s], variance[s], target[s], scale[s], squares)
        cost[s] = _total(squares)
    looked_at = min(units, _LOOKED_AT)
    candidates, pulls = np.empty(looked_at, np.int64), np.empty(looked_at)
    first = 0
    for _ in range(rounds):
        s = -1
        for x in range(slots):
            if failed[x] < _PATIENCE and (s < 0 or cost[x] > cost[s]):
                s = x
        if s < 0:
            break
        _squares(middle[s], reach[s], variance[s], target[s], scale[s], squares)
        worst = np.argmax(squares)
        sign = np.float64(1.0 if target[s, worst] > middle[s, worst] else -1.0)
        place = _pulls_least(own[:, s // per], free[worst], members[s, : count[s]], sign, failed[s])
        if place < 0:
            failed[s] = _PATIENCE
            continue
        k = members[s, place]
        found = 0
        for step in range(looked_at):
            other = (first + step) % units
            t = slot[other]
            if t < 0 or t == s:
                continue
            u, x = own[other, s // per], own[k, t // per]
            fits = abs(abs(u) - wanted[s]) <= near[s] and abs(abs(x) - wanted[t]) <= near[t]
            if fits and _usable(u, s, signs) and _usable(x, t, signs):
                candidates[found], pulls[found] = other, sign * u * free[worst, other]
                found += 1
        first = (first + looked_at) % units
        leaving[:] = free[:, k]
        u_here = own[k, s // per] / divisor
        least, best, best_cost_here, best_cost_there = 0.0, -1, 0.0, 0.0
        for _ in range(min(found, _WEIGHED)):
            at = np.argmax(pulls[:found])
            other, pulls[at] = candidates[at], -np.inf
            t = slot[other]
            coming[:] = free[:, other]
            _exchanged(middle[s], reach[s], variance[s], u_here, leaving, own[other, s // per] / divisor, coming, here)
            _squares(here[0], here[1], here[2], target[s], scale[s], squares)
            cost_here = _total(squares)
            if cost_here >= cost[s] + cost[t] + least:
                continue
            u_there, x_there = own[other, t // per] / divisor, own[k, t // per] / divisor
            _exchanged(middle[t], reach[t], variance[t], u_there, coming, x_there, leaving, there)
            _squares(there[0], there[1], there[2], target[t], scale[t], squares)
            cost_there = _total(squares)
            gained = cost_here + cost_there - cost[s] - cost[t]
            if gained < least:
                least, best, best_cost_here, best_cost_there = gained, other, cost_here, cost_there
                best_here[:], best_there[:] = here, there
        if best < 0:
            failed[s] += 1
            continue
        t = slot[best]
        for x in range(count[t]):
            if members[t, x] == best:
                members[t, x] = k
        members[s, place] = best
        slot[k], slot[best], cost[s], cost[t] = t, s, best_cost_here, best_cost_there
        middle[s], reach[s], variance[s] = best_here[0], best_here[1], best_here[2]
        middle[t], reach[t], variance[t] = best_there[0], best_there[1], best_there[2]
        failed[s] = 0
    return _total(cost)


@njit(nogil=True, cache=True)
def _pulls_least(own: F32, free: F32, members: I64, sign: float, passed: int) -> int:
    """Find the unit that pulls an entry most in the wrong direction, after skipping `passed` of them; -1 if none."""
    taken = np.zeros(members.size, np.bool_)
    for _ in range(min(passed + 1, members.size)):
        least, place = np.inf, -1
        for x in range(members.size):
            pull = sign * own[members[x]] * free[members[x]]
            if not taken[x] and pull < least:
                least, place = pull, x
        taken[place] = True
    return place if passed < members.size else -1
