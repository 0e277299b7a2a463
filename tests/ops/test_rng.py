import hashlib
import math
import os
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strongticket.ops import rng

GOLDEN = {
    "uniform": [
        "0x1.e952780000000p-10",
        "-0x1.e69f4c0000000p-10",
        "0x1.b7b3100000000p-10",
        "-0x1.011d460000000p-6",
        "0x1.799eaa0000000p-10",
    ],
    "normal": [
        "-0x1.12efec0000000p-5",
        "0x1.31a2e60000000p-9",
        "-0x1.1b3a2e0000000p-5",
        "0x1.95fe000000000p-6",
        "-0x1.26bdc80000000p-5",
    ],
    "packed-sign": [
        "-0x1.47ae140000000p-6",
        "0x1.47ae140000000p-6",
        "0x1.47ae140000000p-6",
        "0x1.47ae140000000p-6",
        "-0x1.47ae140000000p-6",
    ],
    "sign": [
        "-0x1.47ae140000000p-6",
        "0x1.47ae140000000p-6",
        "-0x1.47ae140000000p-6",
        "0x1.47ae140000000p-6",
        "-0x1.47ae140000000p-6",
    ],
}
GOLDEN_FAR = "c855b702a262a4c8ca04b873c8e3e9c132e92ee6dd3adf56a5cd01e9359bc963"


def test_golden_values() -> None:
    """Frozen for ever: a change here makes every ticket ever written unreadable."""
    draws = {kind: rng.random_weights(0, "w", (5,), kind, 0.02) for kind in rng.DISTRIBUTIONS}
    assert {kind: [value.hex() for value in tensor.tolist()] for kind, tensor in draws.items()} == GOLDEN
    far = rng.random_chunk(2**64 - 1, "blocks.3.attn.head.11.query", 2**36 + 3, 2**36 + 100_003, "normal")
    assert hashlib.sha256(far.numpy().tobytes()).hexdigest() == GOLDEN_FAR


@given(
    shape=st.lists(st.integers(0, 40), max_size=3),
    cuts=st.lists(st.integers(0, 64_000), max_size=4),
    kind=st.sampled_from(rng.DISTRIBUTIONS),
)
def test_chunks_in_any_order_make_the_whole(shape: list[int], cuts: list[int], kind: str) -> None:
    whole = rng.random_weights(9, "t", tuple(shape), kind, 1.5)
    numel = whole.numel()
    edges = sorted({0, numel, *(min(cut, numel) for cut in cuts)})
    chunks = reversed(list(pairwise(edges)))
    pieces = {start: rng.random_chunk(9, "t", start, stop, kind, 1.5) for start, stop in chunks}
    joined = torch.cat([pieces[start] for start in sorted(pieces)]) if pieces else torch.empty(0)
    torch.testing.assert_close(joined.view(shape), whole, rtol=0, atol=0)


@given(seed=st.integers(0, 2**64 - 1), places=st.lists(st.integers(0, 2**40), max_size=9))
def test_single_elements_are_those_of_the_whole(seed: int, places: list[int]) -> None:
    found = rng.random_elements(seed, "x", np.array(places, np.int64), 0.3)
    expected = [rng.random_chunk(seed, "x", place, place + 1, "uniform", 0.3).item() for place in places]
    assert found.tolist() == expected


def test_memory_can_be_reused() -> None:
    memory = torch.full((8,), 7.0)
    drawn = rng.random_chunk(9, "t", 3, 8, out=memory)
    assert drawn.data_ptr() == memory.data_ptr()
    assert drawn.equal(rng.random_chunk(9, "t", 3, 8))
    assert memory[5:].tolist() == [7, 7, 7]


def test_a_stream_is_of_the_first_draw_unless_told_otherwise() -> None:
    streams = [rng.stream_of(0, "w"), *(rng.stream_of(0, "w", draw) for draw in (0, 1, 2**32 - 1))]
    assert streams[0] == streams[1]
    assert len(set(streams)) == 3


