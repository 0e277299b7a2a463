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


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def check_fields(value: Any, fields: str, what: str) -> None:
    require(isinstance(value, dict) and set(value) == set(fields.split()), f"{what} must have the fields {fields}")


def check_description(value: Any) -> None:
    require(isinstance(value, dict) and value.get("version") == 1, "not a ticket of version 1")
    check_fields(value, "version content coding sha256 certificate metadata", "description")
    require(type(value["version"]) is int, "version must be an integer")
    check_content(value["content"])
    names = {tensor["name"] for tensor in bit_tensors(value["content"])}
    require(isinstance(value["coding"], dict) and set(value["coding"]) == names, "coding does not fit the masks")
    require(all(coding in ("raw", "huffman") for coding in value["coding"].values()), "unknown coding")
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
    require(value["distribution"] in ("uniform", "normal", "sign"), "unknown distribution")
    scale = value["scale"]
    require(type(scale) is float and scale > 0, "the scale must be a positive float")
    require(struct.unpack("<f", single(scale))[0] == scale, "the scale must be a float32")
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
    require(kind in ("bits", "ones", "blocks"), "unknown mask")
    if kind == "blocks":
        check_blocks(value, shape)
    else:
        check_fields(value, "kind", "mask")


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


def elements(tensor: Json) -> int:
    return math.prod(tensor["shape"])


def packed_length(tensor: Json) -> int:
    return (elements(tensor) + 7) // 8


def bit_tensors(content: Json) -> list[Json]:
    return [tensor for tensor in content["tensors"] if tensor["mask"]["kind"] == "bits"]


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
        for tensor in bit_tensors(description["content"])
    }
    dense = {tensor["name"]: payloads[f"dense.{tensor['name']}"] for tensor in description["content"]["dense"]}
    return Ticket(description, packed, dense)


def read_header(data: bytes) -> tuple[Json, int]:
    require(len(data) >= 8, "the file is too short")
    (length,) = struct.unpack_from("<Q", data)
    end = 8 + length
    require(length <= MAX_HEADER and end <= len(data), "bad header length")
    text = data[8:end].rstrip(b" ")
    require(length == (len(text) + 7) // 8 * 8, "bad header padding")
    table = parse_canonical(text, "header")
    require(isinstance(table, dict), "the header must be an object")
    return table, end


def cut_payloads(table: Json, content: Json, data: bytes) -> dict[str, bytes]:
    keys = [f"mask.{tensor['name']}" for tensor in bit_tensors(content)]
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
    length = packed_length(tensor)
    packed = inflate(payload, length) if coding == "huffman" else payload
    require(len(packed) == length, "a mask has the wrong length")
    spare = 8 * length - elements(tensor)
    require(spare == 0 or packed[-1] >> (8 - spare) == 0, "bits after the last element must be 0")
    return packed


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


def words(seed: int, name: str, count: int) -> Iterator[int]:
    stream = hashlib.sha256(b"strongticket rng 1\0" + struct.pack("<Q", seed) + name.encode()).digest()
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


def draw(seed: int, tensor: Json, rows: Rows) -> list[bytes]:
    """Return the weights of a tensor, each as the four bytes of its single."""
    scale, drawn = tensor["scale"], words(seed, tensor["name"], elements(tensor))
    match tensor["distribution"]:
        case "uniform":
            return [single(uniform(w, scale)) for w in drawn]
        case "sign":
            return [single(sign(w, scale)) for w in drawn]
        case _:
            return [single(normal(w, scale, rows)) for w in drawn]


# Masks and digests (sections 4, 5 and 7)


def kept(tensor: Json, packed: bytes) -> list[bool]:
    mask = tensor["mask"]
    if mask["kind"] == "bits":
        return [packed[i // 8] >> i % 8 & 1 == 1 for i in range(elements(tensor))]
    if mask["kind"] == "ones":
        return [True] * elements(tensor)
    return kept_blocks(mask, tensor["shape"])


def kept_blocks(mask: Json, shape: list[int]) -> list[bool]:
    axis, sizes = mask["unit_axis"], mask["sizes"]
    sizes = sizes if isinstance(sizes, list) else [sizes] * shape[1 - axis]
    owners: list[int | None] = [coordinate for coordinate, size in enumerate(sizes) for _ in range(size)]
    owners += [None] * (shape[axis] - len(owners))
    places = ((row, column) for row in range(shape[0]) for column in range(shape[1]))
    return [owners[place[axis]] == place[1 - axis] for place in places]


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
        name, drawn = tensor["name"], draw(ticket.content["seed"], tensor, rows)
        weights.update(hashlib.sha256(b"".join(drawn)).digest())
        keep = kept(tensor, ticket.packed.get(name, b""))
        data = b"".join(weight if bit else bytes(4) for weight, bit in zip(drawn, keep, strict=True))
        masked[name] = tensor["shape"], data
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
