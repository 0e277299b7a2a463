"""The process a peer runs in: read problems, solve one after the other, write each answer as it comes.

python -m strongticket.bench.peers.worker gurobi problems.npz answers.jsonl THREADS BUDGET
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strongticket.bench.measure import clock_for
from strongticket.bench.peers import Solve


def make_solver(name: str, threads: int, limit: float) -> Solve:
    """Start the named solver; only its own package is imported."""
    if name in ("gurobi", "gurobi-tight"):
        from strongticket.bench.peers import gurobi

        return gurobi.make_solver(threads, limit, tight=name == "gurobi-tight")
    if name == "highs":
        from strongticket.bench.peers import highs

        return highs.make_solver(limit)
    if name == "cp-sat":
        from strongticket.bench.peers import cp_sat

        return cp_sat.make_solver(threads, limit)
    raise ValueError(f"unknown peer {name!r}")


def main(arguments: Sequence[str]) -> None:
    """Solve until the problems or the seconds run out."""
    name, problems, answers, threads, budget = arguments
    _use_cores(int(threads))
    _, clock = clock_for(int(threads))
    solve = make_solver(name, int(threads), float(budget))
    solve(0.5, np.array([0.25, -0.5, 0.75, 0.125]))  # licence checks and first-call costs are not the problem's
    with np.load(problems) as file, Path(answers).open("a", buffering=1) as out:
        end = time.perf_counter() + float(budget)
        for target, items in zip(file["targets"].tolist(), file["items"], strict=True):
            if time.perf_counter() >= end:
                break
            start = clock()
            chosen, timed_out = solve(target, items)
            seconds = clock() - start
            line = {"seconds": seconds, "chosen": np.flatnonzero(chosen).tolist(), "timed_out": timed_out}
            out.write(json.dumps(line) + "\n")


def _use_cores(threads: int) -> None:
    """Hold the process to as many cores as it may use: scipy's HiGHS takes no such setting."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


if __name__ == "__main__":
    main(sys.argv[1:])
