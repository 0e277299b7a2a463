"""One subset sum as a mixed-integer programme for the HiGHS that scipy brings."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

if TYPE_CHECKING:
    from strongticket.bench.peers import Solve

TIME_LIMIT = 1  # scipy's status for "iteration or time limit reached"


def make_solver(limit: float) -> "Solve":
    """Set HiGHS up at scipy's defaults."""

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        # Unknowns: one bit an item, then the gap |target - sum| that is minimised.
        n = len(items)
        cost = np.append(np.zeros(n), 1.0)
        rows = np.vstack([np.append(items, -1.0), np.append(items, 1.0)])
        answer = milp(
            cost,
            integrality=np.append(np.ones(n), 0),
            bounds=Bounds(0, np.append(np.ones(n), np.inf)),
            constraints=LinearConstraint(rows, [-np.inf, target], [target, np.inf]),
            options={"time_limit": limit},
        )
        found = answer.x[:n] > 0.5 if answer.x is not None else np.zeros(n, dtype=np.bool_)
        return found, answer.status == TIME_LIMIT

    return solve
