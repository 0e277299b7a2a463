"""Write `normal_table.npy`: run once, and kept so that anyone can reproduce its bytes (needs mpmath).

    python tests/ops/philox/make_normal_table.py

Each of 32 octaves of x has 16 pieces; a piece's cubic interpolates the quantile at the four Chebyshev nodes, solved
with 40 digits and rounded once to float64. The largest distance from the true quantile is 1.2e-8.
"""

from pathlib import Path

import mpmath  # type: ignore[import-untyped]
import numpy as np

from strongticket.ops import philox

OCTAVES, PIECES, DEGREE = 32, 16, 3


def quantile(x: mpmath.mpf) -> mpmath.mpf:
    """Solve Phi(-z) = x / 2^33 for z >= 0 by Newton steps from a start that is good everywhere on (0, 1/2)."""
    p = x / mpmath.mpf(2) ** 33
    z = mpmath.sqrt(-2 * mpmath.log(2 * p)) * mpmath.mpf("0.9")
    for _ in range(60):
        step = (mpmath.erfc(z / mpmath.sqrt(2)) / 2 - p) / mpmath.npdf(z)
        z += step
        if abs(step) < mpmath.mpf(10) ** -35:
            return z
    raise ArithmeticError(f"Newton's method did not converge at x = {x}")


def cubic(octave: int, piece: int) -> list[float]:
    """Interpolate the quantile on one piece in t, the distance from the piece's start over its octave's start."""
    angles = [mpmath.pi * (2 * k + 1) / (2 * (DEGREE + 1)) for k in range(DEGREE + 1)]
    nodes = [(1 + mpmath.cos(angle)) / (2 * PIECES) for angle in angles]
    start = 1 + mpmath.mpf(piece) / PIECES
    values = [quantile(mpmath.mpf(2) ** octave * (start + t)) for t in nodes]
    powers = mpmath.matrix([[t**j for j in range(DEGREE + 1)] for t in nodes])
    return [float(c) for c in mpmath.lu_solve(powers, mpmath.matrix(values))]


def table() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Make the whole table, shape (512, 4)."""
    with mpmath.workdps(40):
        rows = [cubic(octave, piece) for octave in range(OCTAVES) for piece in range(PIECES)]
    return np.array(rows, dtype="<f8")


if __name__ == "__main__":
    np.save(Path(philox.__file__).with_name("normal_table.npy"), table())
