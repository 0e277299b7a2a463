"""A second reader of tickets, written from docs/ticket-format.md alone: it shows that the page is complete.

It uses the standard library only and none of strongticket's code. `python independent_reader.py FILE...` prints what
it recomputes from each ticket as JSON.
"""

import hashlib
import json
import math
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE_FILE = Path(__file__).parents[1] / "src/strongticket/ops/philox/normal_table.npy"
TABLE_SHA256 = "dfd1abb06d4919b810143a942daa87d3a59b1bc5f3c3322dfa9084646d56aeed"
TABLE_BYTES = 16_384

MAX_HEADER = 8_388_608
MAX_PARTS = 524_288
MAX_ELEMENTS = 2**40
DENSE_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
DIGEST = re.compile(r"[0-9a-f]{64}")

Json = dict[str, Any]
Rows = list[tuple[float, ...]]


class FormatError(ValueError):
    pass


@dataclass(frozen=True)
class Ticket:
    description: Json
    packed: dict[str, bytes]
    dense: dict[str, bytes]

    @property
    def content(self) -> Json:
        return self.description["content"]


def require(condition: bool, message: str) -> None:
    if not condition:
        raise FormatError(message)


# Canonical JSON (section 2)


def canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def parse_canonical(data: bytes, what: str) -> Any:
    try:
        value = json.loads(data.decode())
        same = canonical(value) == data
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: {error}") from error
    require(same, f"{what} is not canonical JSON")
    return value


# The description (sections 3 and 4)


def is_integer(value: Any, low: int, high: float = math.inf) -> bool:
    # JSON's true and false are ints to isinstance.
    return type(value) is int and low <= value <= high


def is_single(value: float) -> bool:
    return struct.unpack("<f", single(value))[0] == value


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def check_fields(value: Any, fields: str, what: str) -> None:
    require(isinstance(value, dict) and set(value) == set(fields.split()), f"{what} must have the fields {fields}")


def check_description(value: Any) -> None:
    require(isinstance(value, dict) and value.get("version") == 1, "not a ticket of version 1")
    check_fields(value, "version content coding sha256 certificate metadata", "description")
    require(type(value["version"]) is int, "version must be an integer")
    check_content(value["content"])
    names = {tensor["name"] for tensor in stored_tensors(value["content"])}
    require(isinstance(value["coding"], dict) and set(value["coding"]) == names, "coding does not fit the masks")
    require(all(coding in ("raw", "huffman", "rans") for coding in value["coding"].values()), "unknown coding")
    check_fields(value["sha256"], "masks weights", "sha256")
    require(all(map(is_digest, value["sha256"].values())), "sha256 must hold digests")
    check_certificate(value["certificate"])
    require(isinstance(value["metadata"], dict), "metadata must be an object")


def check_certificate(value: Any) -> None:
    if value is None:
        return
    check_fields(value, "error input_norm target_sha256 details", "certificate")
    require(type(value["error"]) is float and type(value["input_norm"]) is float, "a bound must be a float")
    require(is_digest(value["target_sha256"]), "target_sha256 must be a digest")
    require(isinstance(value["details"], dict), "details must be an object")


def check_content(value: Any) -> None:
    check_fields(value, "seed architecture tensors dense", "content")
    require(is_integer(value["seed"], 0, 2**64 - 1), "the seed must be an integer of 64 bits")
    require(isinstance(value["architecture"], dict), "architecture must be an object")
    require(isinstance(value["tensors"], list) and isinstance(value["dense"], list), "tensors must be lists")
    for tensor in value["tensors"]:
        check_tensor(tensor)
    for tensor in value["dense"]:
        check_dense(tensor)
    shapes = {f"{tensor['name']}.scales": tensor["shape"] for tensor in value["tensors"]}
    for tensor in value["dense"]:
        if (shape := shapes.get(tensor["name"])) is not None:
            counts = tensor["shape"]
            require(tensor["dtype"] == "F32" and len(counts) == len(shape), "scales do not fit")
            require(all(1 <= m <= max(1, n) for m, n in zip(counts, shape, strict=True)), "scales do not fit")
    everything = value["tensors"] + value["dense"]
    require(len({tensor["name"] for tensor in everything}) == len(everything), "a name occurs twice")
    require(sum(elements(tensor) for tensor in everything) <= MAX_ELEMENTS, "too many elements")


