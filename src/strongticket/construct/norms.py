"""Upper bounds on norms, for certificates: matrices of any size, with entries as small or large as float64 allows."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from strongticket.ops.ordered import as_divisor, block_sums

# On a CPU, matrices up to this size go to LAPACK, which is as fast there.
_SMALL = 384
# Columns of a Gram matrix computed at a time, from the diagonal down.
_COLUMNS = 384
# This many products with the Gram matrix find its largest eigenvalue to 1e-7, even where the next ones are close, as
# with random errors.
_STEPS = 64
# A matrix with more columns than this is bounded in groups of at most as many; see `_norms_by_cholesky`.
_widest_group: ContextVar[int] = ContextVar("_widest_group", default=2048)
# How far above that eigenvalue the first bound is tried, and the factor on this if it does not hold.
_SLACK, _MORE_SLACK = 1e-6, 100


def spectral_norm(matrix: Tensor) -> float:
    """Bound the largest singular value from above.

    For a small matrix this is LAPACK's value plus a margin far above its error. For a large one, all singular values
    would take too long; the bound is that of `_norms_by_cholesky`, usually 5e-7 too large. From 2048 rows and columns
    on it is larger, in exchange for a time that only grows with the number of entries.
    """
    return spectral_norms([matrix])[0]


@contextmanager
def undivided() -> Iterator[None]:
    """Bound wide matrices in one piece, as the first release did: closer, but the time is cubic in their size."""
    before = _widest_group.set(sys.maxsize)
    try:
        yield
    finally:
        _widest_group.reset(before)


def is_divided(shape: Sequence[int]) -> bool:
    """Tell whether the norm of a matrix of this shape is bounded in groups of its columns."""
    return min(shape) > _widest_group.get()


def spectral_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Bound the largest singular values of several matrices; GPU matrices of one shape are done together."""
    scaled, sizes = zip(*(_scaled(matrix) for matrix in matrices), strict=True) if matrices else ((), ())
    if len({(x.shape, x.device) for x in scaled}) == 1 and scaled[0].device.type == "cuda" and _is_wide(scaled[0]):
        norms = _norms_by_cholesky(torch.stack(scaled))
    else:
        norms = [_one_norm(x) for x in scaled]
    return [_up(norm * size) for norm, size in zip(norms, sizes, strict=True)]


def largest_singular_values(matrices: Tensor) -> Tensor:
    """Bound the largest singular value of each matrix, (n, rows, columns) -> (n,); infinity if one is not finite."""
    sizes = matrices.abs().amax(dim=(1, 2))
    if not sizes.isfinite().all():
        return torch.full_like(sizes, math.inf)
    if min(matrices.shape[1:]) == 1:
        return row_norms(matrices.flatten(1))
    norms = _norms_by_cholesky(matrices / torch.where(sizes == 0, 1.0, sizes)[:, None, None])
    return torch.nextafter(sizes.new_tensor(norms) * (1 + 1e-12) * sizes, torch.full_like(sizes, math.inf))


def frobenius_norm(matrix: Tensor) -> float:
    """Bound the root of the sum of all squares from above."""
    scaled, size = _scaled(matrix)
    return _up(float(torch.linalg.vector_norm(scaled)) * _margin(scaled) * size)


def largest_row_norm(rows: Tensor) -> float:
    """Bound the largest norm of a row, (rows, width); terms are added in order, so every machine agrees."""
    scaled, size = _scaled(rows)
    width = rows.shape[1]
    squares = block_sums(scaled.square(), (width,))
    return _up(math.sqrt(float(squares.max())) * (1 + 1e-12 + width * 2.0**-53) * size)


def row_norms(rows: Tensor) -> Tensor:
    """Bound the norm of each row from above, (..., width) -> (...), each row scaled by its own largest entry."""
    size = rows.abs().amax(dim=-1)
    scaled = rows / torch.where(size == 0, 1.0, size)[..., None]
    margin = 1 + 1e-12 + 16 * rows.shape[-1] * 2.0**-53
    return torch.nextafter(scaled.norm(dim=-1) * margin * size, torch.full_like(size, math.inf))


def _scaled(matrix: Tensor) -> tuple[Tensor, float]:
    """Divide by the largest entry, so that no square overflows or underflows; a zero matrix is divided by 1."""
    matrix = matrix.double()
    size = float(matrix.abs().max()) if matrix.numel() else 0.0
    return (matrix / as_divisor(size, matrix), size) if size else (matrix, 1.0)


def _up(x: float) -> float:
    """Round up: for the smallest numbers, a product rounds by more than the margin allows."""
    return math.nextafter(x, math.inf) if x else 0.0


def _is_wide(matrix: Tensor) -> bool:
    return min(matrix.shape) > 1


def _one_norm(matrix: Tensor) -> float:
    if not _is_wide(matrix):
        return float(torch.linalg.vector_norm(matrix)) * _margin(matrix)
    if matrix.device.type == "cuda" or min(matrix.shape) > _SMALL:
        return _norms_by_cholesky(matrix[None])[0]
    return float(torch.linalg.matrix_norm(matrix, ord=2)) * _margin(matrix)


