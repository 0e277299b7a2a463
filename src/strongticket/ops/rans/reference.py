r"""The definition of the code `rans`: symbols to bytes and back, in plain Python integers.

An asymmetric numeral system of range type (Duda, 2009): a state $x$ holds all symbols to come as one large number. A
symbol of frequency $f$ out of $2^{16}$, with those before it adding up to $c$, turns it into
$\lfloor x/f \rfloor 2^{16} + c + x \bmod f$, so it takes $16 - \log_2 f$ bits. To stay below $2^{32}$, the state emits
16-bit words. The symbol encoded last is decoded first. `docs/ticket-format.md` says the same in words.
"""

from collections.abc import Iterable, Sequence

TOTAL = 1 << 16  # the sum of the frequencies; also the least state, and the number of words
MAX_ALPHABET = TOTAL
# Symbols are dealt to this many states, so that a CPU can process them in parallel; few symbols use one, to save bytes.
LANES, MANY = 8, 1 << 17


def lanes_of(count: int) -> int:
    """Return the number of states for `count` symbols."""
    return LANES if count >= MANY else 1


def frequencies(counts: Sequence[int]) -> list[int]:
    """Scale counts to whole numbers that add up to 2^16, with at least 1 for each symbol that occurs.

    Example:
        >>> frequencies([30, 0, 10])
        [49152, 0, 16384]
    """
    total, used = sum(counts), sum(count > 0 for count in counts)
    if not total:
        return [TOTAL, *([0] * (len(counts) - 1))]
    scaled = [count * (TOTAL - used) for count in counts]
    found = [part // total + (count > 0) for part, count in zip(scaled, counts, strict=True)]
    # The rest goes to those rounded down most; among equals, to the first.
    order = sorted((i for i, count in enumerate(counts) if count), key=lambda i: -(scaled[i] % total))
    for i in order[: TOTAL - sum(found)]:
        found[i] += 1
    return found


def table_to_bytes(table: Sequence[int]) -> bytes:
    """Write all frequencies but the last; after two equal ones, the number of repeats that follow."""
    data, place, listed = bytearray(), 0, table[:-1]
    while place < len(listed):
        value, run = listed[place], 1
        while place + run < len(listed) and listed[place + run] == value:
            run += 1
        data += _varint(value) if run == 1 else 2 * _varint(value) + _varint(run - 2)
        place += run
    return bytes(data)


def table_from_bytes(data: bytes, alphabet: int) -> tuple[list[int], int]:
    """Read a table; return it and its number of bytes."""
    table: list[int] = []
    place, repeated = 0, False
    while len(table) < alphabet - 1:
        value, place = _read_varint(data, place)
        table.append(value)
        repeated = not repeated and len(table) > 1 and table[-2] == value
        if repeated:
            more, place = _read_varint(data, place)
            if len(table) + more > alphabet - 1:
                raise ValueError(f"a table of frequencies has more than {alphabet} of them")
            table += [value] * more
    rest = TOTAL - sum(table)
    if rest < 0:
        raise ValueError("frequencies add up to more than 65,536")
    return [*table, rest], place


def encode(symbols: Sequence[int], table: Sequence[int]) -> bytes:
    """Write symbols, each of which must have a frequency, after their table."""
    lanes, before = lanes_of(len(symbols)), _starts(table)
    states, words = [TOTAL] * lanes, list[int]()
    for i in reversed(range(len(symbols))):
        lane, frequency = i % lanes, table[symbols[i]]
        if states[lane] >= frequency * TOTAL:
            words.append(states[lane] % TOTAL)
            states[lane] //= TOTAL
        high, low = divmod(states[lane], frequency)
        states[lane] = high * TOTAL + before[symbols[i]] + low
    return table_to_bytes(table) + _little(states, 4) + _little(reversed(words), 2)


def decode(data: bytes, count: int, alphabet: int) -> tuple[list[int], int]:
    """Read `count` symbols; return them and their number of bytes."""
    table, place = table_from_bytes(data, alphabet)
    symbol_of = [symbol for symbol, frequency in enumerate(table) for _ in range(frequency)]
    before, lanes = _starts(table), lanes_of(count)
    states = []
    for _ in range(lanes):
        state, place = _read(data, place, 4)
        states.append(state)
    symbols = []
    for i in range(count):
        high, slot = divmod(states[i % lanes], TOTAL)
        symbol = symbol_of[slot]
        state = table[symbol] * high + slot - before[symbol]
        if state < TOTAL:
            word, place = _read(data, place, 2)
            state = state * TOTAL + word
        states[i % lanes] = state
        symbols.append(symbol)
    if states != [TOTAL] * lanes:
        raise ValueError("a code does not end as it began")
    return symbols, place


def _starts(table: Sequence[int]) -> list[int]:
    """Return, for each symbol, the sum of the frequencies before it."""
    starts = [0]
    for frequency in table:
        starts.append(starts[-1] + frequency)
    return starts


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, lowest first; the top bit says that more follow."""
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + _varint(value // 128)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in (0, 7, 14):
        byte, place = _read(data, place, 1)
        value |= byte % 128 << shift
        if byte < 128:
            return value, place
    raise ValueError("a number of a table of frequencies has more than three bytes")


def _read(data: bytes, place: int, width: int) -> tuple[int, int]:
    if place + width > len(data):
        raise ValueError("a code ends too early")
    return int.from_bytes(data[place : place + width], "little"), place + width


def _little(numbers: Iterable[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)
