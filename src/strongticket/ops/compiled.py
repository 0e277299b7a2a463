"""How numba compiles hot functions, once for a machine: what it compiled is kept in its cache."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_compile: Any = numba.njit  # whose types leave out some options


def kernel(function: Function) -> Function:
    """Compile a function that Python calls; it holds no lock."""
    compiled: Function = _compile(function, nogil=True, cache=True, no_cfunc_wrapper=True)
    return compiled


def part(function: Function, **options: Any) -> Function:
    """Compile a function that compiled ones alone call: without the wrappers for others, in much less time."""
    compiled: Function = _compile(function, cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, **options)
    return compiled


def part_without_nan(function: Function) -> Function:
    """Compile a part where no number is NaN and a zero's sign does not matter, so that LLVM finds minima by vectors."""
    return part(function, fastmath={"nnan", "nsz"})
