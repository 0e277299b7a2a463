"""Working memory beyond input and output stays below 256 MiB, at any number of rows and threads."""

import subprocess
import sys

import numba
import pytest

from strongticket.ops.subset_sum import Effort, cpu
from strongticket.ops.subset_sum.birthday import levels_for, make_lists
from strongticket.ops.subset_sum.exact import exact_workspace

LIMIT = 256 << 20

# Peak memory is a property of a process, so each case gets its own. A first small call loads and compiles everything.
PROGRAM = """
import resource, sys, torch
from strongticket.ops.subset_sum import subset_sum, subset_sum_products

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

rows, n = int(sys.argv[1]), int(sys.argv[2])
def draw(rows):
    torch.manual_seed(0)
    if sys.argv[3] == "plain":
        return subset_sum, (torch.rand(rows), torch.rand(rows, n, dtype=torch.float64) - 0.5)
    sizes = torch.full((8,), n)
    return subset_sum_products, (torch.rand(rows // 8, 8), torch.rand(8 * n), torch.rand(rows // 8, 8 * n) - 0.5, sizes)

function, small = draw(64)
function(*small)
function, problems = draw(rows)
before = peak()
result = function(*problems)
print(peak() - before - sum(x.nbytes for x in result))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux only")
@pytest.mark.parametrize(
    ("rows", "n", "form"),
    [(2_000_000, 7, "plain"), (400_000, 16, "plain"), (400_000, 16, "products"), (256, 32, "plain")],
)
def test_peak_memory(rows: int, n: int, form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(rows), str(n), form], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < LIMIT


@pytest.mark.parametrize("threads", [1, 8, 1000])
@pytest.mark.parametrize(
    ("n", "effort"),
    [(7, "default"), (24, "default"), (32, "default"), (300, "default"), (64, "high"), (300, "high")],
)
def test_threads_share_the_memory(threads: int, n: int, effort: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "get_num_threads", lambda: threads)
    used = cpu.choose_threads(n, effort)
    assert min(threads, 4) <= used <= threads
    stages = [exact_workspace(min(n, 32)), *(make_lists(level) for level in levels_for(n, effort))]
    memory = max(sum(x.nbytes for x in arrays) for arrays in stages)
    # A chunk's items in float64, and twice as much for what is made of them on the way.
    chunk = 3 * 8 * n * cpu.rows_a_chunk(10_000_000, n, used)
    assert used * (memory + chunk) < LIMIT
