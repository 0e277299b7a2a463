"""The solvers people use today for one subset sum at a time, each in its own process.

Separate processes, because ortools and highspy clash inside one, and because a solver that hangs or crashes must not
end the other measurements.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Peer:
    """A solver: its name for `--peers`, its label in tables, and its package."""

    name: str
    label: str
    module: str  # to import
    package: str  # for pip

    @property
    def installed(self) -> bool:
        """Whether the solver can be imported here."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def missing(self) -> str:
        """What to do if it is not installed."""
        return f"{self.label}: not installed, left out. Install it with: pip install {self.package}"


GUROBI = Peer("gurobi", "Gurobi, defaults", "gurobipy", "gurobipy")
GUROBI_TIGHT = Peer("gurobi-tight", "Gurobi, gap 0, tol. 1e-9", "gurobipy", "gurobipy")
HIGHS = Peer("highs", "HiGHS (scipy)", "scipy", "scipy")
CP_SAT = Peer("cp-sat", "CP-SAT, weights x 2^40", "ortools", "ortools")

# The choices of `--peers`; Gurobi always appears with both settings, since its defaults stop short of 1e-6.
GROUPS = {"gurobi": (GUROBI, GUROBI_TIGHT), "highs": (HIGHS,), "cp-sat": (CP_SAT,)}


@dataclass(frozen=True, slots=True)
class Answers:
    """A peer's answers to the first `len(seconds)` problems, until its time was up."""

    seconds: NDArray[np.float64]  # (rows,) one problem each, model building included, by `clock_for`
    masks: NDArray[np.bool_]  # (rows, n)
    timed_out: NDArray[np.bool_]  # (rows,) stopped at the time limit; the answer is the best so far
    failure: str | None = None  # why the peer ended early, in its own words


def choose(names: Sequence[str]) -> list[Peer]:
    """Find peers by name; an unknown name is an error, and "none" alone is the empty list."""
    chosen: list[Peer] = []
    for name in () if tuple(names) == ("none",) else names:
        if name not in GROUPS:
            raise ValueError(f"unknown peer {name!r}; choose from {', '.join(GROUPS)}, or none.")
        chosen += [peer for peer in GROUPS[name] if peer not in chosen]
    return chosen


def solve_apart(
    peer: Peer, targets: NDArray[np.float64], items: NDArray[np.float64], *, threads: int, budget: float
) -> Answers:
    """Let a peer solve the problems one after another, in its own process, until its time is up.

    Args:
        peer: the solver.
        targets: (rows,).
        items: (rows, n).
        threads: that the solver may use.
        budget: seconds after which no further problem is started; also the limit of a single problem.
    """
    with tempfile.TemporaryDirectory() as folder:
        problems, answers = Path(folder, "problems.npz"), Path(folder, "answers.jsonl")
        np.savez(problems, targets=targets, items=items)
        answers.touch()
        command = [sys.executable, "-m", "strongticket.bench.peers.worker", peer.name, str(problems), str(answers)]
        command += [str(threads), str(budget)]
        failure = None
        try:
            # The last problem may start just before the end and take its full limit; after that the solver hangs.
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * budget + 60)
            if done.returncode:
                failure = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            failure = f"did not stop within {2 * budget + 60:.0f} s"
        return read_answers(answers, items.shape[1], failure)


def read_answers(path: Path, n: int, failure: str | None) -> Answers:
    """Read what a worker wrote, whether it succeeded or not."""
    # A killed worker can leave half a line at the end.
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
    masks = np.zeros((len(lines), n), dtype=np.bool_)
    for row, line in enumerate(lines):
        masks[row, line["chosen"]] = True
    return Answers(
        seconds=np.array([line["seconds"] for line in lines], dtype=np.float64),
        masks=masks,
        timed_out=np.array([line["timed_out"] for line in lines], dtype=np.bool_),
        failure=failure,
    )
