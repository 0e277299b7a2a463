r"""The definition of a random weight: (stream, element index) -> float32, in plain NumPy.

Word $j$ of a stream is word $j \bmod 4$ of Philox 4x32-10 at counter $\lfloor j/4 \rfloor$. Element $i$ is made from
word $i$; a packed sign, from a bit of word $\lfloor i/32 \rfloor$. The word becomes a float through operations that
IEEE 754 rounds alike everywhere (no fused multiply-add), so the kernels beside this file must agree bit for bit.
`docs/ticket-format.md` says the same in words.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strongticket.ops.array_types import F32, F64, U32

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

# A piece of the normal quantile spans a sixteenth of an octave of the tail probability.
PIECE_BITS = 4


class Stream(NamedTuple):
    """The two key words and the two high counter words that distinguish one tensor's numbers from all others."""

    key0: int
    key1: int
    high0: int
    high1: int


def philox(counter: tuple[npt.ArrayLike, ...], key: tuple[int, int]) -> U32:
    """Encrypt 128-bit counters, given as four 32-bit words each, with Philox 4x32-10: shape (..., 4)."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def words(stream: Stream, start: int, stop: int) -> U32:
    """Return words `start` to `stop` of a stream."""
    first = start // 4
    counter = np.arange(first, -(-stop // 4), dtype=np.uint64)
    blocks = philox((counter & _LOW, counter >> _SHIFT, stream.high0, stream.high1), (stream.key0, stream.key1))
    return blocks.reshape(-1)[start - 4 * first : stop - 4 * first]


def uniform(word: U32, scale: float) -> F32:
    r"""Map a word to $[-a, a]$: the odd integer $2 \lfloor w/8 \rfloor + 1 - 2^{29}$ over $2^{29}$, times $a$.

    The integer has 29 bits and $a$ 24, so the float64 product is exact and the weight is rounded once.
    """
    odd = 2 * (word >> np.uint32(3)).astype(np.int64) + 1 - 2**29
    return np.asarray((scale * 2.0**-29) * odd.astype(np.float64), dtype=np.float32)


def sign(word: U32, scale: float) -> F32:
    """Map a word to minus or plus `scale` by its top bit."""
    return np.where(word >> np.uint32(31), np.float32(-scale), np.float32(scale))


def packed_signs(word: U32, scale: float) -> F32:
    """Map each word to 32 signs times `scale`, by its bits from the lowest; 1 is minus."""
    bits = (word[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.where(bits.reshape(-1), np.float32(-scale), np.float32(scale))


def normal(word: U32, scale: float) -> F32:
    r"""Map a word to $N(0, \sigma^2)$: the top bit is the sign, the others pick the quantile $-\Phi^{-1}(x / 2^{33})$.

    $x$ is the odd integer $2 (w \bmod 2^{31}) + 1$. Its octave and the next four bits choose a piece, the bits below
    them are the argument $t$ of that piece's cubic. The largest value is 6.34.
    """
    x = (2 * (word & np.uint32(0x7FFFFFFF)).astype(np.int64) + 1).astype(np.float64)
    bits = x.view(np.int64)
    fraction_bits = 52 - PIECE_BITS
    piece = (bits >> fraction_bits) - (1023 << PIECE_BITS)
    t = ((bits & ((1 << fraction_bits) - 1)) | (1023 << 52)).view(np.float64) - 1.0
    c0, c1, c2, c3 = normal_table()[piece].T
    magnitude: F64 = scale * (((c3 * t + c2) * t + c1) * t + c0)
    signed: F64 = np.where(word >> np.uint32(31), -magnitude, magnitude)
    return signed.astype(np.float32)


@cache
def normal_table() -> F64:
    """Load the cubics of the normal quantile, shape (512, 4), lowest power first; made by a script of the tests."""
    table: F64 = np.load(Path(__file__).with_name("normal_table.npy"), allow_pickle=False)
    table.flags.writeable = False
    return table


def fill(out: F32, start: int, stream: Stream, distribution: str, scale: float) -> None:
    """Write elements `start` to `start + out.size` of a stream into `out`."""
    if distribution == "packed-sign":
        first, last = start // 32, -(-(start + out.size) // 32)
        out[:] = packed_signs(words(stream, first, last), scale)[start - 32 * first :][: out.size]
        return
    maps = {"uniform": uniform, "normal": normal, "sign": sign}
    out[:] = maps[distribution](words(stream, start, start + out.size), scale)