def test_seed_and_name_both_matter() -> None:
    draws = [rng.random_weights(seed, name, (8,)) for seed in (0, 1) for name in ("a", "b")]
    assert len({tuple(draw.tolist()) for draw in draws}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, r"seed must be a whole number in 0 \.\. 2\^64 - 1; got -1"),
        ({"seed": 2**64}, "seed must be"),
        ({"draw": 2**32}, r"draw must be a whole number in 0 \.\. 2\^32 - 1; got 4294967296"),
        ({"scale": 0.0}, r"scale must be between 2\^-100 and 2\^100; got 0.0"),
        ({"scale": 1e39}, "scale must be between"),
        ({"scale": float("nan")}, "scale must be between"),
        ({"scale": np.float16(0)}, "scale must be between"),
        ({"scale": 10**400}, "scale must be between"),
        ({"scale": "1"}, "scale must be between.*got '1'"),
        (
            {"distribution": "orthogonal"},
            "must be one of uniform, normal, sign, packed-sign; got 'orthogonal'.*entry by entry",
        ),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str) -> None:
    arguments = {"seed": 0, "name": "w", "shape": (3,), **change}
    with pytest.raises(ValueError, match=message):
        rng.random_weights(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [np.float32(0.5), np.float16(0.5), np.float64(0.5), Fraction(1, 2)])
def test_scales_may_be_any_real_number(scale: Any) -> None:
    assert rng.random_weights(0, "w", (5,), scale=scale).equal(rng.random_weights(0, "w", (5,), scale=0.5))
    assert type(rng.round_scale(scale)) is float


def test_scales_from_the_least_to_the_largest() -> None:
    least, largest = 2.0**-100, 2.0**100
    for scale in (least, largest):
        assert rng.random_weights(0, "w", (4,), "sign", scale).abs().tolist() == [scale] * 4
    for scale in (math.nextafter(least, 0), math.nextafter(largest, math.inf), -1.0):
        with pytest.raises(ValueError, match="scale must be between"):
            rng.random_weights(0, "w", (4,), "sign", scale)


def test_a_chunk_needs_ordered_ends() -> None:
    with pytest.raises(ValueError, match="needs 0 <= start <= stop; got start 5 and stop 3"):
        rng.random_chunk(0, "w", 5, 3)


def test_devices_without_a_kernel_are_refused() -> None:
    with pytest.raises(ValueError, match="drawn on cpu or cuda; got meta"):
        rng.random_weights(0, "w", (3,), device="meta")


def test_import_is_cheap_and_needs_no_optional_package() -> None:
    """Beyond torch, all public names take at most 0.3 s of a core and pull in neither Numba nor any extra.

    0.1 s were measured, and 0.2 s with the collection of torch's garbage that any import after torch may cause.
    Python compiles the source in the first run; where it may not keep the result, an import takes 0.35 s.
    """
    script = """
import gc, sys, time
import torch
gc.freeze()
before = time.process_time()
from strongticket import *
seconds = time.process_time() - before
heavy = {"numba", "scipy", "matplotlib", "safetensors", "transformers", "typer", "rich", "dask"} & set(sys.modules)
print(seconds, *heavy)
"""
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", script], env=keeping, capture_output=True, text=True, check=True)
        taken, *heavy = done.stdout.split()
        assert heavy == []
        return float(taken)

    assert any(seconds() < 0.3 for _ in range(5))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_asked_for_and_absent() -> None:
    with pytest.raises(ValueError, match="asked for on cuda, but torch finds no CUDA device here; use device='cpu'"):
        rng.random_weights(0, "w", (3,), device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", rng.DISTRIBUTIONS)
def test_cuda_gives_the_same_bits(kind: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    for start, stop in [(0, 1_000_003), (5, 6), (2**33 - 3, 2**33 + 4097), (3, 3)]:
        expected = rng.random_chunk(1, "w", start, stop, kind, 0.7)
        actual = rng.random_chunk(1, "w", start, stop, kind, 0.7, device="cuda")
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)
