"""Settings under which libraries compute as on other CPUs; they look at them as they start.

    python -m tests.other_cpus oldest COMMAND ...

Random weights, masks and identities must not depend on them. `make test-other-cpu` runs tests under the first, which is
the farthest from any machine of today; `tests/test_other_cpus.py` compares tickets under each.
"""

import os
import sys

SETTINGS = {
    # No vector wider than SSE, no fused multiplication and addition, and another number of threads.
    "oldest": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CPU_NAME": "generic",
        "OMP_NUM_THREADS": "2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Prescott",
    },
    # Fused, but half as wide as on the newest.
    "haswell": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "OMP_NUM_THREADS": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
}


def as_on(name: str) -> dict[str, str]:
    """Give this process's environment with one of the settings, for a new process."""
    return {**os.environ, **SETTINGS[name]}


if __name__ == "__main__":
    os.execvpe(sys.argv[2], sys.argv[2:], as_on(sys.argv[1]))
