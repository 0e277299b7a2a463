r"""Layers whose weights are signed constants and stay in bit planes: no weight is ever a float in memory.

A matrix here is $a \cdot \text{diag}(r)\, S\, \text{diag}(c)$: a scale, small whole numbers $S$, and optional factors
of rows and columns. Layers compute in float32 and have no gradients. Reading a layer's `weight` unpacks it, so that
surrounding code still works, if slowly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor, nn

from strongticket.ops.planes import LANES, Planes, look_up, multiply, stack, unpack


class SignedMatrix(nn.Module):
    """A matrix in bit planes, as a module that multiplies by it.

    Args:
        planes: S, (rows, columns).
        scale: a factor of the whole matrix.
        rows: a factor per row.
        columns: a factor per column.
    """

    words: Tensor
    rows: Tensor | None
    columns: Tensor | None

    def __init__(
        self, planes: Planes, scale: float = 1.0, rows: Tensor | None = None, columns: Tensor | None = None
    ) -> None:
        super().__init__()
        self._planes, self.scale = planes, scale
        self.register_buffer("words", planes.words)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    @property
    def planes(self) -> Planes:
        """S, on the module's current device."""
        if self._planes.words is not self.words:
            self._planes = replace(self._planes, words=self.words)
        return self._planes

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._planes.rows, self._planes.columns

    def forward(self, x: Tensor) -> Tensor:
        """Multiply vectors by it: (..., columns) -> (..., rows)."""
        rows, columns = self.rows, self.columns
        y = multiply(self.planes, x if columns is None else x * columns, self.scale)
        return y if rows is None else y.mul_(rows)

    def look_up(self, indices: Tensor) -> Tensor:
        """Return some of its rows, (...) -> (..., columns)."""
        y = look_up(self.planes, indices, self.scale)
        y = y if self.columns is None else y * self.columns
        return y if self.rows is None else y * self.rows[indices][..., None]

    def dense(self) -> Tensor:
        """Unpack all of it."""
        y = unpack(self.planes) * self.scale
        y = y if self.columns is None else y * self.columns
        return y if self.rows is None else y * self.rows[:, None]


class SignedSum(nn.Module):
    """A sum of matrices, each over some of the columns: for scales that vary along both axes, or levels of any size.

    Args:
        parts: the first column of each matrix, and the matrix; all have the same number of rows.
        columns: the total number of columns.
    """

    def __init__(self, parts: Sequence[tuple[int, SignedMatrix]], columns: int) -> None:
        super().__init__()
        self.starts, self.parts = [start for start, _ in parts], nn.ModuleList(part for _, part in parts)
        self.shape = parts[0][1].shape[0], columns

    def _with_columns(self) -> Iterable[tuple[Any, slice]]:
        for start, part in zip(self.starts, self.parts, strict=True):
            yield part, slice(start, start + cast(SignedMatrix, part).shape[1])

    def forward(self, x: Tensor) -> Tensor:
        """Multiply vectors by it: (..., columns) -> (..., rows)."""
        return torch.stack([part(x[..., columns]) for part, columns in self._with_columns()]).sum(0)

    def look_up(self, indices: Tensor) -> Tensor:
        """Return some of its rows, (...) -> (..., columns)."""
        y = torch.zeros(*indices.shape, self.shape[1], device=indices.device)
        for part, columns in self._with_columns():
            y[..., columns] += part.look_up(indices)
        return y

    def dense(self) -> Tensor:
        """Unpack all of it."""
        device = next(self.buffers()).device
        return self.look_up(torch.arange(self.shape[0], device=device))


