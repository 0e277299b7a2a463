"""Which coordinate each hidden unit serves: chosen from its weights and the target, or by position as in the paper.

The paper cuts the units into equal blocks before it looks at any weight. Chance then decides how far the items of a sum
reach and, behind a ReLU, even how many there are; the few sums that miss cause nearly all of the error. If the choice
is made afterwards, every unit counts: it serves an input for which its weight has the right sign and size, and units
are exchanged until no sum is hard to meet.
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strongticket.construct.slots import Signs, slots_of
from strongticket.construct.source import RandomMatrix, check_option, equal_blocks, owners_of

Assignment = Literal["adaptive", "equal"]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# A slot wants weights whose sums spread over this many times its largest target. Larger weights increase the error,
# smaller ones leave entries out of reach. Between 1 and 2 the errors were within a fifth of each other.
_SPREAD = 1.5
# If possible, a weight differs from the wanted one by at most half of that plus this much. The second number is divided
# by the number of slots: where there are few, a unit has little choice.
_NEAR, _NEAR_OF_FEW = 0.05, 2.0
# Targets are clamped here, in units of the largest item: this is far out of reach, and squares do not overflow.
_OUT_OF_REACH = 1e6
# Up to this many subset sums, both assignments are solved: luck matters, and solving takes milliseconds. Beyond that,
# only the better one is solved if the other's predicted sum of squares is this many times larger.
_SOLVED_BOTH, _DECISIVE = 512, 64.0
# A slot with large targets gets up to this many items; each of the others gives up at most this many for it.
_MOST_ITEMS, _GIVEN_AWAY = 64, 2
# Rounds of exchanges: the minimum, and the number per slot for up to 20 items. Each further item makes the sums take
# 1.4 times as long, so the rounds may too, up to the point where no exchange is left to make.
_MIN_ROUNDS, _ROUNDS_PER_SLOT, _MAX_ROUNDS_PER_SLOT = 256, 2, 32


class Assigned(NamedTuple):
    """An assignment of units: each unit's coordinate, its weight to that coordinate, and the assignment's name."""

    owners: Tensor  # (units,) int64, on the CPU; -1 for none
    own: Tensor  # (units,) float32
    how: str


def assign(
    target: Tensor,
    blocked: RandomMatrix,
    free: RandomMatrix,
    weights: Tensor,
    *,
    signs: Signs,
    width: str,
    divisor: float,
    seed: int,
    assignment: Assignment | Tensor,
    device: torch.device | str | None,
) -> list[Assigned]:
    """Assign the hidden units of a product to its coordinates.

    Returns:
        The assignments to solve: one, or two where prediction cannot tell which is better.

    Args:
        target: (free coordinates, block coordinates), float64.
        blocked: the matrix whose units keep one coordinate each.
        free: the matrix whose mask is searched for.
        weights: the weights of the free matrix, (free coordinates, units).
        signs: which units make a sum.
        width: the name of the argument that sets the number of units.
        divisor: every item is divided by it.
        seed: seed of the random weights.
        assignment: "equal" blocks; "adaptive", which uses equal blocks where they are better; or each unit's
            coordinate, (units,) int64, -1 for none.
        device: where weights are drawn. The choice is made on the CPU and is the same for every device.
    """
    if isinstance(assignment, Tensor):
        return [Assigned(assignment, blocked.draw_own(assignment, seed, device), "given")]
    check_option("assignment", assignment, get_args(Assignment))
    equal = owners_of(equal_blocks(width, blocked.units, blocked.coordinates))
    if assignment == "equal":
        return [Assigned(equal, blocked.draw_own(equal, seed, device), "equal")]
    slots = blocked.coordinates * signs.slots
    if blocked.units < slots:
        raise ValueError(
            f"{width} must be at least {slots}, one hidden unit for either sign of each input; got {blocked.units}. "
            f"Use {slots} or more, or assignment='equal'."
        )
    from strongticket.construct import exchange  # numba is slow to import

    drawn, second = blocked.draw(seed, device).cpu(), weights.cpu()
    # The second matrix both ways round: all weights of a unit together, and all weights to an output.
    own, by_unit = drawn.T.numpy(), second.T.contiguous().numpy()
    # Items are measured in units of the largest possible one, so that nothing depends on the scale of the matrices.
    unit = blocked.scale * free.scale
    wanted_sums = (target.detach().cpu() * (divisor / unit)).clamp(-_OUT_OF_REACH, _OUT_OF_REACH)
    columns = wanted_sums.T.repeat_interleave(signs.slots, dim=0).contiguous().numpy()  # (slots, free coordinates)
    largest = np.abs(columns).max(axis=1)
    quotas = _quotas(largest, blocked.units)
    wanted = _wanted_weights(largest, quotas, blocked.scale)
    near = (wanted / 2 + (_NEAR + _NEAR_OF_FEW / slots) * blocked.scale).astype(np.float32)

    slot = exchange.share_out(own, quotas, wanted, near, signs.value)
    rounds = max(_MIN_ROUNDS, slots * _rounds_per_slot(blocked.units // slots))
    found = exchange.exchange(own, second.numpy(), by_unit, slot, columns, wanted, near, signs.value, unit, rounds)
    chosen, in_blocks = (
        Assigned(owners, torch.from_numpy(own[np.arange(blocked.units), owners.numpy()]), how)
        for owners, how in ((torch.from_numpy(slot // signs.slots), "adaptive"), (equal, "equal"))
    )
    equal_slot = slots_of(equal, in_blocks.own, signs).numpy()
    known = exchange.predicted_squares(own, by_unit, equal_slot, columns, signs.value, unit)
    lead = math.inf if columns.size <= _SOLVED_BOTH else _DECISIVE
    ways = [chosen] if found <= lead * known else []
    ways += [in_blocks] if known <= lead * found else []
    return [way._replace(own=way.own.to(weights.device)) for way in ways]


def _quotas(largest: F64, units: int) -> I64:
    """Divide units evenly, with more for a slot whose largest target would otherwise be out of reach."""
    slots = len(largest)
    even = units // slots
    # Of n items u v with u = 1, the positive ones add up to n / 4 on average; allow half as many again.
    needed = np.minimum(np.ceil(6 * largest) + 4, _MOST_ITEMS).astype(np.int64)
    most = max(even, int(needed.max()))
    while True:
        quotas: I64 = np.maximum(np.minimum(needed, most), even - _GIVEN_AWAY)
        spare = units - int(quotas.sum())
        if spare >= 0 or most <= even:
            break
        most -= 1
    if spare < 0:
        quotas, spare = np.full(slots, even), units - even * slots
    return _filled(quotas, spare)


def _filled(quotas: I64, spare: int) -> I64:
    """Add spare units one at a time, each to the first of the slots with the fewest."""
    ordered = np.sort(quotas)
    before = np.cumsum(ordered) - ordered
    # Those that are reached before the units run out; slot i is, once all smaller ones have grown to its size.
    reached = int(np.count_nonzero(ordered * np.arange(len(ordered)) - before <= spare))
    level, rest = divmod(spare + int(ordered[:reached].sum()), reached)
    filled: I64 = np.maximum(quotas, level)
    filled[np.flatnonzero(filled == level)[:rest]] += 1
    return filled


def _wanted_weights(largest: F64, quotas: I64, scale: float) -> F32:
    """Choose the size of each slot's weights so that its sums spread as far as its largest target requires."""
    # For n items u v with v uniform on [-1, 1], each kept with probability 1/2, the standard deviation of the sums is
    # u sqrt(n / 12).
    sizes = largest * _SPREAD * np.sqrt(12 / quotas)
    wanted: F32 = (np.minimum(sizes, 1.0) * scale).astype(np.float32)
    return wanted


def _rounds_per_slot(items: int) -> int:
    return min(_ROUNDS_PER_SLOT << max(0, (items - 20) // 2), _MAX_ROUNDS_PER_SLOT)
