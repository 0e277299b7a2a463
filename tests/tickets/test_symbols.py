import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongticket.tickets.coding import _expected_rans, _length, _rans
from strongticket.tickets.symbols import Symbols, width_of

ALPHABETS = [1, 2, 3, 4, 5, 16, 17, 256, 257, 65_536, 65_537, 2**32]


@given(alphabet=st.sampled_from(ALPHABETS), count=st.integers(0, 70), seed=st.integers(0, 99), data=st.data())
def test_packing_loses_nothing(alphabet: int, count: int, seed: int, data: st.DataObject) -> None:
    numbers = np.random.default_rng(seed).integers(0, alphabet, count)
    symbols = Symbols.pack(numbers, alphabet)
    assert symbols.packed.size == -(-count * symbols.width // 8)
    # The layout, said in another way: one long number, its lowest bits first.
    whole = sum(int(number) << (symbols.width * i) for i, number in enumerate(numbers))
    assert int.from_bytes(symbols.packed.tobytes(), "little") == whole
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    np.testing.assert_array_equal(symbols.unpack(start, stop), numbers[start:stop])
    if alphabet < 1000:
        np.testing.assert_array_equal(symbols.counts(), np.bincount(numbers, minlength=alphabet))
    assert symbols == Symbols(alphabet, count, symbols.packed) == pickle.loads(pickle.dumps(symbols))
    assert hash(symbols) == hash(Symbols.pack(numbers, alphabet))
    if count:
        assert symbols != Symbols.pack(numbers[1:], alphabet)


def test_widths() -> None:
    assert [width_of(alphabet) for alphabet in ALPHABETS] == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32]


def test_wrong_symbols_are_refused() -> None:
    with pytest.raises(ValueError, match="symbols must be from 0 to below 3; got 0 to 3"):
        Symbols.pack(np.array([0, 3]), 3)
    with pytest.raises(ValueError, match="symbols must be from 0 to below 3; got -1 to 0"):
        Symbols.pack(np.array([0, -1]), 3)
    with pytest.raises(ValueError, match="symbols must be below 3; got larger ones"):
        Symbols(3, 4, np.array([0b00_11_00_00], np.uint8))
    with pytest.raises(ValueError, match="the padding after the last of 3 symbols must be 0"):
        Symbols(4, 3, np.array([0b01_00_00_00], np.uint8))
    with pytest.raises(ValueError, match="5 symbols below 4 need 2 bytes"):
        Symbols(4, 5, np.zeros(1, np.uint8))
    for alphabet in (0, 2**32 + 1):
        with pytest.raises(ValueError, match=r"an alphabet must have 1 to 2\^32 symbols"):
            Symbols.pack(np.zeros(0, np.int64), alphabet)


def test_symbols_cannot_be_changed() -> None:
    symbols = Symbols.pack(np.array([1, 0, 1]), 2)
    with pytest.raises(ValueError, match="read-only"):
        symbols.packed[0] = 0


@pytest.mark.parametrize("alphabet", [2, 5, 200])
def test_coded_symbols_take_about_as_many_bytes_as_expected(alphabet: int) -> None:
    few = np.random.default_rng(0).integers(0, alphabet, 50_000) * np.random.default_rng(1).integers(0, 2, 50_000)
    symbols = Symbols.pack(few.astype(np.uint8), alphabet)
    expected, table = _expected_rans(symbols)
    assert _length(_rans(symbols, table, 0)) == pytest.approx(expected, rel=0.005)
