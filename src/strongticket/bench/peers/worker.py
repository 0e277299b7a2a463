"""The process of a peer: read problems, solve one after another, write each answer at once.

python -m strongticket.bench.peers.worker gurobi problems.npz answers.jsonl THREADS BUDGET
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strongticket.bench.measure import clock_for

# One problem: (target, items) -> (chosen items as booleans, whether the time limit stopped it).
Solve = Callable[[float, NDArray[np.float64]], tuple[NDArray[np.bool_], bool]]

TIGHT = {"MIPGap": 0.0, "MIPGapAbs": 0.0, "IntFeasTol": 1e-9, "FeasibilityTol": 1e-9, "OptimalityTol": 1e-9}
HIGHS_TIME_LIMIT = 1  # scipy's status for "iteration or time limit reached"
CP_SAT_SCALE = 2.0**40


def gurobi(threads: int, limit: float, *, tight: bool) -> Solve:
    """Solve mixed-integer programs, as in published work on lottery tickets.

    At Gurobi's defaults, or with every tolerance as small as it allows.
    """
    import gurobipy as gp

    environment = gp.Env(empty=True)
    settings = {"OutputFlag": 0, "Threads": threads, "TimeLimit": limit, **(TIGHT if tight else {})}
    for name, value in settings.items():
        environment.setParam(name, value)
    environment.start()

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        with gp.Model(env=environment) as model:
            # Matrix variables would read better, but building such a small model with them takes as long as solving it.
            chosen = [model.addVar(vtype=gp.GRB.BINARY) for _ in items]
            gap = model.addVar()
            total = gp.LinExpr(items.tolist(), chosen)
            model.addConstr(total - gap <= target)
            model.addConstr(total + gap >= target)
            model.setObjective(gap)
            model.optimize()
            timed_out = model.Status == gp.GRB.TIME_LIMIT
            # Without a solution, the answer is the empty subset.
            values = model.getAttr("X", chosen) if model.SolCount else [0.0] * len(items)
            return np.array(values) > 0.5, timed_out

    return solve


def highs(threads: int, limit: float) -> Solve:
    """Solve mixed-integer programs with scipy's HiGHS, at its defaults."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        # Unknowns: one bit per item, then the gap |target - sum| to minimise.
        n = len(items)
        rows = np.vstack([np.append(items, -1.0), np.append(items, 1.0)])
        answer = milp(
            np.append(np.zeros(n), 1.0),
            integrality=np.append(np.ones(n), 0),
            bounds=Bounds(0, np.append(np.ones(n), np.inf)),
            constraints=LinearConstraint(rows, [-np.inf, target], [target, np.inf]),
            options={"time_limit": limit},
        )
        found = answer.x[:n] > 0.5 if answer.x is not None else np.zeros(n, dtype=np.bool_)
        return found, answer.status == HIGHS_TIME_LIMIT

    return solve


def cp_sat(threads: int, limit: float) -> Solve:
    """Solve with OR-Tools' CP-SAT at its defaults; it needs integers, so weights are rounded to multiples of 2^-40."""
    from ortools.sat.python import cp_model

    def solve(target: float, items: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
        goal, weights = round(target * CP_SAT_SCALE), np.rint(items * CP_SAT_SCALE).astype(np.int64)
        model = cp_model.CpModel()
        chosen = [model.new_bool_var("") for _ in weights]
        gap = model.new_int_var(0, abs(goal) + int(np.abs(weights).sum()), "")
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


# By the names of `peers.Peer`; only the chosen one imports its package.
SOLVERS: dict[str, Callable[[int, float], Solve]] = {
    "gurobi": partial(gurobi, tight=False),
    "gurobi-tight": partial(gurobi, tight=True),
    "highs": highs,
    "cp-sat": cp_sat,
}


def main(arguments: Sequence[str]) -> None:
    """Solve until the problems or the seconds run out."""
    name, problems, answers, threads, budget = arguments
    if name not in SOLVERS:
        raise ValueError(f"unknown peer {name!r}")
    if hasattr(os, "sched_setaffinity"):
        # Limit its cores: scipy's HiGHS has no such setting.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(threads) :])
    _, clock = clock_for(int(threads))
    solve = SOLVERS[name](int(threads), float(budget))
    solve(0.5, np.array([0.25, -0.5, 0.75, 0.125]))  # keeps licence checks and first-call costs out of the timings
    with np.load(problems) as file, Path(answers).open("a", buffering=1) as out:
        end = time.perf_counter() + float(budget)
        for target, items in zip(file["targets"].tolist(), file["items"], strict=True):
            start = clock()
            chosen, timed_out = solve(target, items)
            seconds = clock() - start
            line = {"seconds": seconds, "chosen": np.flatnonzero(chosen).tolist(), "timed_out": timed_out}
            out.write(json.dumps(line) + "\n")
            if time.perf_counter() >= end:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
