"""Calls in a forked process, where torch's threads no longer exist and anything that needs them waits forever."""

import os
import subprocess
import sys

import pytest

# Torch's own threads must have run before the fork, and tensors must be large enough that torch would use them again.
PROGRAM = """
import os, signal, sys, warnings
import numpy as np, torch
from strongticket.ops.subset_sum import subset_sum, subset_sum_products

warnings.simplefilter("ignore", DeprecationWarning)
torch.set_num_threads(2)
rows = 100_000
torch.manual_seed(0)
targets, items, u = torch.rand(rows), torch.rand(rows, 3), torch.rand(3)
huge = torch.full((rows, 3), 3e38)
one, many = torch.tensor([3]), torch.ones(rows, dtype=torch.int64)

def solve():
    return [
        *subset_sum(targets, items),
        *subset_sum(targets, items, tol=9.0, strict=True),
        *subset_sum(targets, huge),  # their sum overflows
        *subset_sum_products(targets[:, None], u, items, one, tol=9.0, strict=True),
        *subset_sum_products(targets[None], targets, targets[None], many, tol=9.0, strict=True),
    ]

expected = [x.numpy() for x in solve()] if sys.argv[1] == "used" else None
assert float((items + items).sum()) > 0
child = os.fork()
if child == 0:
    signal.alarm(100)  # ends the child if it waits forever
    found = [x.numpy() for x in solve()]
    os._exit(0 if expected is None or all((x == y).all() for x, y in zip(found, expected, strict=True)) else 1)
sys.exit(os.waitpid(child, 0)[1] and 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("parent", ["used", "not used"])
def test_calls_after_fork_need_no_threads_of_torch(parent: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
