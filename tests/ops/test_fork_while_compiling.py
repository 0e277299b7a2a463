"""A fork while another thread compiles a kernel: the child must not inherit a lock that nobody releases."""

import os
import subprocess
import sys

import pytest

# The thread holds numba's lock as a compilation does, and the fork comes in the middle of it.
PROGRAM = """
import os, signal, threading, time, warnings
import strongticket.ops
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

warnings.simplefilter("ignore", DeprecationWarning)
compiling = threading.Event()

def compile_slowly():
    with global_compiler_lock:
        compiling.set()
        time.sleep(1)

threading.Thread(target=compile_slowly).start()
compiling.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends the child if it waits forever
    os._exit(njit(lambda x: x + 1)(-1))
with global_compiler_lock:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_waits_for_kernels_that_are_being_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
