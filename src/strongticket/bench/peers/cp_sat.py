"""One subset sum for OR-Tools' CP-SAT, which wants integers: weights are rounded to multiples of 2^-40."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from strongticket.bench.peers import Solve

SCALE = 2.0**40


def make_solver(threads: int, limit: float) -> "Solve":
    """Set CP-SAT up at its defaults."""

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        goal, weights = round(target * SCALE), np.rint(items * SCALE).astype(np.int64)
        reach = abs(goal) + int(np.abs(weights).sum())
        model = cp_model.CpModel()
        chosen = [model.new_bool_var("") for _ in weights]
        gap = model.new_int_var(0, reach, "")
        total = cp_model.LinearExpr.weighted_sum(chosen, weights)
        model.add(total - gap <= goal)
        model.add(total + gap >= goal)
        model.minimize(gap)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = threads
        solver.parameters.max_time_in_seconds = limit
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return np.zeros(len(weights), dtype=np.bool_), True
        return np.array([solver.boolean_value(bit) for bit in chosen], dtype=np.bool_), status != cp_model.OPTIMAL

    return solve
