"""Arrays at an address, in compiled code.

Numba needs longer to look into an array that Python hands over than to multiply some thousand numbers: kernels that are
called often take addresses.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, types  # type: ignore[attr-defined]

from strongticket.ops.compiled import part
from strongticket.ops.llvm import emitted


@emitted(types.voidptr(types.int64))
def pointer(builder: ir.IRBuilder, address: Any) -> Any:
    """Return an address as a pointer, for numba's `carray`."""
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


@part
def floats(address: int, shape: Any) -> Any:
    """Return the array of float32 at an address."""
    return carray(pointer(address), shape, np.float32)


@part
def octets(address: int, shape: Any) -> Any:
    """Return the array of bytes at an address."""
    return carray(pointer(address), shape, np.uint8)
