"""Norms from above, for certificates: of matrices of any size, and of entries as small or large as float64 has them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from strongticket.ops.ordered import as_divisor, block_sums

# The Gram matrix is squared so often to bound its norm on a GPU; the bound is then at most d^(2^-15) too large, which
# is 1.0002 for d = 384.
_SQUARINGS = 13


def spectral_norm(matrix: Tensor) -> float:
    """Bound the largest singular value from above: what LAPACK gives, and a margin far above its error.

    On a GPU, where singular values take long, the bound is that of `_norms_by_squaring`.
    """
    return spectral_norms([matrix])[0]


def spectral_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Bound the largest singular values of several matrices; those of one shape and device are done together."""
    scaled, sizes = zip(*(_scaled(matrix) for matrix in matrices), strict=True) if matrices else ((), ())
    if len({(x.shape, x.device) for x in scaled}) == 1 and scaled[0].device.type == "cuda" and _is_wide(scaled[0]):
        norms = _norms_by_squaring(torch.stack(scaled))
    else:
        norms = [_one_norm(x) for x in scaled]
    return [_up(norm * size) for norm, size in zip(norms, sizes, strict=True)]


def frobenius_norm(matrix: Tensor) -> float:
    """Bound the root of the sum of all squares from above."""
    scaled, size = _scaled(matrix)
    return _up(float(torch.linalg.vector_norm(scaled)) * _margin(scaled) * size)


def largest_row_norm(rows: Tensor) -> float:
    """Bound the largest norm of a row, (rows, width); adding in order, so that every machine gives the same."""
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
    """Divide by the largest entry, so that no square leaves float64; a zero matrix is divided by 1."""
    matrix = matrix.double()
    size = float(matrix.abs().max()) if matrix.numel() else 0.0
    return (matrix / as_divisor(size, matrix), size) if size else (matrix, 1.0)


def _up(x: float) -> float:
    """Among the smallest numbers a product rounds by more than a margin allows for."""
    return math.nextafter(x, math.inf) if x else 0.0


def _is_wide(matrix: Tensor) -> bool:
    return min(matrix.shape) > 1


def _one_norm(matrix: Tensor) -> float:
    if not _is_wide(matrix):
        return float(torch.linalg.vector_norm(matrix)) * _margin(matrix)
    if matrix.device.type == "cuda":
        return _norms_by_squaring(matrix[None])[0]
    return float(torch.linalg.matrix_norm(matrix, ord=2)) * _margin(matrix)


def _margin(matrix: Tensor) -> float:
    """Stretch a norm by more than a sum of as many squares, or LAPACK on a matrix of that size, can have lost."""
    return 1 + 1e-12 + 16 * sum(matrix.shape) * 2.0**-53


def _norms_by_squaring(matrices: Tensor) -> list[float]:
    r"""Bound the largest singular values of a batch by a Schatten norm, with matrix products alone.

    $\|A\| \le (\mathrm{tr}\, (A^\top A)^{2p})^{1/4p} \le d^{1/4p} \|A\|$ with d the smaller side of A, here
    for $p = 2^{13}$.
    """
    rows, columns = matrices.shape[1:]
    gram = matrices.mT @ matrices if rows >= columns else matrices @ matrices.mT
    # log ||A||^2 is the sum of 2^-k log s_k, where s_k is what the matrix is divided by before its k-th squaring.
    sizes = []
    for _ in range(_SQUARINGS + 1):
        size = torch.linalg.matrix_norm(gram, keepdim=True)
        sizes.append(size.flatten())
        gram = gram / size
        gram = gram @ gram
    weights = 0.5 ** torch.arange(1, len(sizes) + 1, dtype=torch.float64, device=gram.device)
    # A zero matrix makes 0 / 0. Products of d terms round by d 2^-53 each; the margin is thousands of times that.
    bounds = (torch.stack(sizes).log() * weights[:, None]).sum(dim=0).exp() * (1 + 1e-9)
    return torch.where(sizes[0] == 0, 0.0, bounds).tolist()
