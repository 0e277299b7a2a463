"""Numbers as callers pass them: torch tensors, NumPy arrays, Python lists, plain numbers."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from strongticket.errors import first_line
from strongticket.files import regular

Array = Tensor | ArrayLike

_KEPT = (np.float16, np.float32, np.float64)
# NumPy's kinds and our words: fractions do not become whole numbers, nor numbers truth values.
_KINDS = {torch.bool: ("b", "True and False"), torch.int64: ("iu", "whole numbers")}


def as_tensor(
    what: str, value: Array, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
) -> Tensor:
    """Convert numbers to a tensor; a tensor is returned unchanged.

    Args:
        what: its name, for the error.
        value: a tensor, or anything NumPy can convert. An array of float16, float32 or float64 keeps its type.
        dtype: of everything else, since Python's numbers have no dtype.
        device: of everything else; by default the CPU.

    Example:
        >>> as_tensor("items", [[1, 2.5]])
        tensor([[1.0000, 2.5000]], dtype=torch.float64)
    """
    if isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # rows of different lengths, or a tensor inside without values
        array = np.empty(0, dtype=object)
    kinds, words = _KINDS.get(dtype, ("fiu", "numbers"))
    if array.dtype.kind not in kinds and not (array.size == 0 and array.dtype.kind == "f"):
        got = " ".join(f"{value!r:.60}".split())
        raise ValueError(f"{what} must be a tensor, an array or a list of {words}, in rows of one length; got {got}.")
    if isinstance(value, np.ndarray) and array.dtype.type in _KEPT:
        # torch needs native byte order and writable memory: other arrays are copied.
        plain = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
        return torch.from_numpy(plain).to(device or "cpu")
    return torch.from_numpy(array.astype(str(dtype).removeprefix("torch."))).to(device or "cpu")


def load_npy(path: Path, mmap_mode: Literal["r"] | None = None) -> NDArray[Any]:
    """Read an array from a `.npy` file; a ValueError if it is not one, an OSError if it cannot be read."""
    try:
        array = np.load(regular(path), mmap_mode=mmap_mode, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python, which can raise anything
        raise ValueError(f"{path.name} is not a .npy file ({first_line(error)})") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path.name} is not a .npy file but an archive")
    return array
