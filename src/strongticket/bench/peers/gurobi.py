"""One subset sum as a mixed-integer programme for Gurobi, as published work on lottery tickets solves it."""

from typing import TYPE_CHECKING

import gurobipy as gp
import numpy as np
from gurobipy import GRB
from numpy.typing import NDArray

if TYPE_CHECKING:
    from strongticket.bench.peers import Solve

TIGHT = {"MIPGap": 0.0, "MIPGapAbs": 0.0, "IntFeasTol": 1e-9, "FeasibilityTol": 1e-9, "OptimalityTol": 1e-9}


def make_solver(threads: int, limit: float, *, tight: bool) -> "Solve":
    """Start Gurobi at its defaults, or with every tolerance as small as it allows."""
    environment = gp.Env(empty=True)
    settings = {"OutputFlag": 0, "Threads": threads, "TimeLimit": limit, **(TIGHT if tight else {})}
    for name, value in settings.items():
        environment.setParam(name, value)
    environment.start()

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        with gp.Model(env=environment) as model:
            # Matrix variables would read better, but building this small model with them takes as long as solving it.
            chosen = [model.addVar(vtype=GRB.BINARY) for _ in items]
            gap = model.addVar()
            total = gp.LinExpr(items.tolist(), chosen)
            model.addConstr(total - gap <= target)
            model.addConstr(total + gap >= target)
            model.setObjective(gap)
            model.optimize()
            timed_out = model.Status == GRB.TIME_LIMIT
            # Without any solution the empty subset is what there is.
            values = model.getAttr("X", chosen) if model.SolCount else [0.0] * len(items)
            return np.array(values) > 0.5, timed_out

    return solve
