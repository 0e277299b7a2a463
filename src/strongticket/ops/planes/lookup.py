"""Sums of table entries selected by bits, in vectors: written in LLVM, since numba has no vectors.

Four columns of x have 16 subset sums, a table that fills one vector. A word of a plane holds 32 columns of a row, so it
has eight such tables, and every four bits of it select an entry, for 16 rows at a time. Nothing here names an
instruction of one CPU, and every way of finding an entry gives the same number.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import config

from strongticket.ops.llvm import emitted
from strongticket.ops.planes.planes import LANES

VECTOR = 16  # lanes
_PARTS = LANES // VECTOR  # of a group of rows, which share each loaded table
_TABLES = 8  # for the 32 columns of a word
_VECTOR_BYTES = 4 * VECTOR
_AHEAD = 4096  # bytes: a CPU itself reads ahead only to the end of a page

_I64, _I32, _F32, _POINTER = ir.IntType(64), ir.IntType(32), ir.FloatType(), ir.IntType(8).as_pointer()
_Integers, _Floats = ir.VectorType(_I32, VECTOR), ir.VectorType(_F32, VECTOR)
_Pick = Callable[[ir.IRBuilder, Any, Any], Any]


def _write_sums(
    vectors: int,
    b: ir.IRBuilder,
    digits: Any,
    digit_step: Any,
    signs: Any,
    sign_step: Any,
    tables: Any,
    table_step: Any,
    width: Any,
    out: Any,
) -> None:
    """Write the products of a group of rows with one or two vectors; with two, bits are shifted once for both.

    Args:
        vectors: how many.
        b: where instructions go; all that follow are addresses, or bytes between them.
        digits: the group's first words of a plane of magnitudes; a weight there is 0 or 1.
        digit_step: from these words to those of the next 32 columns.
        signs: the words of signs.
        sign_step: likewise.
        tables: float32, (8 * width, 16), of the first vector.
        table_step: to those of the second.
        width: words of a row.
        out: float32, (vectors, 32).
    """
    named: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]  # set by a user who wants another CPU's code
    pick = _pick_for(binding.get_host_cpu_features().flatten() if named is None else named)
    before, loop, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.cbranch(b.icmp_signed(">", width, _I64(0)), loop, after)

    b.position_at_end(loop)
    place = b.phi(_I64)
    sums = [b.phi(_Floats) for _ in range(vectors * _PARTS)]
    added: list[Any] = list(sums)
    chosen = []
    for words, step in ((digits, digit_step), (signs, sign_step)):
        for part in range(_PARTS):
            _prefetch(b, words, b.mul(place, step), _I64(_AHEAD + part * _VECTOR_BYTES))
    for part in range(_PARTS):
        kept = _load(b, _Integers, digits, b.mul(place, digit_step), _I64(part * _VECTOR_BYTES))
        negative = _load(b, _Integers, signs, b.mul(place, sign_step), _I64(part * _VECTOR_BYTES))
        chosen.append((b.and_(kept, b.not_(negative)), b.and_(kept, negative)))
    for four in range(_TABLES):
        offset = b.add(b.mul(place, _I64(_TABLES * _VECTOR_BYTES)), _I64(four * _VECTOR_BYTES))
        entries = [_load(b, _Floats, tables, offset, b.mul(table_step, _I64(v))) for v in range(vectors)]
        for part, bits in enumerate(chosen):
            plus, minus = (b.lshr(each, _splat(4 * four)) for each in bits)
            for vector, table in enumerate(entries):
                at = vector * _PARTS + part
                added[at] = b.fsub(b.fadd(added[at], pick(b, table, plus)), pick(b, table, minus))
    following = b.add(place, _I64(1))
    b.cbranch(b.icmp_signed("<", following, width), loop, after)
    for phi, again in zip((place, *sums), (following, *added), strict=True):
        phi.add_incoming(ir.Constant(phi.type, None), before)
        phi.add_incoming(again, loop)

    b.position_at_end(after)
    totals = [b.phi(_Floats) for _ in added]
    for at, (total, value) in enumerate(zip(totals, added, strict=True)):
        total.add_incoming(ir.Constant(_Floats, None), before)
        total.add_incoming(value, loop)
        b.store(total, _pointer(b, _Floats, out, _I64(at * _VECTOR_BYTES)), align=4)


_of_addresses = emitted(types.void(*[types.int64] * 8))
add_chosen_of_one, add_chosen_of_two = (_of_addresses(partial(_write_sums, vectors)) for vectors in (1, 2))


def _pick_for(features: str) -> _Pick:
    """Return the fastest way to select table entries by the last four bits of each lane, for these CPU features."""
    has = features.split(",")
    return _permute if "+avx512f" in has else _permute_halves if "+avx2" in has else _add_up


def _permute(b: ir.IRBuilder, table: Any, bits: Any) -> Any:
    """Permute 16 lanes by one instruction. It is named, because LLVM would first clear bits that it ignores."""
    kind = ir.FunctionType(_Floats, [_Floats, _Integers])
    return b.call(b.module.declare_intrinsic("llvm.x86.avx512.permvar.sf.512", fnty=kind), [table, bits])


def _permute_halves(b: ir.IRBuilder, table: Any, bits: Any) -> Any:
    """Permute eight lanes: three bits select in both halves of the table, the fourth between them."""
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
    """Compute the entry as the table was computed: faster where there is no such permutation."""
    terms = []
    for column in range(4):
        x = b.bitcast(b.shuffle_vector(table, table, _lanes([1 << column] * VECTOR)), _Integers)
        kept = b.ashr(b.shl(bits, _splat(31 - column)), _splat(31))
        terms.append(b.bitcast(b.and_(x, kept), _Floats))
    return b.fadd(b.fadd(terms[0], terms[1]), b.fadd(terms[2], terms[3]))


def _permuted(b: ir.IRBuilder, table: Any, places: Any) -> Any:
    """Return table[places], lane by lane; LLVM uses the CPU's instruction if there is one."""
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


def _prefetch(b: ir.IRBuilder, address: Any, *offsets: Any) -> None:
    """Ask for data that is needed soon; an address without memory does no harm."""
    kind = ir.FunctionType(ir.VoidType(), [_POINTER, _I32, _I32, _I32])
    prefetch = b.module.declare_intrinsic("llvm.prefetch", [_POINTER], kind)
    b.call(prefetch, [_pointer(b, ir.IntType(8), address, *offsets), _I32(0), _I32(3), _I32(1)])  # to read, all caches