class SignedStack(nn.Module):
    """Matrices with the same number of columns, stacked by rows."""

    shape: tuple[int, int]

    def __init__(self, parts: "Sequence[Matrix]") -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.shape = sum(part.shape[0] for part in parts), parts[0].shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Multiply vectors by it: (..., columns) -> (..., rows)."""
        return torch.cat([part(x) for part in self.parts], dim=-1)

    def look_up(self, indices: Tensor) -> Tensor:
        """Return some of its rows, (...) -> (..., columns)."""
        return self.dense()[indices]

    def dense(self) -> Tensor:
        """Unpack all of it."""
        return torch.cat([cast("Matrix", part).dense() for part in self.parts])


Matrix = SignedMatrix | SignedSum | SignedStack


def stacked(matrices: Sequence[Matrix]) -> Matrix:
    """Stack matrices by rows; those of one kind become one matrix, so that one product is enough."""
    plain = [m for m in matrices if isinstance(m, SignedMatrix) and m.columns is None and m.planes.signs is None]
    if len(plain) < len(matrices) or any(m.shape[0] % LANES for m in plain):
        return SignedStack(matrices)
    planes = stack([m.planes for m in plain])
    if len({m.scale for m in plain}) == 1 and all(m.rows is None for m in plain):
        return SignedMatrix(planes, plain[0].scale)
    ones = (torch.ones(m.shape[0], device=m.words.device) for m in plain)
    rows = [m.scale * (one if m.rows is None else m.rows) for m, one in zip(plain, ones, strict=True)]
    return SignedMatrix(planes, rows=torch.cat(rows))


def _floats(x: Tensor) -> Tensor:
    """Convert to float32; refuse integers, as torch's layers do, because the output would be rounded to integers."""
    if not x.is_floating_point():
        raise ValueError(f"a layer that runs from bits needs floats; got {x.dtype}. Use x.float().")
    return x.float()


class SignedLinear(nn.Module):
    """A linear layer (..., in) -> (..., out).

    Args:
        matrix: (out, in).
        bias: (out,), or none.
    """

    bias: nn.Parameter | None

    def __init__(self, matrix: Matrix, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.matrix = matrix
        self.out_features, self.in_features = matrix.shape
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (..., in); computed in float32, returned in the input's precision."""
        y: Tensor = self.matrix(_floats(x))
        bias = self.bias
        y = y if bias is None else y.add_(bias)  # in place, because new memory takes time
        return y if x.dtype == torch.float32 else y.to(x.dtype)

    @property
    def weight(self) -> Tensor:
        """The matrix, unpacked at each access."""
        return self.matrix.dense()

    def extra_repr(self) -> str:
        """Return the same text as torch's layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class SignedEmbedding(nn.Module):
    """An embedding: integers (...) -> (..., features)."""

    def __init__(self, matrix: Matrix) -> None:
        super().__init__()
        self.matrix = matrix
        self.num_embeddings, self.embedding_dim = matrix.shape

    def forward(self, indices: Tensor) -> Tensor:
        """Look up rows."""
        return self.matrix.look_up(indices)

    @property
    def weight(self) -> Tensor:
        """The table, unpacked at each access."""
        return self.matrix.dense()


class SignedConv(nn.Module):
    """A convolution over one or two axes, as products with the patches under its window.

    Args:
        matrix: (out, in * window).
        like: the layer it replaces, with one group.
    """

    bias: nn.Parameter | None

    def __init__(self, matrix: Matrix, like: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__()
        self.matrix, self.axes, self.mode = matrix, len(like.kernel_size), like.padding_mode
        # A single axis is the second of two.
        self.window, self.stride, self.dilation = (
            (*[1] * (2 - self.axes), *settings) for settings in (like.kernel_size, like.stride, like.dilation)
        )
        self.padding: list[int] = like._reversed_padding_repeated_twice
        self.register_parameter("bias", like._parameters["bias"])

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (B, in, ...), or to one image (in, ...)."""
        if x.dim() == self.axes + 1:
            return self.forward(x[None])[0]
        mode = "constant" if self.mode == "zeros" else self.mode
        padded = F.pad(_floats(x), self.padding, mode=mode)
        image = padded if self.axes == 2 else padded[:, :, None]
        along = zip(image.shape[2:], self.window, self.stride, self.dilation, strict=True)
        sizes = [(size - step * (window - 1) - 1) // stride + 1 for size, window, stride, step in along]
        patches = F.unfold(image, self.window, self.dilation, stride=self.stride)  # (B, in * window, places)
        y: Tensor = self.matrix(patches.mT)  # (B, places, out)
        y = (y if self.bias is None else y + self.bias).mT
        return y.reshape(*y.shape[:2], *sizes[-self.axes :]).to(x.dtype)

    @property
    def weight(self) -> Tensor:
        """The weights, unpacked at each access."""
        return self.matrix.dense().view(self.matrix.shape[0], -1, *self.window[-self.axes :])


def weight_bytes(model: nn.Module) -> int:
    """Count the memory that a network's parameters and buffers take, shared ones once."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
