"""Which coordinate each hidden unit serves: chosen from its weights and the target, or by its place as in the paper.

The paper cuts the units into equal blocks before it looks at a weight. Then chance decides how far the items of a sum
reach, behind a ReLU even how many there are, and the few sums that miss make nearly all of the error. Chosen
afterwards, every unit counts: it serves an input to which its weight has the right sign and size, and units change
places until no sum is hard to meet.
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

# A slot's weights are to be so large that its sums spread by this many times its largest target: larger ones make
# errors larger, smaller ones leave entries out of reach. From 1 to 2 the errors were within a fifth of each other.
_SPREAD = 1.5
# Weights are no farther off than half of what is wanted and this much, if it can be helped. The second number is shared
# by all slots: where there are few, a unit has little choice.
_NEAR, _NEAR_OF_FEW = 0.05, 2.0
# Targets are cut off here, in units of the largest item: far out of reach, and squares stay far from overflow.
_OUT_OF_REACH = 1e6
# Up to so many subset sums both assignments are solved: luck counts, and they take milliseconds. Of more sums they are
# not where one predicted sum of squares is so many times the other.
_SOLVED_BOTH, _DECISIVE = 512, 64.0
# A slot with large targets gets up to so many items, and for its sake all others at most so many fewer.
_MOST_ITEMS, _GIVEN_AWAY = 64, 2
# Rounds of exchanges: at least so many, and so many a slot for up to 20 items. Each item more makes the sums take 1.4
# times as long, and so the rounds may, up to a point where they have nothing left to do.
_FEWEST_ROUNDS, _ROUNDS_A_SLOT, _MOST_ROUNDS_A_SLOT = 256, 2, 32


class Assigned(NamedTuple):
    """A way to share units out: each unit's coordinate, its weight to that, and what it is called."""

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
    """Share the hidden units of a product out among its coordinates.

    Returns:
        What is to be solved: one way, or two of which the better is to be kept, where a prediction cannot tell.

    Args:
        target: (free coordinates, block coordinates), float64.
        blocked: the matrix whose units keep one coordinate each.
        free: the matrix whose mask will be searched.
        weights: those of the free matrix, (free coordinates, units).
        signs: which units make a sum.
        width: what the number of units is called where it is set.
        divisor: of every item.
        seed: of the random weights.
        assignment: "equal" blocks; "adaptive", which gives equal blocks where they are better; or each unit's
            coordinate, (units,) int64, -1 for none.
        device: where weights are drawn; the choice is made on the CPU, the same for every device.
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
    from strongticket.construct import exchange  # numba takes its time

    drawn = blocked.draw(seed, device)  # (coordinates, units)
    own, second = drawn.T.cpu().numpy(), weights.cpu().numpy()
    # Items are counted in units of the largest that can be, so that nothing depends on the scale of the matrices.
    unit = blocked.scale * free.scale
    wanted_sums = (target.detach().cpu() * (divisor / unit)).clamp(-_OUT_OF_REACH, _OUT_OF_REACH)
    columns = wanted_sums.T.repeat_interleave(signs.slots, dim=0).contiguous().numpy()  # (slots, free coordinates)
    quotas = _quotas(columns, blocked.units)
    wanted = _wanted_weights(columns, quotas, blocked.scale)
    near = (wanted / 2 + (_NEAR + _NEAR_OF_FEW / slots) * blocked.scale).astype(np.float32)

    slot = exchange.share_out(own, quotas, wanted, near, signs.value)
    rounds = max(_FEWEST_ROUNDS, slots * _rounds_a_slot(blocked.units // slots))
    found = exchange.exchange(own, second, slot, columns, wanted, near, signs.value, unit, rounds)
    equal_slot = slots_of(equal, torch.from_numpy(own)[torch.arange(len(own), device="cpu"), equal], signs).numpy()
    known = exchange.predicted_squares(own, second, equal_slot, columns, signs.value, unit)
    chosen = torch.from_numpy(slot) // signs.slots
    lead = math.inf if columns.size <= _SOLVED_BOTH else _DECISIVE
    ways = [(chosen, "adaptive")] if found <= lead * known else []
    ways += [(equal, "equal")] if known <= lead * found else []
    units = torch.arange(blocked.units, device=drawn.device)
    return [Assigned(owners, drawn[owners.clamp(min=0).to(drawn.device), units], how) for owners, how in ways]


def _quotas(columns: F64, units: int) -> I64:
    """Share units out evenly, more to a slot whose largest target would else be out of reach."""
    slots = len(columns)
    even = units // slots
    # The positive ones of n items u v with u = 1 add up to n / 4; half as much again is not left to chance.
    needed = np.minimum(np.ceil(6 * np.abs(columns).max(axis=1)) + 4, _MOST_ITEMS).astype(np.int64)
    most = max(even, int(needed.max()))
    while True:
        quotas: I64 = np.maximum(np.minimum(needed, most), even - _GIVEN_AWAY)
        spare = units - int(quotas.sum())
        if spare >= 0 or most <= even:
            break
        most -= 1
    if spare < 0:
        quotas, spare = np.full(slots, even), units - even * slots
    # What is left goes to those with fewest, one after the other.
    for _ in range(spare):
        quotas[np.argmin(quotas)] += 1
    return quotas


def _wanted_weights(columns: F64, quotas: I64, scale: float) -> F32:
    """Say how large a slot's weights should be: so that its sums spread as its largest target asks."""
    # n items u v, v uniform on [-1, 1], of which each half is kept: the sums have a standard deviation of
    # u sqrt(n / 12).
    sizes = np.abs(columns).max(axis=1) * _SPREAD * np.sqrt(12 / quotas)
    wanted: F32 = (np.minimum(sizes, 1.0) * scale).astype(np.float32)
    return wanted


def _rounds_a_slot(items: int) -> int:
    return min(_ROUNDS_A_SLOT << max(0, items - 20) // 2, _MOST_ROUNDS_A_SLOT)
