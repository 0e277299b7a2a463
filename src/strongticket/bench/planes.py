"""Products with a matrix in bit planes against torch's with the same matrix in float32 and bfloat16.

    python -m strongticket.bench.planes [--device cuda] [--threads 1] [--sizes 50257x768] [--vectors 1,256]

Every product is first checked against the bound of float32 sums. A rate is weights times vectors per second, the median
of runs in turns with the others. On CUDA a run is a graph of calls with copies of the matrix that together exceed the
cache.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numba
import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor

from strongticket.bench.measure import WrongAnswerError, clock_for, percentiles, time_alternating
from strongticket.bench.script import Row, run_script
from strongticket.ops.planes import Planes, multiply, pack, unpack
from strongticket.ops.rng import stream_of

SIZES = ("768x768", "3072x768", "50257x768", "8192x8192")
CACHE = 200 << 20  # bytes of copies on CUDA, several times its cache
MOST_COPIES = 16
Call = Callable[[], object]


def check(planes: Planes, x: Tensor, codes: Tensor) -> None:
    """Refuse to time products with a larger error than float32 sums may have."""
    product, exact = multiply(planes, x), x.double() @ codes.double().T
    bound = 2.0**-24 * (planes.columns + 8) * (x.double().abs() @ codes.double().abs().T)
    if wrong := int((~((product - exact).abs() <= bound)).sum()):
        raise WrongAnswerError(f"{tuple(codes.shape)}, {len(x)} vectors: {wrong} wrong entries of {product.numel()}")


def times_of(device: str, calls: list[Call]) -> tuple[Call, int]:
    """Return the function to time, and its number of calls."""
    if device == "cpu":
        return calls[0], 1
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph.replay, len(calls)


def measure(
    rows: int, columns: int, device: str, threads: int, vectors: tuple[int, ...], repeats: int
) -> Iterator[Row]:
    """Time one size: planes with stored signs and with drawn ones, then torch."""
    magnitudes = torch.randint(0, 2, (rows, columns), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    drawn = pack(magnitudes.to(device), stream_of(0, "w"))
    codes = unpack(drawn)
    stored = pack(codes)

    def copies(tensor: Tensor) -> list[Tensor]:
        count = 1 if device == "cpu" else min(MOST_COPIES, max(2, CACHE // tensor.nbytes))
        return [tensor, *(tensor.clone() for _ in range(count - 1))]

    planes = {
        name: [replace(each, words=words) for words in copies(each.words)]
        for name, each in {"planes": stored, "mask": drawn}.items()
    }
    dense = {str(dtype).removeprefix("torch."): copies(codes.to(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    name_of_clock, clock = clock_for(threads, device)
    for count in vectors:
        x = torch.randn(count, columns, device=device)
        for each in (stored, drawn):
            check(each, x, codes)
        calls: dict[str, list[Call]] = {
            name: [partial(multiply, each, x) for each in all_copies] for name, all_copies in planes.items()
        }
        calls |= {name: [partial(F.linear, x.to(w.dtype), w) for w in weights] for name, weights in dense.items()}
        runs = {name: times_of(device, each) for name, each in calls.items()}
        timed = {name: run for name, (run, _) in runs.items()}
        seconds = time_alternating(timed, warmup=3, repeats=repeats, device=device, clock=clock)
        work = rows * columns * count
        rates = {name: percentiles(work * runs[name][1] / s / 1e9 for s in each) for name, each in seconds.items()}
        size = {"rows": rows, "columns": columns, "vectors": count, "threads": threads, "clock": name_of_clock}
        for name, rate in rates.items():
            against = {f"against_{peer}": rate["median"] / rates[peer]["median"] for peer in dense}
            # In billions of weights per second.
            yield {"engine": name, **size, **rate, **against}


def rates(
    *, device: str, threads: int, sizes: tuple[str, ...], vectors: tuple[int, ...], repeats: int
) -> Iterator[Row]:
    numba.set_num_threads(threads)
    torch.set_num_threads(threads)  # last: numba overwrites torch's number with its own
    for size in sizes:
        rows, columns = map(int, size.split("x"))
        yield from measure(rows, columns, device, threads, vectors, repeats)


if __name__ == "__main__":
    out = Path("results/bench/planes.jsonl")
    run_script(__doc__, rates, op="planes", out=out, device="cpu", threads=1, sizes=SIZES, vectors=(1,), repeats=15)
