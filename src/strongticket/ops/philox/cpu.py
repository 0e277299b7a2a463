"""Philox weights with Numba: tiles small enough to stay in the first-level cache, loops that vectorise, all cores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit

from strongticket.ops.array_types import F32, F64, I64, U32
from strongticket.ops.compiled import kernel, part
from strongticket.ops.philox.reference import KEY_STEPS, MULTIPLIERS, PIECE_BITS, ROUNDS, Stream, normal_table

_COUNTERS = 256  # counters in a tile: 4 KiB of words
TILE = 4 * _COUNTERS
# Elements that justify starting a thread.
_CHUNK = 1 << 18

Key = tuple[np.uint64, np.uint64, np.uint64, np.uint64]  # a stream, as compiled code takes it

_U = np.uint64
_M0, _M1 = _U(MULTIPLIERS[0]), _U(MULTIPLIERS[1])
_STEP0, _STEP1 = _U(KEY_STEPS[0]), _U(KEY_STEPS[1])
_LOW, _SHIFT = _U(0xFFFFFFFF), _U(32)
_FRACTION_BITS = 52 - PIECE_BITS
_FRACTION_MASK = (1 << _FRACTION_BITS) - 1
_FIRST_PIECE = 1023 << PIECE_BITS
_ONE = 1023 << 52  # the bits of 1.0 in float64
_UNIFORM, _NORMAL, _SIGN, _PACKED_SIGN = range(4)


def fill(out: F32, start: int, stream: Stream, distribution: str, scale: float) -> None:
    """Write elements `start` to `start + out.size` of a stream into `out`, in parallel."""
    kind = {"uniform": _UNIFORM, "normal": _NORMAL, "sign": _SIGN, "packed-sign": _PACKED_SIGN}[distribution]
    key = key_of(stream)
    chunks = [(begin, min(begin + _CHUNK, out.size)) for begin in range(0, out.size, _CHUNK)]

    def run(chunk: tuple[int, int]) -> None:
        begin, end = chunk
        _fill(out[begin:end], start + begin, key, kind, scale, normal_table())

    threads = min(torch.get_num_threads(), len(chunks))
    if threads < 2:
        for chunk in chunks:
            run(chunk)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, chunks))


def count_below(count: int, stream: Stream, bounds: F64) -> I64:
    """Count, for each bound, how many of the first `count` uniform elements of a stream, of scale 1, are below it."""
    return _count_below(count, key_of(stream), bounds)


def key_of(stream: Stream) -> Key:
    """Return a stream as compiled code takes it."""
    return _U(stream.key0), _U(stream.key1), _U(stream.high0), _U(stream.high1)


@njit(inline="always")
def encrypt(counter: np.uint64, key: Key) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the four words of a counter; loops over this vectorise."""
    k0, k1, c2, c3 = key
    c0, c1 = counter & _LOW, counter >> _SHIFT
    for _ in range(ROUNDS):
        product0, product1 = c0 * _M0, c2 * _M1
        c0, c2 = (product1 >> _SHIFT) ^ c1 ^ k0, (product0 >> _SHIFT) ^ c3 ^ k1
        c1, c3 = product1 & _LOW, product0 & _LOW
        k0, k1 = (k0 + _STEP0) & _LOW, (k1 + _STEP1) & _LOW
    return c0, c1, c2, c3


@part
def words_of_tile(words: U32, planes: U32, first: int, key: Key) -> None:
    """Encrypt the counters from `first` on into `words`, through one plane for each of the four output words."""
    for j in range(_COUNTERS):
        c0, c1, c2, c3 = encrypt(_U(first) + _U(j), key)
        planes[0, j], planes[1, j] = np.uint32(c0), np.uint32(c1)
        planes[2, j], planes[3, j] = np.uint32(c2), np.uint32(c3)
    for j in range(_COUNTERS):
        for word in range(4):
            words[4 * j + word] = planes[word, j]


@part
def _uniform_of_tile(values: F32, words: U32, scale: float) -> None:
    step = scale * 2.0**-29
    for i in range(TILE):
        odd = np.int32(words[i] >> np.uint32(3)) * np.int32(2) + np.int32(1 - 2**29)
        values[i] = np.float32(step * np.float64(odd))


@part
def _sign_of_tile(values: F32, words: U32, scale: float) -> None:
    for i in range(TILE):
        values[i] = np.float32(-scale if words[i] >> np.uint32(31) else scale)


@part
def _normal_of_tile(values: F32, words: U32, scale: float, table: F64) -> None:
    x = np.empty(TILE, np.float64)
    piece = np.empty(TILE, np.int64)
    bits = x.view(np.int64)
    for i in range(TILE):
        x[i] = np.float64(np.int64(words[i] & np.uint32(0x7FFFFFFF)) * 2 + 1)
    for i in range(TILE):
        piece[i] = (bits[i] >> _FRACTION_BITS) - _FIRST_PIECE
        bits[i] = (bits[i] & _FRACTION_MASK) | _ONE
    for i in range(TILE):
        p, t = piece[i], x[i] - 1.0
        magnitude = scale * (((table[p, 3] * t + table[p, 2]) * t + table[p, 1]) * t + table[p, 0])
        values[i] = np.float32(-magnitude if words[i] >> np.uint32(31) else magnitude)