def _margin(matrix: Tensor) -> float:
    """Return a factor above what a sum of that many squares, or LAPACK on a matrix of that size, can lose."""
    return 1 + 1e-12 + 16 * sum(matrix.shape) * 2.0**-53


def _norms_by_cholesky(matrices: Tensor) -> list[float]:
    r"""Bound the largest singular values of a batch, in a time per entry that does not grow with the matrices.

    Any $A = [A_1 \dots A_k]$ has $\|A\|^2 = \|\sum A_i A_i^\top\| \le \sum \|A_i\|^2$, so wide matrices are divided
    into groups of columns. Columns with large entries come first: a few of them make most of an error's norm, and in
    one group they are added up once.
    """
    matrices = matrices if matrices.shape[1] >= matrices.shape[2] else matrices.mT
    if not is_divided(matrices.shape[1:]):
        groups, squares = 1, _squares_by_cholesky(matrices)
    else:
        # Largest entries are the same on every machine, and so is this order.
        order = matrices.abs().amax(dim=1, keepdim=True).argsort(dim=2, descending=True, stable=True)
        parts = torch.split(order, _widest_group.get(), dim=2)
        each = [_squares_by_cholesky(torch.take_along_dim(matrices, part, dim=2)) for part in parts]
        groups, squares = len(parts), torch.stack(each).sum(dim=0)
    # The margin is far above what underflows in a group of small columns.
    bounds: list[float] = (squares.sqrt() * (1 + groups * 1e-15)).tolist()
    return bounds


def _squares_by_cholesky(matrices: Tensor) -> Tensor:
    r"""Bound the squares of the norms: $\|A\|^2 \le t$ wherever $t I - A^\top A$ has a Cholesky factor.

    A factorization costs a third of a matrix product, and t is tried just above a good estimate. With n the smaller
    side of A and m the larger, computing $A^\top A$ and the factor moves a symmetric matrix by at most
    n (n + m + 3) 2^-53 t, to first order: a sum of m products rounds by m 2^-53 of the sum of absolute values, these
    sums add up to at most the trace, and the trace is at most n t. `_rounding` increases t by more.
    """
    gram = _gram(matrices)
    estimate, slack = _largest_eigenvalues(gram), _SLACK
    while True:
        t = estimate * (1 + slack)
        shifted = -gram
        shifted.diagonal(dim1=1, dim2=2).add_(t[:, None])
        if not torch.linalg.cholesky_ex(shifted).info.any():
            return torch.where(gram.abs().amax(dim=(1, 2)) == 0, 0.0, t * _rounding(*matrices.shape[1:]))
        slack *= _MORE_SLACK


def _gram(matrices: Tensor) -> Tensor:
    """Multiply each of a batch by itself, transposed: (batch, m, n) -> (batch, n, n), half of it by symmetry."""
    n = matrices.shape[2]
    gram = matrices.new_empty(len(matrices), n, n)
    for start in range(0, n, _COLUMNS):
        stop = min(start + _COLUMNS, n)
        gram[:, start:, start:stop] = matrices[..., start:].mT @ matrices[..., start:stop]
        gram[:, start:stop, stop:] = gram[:, stop:, start:stop].mT
    return gram


def _rounding(rows: int, columns: int) -> float:
    return 1 + 1.1 * min(rows, columns) * (rows + columns + 8) * 2.0**-53


def _largest_eigenvalues(gram: Tensor) -> Tensor:
    """Estimate the largest eigenvalues of a batch of Gram matrices (batch, n, n) by the Lanczos method."""
    n = gram.shape[1]
    # Any start vector that is not orthogonal to an eigenvector will do; this one is the same everywhere.
    vector = (torch.arange(n, dtype=gram.dtype, device=gram.device) * 0.6180339887498949).frac() - 0.5
    basis = gram.new_zeros(len(gram), n, min(_STEPS, n))
    vectors = vector.expand(len(gram), n)[..., None]
    for step in range(basis.shape[2]):
        for _ in range(2):  # the second pass removes what rounding left
            vectors = vectors - basis @ (basis.mT @ vectors)
            length = vectors.norm(dim=1, keepdim=True)
            vectors = vectors / length.clamp(min=1e-300)
        # A matrix of low rank, or with few different singular values, runs out of directions. What rounding leaves is
        # then in the basis, and would count twice.
        vectors = torch.where(length < 0.5, 0.0, vectors)
        basis[..., step : step + 1] = vectors
        vectors = gram @ vectors
    within = basis.mT @ gram @ basis
    # Even a zero matrix needs a bound above 0 to have a Cholesky factor.
    eigenvalues: Tensor = torch.linalg.eigvalsh((within + within.mT) / 2)
    return eigenvalues[:, -1].clamp(min=1e-300)
