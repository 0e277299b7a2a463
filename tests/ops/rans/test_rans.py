from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strongticket.ops.rans import cpu, reference
from strongticket.tickets.symbols import Symbols

MANY = reference.MANY


@st.composite
def sequences(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Symbols and their alphabet: few and many of them, of one kind and of hundreds, some that never occur."""
    alphabet = draw(st.sampled_from([1, 2, 3, 4, 5, 16, 17, 256, 257, 5000]))
    count = draw(st.integers(0, 3000) | st.sampled_from([MANY - 1, MANY, MANY + 13]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    skew = draw(st.sampled_from([0.0, 1.0, 4.0, 60.0]))
    return (alphabet * rng.random(count) ** (1 + skew)).astype(np.int64), alphabet


def table_of(symbols: np.ndarray, alphabet: int) -> list[int]:
    return reference.frequencies(np.bincount(symbols, minlength=alphabet).tolist())


def entropy(symbols: np.ndarray) -> float:
    """Bits that no code of independent symbols goes below."""
    shares = np.unique(symbols, return_counts=True)[1] / symbols.size
    return float(-symbols.size * (shares @ np.log2(shares)))


@given(counts=st.lists(st.integers(0, 2**40), min_size=1, max_size=40) | st.lists(st.integers(0, 3), min_size=1))
@example(counts=[0, 0, 5])
@example(counts=[1] * 65_536)
@example(counts=[2**40, *[1] * 65_535])
def test_frequencies_add_up_and_whatever_occurs_has_one(counts: list[int]) -> None:
    table = reference.frequencies(counts)
    assert sum(table) == 65_536
    if total := sum(counts):
        used = sum(count > 0 for count in counts)
        for count, frequency in zip(counts, table, strict=True):
            assert (frequency > 0) == (count > 0)
            assert abs(frequency - count * 65_536 / total) <= used + 1


@given(table=st.lists(st.integers(0, 300), max_size=100) | st.lists(st.sampled_from([0, 7]), max_size=100))
def test_tables_are_read_again(table: list[int]) -> None:
    table = [*table, 65_536 - sum(table)]
    data = reference.table_to_bytes(table)
    assert reference.table_from_bytes(data + b"more", len(table)) == (table, len(data))


def test_a_table_of_equal_frequencies_takes_a_few_bytes() -> None:
    assert len(reference.table_to_bytes(reference.frequencies([500, *[30] * 768]))) <= 14


@given(sequence=sequences())
def test_numba_writes_and_reads_what_the_reference_does(sequence: tuple[np.ndarray, int]) -> None:
    symbols, alphabet = sequence
    packed, table = Symbols.pack(symbols, alphabet), table_of(symbols, alphabet)
    expected = reference.encode(symbols.tolist(), table)
    coded = cpu.encode(packed.packed, packed.count, packed.width, table)
    if coded is None:
        assert len(expected) >= packed.packed.size
    else:
        assert coded[0] + coded[1].tobytes() == expected
    assert reference.decode(expected + b"more", symbols.size, alphabet) == (symbols.tolist(), len(expected))
    data = np.frombuffer(expected + b"odd", np.uint8)
    read, used = cpu.decode(data, packed.count, alphabet, packed.width)
    assert used == len(expected)
    np.testing.assert_array_equal(read, packed.packed)


@pytest.mark.parametrize("count", [20_000, MANY, 400_000])
@pytest.mark.parametrize(
    "shares",
    [[0.5, 0.5], [0.7, 0.3], [0.95, 0.05], [0.99, 0.01], [0.5, 0.25, 0.25], [0.5, 0.3, 0.15, 0.05], [1 / 16] * 16],
)
def test_codes_are_within_two_percent_of_the_entropy(shares: Sequence[float], count: int) -> None:
    symbols = np.random.default_rng(0).choice(len(shares), count, p=shares)
    assert 8 * len(reference.encode(symbols.tolist(), table_of(symbols, len(shares)))) < 1.02 * entropy(symbols) + 64


@given(data=st.binary(max_size=60), count=st.integers(0, 50), alphabet=st.sampled_from([1, 2, 3, 16, 300]))
def test_any_bytes_are_read_alike_or_refused_alike(data: bytes, count: int, alphabet: int) -> None:
    width = Symbols.pack(np.zeros(0, np.int64), alphabet).width
    try:
        symbols, used = reference.decode(data, count, alphabet)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            cpu.decode(np.frombuffer(data, np.uint8), count, alphabet, width)
        return
    packed, again = cpu.decode(np.frombuffer(data, np.uint8), count, alphabet, width)
    assert again == used
    assert Symbols(alphabet, count, packed).unpack().tolist() == symbols


@pytest.mark.parametrize(
    ("data", "alphabet", "reason"),
    [
        (b"", 2, "ends too early"),
        (b"\x80\x80\x80\x01", 2, "more than three bytes"),
        (b"\x81\x80\x04", 2, "more than 65,536"),
        (b"\x01\x01\x62" + bytes(4), 3, "more than 3 of them"),
        (b"\x01" + b"\0\0\1\1", 2, "does not end as it began"),
    ],
)
def test_wrong_codes_are_refused(data: bytes, alphabet: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        reference.decode(data, 0, alphabet)
    with pytest.raises(ValueError, match=reason):
        cpu.decode(np.frombuffer(data, np.uint8), 0, alphabet, 2)


def test_the_example_of_the_specification() -> None:
    symbols = 4 * [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
    table = reference.frequencies([32, 8])
    assert table == [52_428, 13_108]
    assert reference.encode(symbols, table).hex(" ") == "cc 99 03 5d 65 db 1d e0 01"