def check_tensor(value: Any) -> None:
    check_fields(value, "name shape dtype distribution scale mask", "tensor")
    check_name_and_shape(value)
    require(value["dtype"] == "F32", "a random tensor must have dtype F32")
    require(value["distribution"] in ("uniform", "normal", "sign", "packed-sign"), "unknown distribution")
    scale = value["scale"]
    require(type(scale) is float and 2.0**-100 <= scale <= 2.0**100, "the scale is out of range")
    require(is_single(scale), "the scale must be a float32")
    check_mask(value["mask"], value["shape"])


def check_dense(value: Any) -> None:
    check_fields(value, "name dtype shape trained", "dense tensor")
    check_name_and_shape(value)
    require(isinstance(value["dtype"], str) and value["dtype"] in DENSE_WIDTHS, "unknown dtype")
    require(isinstance(value["trained"], bool), "trained must be true or false")


def check_name_and_shape(value: Json) -> None:
    name, shape = value["name"], value["shape"]
    require(isinstance(name, str) and len(name) <= 200 and NAME.fullmatch(name) is not None, "bad name")
    require(isinstance(shape, list) and len(shape) <= 16, "bad shape")
    require(all(is_integer(size, 0) for size in shape), "bad size in a shape")


def check_mask(value: Any, shape: list[int]) -> None:
    kind = value.get("kind") if isinstance(value, dict) else None
    require(kind in ("bits", "ones", "blocks", "codes", "owners"), "unknown mask")
    if kind == "blocks":
        check_blocks(value, shape)
    elif kind == "owners":
        check_fields(value, "kind unit_axis", "mask")
        require(len(shape) == 2 and is_integer(value["unit_axis"], 0, 1), "owners need a matrix and an axis of it")
        require(shape[1 - value["unit_axis"]] < 2**32, "too many coordinates")
    elif kind == "codes":
        check_codes(value)
    else:
        check_fields(value, "kind", "mask")


def check_codes(value: Json) -> None:
    check_fields(value, "frozen kind table", "mask")
    table, frozen = value["table"], value["frozen"]
    require(isinstance(table, list) and 1 <= len(table) <= 16, "a table must have 1 to 16 codes")
    for pair in table:
        require(isinstance(pair, list) and [*map(type, pair)] == [float, int], "a code must be a float and an integer")
        coefficient, number = pair
        require(is_single(coefficient), "a coefficient must be a float32")
        size = abs(coefficient)
        require(2.0**-24 <= size <= 2.0**24 or (size == 0 and number == 0), "bad coefficient")
        require(math.copysign(1, coefficient) > 0 or size > 0, "a coefficient must not be -0.0")
        require(is_integer(number, 0, 2**32 - 1), "bad draw")
    require(len({tuple(pair) for pair in table}) == len(table), "a code occurs twice")
    if frozen is None:
        require(table != [[0.0, 0], [1.0, 0]], "such a mask is of kind bits")
        return
    check_fields(frozen, "seed shares", "frozen")
    require(is_integer(frozen["seed"], 0, 2**64 - 1), "the seed must be an integer of 64 bits")
    shares = frozen["shares"]
    require(isinstance(shares, list) and len(shares) == len(table), "there must be a share for each code")
    require(all(type(share) is float and math.copysign(1, share) > 0 for share in shares), "bad share")
    total = 0.0
    for share in shares:
        total += share
    require(0 < total <= 255 / 256, "shares must leave something free")


def check_blocks(value: Json, shape: list[int]) -> None:
    check_fields(value, "kind sizes unit_axis", "mask")
    require(len(shape) == 2 and is_integer(value["unit_axis"], 0, 1), "blocks need a matrix and an axis of it")
    sizes, units, coordinates = value["sizes"], shape[value["unit_axis"]], shape[1 - value["unit_axis"]]
    if isinstance(sizes, list):
        require(len(sizes) == coordinates and all(is_integer(size, 0) for size in sizes), "bad block sizes")
        require(len(set(sizes)) > 1, "equal block sizes must be one number")
        require(sum(sizes) <= units, "the blocks have more units than the matrix")
    else:
        require(is_integer(sizes, 0) and sizes * coordinates <= units, "bad block size")
        require(coordinates > 0 or sizes == 0, "without coordinates the size must be 0")


