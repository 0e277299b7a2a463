"""Subset sums on a GPU: CUDA C++ compiled at run time, one kernel per number of items.

Few items are enumerated (`enumerate.cu`), more go through a sieve (`sieve.cu`); both return the reference's masks, bit
for bit. The few problems the sieve cannot finish, because they have too many ties, are solved on the CPU.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from strongticket.ops import nvrtc
from strongticket.ops.subset_sum.result import Effort, SubsetSumResult, empty_result

MAX_ITEMS = 32
ENUMERATED_ITEMS = 11  # up to here trying all subsets is as fast as the sieve

NOT_SETTLED = 255  # problems.cu
STATUS_CHUNK = 1 << 22  # problems searched at a time for unsolved ones
OPEN_CHUNK = 1 << 16  # unsolved problems copied to the CPU at a time


def solve(targets: Tensor, items: Tensor, effort: Effort) -> SubsetSumResult:
    """Solve row by row; the tensors are on one CUDA device and have been checked."""
    rows, n = items.shape
    result = empty_result(items.shape, targets.shape, items.device)
    unsettled = torch.zeros(1, dtype=torch.int32, device=items.device)
    arguments = (targets, *_i64(*targets.stride()), items, *_i64(*items.stride(), rows))
    _launch("solve_rows", n, rows, targets.dtype, items.dtype, items.device, *arguments, *result, unsettled)
    if unsettled.item():
        for part in _open_problems(result.status):
            columns = torch.arange(n, device=items.device)
            _solve_on_cpu(targets[part], items[part], effort, result, part, part[:, None], columns)
    return result


def solve_products(
    targets: Tensor, u: Tensor, v: Tensor, sizes: Tensor, divisor: float, effort: Effort
) -> SubsetSumResult:
    """Solve problem (i, j) over the products of block j; the tensors are on one CUDA device and have been checked."""
    outputs, units = v.shape
    result = empty_result(v.shape, targets.shape, v.device)
    unsettled = torch.zeros(1, dtype=torch.int32, device=v.device)
    u, starts = u.contiguous(), sizes.cumsum(0) - sizes
    for n in sorted(set(sizes.tolist())):
        columns = (sizes == n).nonzero()[:, 0]
        of_targets = (targets, *_i64(*targets.stride()))
        of_products = (u, v, *_i64(*v.stride()), columns, starts[columns], *_i64(outputs, len(columns)))
        shape = (*_i64(len(sizes), units), ctypes.c_double(divisor))
        arguments = (*of_targets, *of_products, *shape, *result, unsettled)
        _launch("solve_products", n, outputs * len(columns), targets.dtype, v.dtype, v.device, *arguments)
    if unsettled.item():
        for part in _open_problems(result.status.flatten()):
            rows, columns = part // len(sizes), part % len(sizes)
            for n in sorted(set(sizes[columns].tolist())):
                some = sizes[columns] == n
                i, j = rows[some], columns[some]
                unit = starts[j][:, None] + torch.arange(n, device=v.device)  # (problems, n)
                products = u[unit].double() * v[i[:, None], unit].double() / divisor
                _solve_on_cpu(targets[i, j], products, effort, result, (i, j), i[:, None], unit)
    return result


# --- Launching -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieve:
    """How `sieve.cu` splits a problem, by its number of items. Fields are macros of that file, in lower case."""

    low: int  # items of the half marked in the bitmap; the others make the wanted sums
    log_threads: int  # of a team
    log_low_bits: int  # size of the bitmap of low sums
    log_wanted_bits: int  # size of the bitmap of wanted sums
    wanted_capacity: int
    low_capacity: int
    found_capacity: int
    teams: int = 1  # per block
    most_high: int = 13  # items of the other half per pass
    join_lanes: int = 32  # threads that compare one low sum with the wanted sums
    log_batch: int = 3  # sums per thread at a time
    expected: float = 4.0  # subsets within the first reach; rarely none, so few problems are searched twice

    @property
    def team_bytes(self) -> int:
        """Shared memory of a team."""
        bitmaps = (1 << self.log_low_bits) // 8 + (1 << self.log_wanted_bits) // 8
        survivors = 8 * (self.wanted_capacity + self.low_capacity + self.found_capacity)
        return bitmaps + survivors + 512

    def options(self) -> tuple[str, ...]:
        """Options for the compiler."""
        macros = {field.name.upper(): getattr(self, field.name) for field in fields(self)}
        macros |= {"TEAM_BYTES": self.team_bytes, "EXPECTED": f"{self.expected}f"}
        return tuple(f"-D{name}={value}" for name, value in macros.items())


def sieve_for(n: int) -> Sieve:
    """Return the split that was fastest on an H200, within the shared memory of a consumer card."""
    low = (n - 2) // 2 if n < 23 else min(n // 2, 12)
    log_threads = 5 if n < 20 else 6 if n < 22 else 7 if n < 24 else 8
    return Sieve(
        low=low,
        log_threads=log_threads,
        teams=4 if log_threads == 5 else 1,
        log_low_bits=min(low + 7, 18),
        log_wanted_bits=12 if n < 18 else 13 if n < 20 else 15 if n < 24 else 16,
        wanted_capacity=128 if n < 22 else 512 if n < 25 else 1024,
        low_capacity=128 if n < 22 else 256,
        # The reach cannot shrink below the rounding slack: from 25 items on, more and more subsets lie within it.
        found_capacity=64 if n < 26 else 1 << (n - 20),
        join_lanes=8 if n < 20 else 16,
        expected=4.0 if n < 24 else 6.0,
    )


def _launch(
    name: str, n: int, problems: int, target: torch.dtype, item: torch.dtype, device: torch.device, *arguments: object
) -> None:
    if not problems:
        return
    types = (f"-DTARGET={_C_TYPES[target]}", f"-DITEM={_C_TYPES[item]}")
    if n <= ENUMERATED_ITEMS:
        cut: tuple[str, ...] = ()
        file, teams, threads, shared_bytes = "enumerate.cu", 4, 128, 4 * 32 * 8
    else:
        sieve = sieve_for(n)
        cut = sieve.options()
        file, teams, threads = "sieve.cu", sieve.teams, sieve.teams << sieve.log_threads
        shared_bytes = sieve.teams * sieve.team_bytes
    options = ("-std=c++17", "--fmad=false", f"-DN={n}", f"-DBLOCK_THREADS={threads}", *types, *cut)
    kernel = nvrtc.kernel(nvrtc.source(__file__, "problems.cu", file), name, options, device=device)
    blocks = min(-(-problems // teams), kernel.resident_blocks(threads, shared_bytes))
    kernel.launch(blocks, threads, *arguments, shared_bytes=shared_bytes)


_C_TYPES = {torch.float32: "float", torch.float64: "double"}


def _i64(*values: int) -> tuple[ctypes.c_int64, ...]:
    return tuple(map(ctypes.c_int64, values))


# --- Problems the kernel left unsolved -------------------------------------------------------------------------------


def _open_problems(status: Tensor) -> Iterator[Tensor]:
    for start in range(0, len(status), STATUS_CHUNK):
        found = (status[start : start + STATUS_CHUNK] == NOT_SETTLED).nonzero()[:, 0] + start
        yield from (found[first : first + OPEN_CHUNK] for first in range(0, len(found), OPEN_CHUNK))


def _solve_on_cpu(
    targets: Tensor,
    items: Tensor,
    effort: Effort,
    result: SubsetSumResult,
    place: Tensor | tuple[Tensor, ...],
    mask_row: Tensor,
    mask_column: Tensor,
) -> None:
    """Solve rows of `items` and put the answers at `place`, their masks at [mask_row, mask_column]."""
    from strongticket.ops.subset_sum import cpu  # numba is slow to load, and rarely needed here

    solved = cpu.solve(targets.cpu(), items.cpu(), effort)
    device = result.mask.device
    result.mask[mask_row, mask_column.to(device)] = solved.mask.to(device)
    result.error[place] = solved.error.to(device)
    result.status[place] = solved.status.to(device)
