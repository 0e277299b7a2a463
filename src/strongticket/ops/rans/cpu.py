"""The code `rans` with Numba: packed symbols to bytes and back, in a few nanoseconds each."""

import numpy as np

from strongticket.ops.array_types import U8, U16, U32
from strongticket.ops.compiled import kernel, part
from strongticket.ops.rans.reference import (
    TOTAL,
    lanes_of,
    table_from_bytes,
    table_to_bytes,
)

_TILE = 1 << 13  # symbols unpacked at a time
_SHIFT = np.uint32(16)
_LOW = np.uint32(TOTAL - 1)
_TABLE_BYTES = 4 * TOTAL  # more than any table takes
_NO_ROOM = -1


def encode(packed: U8, count: int, width: int, table: list[int]) -> tuple[bytes, U8] | None:
    """Write `count` symbols of 1, 2, 4, 8 or 16 bits each: table and states, then words; None if that saves nothing."""
    lanes = lanes_of(count)
    words, states = np.empty(packed.size // 2, "<u2"), np.full(lanes, TOTAL, np.uint32)
    starts = _starts(table)
    first = _encode(packed, count, width, np.array(table, np.uint32), starts, states, words)
    head = table_to_bytes(table) + states.astype("<u4").tobytes()
    if first == _NO_ROOM or len(head) + 2 * (words.size - first) >= packed.size:
        return None
    return head, words[first:].view(np.uint8)


def decode(data: U8, count: int, alphabet: int, width: int) -> tuple[U8, int]:
    """Read `count` symbols; return them packed in `width` bits each, and the number of bytes read."""
    table, place = table_from_bytes(bytes(data[:_TABLE_BYTES].data), alphabet)
    lanes = lanes_of(count)
    begin = place + 4 * lanes
    if begin > data.size:
        raise ValueError("a code ends too early")
    states = np.frombuffer(data[place:begin].tobytes(), "<u4").astype(np.uint32)
    words = np.frombuffer(data[begin : data.size - (data.size - begin) % 2].data, "<u2")
    # The narrower the table from slots to symbols, the more of it is in the cache.
    symbol_of = np.repeat(np.arange(alphabet).astype(np.uint8 if alphabet <= 256 else np.uint16), table)
    packed = np.empty(-(-count * width // 8), np.uint8)
    used = _decode(words, states, np.array(table, np.uint32), _starts(table), symbol_of, count, width, packed)
    if used == _NO_ROOM:
        raise ValueError("a code ends too early")
    if (states != TOTAL).any():
        raise ValueError("a code does not end as it began")
    return packed, begin + 2 * used


def _starts(table: list[int]) -> U32:
    return np.concatenate([[0], np.cumsum(table)]).astype(np.uint32)


@kernel
def _encode(packed: U8, count: int, width: int, table: U32, starts: U32, states: U32, words: U16) -> int:
    """Fill `words` from its end and return where they start; -1 if there is no room."""
    place, lanes = words.size, states.size
    symbols = np.empty(_TILE, np.uint16)
    for begin in range((count - 1) // _TILE * _TILE, -1, -_TILE):
        size = min(_TILE, count - begin)
        _unpack(packed, begin, size, width, symbols)
        for i in range(size - 1, -1, -1):
            lane = i & (lanes - 1)  # a tile starts with the first
            frequency, state = table[symbols[i]], states[lane]
            if state >> _SHIFT >= frequency:
                if place == 0:
                    return _NO_ROOM
                place -= 1
                words[place] = state & _LOW
                state >>= _SHIFT
            high = state // frequency
            states[lane] = (high << _SHIFT) + starts[symbols[i]] + (state - high * frequency)
    return place


@kernel
def _decode(
    words: U16, states: U32, table: U32, starts: U32, symbol_of: U16, count: int, width: int, packed: U8
) -> int:
    """Fill `packed` and return the number of words read; -1 if there are too few."""
    place, lanes = 0, states.size
    symbols = np.empty(_TILE, np.uint16)
    for begin in range(0, count, _TILE):
        size = min(_TILE, count - begin)
        for i in range(size):
            lane = i & (lanes - 1)
            slot = states[lane] & _LOW
            symbol = symbol_of[slot]
            state = table[symbol] * (states[lane] >> _SHIFT) + slot - starts[symbol]
            if state <= _LOW:
                if place == words.size:
                    return _NO_ROOM
                state = (state << _SHIFT) | np.uint32(words[place])
                place += 1
            states[lane] = state
            symbols[i] = symbol
        _pack(symbols, begin, size, width, packed)
    return place


@part
def _unpack(packed: U8, begin: int, size: int, width: int, symbols: U16) -> None:
    """Unpack symbols; a tile starts with a whole byte."""
    if width == 16:
        for i in range(size):
            symbols[i] = packed[2 * (begin + i)] | np.uint16(packed[2 * (begin + i) + 1]) << np.uint16(8)
        return
    each = 8 // width  # per byte
    for i in range(size):
        symbols[i] = (packed[(begin + i) // each] >> (i % each * width)) & ((1 << width) - 1)


@part
def _pack(symbols: U16, begin: int, size: int, width: int, packed: U8) -> None:
    """Pack symbols, with zeros after the last."""
    if width == 16:
        for i in range(size):
            packed[2 * (begin + i)] = symbols[i] & 255
            packed[2 * (begin + i) + 1] = symbols[i] >> 8
        return
    each = 8 // width
    symbols[size : -(-size // each) * each] = 0
    for byte in range(-(-size // each)):
        value = 0
        for i in range(each):
            value |= symbols[each * byte + i] << (i * width)
        packed[begin // each + byte] = value