def elements(tensor: Json) -> int:
    return math.prod(tensor["shape"])


def alphabet(tensor: Json) -> int:
    mask = tensor["mask"]
    if mask["kind"] == "owners":
        return tensor["shape"][1 - mask["unit_axis"]] + 1
    return len(mask["table"]) if mask["kind"] == "codes" else 2


def symbols_stored(tensor: Json) -> int:
    mask = tensor["mask"]
    if mask["kind"] == "owners":
        return tensor["shape"][mask["unit_axis"]]
    if is_frozen(tensor):
        return sum(code is None for code in fixed_codes(tensor))
    return elements(tensor)


def is_frozen(tensor: Json) -> bool:
    return tensor["mask"].get("frozen") is not None


def width(tensor: Json) -> int:
    return next(bits for bits in (1, 2, 4, 8, 16, 32) if 2**bits >= alphabet(tensor))


def stored_tensors(content: Json) -> list[Json]:
    return [tensor for tensor in content["tensors"] if tensor["mask"]["kind"] in ("bits", "codes", "owners")]


# The file (sections 1 and 5)


def read(data: bytes) -> Ticket:
    table, start = read_header(data)
    metadata = table.pop("__metadata__", None)
    check_fields(metadata, "strongticket", "__metadata__")
    require(isinstance(metadata["strongticket"], str), "the description must be text")
    description = parse_canonical(metadata["strongticket"].encode(), "description")
    check_description(description)
    payloads = cut_payloads(table, description["content"], data[start:])
    require(hashlib.sha256(data[:-32]).digest() == payloads["sha256"], "the file's digest is wrong")
    packed = {
        tensor["name"]: unpack_mask(payloads[f"mask.{tensor['name']}"], tensor, description["coding"][tensor["name"]])
        for tensor in stored_tensors(description["content"])
    }
    for tensor in stored_tensors(description["content"]):
        if tensor["mask"]["kind"] == "owners":
            check_owners(unpacked(tensor, packed[tensor["name"]]))
    dense = {tensor["name"]: payloads[f"dense.{tensor['name']}"] for tensor in description["content"]["dense"]}
    return Ticket(description, packed, dense)


