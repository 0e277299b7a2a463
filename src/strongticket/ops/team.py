"""Run compiled work on several threads: OpenMP's, which torch uses as well.

Threads of our own would compete with OpenMP's for cores, because these spin for some milliseconds after each operation
of torch. Because they spin they also start at once: handing them work takes about three microseconds.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import cfunc, types

from strongticket.ops.llvm import emitted

_SPINS = 2000  # before a waiting thread lets others use its core: a few microseconds
_I64 = ir.IntType(64)
_REST = "strongticket_rest"  # lets other processes use the core
_NOTHING = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
_forked = False


def threads_for(work: int, least: int) -> int:
    """Return how many threads to use if each should have at least this much work: torch's number at most."""
    return max(1, min(torch.get_num_threads(), work // least)) if _openmp() and not _forked else 1


def compiled_once(function: Callable[[Any], None]) -> Callable[[], Any]:
    """Make a function of one pointer ready for `run`; call the result to get it, compiled on first use."""
    return cache(lambda: cfunc(types.void(types.voidptr), cache=True)(function))


def run(function: Any, data: int, threads: int) -> None:
    """Call a compiled `function(data)` in several threads at once, and wait for all of them.

    Args:
        function: from `compiled_once`.
        data: the address it gets.
        threads: how many, from `threads_for`. OpenMP may start fewer, and some late, so none should count on others.
    """
    if threads == 1:
        function.ctypes(data)
    else:
        _openmp().GOMP_parallel(function.address, data, threads, 0)


@emitted(types.int64(types.voidptr))
def take(builder: ir.IRBuilder, place: Any) -> Any:
    """Return the int64 at a pointer and add 1 to it, in one step, so that no two threads get the same number."""
    return builder.atomic_rmw("add", builder.bitcast(place, _I64.as_pointer()), _I64(1), "acq_rel")


@emitted(types.void(types.voidptr, types.int64))
def wait_until(b: ir.IRBuilder, place: Any, least: Any) -> None:
    """Wait until the int64 at a pointer is at least as large as a number; what was written before is then seen."""
    number = b.bitcast(place, _I64.as_pointer())
    before, look, wait, rest, after = b.block, *(b.append_basic_block() for _ in range(4))
    b.branch(look)
    b.position_at_end(look)
    spins = b.phi(_I64)
    b.cbranch(b.icmp_signed("<", b.load_atomic(number, "acquire", 8), least), wait, after)
    b.position_at_end(wait)
    more = b.add(spins, _I64(1))
    b.cbranch(b.icmp_signed("<", more, _I64(_SPINS)), look, rest)
    b.position_at_end(rest)
    rest_function = b.module.globals.get(_REST) or ir.Function(b.module, ir.FunctionType(ir.IntType(32), []), _REST)
    b.call(rest_function, [])
    b.branch(look)
    for value, block in ((_I64(0), before), (more, wait), (_I64(0), rest)):
        spins.add_incoming(value, block)
    b.position_at_end(after)


@cache
def _openmp() -> Any:
    """Return the library, or None where it is another than GNU's or LLVM's."""
    try:
        library = ctypes.CDLL(None)  # torch has loaded it for all
        parallel = library.GOMP_parallel
    except (AttributeError, TypeError):  # Windows has no library of everything loaded
        return None
    parallel.argtypes, parallel.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return library


def _after_fork() -> None:
    global _forked
    _forked = True  # OpenMP would wait for threads that only the parent has


if _openmp():
    binding.add_symbol(_REST, ctypes.cast(_openmp().sched_yield, ctypes.c_void_p).value)
else:  # one thread never waits
    binding.add_symbol(_REST, ctypes.cast(_NOTHING, ctypes.c_void_p).value)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
