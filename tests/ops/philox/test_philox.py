import hashlib

import make_normal_table
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from tests.cuda_emulator import emulated

from strongticket.ops import rng
from strongticket.ops.philox import cpu, cuda, reference

STREAM = rng.stream_of(5, "layer.weight")

distributions = st.sampled_from(rng.DISTRIBUTIONS)


# Counters, keys and outputs published with the generator (Salmon et al., 2011: the Random123 library's known answers).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert tuple(reference.philox(counter, key)) == expected


@given(
    distribution=distributions,
    start=st.integers(0, 5000) | st.integers(2**34 - 9, 2**34 + 9) | st.integers(2**40 - 99, 2**40),
    count=st.integers(0, 3000),
    scale=st.sampled_from([1.0, 0.02, 2.8284270763397217]),
)
def test_numba_equals_reference_bit_for_bit(distribution: str, start: int, count: int, scale: float) -> None:
    expected, actual = np.empty(count, np.float32), np.full(count, np.nan, np.float32)
    reference.fill(expected, start, STREAM, distribution, scale)
    cpu.fill(actual, start, STREAM, distribution, scale)
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@given(count=st.integers(0, 3000), bounds=st.lists(st.floats(-1, 1) | st.floats(-1, 1, width=32), max_size=4))
def test_counting_below_equals_reference(count: int, bounds: list[float]) -> None:
    drawn = reference.uniform(reference.words(STREAM, 0, count), 1.0)
    bounds += drawn[:2].tolist()  # an element is not below itself
    found = cpu.count_below(count, STREAM, np.array(bounds, np.float64))
    assert found.tolist() == [np.count_nonzero(drawn.astype(np.float64) < bound) for bound in bounds]


@pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    distribution=distributions,
    start=st.integers(0, 500) | st.integers(2**34 - 9, 2**34 + 9),
    count=st.integers(0, 700) | st.integers(40_000, 40_200),
    off=st.integers(0, 3),
)
def test_the_cuda_kernel_equals_reference_bit_for_bit(
    distribution: str, start: int, count: int, off: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.nvrtc, "kernel", emulated.kernel)
    monkeypatch.setattr(cuda, "_MOST_BLOCKS", 3)
    monkeypatch.setattr(cuda, "_THREADS", 32)
    expected, actual = np.empty(count, np.float32), torch.full((off + count + 4,), 7.0)
    reference.fill(expected, start, STREAM, distribution, 0.3)
    # `off` makes 16-byte stores impossible for some; what lies around is not to be touched.
    cuda.fill(actual[off : off + count], start, STREAM, distribution, 0.3)
    np.testing.assert_array_equal(actual.numpy()[off : off + count].view(np.uint32), expected.view(np.uint32))
    assert (actual[:off] == 7).all()
    assert (actual[off + count :] == 7).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_number_of_threads_changes_nothing(threads: int) -> None:
    count = 3 * cpu._CHUNK + 17
    expected, actual = np.empty(count, np.float32), np.empty(count, np.float32)
    reference.fill(expected, 3, STREAM, "normal", 1.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        cpu.fill(actual, 3, STREAM, "normal", 1.0)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(actual, expected)


def test_uniform_is_rounded_once() -> None:
    words = reference.words(STREAM, 0, 2000)
    scale = float(np.float32(8**0.25))
    exact = [(2 * (int(word) >> 3) + 1 - 2**29) * scale.as_integer_ratio()[0] for word in words]
    denominator = scale.as_integer_ratio()[1] * 2**29
    # Python divides integers with one correct rounding; the float32 lies within half a unit of the exact value.
    for value, numerator in zip(reference.uniform(words, scale), exact, strict=True):
        assert abs(float(value) - numerator / denominator) <= float(np.spacing(abs(value))) / 2
    assert np.abs(reference.uniform(np.array([0, 2**32 - 1], np.uint32), 1.0)).max() <= 1.0


def test_uniform_and_sign_have_the_right_moments() -> None:
    uniform = rng.random_weights(1, "u", (1_000_000,), "uniform", 2.0).double()
    assert uniform.abs().max() <= 2.0
    # Five standard errors of the mean and of the second moment (4/3, variance 64/45) of a million draws.
    assert abs(uniform.mean()) < 5 * (4 / 3) ** 0.5 / 1000
    assert abs(uniform.square().mean() - 4 / 3) < 5 * (64 / 45) ** 0.5 / 1000
    for kind in ("sign", "packed-sign"):
        sign = rng.random_weights(1, "s", (1_000_000,), kind, 0.25)
        assert sign.unique().tolist() == [-0.25, 0.25]
        assert abs(sign.double().mean()) < 5 * 0.25 / 1000


def test_packed_signs_are_the_bits_of_the_words() -> None:
    words = reference.words(STREAM, 0, 8).astype("<u4").tobytes()
    bits = np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little")
    signs = rng.random_weights(5, "layer.weight", (256,), "packed-sign", 2.0)
    np.testing.assert_array_equal(signs.numpy(), np.where(bits, -2.0, 2.0))


def test_normal_table_is_what_its_script_makes() -> None:
    table = reference.normal_table()
    digest = hashlib.sha256(table.astype("<f8").tobytes()).hexdigest()
    assert digest == "dfd1abb06d4919b810143a942daa87d3a59b1bc5f3c3322dfa9084646d56aeed"
    np.testing.assert_array_equal(table, make_normal_table.table())


def test_normal_follows_the_quantile_everywhere() -> None:
    low = np.arange(4000, dtype=np.uint32)
    words = np.concatenate(
        [low, np.uint32(2**31 - 1) - low, reference.words(STREAM, 0, 100_000) & np.uint32(2**31 - 1)]
    )
    expected = -ndtri((2.0 * words + 1) / 2**33)
    # 1.2e-8 is the table's own error, 2^-24 that of rounding to float32.
    np.testing.assert_allclose(reference.normal(words, 1.0), expected, rtol=2**-24, atol=1.2e-8)
    np.testing.assert_array_equal(reference.normal(words | np.uint32(2**31), 1.0), -reference.normal(words, 1.0))
    assert expected.max() > 6.3


def test_normal_passes_kolmogorov_smirnov_on_1e8_draws_and_reaches_the_tails() -> None:
    n, bins, step = 10**8, 10**6, 10**7
    counts, tail = np.zeros(bins, np.int64), 0
    for start in range(0, n, step):
        draws = rng.random_chunk(2, "normal", start, start + step, "normal").numpy()
        places = (ndtr(draws.astype(np.float64)) * bins).astype(np.int32)
        counts += np.bincount(places, minlength=bins)
        tail += int(np.count_nonzero(np.abs(draws) > 5))
    # Between the edges of its bin no draw is farther off than by the whole bin, so this is never below the distance.
    distance = np.abs(np.cumsum(counts) / n - np.arange(1, bins + 1) / bins).max() + 1 / bins
    assert distance * n**0.5 < 1.63, "Kolmogorov-Smirnov rejects at 1 %"
    # 57.3 of 1e8 are expected beyond 5 sigma; five standard deviations of a Poisson count either way.
    assert 57.3 - 5 * 57.3**0.5 < tail < 57.3 + 5 * 57.3**0.5
