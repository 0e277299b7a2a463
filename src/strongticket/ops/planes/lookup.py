"""Sums of table entries that bits choose, in vectors: LLVM's own code, since numba knows no vectors.

Four columns of x have 16 subset sums, which are a table of one vector. A word of a plane has 32 columns of a row, so
eight of these tables belong to it, and each four bits of it choose an entry: for 16 rows at a time. Nothing here names
an instruction of one CPU, and whatever way an entry is found, it is the same number.
"""

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import config
from numba.extending import intrinsic

from strongticket.ops.planes.planes import LANES

VECTOR = 16  # lanes
_VECTORS = LANES // VECTOR  # that share the loading of a table
_TABLES = 8  # for the 32 columns of a word
_VECTOR_BYTES = 4 * VECTOR

_I64, _I32, _F32 = ir.IntType(64), ir.IntType(32), ir.FloatType()
_Integers, _Floats = ir.VectorType(_I32, VECTOR), ir.VectorType(_F32, VECTOR)
_ZEROS = ir.Constant(_Floats, [0.0] * VECTOR)
_Pick = Callable[[ir.IRBuilder, Any, Any], Any]


@intrinsic
def add_chosen(
    typing_context: Any,
    digits: Any,
    digit_step: Any,
    signs: Any,
    sign_step: Any,
    tables: Any,
    width: Any,
    out: Any,
) -> Any:
    """Write the products of a group of rows with x to `out`: float32, (32,).

    Args:
        digits: the address of the group's first words of a plane of magnitudes; a weight there is 0 or 1.
        digit_step: bytes from these words to the next, of the following 32 columns.
        signs: the address of the words of signs.
        sign_step: as for digits.
        tables: the address of float32 (8 * width, 16): the tables of x.
        width: words of a row.
        out: its address.
    """
    return types.void(*[types.int64] * 7), _write_sums


def _write_sums(context: Any, b: ir.IRBuilder, signature: Any, args: Any) -> Any:
    digits, digit_step, signs, sign_step, tables, width, out = args
    named: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]  # by a user who wants another CPU's code
    pick = _pick_for(binding.get_host_cpu_features().flatten() if named is None else named)
    before, loop, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.cbranch(b.icmp_signed(">", width, _I64(0)), loop, after)

    b.position_at_end(loop)
    place = b.phi(_I64)
    sums = [b.phi(_Floats) for _ in range(_VECTORS)]
    added: list[Any] = list(sums)
    chosen = []
    for part in range(_VECTORS):
        offset = _I64(part * _VECTOR_BYTES)
        kept = _load(b, _Integers, digits, b.mul(place, digit_step), offset)
        negative = _load(b, _Integers, signs, b.mul(place, sign_step), offset)
        chosen.append((b.and_(kept, b.not_(negative)), b.and_(kept, negative)))
    for four in range(_TABLES):
        table = _load(b, _Floats, tables, b.mul(place, _I64(_TABLES * _VECTOR_BYTES)), _I64(four * _VECTOR_BYTES))
        for part, (plus, minus) in enumerate(chosen):
            more, less = (pick(b, table, b.lshr(bits, _splat(4 * four))) for bits in (plus, minus))
            added[part] = b.fsub(b.fadd(added[part], more), less)
    following = b.add(place, _I64(1))
    b.cbranch(b.icmp_signed("<", following, width), loop, after)
    for phi, first, again in zip((place, *sums), (_I64(0), _ZEROS, _ZEROS), (following, *added), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(again, loop)

    b.position_at_end(after)
    totals = [b.phi(_Floats) for _ in added]
    for part, (total, value) in enumerate(zip(totals, added, strict=True)):
        total.add_incoming(_ZEROS, before)
        total.add_incoming(value, loop)
        b.store(total, _pointer(b, _Floats, out, _I64(part * _VECTOR_BYTES)), align=4)
    return context.get_dummy_value()


def _pick_for(features: str) -> _Pick:
    """The quickest way to choose entries of a table by the last four bits of each lane, for a CPU of these features."""
    has = features.split(",")
    return _permute if "+avx512f" in has else _permute_halves if "+avx2" in has else _add_up


def _permute(b: ir.IRBuilder, table: Any, bits: Any) -> Any:
    """Permute 16 lanes: LLVM recognises one instruction in this."""
    return _permuted(b, table, b.and_(bits, _splat(VECTOR - 1)))


def _permute_halves(b: ir.IRBuilder, table: Any, bits: Any) -> Any:
    """Permute eight lanes: three bits choose in both halves of the table, the fourth between them."""
    half = VECTOR // 2
    low, high = (b.shuffle_vector(table, table, _lanes(range(start, start + half))) for start in (0, half))
    parts = []
    for start in (0, half):
        lanes = b.shuffle_vector(bits, bits, _lanes(range(start, start + half)))
        places, upper = (b.and_(lanes, ir.Constant(lanes.type, [value] * half)) for value in (half - 1, half))
        either = [_permuted(b, entries, places) for entries in (low, high)]
        in_high = b.icmp_unsigned("!=", upper, ir.Constant(lanes.type, [0] * half))
        parts.append(b.select(in_high, either[1], either[0]))
    return b.shuffle_vector(*parts, _lanes(range(VECTOR)))


def _add_up(b: ir.IRBuilder, table: Any, bits: Any) -> Any:
    """Make the entry as the table was made: where there is no such permutation, that is quicker."""
    terms = []
    for column in range(4):
        x = b.bitcast(b.shuffle_vector(table, table, _lanes([1 << column] * VECTOR)), _Integers)
        kept = b.ashr(b.shl(bits, _splat(31 - column)), _splat(31))
        terms.append(b.bitcast(b.and_(x, kept), _Floats))
    return b.fadd(b.fadd(terms[0], terms[1]), b.fadd(terms[2], terms[3]))


def _permuted(b: ir.IRBuilder, table: Any, places: Any) -> Any:
    """Give table[places], lane by lane; where a CPU has an instruction for it, LLVM recognises that."""
    picked = ir.Constant(table.type, ir.Undefined)
    for lane in range(table.type.count):
        entry = b.extract_element(table, b.extract_element(places, _I32(lane)))
        picked = b.insert_element(picked, entry, _I32(lane))
    return picked


def _splat(value: int) -> ir.Constant:
    return ir.Constant(_Integers, [value] * VECTOR)


def _lanes(numbers: Iterable[int]) -> ir.Constant:
    each = list(numbers)
    return ir.Constant(ir.VectorType(_I32, len(each)), each)


def _pointer(b: ir.IRBuilder, kind: ir.Type, address: Any, *offsets: Any) -> Any:
    for offset in offsets:
        address = b.add(address, offset)
    return b.inttoptr(address, kind.as_pointer())


def _load(b: ir.IRBuilder, kind: ir.Type, address: Any, *offsets: Any) -> Any:
    return b.load(_pointer(b, kind, address, *offsets), align=4)
