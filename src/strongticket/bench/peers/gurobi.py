"""One subset sum as a mixed-integer programme for Gurobi, as published work on lottery tickets solves it."""

from typing import TYPE_CHECKING

import gurobipy as gp
import numpy as np
from gurobipy import GRB
from numpy.typing import NDArray

if TYPE_CHECKING:
    from strongticket.bench.peers.worker import Solve

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
            chosen = model.addMVar(len(items), vtype=GRB.BINARY)
            gap = model.addVar()
            model.addConstr(items @ chosen - gap <= target)
            model.addConstr(items @ chosen + gap >= target)
            model.setObjective(gap)
            model.optimize()
            timed_out = model.Status == GRB.TIME_LIMIT
            found = np.asarray(chosen.X) > 0.5 if model.SolCount else np.zeros(len(items), dtype=np.bool_)
            return found, timed_out

    return solve
