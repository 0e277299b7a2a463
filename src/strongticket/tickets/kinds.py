"""Masks in a file: the fields of each kind, checked and turned into masks."""

import math
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from strongticket.files import Json
from strongticket.tickets import coding
from strongticket.tickets.codes import CodeMask, Frozen
from strongticket.tickets.mask import BlockMask, FullMask, Mask, PackedMask
from strongticket.tickets.owners import OwnerMask, sides
from strongticket.tickets.symbols import Symbols
from strongticket.tickets.table import MAX_CODES, as_table
from strongticket.tickets.tensors import MAX_ELEMENTS

Shape = tuple[int, ...]
Rule = dict[str, Json]


class Payload(NamedTuple):
    """Bytes in a file, read on demand, and their coding."""

    coding: object
    stored: int
    pieces: Iterator[bytes]

    def symbols(self, alphabet: int, count: int, mapped: int = 0) -> Symbols:
        """Decode them."""
        return coding.decode(self.coding, self.pieces, self.stored, alphabet=alphabet, count=count, mapped=mapped)


def encode_mask(mask: Mask) -> tuple[str, list[coding.Piece]]:
    """Return the coding and the payload of a mask that has one."""
    assert mask.symbols
    frozen = isinstance(mask, CodeMask) and mask.frozen
    return coding.encode(mask.symbols, mapped=math.prod(mask.shape) if frozen else 0)


def has_payload(rule: Rule) -> bool:
    """Whether a file stores a payload for a mask."""
    return _KINDS[rule["kind"]].stored


def check_rule(rule: Rule) -> None:
    """Refuse a rule whose fields are not those of a mask."""
    kind = rule.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown mask kind {kind!r:.40}")
    check_fields(rule, f"a mask of kind {kind}", kind=str, **_KINDS[kind].fields)


def read_mask(name: str, shape: Shape, rule: Rule, payload: Callable[[], Payload]) -> Mask:
    """Make the mask of a tensor from a checked rule and its payload, if it has one."""
    kind = _KINDS[rule["kind"]]
    try:
        return kind.read(shape, rule, *([payload()] if kind.stored else []))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the mask of {name:.80}: {error}") from error


def check_fields(value: object, what: str, **kinds: type | tuple[type, ...]) -> Json:
    """Check that a JSON object has exactly these fields, each of its type (a bool is not an int)."""
    if not isinstance(value, dict) or set(value) != set(kinds):
        got = ", ".join(map(str, value))[:80] if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"{what} needs the fields {', '.join(kinds)}; got {got}")
    for name, kind in kinds.items():
        if type(value[name]) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise ValueError(f"{what}: {name} is a {type(value[name]).__name__}")
    return value


def check_sizes(value: Json, what: str) -> Shape:
    """Check a list of sizes."""
    if not all(type(size) is int and 0 <= size <= MAX_ELEMENTS for size in value):
        raise ValueError(f"{what} must be a list of whole numbers from 0 to 2^40")
    return tuple(value)


def _bits(shape: Shape, rule: Rule, payload: Payload) -> Mask:
    return PackedMask(shape, payload.symbols(2, math.prod(shape)).packed, copy=False)


def _blocks(shape: Shape, rule: Rule) -> Mask:
    sizes = rule["sizes"] if isinstance(rule["sizes"], int) else check_sizes(rule["sizes"], "block sizes")
    return BlockMask(shape=shape, unit_axis=rule["unit_axis"], sizes=sizes)


def _owners(shape: Shape, rule: Rule, payload: Payload) -> Mask:
    units, coordinates = sides(shape, rule["unit_axis"])
    return OwnerMask(shape, rule["unit_axis"], payload.symbols(coordinates + 1, units))


def _codes(shape: Shape, rule: Rule, payload: Payload) -> Mask:
    entries, numel = rule["table"][: MAX_CODES + 1], math.prod(shape)
    if not all(isinstance(entry, list) and [*map(type, entry)] == [float, int] for entry in entries):
        raise ValueError("a table must be a list of pairs, each a float and a whole number")
    table = as_table(tuple(map(tuple, entries)))
    if rule["frozen"] is None:
        return CodeMask(shape, table, payload.symbols(len(table), numel))
    fields = check_fields(rule["frozen"], "frozen", seed=int, shares=list)
    if not all(type(share) is float for share in fields["shares"]) or len(fields["shares"]) != len(table):
        raise ValueError(f"frozen shares must be {len(table)} floats, one per code")
    frozen = Frozen(fields["seed"], tuple(fields["shares"]))
    coding.check_mapped(numel, payload.stored)
    return CodeMask(shape, table, payload.symbols(len(table), frozen.free(numel), numel), frozen)


class _Kind(NamedTuple):
    """How a mask of one kind is made, whether it has a payload, and its other fields in a file."""

    read: Callable[..., Mask]
    stored: bool
    fields: dict[str, type | tuple[type, ...]]


_KINDS = {
    PackedMask.kind: _Kind(_bits, True, {}),
    FullMask.kind: _Kind(lambda shape, rule: FullMask(shape), False, {}),
    BlockMask.kind: _Kind(_blocks, False, {"sizes": (int, list), "unit_axis": int}),
    OwnerMask.kind: _Kind(_owners, True, {"unit_axis": int}),
    CodeMask.kind: _Kind(_codes, True, {"frozen": (dict, type(None)), "table": list}),
}
