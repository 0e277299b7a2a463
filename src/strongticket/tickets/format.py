"""Tickets as bytes: `docs/ticket-format.md`, line for line. Nothing in a file is trusted before it is checked."""

import gc
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from typing import BinaryIO, TypedDict, TypeVar

import numpy as np
import torch

from strongticket.errors import TicketFormatError
from strongticket.files import Json, canonical_json, parse_canonical_json
from strongticket.tickets.coding import compile_kernels
from strongticket.tickets.container import DTYPES, Entry, header_bytes, header_of, places_of
from strongticket.tickets.content import Content, DenseFields, RandomFields, check_unique, content_of
from strongticket.tickets.kinds import (
    Payload,
    check_fields,
    check_rule,
    check_sizes,
    encode_mask,
    has_payload,
    read_mask,
)
from strongticket.tickets.tensors import Certificate, DenseTensor, Digests, RandomTensor, check_shape

VERSION = 1
MAX_HEADER_BYTES = 8 << 20
MAX_HEADER_PARTS = 1 << 19  # commas and opening brackets: each may stand for an object much larger than itself

Kind = TypeVar("Kind", bound=Content)

_METADATA_KEY = "strongticket"
_DIGEST_BYTES = 32
_CHUNK = 1 << 20
_LONGEST_REASON = 300


class Description(TypedDict):
    """What a header says besides the container's table."""

    certificate: Mapping[str, object] | None
    coding: Mapping[str, str]
    content: object  # of `ContentFields`, checked part by part
    metadata: Mapping[str, object]
    sha256: Mapping[str, str]
    version: int


# --- writing -------------------------------------------------------------------------------------------------------


def write_ticket(ticket: Content, digests: Digests, file: BinaryIO) -> None:
    """Write a ticket: header, mask payloads, dense tensors, and finally the SHA-256 of all preceding bytes."""
    masks = {name: tensor.mask for name, tensor in ticket.tensors.items() if tensor.mask.symbols}
    # Coding holds no lock, so the masks of a large ticket are coded on all cores.
    if masks:
        compile_kernels()
    with ThreadPoolExecutor() as pool:
        coded = dict(zip(masks, pool.map(encode_mask, masks.values()), strict=True))
    content = content_of(ticket)
    description: Description = {
        "certificate": asdict(ticket.certificate) if ticket.certificate else None,
        "coding": {name: how for name, (how, _) in coded.items()},
        "content": content,
        "metadata": ticket.metadata,
        "sha256": asdict(digests),
        "version": VERSION,
    }
    lengths = {name: sum(map(len, pieces)) for name, (_, pieces) in coded.items()}
    header = header_bytes(header_of(_entries(content["dense"], lengths), {_METADATA_KEY: canonical_json(description)}))
    if len(header) - 8 > MAX_HEADER_BYTES or _parts_of(header) > MAX_HEADER_PARTS:
        raise ValueError(
            f"a ticket's description takes at most {MAX_HEADER_BYTES} bytes and {MAX_HEADER_PARTS} commas and opening "
            f"brackets; this one takes {len(header) - 8} and {_parts_of(header)}. "
            "Put less into metadata, architecture or the certificate's details."
        )
    digest = hashlib.sha256()
    dense = (tensor.to_bytes() for tensor in ticket.dense.values())
    for piece in chain([header], *(pieces for _, pieces in coded.values()), dense):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def _parts_of(header: bytes) -> int:
    return sum(map(header.count, (b",", b"[", b"{")))


def _entries(dense: Sequence[DenseFields], lengths: dict[str, int]) -> list[Entry]:
    return [
        *(Entry(f"mask.{name}", "U8", (length,)) for name, length in lengths.items()),
        *(Entry(f"dense.{tensor['name']}", tensor["dtype"], tensor["shape"]) for tensor in dense),
        Entry("sha256", "U8", (_DIGEST_BYTES,)),
    ]


# --- reading -------------------------------------------------------------------------------------------------------


def read_ticket(kind: type[Kind], file: BinaryIO, size: int, source: str) -> tuple[Kind, Digests]:
    """Read a ticket from a seekable file of `size` bytes; `source` names it in errors."""
    try:
        with _without_collector():
            return _read(kind, file, size)
    except (ValueError, zlib.error) as error:
        # The reason may quote the file, at any length.
        raise TicketFormatError(f"{source}: {str(error)[:_LONGEST_REASON]}") from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Stop the garbage collector: it would search a header's 500,000 objects again and again, and finds no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(kind: type[Kind], file: BinaryIO, size: int) -> tuple[Kind, Digests]:
    header, data_start = _read_header(file, size)
    description = _description_of(header)
    content = check_fields(description["content"], "content", architecture=dict, dense=list, seed=int, tensors=list)
    random = [_random_fields(value) for value in content["tensors"]]
    dense = [_dense_fields(value) for value in content["dense"]]
    # Before decoding any payload, lest one be decoded for each of many tensors of one name.
    check_unique([each["name"] for each in (*random, *dense)])
    stored = [r["name"] for r in random if has_payload(r["mask"])]
    if set(description["coding"]) != set(stored):
        raise ValueError("coding must name the tensors whose masks are stored, and no others")

    offsets = _checked_offsets(header, dense, stored, size - data_start)
    _check_digest(file, size)

    def payload(name: str) -> Payload:
        begin, end = offsets[name]
        how = description["coding"].get(name.removeprefix("mask."))
        return Payload(how, end - begin, _chunks(file, data_start + begin, data_start + end))

    found = kind(
        seed=content["seed"],
        tensors=[_random_tensor(r, payload) for r in random],
        dense=[_dense_tensor(d, b"".join(payload(f"dense.{d['name']}").pieces)) for d in dense],
        architecture=content["architecture"],
        certificate=_certificate(description["certificate"]),
        metadata=description["metadata"],
    )
    # One comparison refuses all alternative spellings, so that equal content has equal bytes.
    if canonical_json(content_of(found)) != canonical_json(content):
        raise ValueError("content is not in canonical form (scales as float32, equal block sizes as one number)")
    digests = check_fields(description["sha256"], "sha256", masks=str, weights=str)
    return found, Digests(masks=digests["masks"], weights=digests["weights"])


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Json], int]:
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 + 2 + _DIGEST_BYTES:
        raise ValueError(f"{size} bytes are too few for a ticket")
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8 - _DIGEST_BYTES):
        raise ValueError(f"not a ticket, or truncated: it announces a header of {length} bytes in a file of {size}")
    written = file.read(length)
    if (parts := _parts_of(written)) > MAX_HEADER_PARTS:
        raise ValueError(f"its header has {parts} commas and opening brackets; at most {MAX_HEADER_PARTS} are allowed")
    header = parse_canonical_json(written.decode().rstrip(" "))
    if not isinstance(header, dict) or header_bytes(header)[8:] != written:
        raise ValueError("the header is not a JSON object padded with spaces to a multiple of eight bytes")
    return header, 8 + length