@part
def _packed_signs_of_tile(out: F32, start: int, words: U32, first_word: int, magnitude: np.uint32) -> None:
    """Write the part of a tile, 32 signs per word, that `out`, whose first element is `start`, covers."""
    patterns = out.view(np.uint32)
    begin, end = max(start // 32, first_word), min(-(-(start + out.size) // 32), first_word + TILE)
    for place in range(begin, end):
        word, at = words[place - first_word], 32 * place - start
        if at >= 0 and at + 32 <= out.size:
            for bit in range(32):
                patterns[at + bit] = magnitude | ((word >> np.uint32(bit)) << np.uint32(31))
        else:
            for bit in range(max(-at, 0), min(32, out.size - at)):
                patterns[at + bit] = magnitude | ((word >> np.uint32(bit)) << np.uint32(31))


@part
def _copy_overlap(out: F32, start: int, values: F32, tile_start: int) -> None:
    """Copy the part of a tile that `out`, whose first element is `start`, covers."""
    begin, end = max(start, tile_start), min(start + out.size, tile_start + TILE)
    # Not a slice: numba would compile its message for slices of different sizes, which takes longer than all the rest.
    # Unsigned: for places that might be negative, LLVM would gather and scatter single weights.
    to, of = _U(begin - start), _U(begin - tile_start)
    for i in range(_U(max(end - begin, 0))):
        out[to + i] = values[of + i]


@part
def uniform_weight(place: int, stream: Stream, scale: float) -> np.float32:
    """Draw a single element of a uniform tensor."""
    key0, key1, high0, high1 = stream
    c0, c1, c2, c3 = encrypt(_U(place >> 2), (_U(key0), _U(key1), _U(high0), _U(high1)))
    word = (c3 if place & 1 else c2) if place & 2 else (c1 if place & 1 else c0)
    return np.float32(scale * 2.0**-29 * np.float64(np.int64(word >> _U(3)) * 2 + 1 - 2**29))


@part
def uniform_weights(out: F32, start: int, stream: Stream, scale: float) -> None:
    """Draw the elements of a uniform tensor from `start` on into `out`, in compiled code."""
    key0, key1, high0, high1 = stream
    first, step = start >> 2, scale * 2.0**-29
    planes = np.empty((4, ((start + out.size + 3) >> 2) - first), np.uint32)
    for j in range(planes.shape[1]):
        c0, c1, c2, c3 = encrypt(_U(first) + _U(j), (_U(key0), _U(key1), _U(high0), _U(high1)))
        planes[0, j], planes[1, j] = np.uint32(c0), np.uint32(c1)
        planes[2, j], planes[3, j] = np.uint32(c2), np.uint32(c3)
    for i in range(out.size):
        word = planes[(start + i) & 3, ((start + i) >> 2) - first]
        out[i] = np.float32(step * np.float64(np.int32(word >> np.uint32(3)) * np.int32(2) + np.int32(1 - 2**29)))


@kernel
def uniform_elements(places: I64, stream: Stream, scale: float) -> F32:
    """Draw the elements of a uniform tensor at these places alone."""
    found = np.empty(places.size, np.float32)
    for i in range(places.size):
        found[i] = uniform_weight(places[i], stream, scale)
    return found


@kernel
def _fill(out: F32, start: int, key: Key, kind: int, scale: float, table: F64) -> None:
    words, planes, values = np.empty(TILE, np.uint32), np.empty((4, _COUNTERS), np.uint32), np.empty(TILE, np.float32)
    if kind == _PACKED_SIGN:
        values[0] = scale
        magnitude = values.view(np.uint32)[0]
        for tile in range(start // (32 * TILE), -(-(start + out.size) // (32 * TILE))):
            words_of_tile(words, planes, tile * _COUNTERS, key)
            _packed_signs_of_tile(out, start, words, tile * TILE, magnitude)
        return
    for tile in range(start // TILE, -(-(start + out.size) // TILE)):
        words_of_tile(words, planes, tile * _COUNTERS, key)
        if kind == _UNIFORM:
            _uniform_of_tile(values, words, scale)
        elif kind == _NORMAL:
            _normal_of_tile(values, words, scale, table)
        else:
            _sign_of_tile(values, words, scale)
        _copy_overlap(out, start, values, tile * TILE)


@kernel
def _count_below(count: int, key: Key, bounds: F64) -> I64:
    words, planes, values = np.empty(TILE, np.uint32), np.empty((4, _COUNTERS), np.uint32), np.empty(TILE, np.float32)
    found = np.zeros(bounds.size, np.int64)
    for tile in range(-(-count // TILE)):
        words_of_tile(words, planes, tile * _COUNTERS, key)
        _uniform_of_tile(values, words, 1.0)
        here = min(TILE, count - tile * TILE)
        for k in range(bounds.size):
            below, bound = 0, bounds[k]
            for i in range(here):
                below += np.float64(values[i]) < bound
            found[k] += below
    return found
