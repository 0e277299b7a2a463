"""Small whole numbers in few bits: how a mask is stored in memory and hashed for a ticket's identity."""

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.integer]

_WIDTHS = (1, 2, 4, 8, 16, 32)
MAX_ALPHABET = 1 << _WIDTHS[-1]
_AT_ONCE = 1 << 16  # counted at a time: NumPy makes eight bytes of each


class Symbols:
    """Whole numbers from 0 to below `alphabet`, each in the fewest of 1, 2, 4, 8, 16 or 32 bits that can hold them.

    Symbol i starts at bit `width * i`, counted from the lowest bit of the first byte; bits after the last symbol are 0.

    Example:
        >>> symbols = Symbols.pack(np.array([0, 2, 1, 2, 2]), alphabet=3)
        >>> symbols.width, symbols.packed.tolist(), symbols.counts().tolist()
        (2, [152, 2], [1, 1, 3])
    """

    __slots__ = ("alphabet", "count", "packed", "width")

    def __init__(self, alphabet: int, count: int, packed: Bits, *, copy: bool = True) -> None:
        """Take packed bytes, which must be exactly as many as the symbols need, with zero padding.

        `copy=False` keeps the array itself; use it only if nothing else will write to it.
        """
        self.alphabet, self.count, self.width = alphabet, count, width_of(alphabet)
        needed = -(-count * self.width // 8)
        if packed.dtype != np.uint8 or packed.shape != (needed,):
            raise ValueError(
                f"{count} symbols below {alphabet} need {needed} bytes of uint8; "
                f"got {packed.dtype} of shape {packed.shape}."
            )
        spare = 8 * needed - count * self.width
        if spare and packed[-1] >> (8 - spare):
            raise ValueError(f"the padding after the last of {count} symbols must be 0; got a set bit.")
        self.packed = packed.copy() if copy or not packed.flags.c_contiguous else packed.view()
        self.packed.flags.writeable = False
        if alphabet < 1 << self.width and self._largest() >= alphabet:
            raise ValueError(f"symbols must be below {alphabet}; got larger ones.")

    @classmethod
    def pack(cls, numbers: Numbers, alphabet: int) -> "Symbols":
        """Pack an array, flattened."""
        flat = numbers.reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < alphabet:
            raise ValueError(f"symbols must be from 0 to below {alphabet}; got {flat.min()} to {flat.max()}.")
        width = width_of(alphabet)
        if width == 1:
            packed = np.packbits(flat.astype(np.uint8, copy=False), bitorder="little")
        elif width >= 8:
            packed = flat.astype(f"<u{width // 8}").view(np.uint8)
        else:
            each = 8 // width
            packed = np.zeros(-(-flat.size // each), np.uint8)
            for place in range(each):
                there = flat[place::each].astype(np.uint8)
                packed[: there.size] |= there << (place * width)
        return cls(alphabet, flat.size, packed, copy=False)

    def unpack(self, start: int = 0, stop: int | None = None) -> Numbers:
        """Return the symbols from `start` to `stop` as an array of 8, 16 or 32 bits each."""
        stop = self.count if stop is None else stop
        if self.width >= 8:
            return self.packed.view(f"<u{self.width // 8}")[start:stop]
        each = 8 // self.width
        first = start // each
        whole = self.packed[first : -(-stop // each)]
        if self.width == 1:
            spread = np.unpackbits(whole, bitorder="little")
        else:
            spread = np.empty((whole.size, each), np.uint8)
            for place in range(each):
                spread[:, place] = (whole >> (place * self.width)) & ((1 << self.width) - 1)
        return spread.reshape(-1)[start - each * first : stop - each * first]

    def counts(self) -> npt.NDArray[np.int64]:
        """Count how often each symbol occurs."""
        return self._occurrences()[: self.alphabet]

    def _occurrences(self) -> npt.NDArray[np.int64]:
        """Count every possible bit pattern; with several per byte, by counting bytes."""
        patterns = np.arange(1 << min(self.width, 8))
        found = np.zeros(max(self.alphabet, 256), np.int64)
        units = self.packed if self.width <= 8 else self.unpack()
        for start in range(0, units.size, _AT_ONCE):
            found += np.bincount(units[start : start + _AT_ONCE], minlength=found.size)
        if self.width >= 8:
            return found
        each = 8 // self.width
        inside = (np.arange(256)[:, None] >> (self.width * np.arange(each))) & (patterns.size - 1)  # (bytes, each)
        total: npt.NDArray[np.int64] = (inside[:, :, None] == patterns).sum(axis=1).T @ found
        total[0] -= each * units.size - self.count  # the padding
        return total

    def _largest(self) -> int:
        if self.width >= 8:
            return int(self.unpack().max(initial=0))
        return int(np.flatnonzero(self._occurrences()).max(initial=0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Symbols):
            return NotImplemented
        alike = (self.alphabet, self.count) == (other.alphabet, other.count)
        return alike and np.array_equal(self.packed, other.packed)

    def __hash__(self) -> int:
        return hash((self.alphabet, self.count, self.packed.tobytes()))

    def __repr__(self) -> str:
        return f"Symbols(alphabet={self.alphabet}, count={self.count})"

    def __reduce__(self) -> tuple[type["Symbols"], tuple[int, int, Bits]]:
        return Symbols, (self.alphabet, self.count, self.packed)


def width_of(alphabet: int) -> int:
    """Return the number of bits of a symbol below `alphabet`."""
    if not 1 <= alphabet <= MAX_ALPHABET:
        raise ValueError(f"an alphabet must have 1 to 2^32 symbols; got {alphabet}.")
    return next(width for width in _WIDTHS if alphabet <= 1 << width)