def _description_of(header: dict[str, Json]) -> Description:
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_METADATA_KEY), str):
        raise ValueError(f"a safetensors file, but not a ticket: its metadata has no text {_METADATA_KEY!r}")
    if len(metadata) > 1:
        raise ValueError(f"the header's metadata has keys other than {_METADATA_KEY!r}, which no ticket has")
    description = parse_canonical_json(metadata[_METADATA_KEY])
    version = description.get("version") if isinstance(description, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("the description has no version")
    if version > VERSION:
        raise ValueError(
            f"version {str(version)[:20]} is newer than this release reads (up to {VERSION}). Upgrade strongticket."
        )
    checked: Description = check_fields(
        description,
        "the description",
        certificate=(dict, type(None)),
        coding=dict,
        content=dict,
        metadata=dict,
        sha256=dict,
        version=int,
    )
    return checked


def _random_fields(value: object) -> RandomFields:
    fields: RandomFields = check_fields(
        value, "a tensor", distribution=str, dtype=str, mask=dict, name=str, scale=float, shape=list
    )
    if fields["dtype"] != "F32":
        raise ValueError(f"a random tensor's dtype must be F32; got {fields['dtype']!r:.20}")
    check_rule(fields["mask"])
    return {**fields, "shape": _shape(fields)}


def _dense_fields(value: object) -> DenseFields:
    fields: DenseFields = check_fields(value, "a dense tensor", dtype=str, name=str, shape=list, trained=bool)
    if fields["dtype"] not in DTYPES:
        raise ValueError(f"unknown dtype {fields['dtype']!r:.20}")
    return {**fields, "shape": _shape(fields)}


def _shape(fields: RandomFields | DenseFields) -> tuple[int, ...]:
    shape = check_sizes(fields["shape"], "a shape")
    # Before multiplying: a product of many large numbers would take minutes.
    check_shape(fields["name"][:80], shape)
    return shape


def _checked_offsets(
    header: dict[str, Json], dense: list[DenseFields], packed: list[str], data_bytes: int
) -> dict[str, list[int]]:
    """Rebuild the container's table from the description and the payloads' lengths, and compare."""
    lengths: dict[str, int] = {}
    for name in packed:
        entry = header.get(f"mask.{name}")
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not (isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int and 0 <= shape[0] <= data_bytes):
            raise ValueError(f"the mask of {name:.80} has no payload that fits the file")
        lengths[name] = shape[0]
    entries = _entries(dense, lengths)
    if canonical_json(header_of(entries, header["__metadata__"])) != canonical_json(header):
        raise ValueError("the container's table of tensors does not fit the description")
    places = places_of(entries)
    if (end := places["sha256"]["data_offsets"][1]) != data_bytes:
        raise ValueError(f"truncated or too long: the tensors take {end} bytes, the file has {data_bytes} for them")
    return {name: place["data_offsets"] for name, place in places.items()}


def _check_digest(file: BinaryIO, size: int) -> None:
    digest = hashlib.sha256()
    for chunk in _chunks(file, 0, size - _DIGEST_BYTES):
        digest.update(chunk)
    if digest.digest() != file.read(_DIGEST_BYTES):
        raise ValueError("damaged: the SHA-256 at its end is not that of its bytes")


def _chunks(file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    while begin < end:
        chunk = file.read(min(_CHUNK, end - begin))
        if not chunk:
            raise ValueError("the file became shorter while being read")
        begin += len(chunk)
        yield chunk


def _random_tensor(fields: RandomFields, payload: Callable[[str], Payload]) -> RandomTensor:
    name = fields["name"]
    mask = read_mask(name, fields["shape"], fields["mask"], lambda: payload(f"mask.{name}"))
    return RandomTensor(name=name, mask=mask, distribution=fields["distribution"], scale=fields["scale"])


def _dense_tensor(fields: DenseFields, data: bytes) -> DenseTensor:
    flat = torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8)).view(DTYPES[fields["dtype"]])
    return DenseTensor(name=fields["name"], value=flat.view(fields["shape"]), trained=fields["trained"])


def _certificate(value: object) -> Certificate | None:
    if value is None:
        return None
    kinds = {"details": dict, "error": float, "input_norm": float, "target_sha256": str}
    return Certificate(**check_fields(value, "a certificate", **kinds))
