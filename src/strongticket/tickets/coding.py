"""Symbols as payloads: packed, or in one of two codes that take fewer bytes if some symbols are rare."""

import math
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from strongticket.ops.rans import reference as rans
from strongticket.tickets.symbols import Bits, Symbols, width_of

Piece = bytes | memoryview

# Deflated at a time: while zlib makes a piece, Python may hold it twice.
_CHUNK = 1 << 18
# To try out a large mask, every eighth piece of this size is deflated; zlib uses a separate table for about as many.
_TRIED_PIECE, _TRIED_EVERY = 1 << 14, 8
# For larger alphabets the table of frequencies may cost more than it saves.
_FEW = 16
# How many bytes a byte of payload may unpack to. A Huffman code spends at least one bit per byte, so it needs no more
# than 8; rans has no such limit, so its payloads are padded.
_LARGEST_GROWTH = {"raw": 1, "huffman": 8, "rans": 256}
# Frozen weights are in no payload, but the reader must draw their map: at most this many weights per byte.
_MAPPED_BY_BYTE = 4096


def encode(symbols: Symbols, mapped: int = 0) -> tuple[str, list[Piece]]:
    """Encode with the coding that needs the fewest bytes; in pieces, to avoid a second copy.

    Args:
        symbols: what a mask stores.
        mapped: the number of all weights, if some are frozen.
    """
    raw, pieces = symbols.packed.data, list[Piece]()
    # Estimated, not tried: masks that keep about half, as in constructions, gain nothing, and coding takes time.
    rans_bytes, table = _expected_rans(symbols)
    expected = {"raw": len(raw), "huffman": _expected_huffman(raw), "rans": rans_bytes}
    coding = min(expected, key=lambda coding: expected[coding])
    if coding == "huffman":
        pieces = list(_huffman(raw[start : start + _CHUNK] for start in range(0, len(raw), _CHUNK)))
    elif coding == "rans":
        pieces = _rans(symbols, table, mapped)
    return (coding, pieces) if pieces and _length(pieces) < len(raw) else ("raw", [raw])


def decode(
    coding: object, payload: Iterator[bytes], stored: int, *, alphabet: int, count: int, mapped: int = 0
) -> Symbols:
    """Read a payload of `stored` bytes, given in pieces; raise a ValueError if it cannot be `count` symbols."""
    if not isinstance(coding, str) or coding not in _LARGEST_GROWTH:
        raise ValueError(f"unknown coding {coding!r:.40}")
    nbytes = -(-count * width_of(alphabet) // 8)
    if nbytes > _LARGEST_GROWTH[coding] * stored:
        raise ValueError(f"{stored} bytes of payload cannot be {count} symbols")
    if coding == "rans":
        return _read_rans(_joined(payload, stored), alphabet, count, mapped)
    packed = _joined(payload if coding == "raw" else _inflate(payload, nbytes), nbytes)
    return Symbols(alphabet, count, packed, copy=False)


def check_mapped(mapped: int, stored: int) -> None:
    """Refuse a map out of proportion to its file."""
    if mapped > _MAPPED_BY_BYTE * (stored + 1):
        raise ValueError(f"{stored} bytes of payload are too few for {mapped} weights, frozen ones included")


def _huffman(pieces: Iterable[memoryview]) -> Iterator[bytes]:
    compressor = zlib.compressobj(level=9, wbits=-15, strategy=zlib.Z_HUFFMAN_ONLY)
    yield from map(compressor.compress, pieces)
    yield compressor.flush()


def _expected_huffman(raw: memoryview) -> float:
    tried = [raw[start : start + _TRIED_PIECE] for start in range(0, len(raw), _TRIED_EVERY * _TRIED_PIECE)]
    return _length(_huffman(tried)) * len(raw) / max(_length(tried), 1)


def _expected_rans(symbols: Symbols) -> tuple[float, list[int]]:
    """Return the expected bytes, and the frequencies to use: the counts, or one for all symbols but the first."""
    if not symbols.count or symbols.alphabet > rans.MAX_ALPHABET:
        return math.inf, []
    counts, others = symbols.counts(), symbols.alphabet - 1
    tables = [rans.frequencies(counts.tolist())]
    if others > _FEW:
        tables.append(rans.frequencies([int(counts[0]) * others, *[symbols.count - int(counts[0])] * others]))
    used = counts > 0
    bits = [float(counts[used] @ (16 - np.log2(np.array(table)[used]))) for table in tables]
    heads = [len(rans.table_to_bytes(table)) + 3 * rans.lanes_of(symbols.count) for table in tables]
    return min((each / 8 + head, table) for each, head, table in zip(bits, heads, tables, strict=True))


def _rans(symbols: Symbols, table: list[int], mapped: int) -> list[Piece]:
    from strongticket.ops.rans import cpu

    coded = cpu.encode(symbols.packed, symbols.count, symbols.width, table)
    if coded is None:
        return []
    head, words = coded
    fill = max(_least_bytes(symbols.packed.size, mapped) - len(head) - words.size, 0)
    return [head, words.data, bytes(fill)]


def compile_kernels() -> None:
    """Compile the kernels in this thread.

    A pool's thread could wait forever for numba's lock, which Ctrl-C during a compilation leaves locked.
    """
    _rans(Symbols.pack(np.zeros(8, np.uint8), 2), [1, 65_535], 0)


def _least_bytes(nbytes: int, mapped: int) -> int:
    """Return the least length of a rans payload that unpacks to this much."""
    return max(-(-nbytes // _LARGEST_GROWTH["rans"]), -(-mapped // _MAPPED_BY_BYTE) - 1)


def _read_rans(data: Bits, alphabet: int, count: int, mapped: int) -> Symbols:
    from strongticket.ops.rans import cpu

    if alphabet > rans.MAX_ALPHABET:
        raise ValueError(f"rans codes at most 65,536 symbols; got {alphabet}")
    packed, used = cpu.decode(data, count, alphabet, width_of(alphabet))
    if data.size != max(used, _least_bytes(packed.size, mapped)) or data[used:].any():
        raise ValueError(f"a payload is longer than its {count} symbols")
    return Symbols(alphabet, count, packed, copy=False)


def _inflate(payload: Iterator[bytes], nbytes: int) -> Iterator[bytes]:
    """Decompress raw DEFLATE; if it is longer than expected, stop at the first excess piece."""
    decompressor = zlib.decompressobj(wbits=-15)
    for chunk in payload:
        yield decompressor.decompress(chunk, nbytes + 1)
        if decompressor.unused_data:
            raise ValueError(f"a payload is longer than its {nbytes} bytes")
    if not decompressor.eof:
        raise ValueError("a payload ends too early")


def _joined(pieces: Iterator[bytes], nbytes: int) -> Bits:
    """Join pieces that must be `nbytes` in total."""
    joined, at = np.empty(nbytes, dtype=np.uint8), 0
    for piece in pieces:
        if at + len(piece) > nbytes:
            raise ValueError(f"a payload is longer than its {nbytes} bytes")
        joined[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        at += len(piece)
    if at != nbytes:
        raise ValueError(f"a payload has {at} bytes instead of {nbytes}")
    return joined


def _length(pieces: Iterable[Piece]) -> int:
    return sum(map(len, pieces))
