"""Which coordinate each hidden unit serves: chosen from its weights and the target, or by position as in the paper.

The paper cuts the units into equal blocks before it looks at any weight. Chance then decides how far the items of a sum
reach and, behind a ReLU, even how many there are; the few sums that miss cause nearly all of the error. If the choice
is made afterwards, every unit counts: it serves an input for which its weight has the right sign and size, and units
are exchanged until no sum is hard to meet.
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from strongticket.construct.slots import Signs, slots_of
from strongticket.construct.source import RandomMatrix, check_option, equal_blocks, owners_of
from strongticket.errors import InfeasibleError

Assignment = Literal["adaptive", "equal"]

# Up to this many subset sums, both assignments are solved: luck matters, and solving takes milliseconds. Beyond that,
# only the better one is solved if the other's predicted sum of squares is this many times larger.
_SOLVED_BOTH, _DECISIVE = 512, 64.0
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

    own, second = blocked.own(seed, device), weights.cpu()
    # The second matrix both ways round: all weights of a unit together, and all weights to an output.
    by_unit = exchange.transposed(second.numpy())
    # Items are measured in units of the largest possible one, so that nothing depends on the scale of the matrices.
    unit = blocked.scale * free.scale
    merged = target.detach().cpu().contiguous().numpy()
    columns = exchange.sums_by_slot(merged, divisor / unit, slots)  # (slots, free coordinates)
    quotas, wanted, near = exchange.wishes(columns, blocked.units, blocked.scale)
    slot, unserved = exchange.share_out(own, quotas, wanted, near, signs.value)
    if unserved >= 0:
        j, negative = divmod(unserved, signs.slots)
        raise InfeasibleError(
            f"{width}={blocked.units} with seed {seed} leaves input {j} without a hidden unit of "
            f"{'negative' if negative else 'positive'} weight, whichever inputs the units serve. "
            "Use more units, another seed, or assignment='equal', which counts such entries as out of reach."
        )
    rounds = max(_MIN_ROUNDS, slots * _rounds_per_slot(blocked.units // slots))
    by_coordinate = exchange.copy_by_coordinate(own, rounds)
    found = exchange.exchange(
        own, by_coordinate, second.numpy(), by_unit, slot, columns, wanted, near, signs.value, unit, rounds
    )

    def serving(owners: Tensor, how: str) -> Assigned:
        weights = torch.from_numpy(exchange.weights_to(own, owners.numpy()))
        return Assigned(owners, weights if device is None else weights.to(device), how)

    in_blocks = serving(equal, "equal")
    equal_slot = slots_of(equal, in_blocks.own, signs).cpu().numpy()
    known = exchange.predicted_squares(own, by_unit, equal_slot, columns, signs.value, unit)
    lead = math.inf if columns.size <= _SOLVED_BOTH else _DECISIVE
    ways = [serving(torch.from_numpy(slot // signs.slots), "adaptive")] if found <= lead * known else []
    ways += [in_blocks] if known <= lead * found else []
    return ways


def _rounds_per_slot(items: int) -> int:
    return min(_ROUNDS_PER_SLOT << max(0, (items - 20) // 2), _MAX_ROUNDS_PER_SLOT)