def read_header(data: bytes) -> tuple[Json, int]:
    require(len(data) >= 8, "the file is too short")
    (length,) = struct.unpack_from("<Q", data)
    end = 8 + length
    require(length <= MAX_HEADER and end <= len(data), "bad header length")
    text = data[8:end].rstrip(b" ")
    require(sum(text.count(part) for part in (b",", b"[", b"{")) <= MAX_PARTS, "too many commas and opening brackets")
    require(length == (len(text) + 7) // 8 * 8, "bad header padding")
    table = parse_canonical(text, "header")
    require(isinstance(table, dict), "the header must be an object")
    return table, end


def cut_payloads(table: Json, content: Json, data: bytes) -> dict[str, bytes]:
    keys = [f"mask.{tensor['name']}" for tensor in stored_tensors(content)]
    dense = {f"dense.{tensor['name']}": tensor for tensor in content["dense"]}
    keys += [*dense, "sha256"]
    require(set(table) == set(keys), "the header's table does not fit the description")
    payloads, start = {}, 0
    for key in keys:
        length = check_entry(table[key], start, dense.get(key))
        payloads[key] = data[start : start + length]
        start += length
    require(len(data) == start, "the file does not end where the table ends")
    require(len(payloads["sha256"]) == 32, "the file's digest must have 32 bytes")
    return payloads


def check_entry(entry: Any, start: int, dense: Json | None) -> int:
    check_fields(entry, "dtype shape data_offsets", "table entry")
    shape = entry["shape"]
    require(isinstance(shape, list) and all(is_integer(size, 0) for size in shape), "bad shape in the table")
    if dense is None:
        require(entry["dtype"] == "U8" and len(shape) == 1, "a table entry is not a string of bytes")
        length = shape[0]
    else:
        require(entry["dtype"] == dense["dtype"] and shape == dense["shape"], "a table entry has the wrong type")
        length = DENSE_WIDTHS[dense["dtype"]] * elements(dense)
    offsets = entry["data_offsets"]
    require(isinstance(offsets, list) and all(is_integer(offset, 0) for offset in offsets), "bad offsets")
    require(offsets == [start, start + length], "payloads do not follow each other")
    return length


def unpack_mask(payload: bytes, tensor: Json, coding: str) -> bytes:
    if is_frozen(tensor):
        require(elements(tensor) <= 4096 * (len(payload) + 1), "a payload is too short for its frozen weights")
    count = symbols_stored(tensor)
    length = (count * width(tensor) + 7) // 8
    if coding == "rans":
        packed = read_rans(payload, tensor, count, length)
    else:
        packed = inflate(payload, length) if coding == "huffman" else payload
    require(len(packed) == length, "a mask has the wrong length")
    spare = 8 * length - count * width(tensor)
    require(spare == 0 or packed[-1] >> (8 - spare) == 0, "bits after the last symbol must be 0")
    require(all(symbol < alphabet(tensor) for symbol in split(packed, width(tensor), count)), "a symbol is too large")
    return packed


def split(packed: bytes, bits: int, count: int) -> Iterator[int]:
    for i in range(count):
        first, low = divmod(bits * i, 8)
        piece = int.from_bytes(packed[first : first + max(bits // 8, 1)], "little")
        yield piece >> low & (2**bits - 1)


def unpacked(tensor: Json, packed: bytes) -> list[int]:
    return list(split(packed, width(tensor), symbols_stored(tensor)))


def check_owners(owners: list[int]) -> None:
    owned = [owner for owner in owners if owner]
    require(owners[: len(owned)] != sorted(owned), "such owners are of kind blocks")


class Bytes:
    """A payload that is read from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def number(self, size: int) -> int:
        require(self.place + size <= len(self.data), "a payload ends too early")
        self.place += size
        return int.from_bytes(self.data[self.place - size : self.place], "little")

    def small(self) -> int:
        value = 0
        for shift in (0, 7, 14):
            byte = self.number(1)
            value += byte % 128 << shift
            if byte < 128:
                return value
        raise FormatError("a number of a table has more than three bytes")


def read_rans(payload: bytes, tensor: Json, count: int, length: int) -> bytes:
    require(alphabet(tensor) <= 65_536 and length <= 256 * len(payload), "a payload is too short for its mask")
    data = Bytes(payload)
    frequencies = read_frequencies(data, alphabet(tensor))
    below = running(frequencies)
    symbol_at = [s for s, frequency in enumerate(frequencies) for _ in range(frequency)]
    lanes = 8 if count >= 131_072 else 1
    states = [data.number(4) for _ in range(lanes)]
    bits, symbols = width(tensor), []
    for i in range(count):
        x = states[i % lanes]
        t = x % 65_536
        s = symbol_at[t]
        x = frequencies[s] * (x // 65_536) + t - below[s]
        if x < 65_536:
            x = x * 65_536 + data.number(2)
        states[i % lanes] = x
        symbols.append(s)
    require(all(x == 65_536 for x in states), "a payload does not end as it should")
    frozen = -(-elements(tensor) // 4096) - 1 if is_frozen(tensor) else 0
    require(len(payload) == max(data.place, -(-length // 256), frozen), "a payload has the wrong length")
    require(not any(payload[data.place :]), "a payload must be filled up with 0")
    return join(symbols, bits)


def running(frequencies: list[int]) -> list[int]:
    sums = [0]
    for frequency in frequencies[:-1]:
        sums.append(sums[-1] + frequency)
    return sums


def join(symbols: list[int], bits: int) -> bytes:
    if bits >= 8:
        return b"".join(symbol.to_bytes(bits // 8, "little") for symbol in symbols)
    each = 8 // bits
    groups = (symbols[i : i + each] for i in range(0, len(symbols), each))
    return bytes(sum(symbol << bits * place for place, symbol in enumerate(group)) for group in groups)


def read_frequencies(data: Bytes, size: int) -> list[int]:
    frequencies: list[int] = []
    comparable = False
    while len(frequencies) < size - 1:
        frequency = data.small()
        same = comparable and frequencies[-1] == frequency
        frequencies.append(frequency)
        comparable = not same
        if same:
            frequencies += [frequency] * min(more := data.small(), size)
            require(len(frequencies) <= size - 1 and more <= size, "a table has too many frequencies")
    require(sum(frequencies) <= 65_536, "frequencies must add up to 65,536")
    return [*frequencies, 65_536 - sum(frequencies)]


def inflate(payload: bytes, length: int) -> bytes:
    require(length <= 8 * len(payload), "a payload is too short for its mask")
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        # One byte more than expected shows a stream that is too long; 0 would mean no limit.
        packed = stream.decompress(payload, length + 1)
    except zlib.error as error:
        raise FormatError(f"a mask is not a DEFLATE stream: {error}") from error
    require(stream.eof and not stream.unused_data, "a DEFLATE stream must end with its payload")
    return packed


# Random weights (section 6)


def single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        # struct refuses what IEEE 754 rounds to infinity.
        return struct.pack("<f", math.copysign(math.inf, value))


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = (right >> 32) ^ c1 ^ k0, right & 0xFFFFFFFF
        c2, c3 = (left >> 32) ^ c3 ^ k1, left & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(seed: int, name: str, count: int, draw: int = 0) -> Iterator[int]:
    text = b"strongticket rng 1\0" + struct.pack("<Q", seed) + name.encode()
    stream = hashlib.sha256(text + b"\0" + struct.pack("<I", draw) if draw else text).digest()
    key0, key1, high0, high1 = struct.unpack_from("<4I", stream)
    for c in range((count + 3) // 4):
        output = philox((c & 0xFFFFFFFF, c >> 32, high0, high1), (key0, key1))
        yield from output[: count - 4 * c]


def read_normal_table() -> Rows:
    data = TABLE_FILE.read_bytes()[-TABLE_BYTES:]
    require(hashlib.sha256(data).hexdigest() == TABLE_SHA256, "the table of the normal distribution is damaged")
    return list(struct.iter_unpack("<4d", data))


def uniform(w: int, scale: float) -> float:
    return (scale * 2.0**-29) * (2 * (w // 8) + 1 - 2**29)


def sign(w: int, scale: float) -> float:
    return -scale if w >= 2**31 else scale


def normal(w: int, scale: float, rows: Rows) -> float:
    x = 2 * (w % 2**31) + 1
    e = x.bit_length() - 1
    f = x / 2**e - 1
    step = math.floor(16 * f)
    t = f - step / 16
    c0, c1, c2, c3 = rows[16 * e + step]
    z = scale * (((c3 * t + c2) * t + c1) * t + c0)
    return -z if w >= 2**31 else z


def draw(seed: int, tensor: Json, rows: Rows, number: int) -> list[bytes]:
    """Return one draw of the weights of a tensor, each as the four bytes of its single."""
    scale, count = tensor["scale"], elements(tensor)
    if tensor["distribution"] == "packed-sign":
        packed = list(words(seed, tensor["name"], (count + 31) // 32, number))
        minus, plus = single(-scale), single(scale)
        return [minus if packed[i // 32] >> i % 32 & 1 else plus for i in range(count)]
    drawn = words(seed, tensor["name"], count, number)
    match tensor["distribution"]:
        case "uniform":
            return [single(uniform(w, scale)) for w in drawn]
        case "sign":
            return [single(sign(w, scale)) for w in drawn]
        case _:
            return [single(normal(w, scale, rows)) for w in drawn]


# Masks and digests (sections 4, 5 and 7)


def table_of(tensor: Json) -> list[tuple[float, int]]:
    return [tuple(pair) for pair in tensor["mask"].get("table", [[0.0, 0], [1.0, 0]])]


def fixed_codes(tensor: Json) -> list[int | None]:
    """Return the codes of frozen weights, and None for those that are free."""
    frozen = tensor["mask"]["frozen"]
    edges, fixed = [-1.0], 0.0
    for share in frozen["shares"]:
        fixed += share
        edges.append(2 * fixed - 1)
    codes: list[int | None] = []
    for w in words(frozen["seed"], "frozen", elements(tensor)):
        (u,) = struct.unpack("<f", single(uniform(w, 1.0)))
        found = [c for c in range(len(edges) - 1) if edges[c] <= u < edges[c + 1]]
        codes.append(found[0] if found else None)
    return codes


def codes_of(tensor: Json, packed: bytes) -> list[int]:
    mask = tensor["mask"]
    if mask["kind"] == "ones":
        return [1] * elements(tensor)
    if mask["kind"] == "blocks":
        return kept_blocks(mask, tensor["shape"])
    symbols = unpacked(tensor, packed)
    if mask["kind"] == "owners":
        return kept_own([s - 1 if s else None for s in symbols], mask["unit_axis"], tensor["shape"])
    if not is_frozen(tensor):
        return symbols
    free = iter(symbols)
    return [next(free) if code is None else code for code in fixed_codes(tensor)]


def times(coefficient: float, weight: bytes) -> bytes:
    # The product of two singles is exact as a double, so it is rounded once.
    return single(coefficient * struct.unpack("<f", weight)[0]) if coefficient else bytes(4)


def scaled(ticket: Ticket, tensor: Json, weights: list[bytes]) -> list[bytes]:
    counts = {dense["name"]: dense["shape"] for dense in ticket.content["dense"]}.get(f"{tensor['name']}.scales")
    if counts is None:
        return weights
    scales = [value for (value,) in struct.iter_unpack("<f", ticket.dense[f"{tensor['name']}.scales"])]
    found = []
    for i, weight in enumerate(weights):
        rest, place, stride = i, 0, 1
        for n, m in zip(reversed(tensor["shape"]), reversed(counts), strict=True):
            place += rest % n // -(-n // m) * stride
            rest, stride = rest // n, stride * m
        found.append(single(scales[place] * struct.unpack("<f", weight)[0]))
    return found


def kept_blocks(mask: Json, shape: list[int]) -> list[int]:
    axis, sizes = mask["unit_axis"], mask["sizes"]
    sizes = sizes if isinstance(sizes, list) else [sizes] * shape[1 - axis]
    owners: list[int | None] = [coordinate for coordinate, size in enumerate(sizes) for _ in range(size)]
    owners += [None] * (shape[axis] - len(owners))
    return kept_own(owners, axis, shape)


def kept_own(owners: list[int | None], axis: int, shape: list[int]) -> list[int]:
    places = ((row, column) for row in range(shape[0]) for column in range(shape[1]))
    return [int(owners[place[axis]] == place[1 - axis]) for place in places]


def identity(ticket: Ticket) -> str:
    digest = hashlib.sha256(b"strongticket identity 1\0" + canonical(ticket.content) + b"\0")
    for data in [*ticket.packed.values(), *ticket.dense.values()]:
        digest.update(data)
    return digest.hexdigest()


def tensors_digest(tensors: dict[str, tuple[list[int], bytes]]) -> str:
    """Digest float32 tensors, given by name as shape and bytes, in the manner of `target_sha256`."""
    digest = hashlib.sha256(b"strongticket tensors 1\0")
    for name, (shape, data) in sorted(tensors.items()):
        digest.update(canonical({"dtype": "float32", "name": name, "shape": shape}) + b"\0" + data)
    return digest.hexdigest()


def recompute(ticket: Ticket) -> dict[str, Any]:
    rows = read_normal_table()
    weights = hashlib.sha256()  # of the digests of the tensors
    masked = {}
    for tensor in ticket.content["tensors"]:
        name, table, draws = tensor["name"], table_of(tensor), {}
        for number in sorted({number for _, number in table}):
            draws[number] = draw(ticket.content["seed"], tensor, rows, number)
            weights.update(hashlib.sha256(b"".join(draws[number])).digest())
        codes = codes_of(tensor, ticket.packed.get(name, b""))
        pairs = (table[code] for code in codes)
        weights_of = [times(coefficient, draws[number][i]) for i, (coefficient, number) in enumerate(pairs)]
        masked[name] = tensor["shape"], b"".join(scaled(ticket, tensor, weights_of))
    masks = hashlib.sha256(b"".join(ticket.packed.values()))
    return {
        "identity": identity(ticket),
        "masked_weights": tensors_digest(masked),
        "sha256": {"masks": masks.hexdigest(), "weights": weights.hexdigest()},
        "stated_sha256": ticket.description["sha256"],
    }


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]]
    print(json.dumps({path.name: recompute(read(path.read_bytes())) for path in paths}, indent=2))


if __name__ == "__main__":
    main()
