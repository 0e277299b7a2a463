"""Numbers as callers have them: torch tensors, NumPy arrays, Python lists, plain numbers."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Array = Tensor | ArrayLike

_KEPT = (np.float16, np.float32, np.float64)
# What NumPy may call them, and what we do: whole numbers are not made of fractions, nor truths of numbers.
_KINDS = {torch.bool: ("b", "True and False"), torch.int64: ("iu", "whole numbers")}


def as_tensor(
    what: str, value: Array, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
) -> Tensor:
    """Take numbers as a tensor; one that is a tensor already is left alone.

    Args:
        what: its name, for the error.
        value: a tensor, or what NumPy makes an array of. An array of float16, float32 or float64 keeps its type.
        dtype: of everything else: Python's numbers have no type of their own.
        device: of everything else; by default the CPU.

    Example:
        >>> as_tensor("items", [[1, 2.5]])
        tensor([[1.0000, 2.5000]], dtype=torch.float64)
    """
    if isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # rows of different lengths, or a tensor inside that has no numbers
        array = np.empty(0, dtype=object)
    kinds, words = _KINDS.get(dtype, ("fiu", "numbers"))
    if array.dtype.kind not in kinds and not (array.size == 0 and array.dtype.kind == "f"):
        got = " ".join(f"{value!r:.60}".split())
        raise ValueError(f"{what} must be a tensor, an array or a list of {words}, in rows of one length; got {got}.")
    if isinstance(value, np.ndarray) and array.dtype.type in _KEPT:
        # In the machine's own byte order, and where torch may write: an array that is neither is copied.
        plain = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
        return torch.from_numpy(plain).to(device or "cpu")
    return torch.from_numpy(array.astype(str(dtype).removeprefix("torch."))).to(device or "cpu")
