"""Vectors of integers for numba: one 64-byte register, one problem per lane.

numba vectorises loops it understands, but not a sorting network kept in registers. So this module gives compiled code
a new type, `Lanes`, with the few operations the network needs; LLVM turns each into one instruction on machines with
512-bit registers and into two or four on others. The results are the same everywhere.

Buffers are arrays of shape (length, lanes), int32 with 16 lanes or int64 with 8; see `lane_buffer`.
Of arrays of float64 a vector holds the bits of eight neighbours.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.datamodel import models
from numba.extending import overload, register_model
from numpy.typing import NDArray

from strongticket.ops.llvm import emitted

BYTES = 64


class Lanes(types.Type):
    """The numba type of a vector with as many lanes of `dtype` as fill a register."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """The LLVM representation of a vector."""

    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, _vector(fe_type.dtype.bitwidth))  # type: ignore[no-untyped-call]


def lane_buffer(length: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """Allocate an uninitialised buffer of `length` vectors, aligned so that no vector straddles two cache lines."""
    size = np.dtype(dtype).itemsize
    raw = np.empty((length + 1) * BYTES, np.uint8)
    start = -raw.__array_interface__["data"][0] % BYTES
    return raw[start : start + length * BYTES].view(dtype).reshape(length, BYTES // size)


def _vector(bits: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(bits), BYTES * 8 // bits)


def _width(array: Any) -> int:
    """The bits of an element: of an integer, or a float64."""
    return getattr(array.type.pointee, "width", 64)


def _address(builder: Any, array: Any, index: Any) -> Any:
    return builder.gep(builder.bitcast(array, _vector(_width(array)).as_pointer()), [index])


# --- Signatures: the types of the result and of the arguments, from the latter ---------------------------------------


def _alike(*kinds: Any) -> Any:
    """The result is of the first argument's type."""
    return kinds[0](*kinds)


def _several(lanes: Lanes, count: int) -> Any:
    return types.UniTuple(lanes, count)  # type: ignore[no-untyped-call]


# --- Memory ----------------------------------------------------------------------------------------------------------


@emitted(lambda buffer, index: Lanes(buffer.dtype)(buffer, types.intp))
def load(builder: Any, buffer: Any, index: Any) -> Any:
    """Load the vector at an index of a buffer."""
    return builder.load(_address(builder, buffer, index), align=_width(buffer) // 8)


@emitted(lambda buffer, index, lanes: types.void(buffer, types.intp, lanes))
def store(builder: Any, buffer: Any, index: Any, lanes: Any) -> None:
    """Store a vector in a buffer."""
    builder.store(lanes, _address(builder, buffer, index), align=_width(buffer) // 8)


@emitted(lambda buffer, index, step: _several(Lanes(buffer.dtype), 8)(buffer, types.intp, types.intp))
def load_eight(builder: Any, buffer: Any, index: Any, step: Any) -> Any:
    """Load eight vectors, `step` apart."""
    eight = []
    for _ in range(8):
        eight.append(builder.load(_address(builder, buffer, index), align=_width(buffer) // 8))
        index = builder.add(index, step)
    return eight


@emitted(lambda buffer, index, step, eight: types.void(buffer, types.intp, types.intp, eight))
def store_eight(builder: Any, buffer: Any, index: Any, step: Any, eight: Any) -> None:
    """Store eight vectors, `step` apart."""
    for vector in eight:
        builder.store(vector, _address(builder, buffer, index), align=_width(buffer) // 8)
        index = builder.add(index, step)


@emitted(lambda array, places, index, step: Lanes(array.dtype)(array, places, types.intp, types.intp))
def look_up(builder: Any, array: Any, places: Any, index: Any, step: Any) -> Any:
    """The bits of the elements of an array that lie `step` beyond the places at an index of a buffer.

    They are loaded one by one: the instruction for all at once takes twenty times as long on some CPUs.
    """
    vector = _vector(_width(array))
    start = builder.gep(builder.bitcast(array, vector.element.as_pointer()), [step])
    first = builder.mul(index, ir.Constant(index.type, vector.count))
    found = ir.Constant(vector, ir.Undefined)
    for lane in range(vector.count):
        place = builder.load(builder.gep(places, [builder.add(first, ir.Constant(first.type, lane))]))
        element = builder.load(builder.gep(start, [place]))
        found = builder.insert_element(found, element, ir.Constant(ir.IntType(32), lane))
    return found


@emitted(lambda value, like: like(like.dtype, like))
def spread(builder: Any, value: Any, like: Any) -> Any:
    """A vector of the type of `like` with the same value in every lane."""
    vector = like.type
    scalar = builder.bitcast(value, vector.element)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), zeros)


# --- Integers --------------------------------------------------------------------------------------------------------


def _operator(symbol: Callable[..., Any], emit: Callable[..., Any]) -> None:
    """Let compiled code write an operation on two vectors by its usual symbol."""
    compiled = emitted(_alike)(emit)

    @overload(symbol)
    def choose(a: Any, b: Any) -> Callable[[Any, Any], Any] | None:
        def implementation(a: Any, b: Any) -> Any:
            return compiled(a, b)

        return implementation if isinstance(a, Lanes) else None


_operator(operator.add, lambda builder, a, b: builder.add(a, b))
_operator(operator.sub, lambda builder, a, b: builder.sub(a, b))


@emitted(_alike)
def magnitude(builder: Any, a: Any) -> Any:
    """The absolute value."""
    return builder.select(builder.icmp_signed("<", a, ir.Constant(a.type, None)), builder.neg(a), a)


@emitted(_alike)
def smaller(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two, for any integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@emitted(_alike)
def where_equal(builder: Any, a: Any, b: Any, chosen: Any, otherwise: Any) -> Any:
    """`chosen` in the lanes where a equals b, else `otherwise`."""
    return builder.select(builder.icmp_signed("==", a, b), chosen, otherwise)


@emitted(lambda a, b: types.int64(a, b))
def bits_not_above(builder: Any, a: Any, b: Any) -> Any:
    """One bit per lane, lane 0 the lowest: whether a <= b."""
    bits = builder.bitcast(builder.icmp_signed("<=", a, b), ir.IntType(a.type.count))
    return builder.zext(bits, ir.IntType(64))


@emitted(types.int64(types.int64))
def lowest_bit(builder: Any, bits: Any) -> Any:
    """The index of the lowest set bit; at least one must be set."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


@emitted(_alike)
def least_odd_gap(builder: Any, none: Any, before: Any, eight: Any) -> Any:
    """The least odd one of the gaps between `before` and eight ascending vectors, or `none` if all are even."""
    best = none
    one = ir.Constant(best.type, [ir.Constant(best.type.element, 1)] * best.type.count)
    for x in eight:
        gap = builder.sub(x, before)
        odd = builder.icmp_signed("!=", builder.and_(gap, one), ir.Constant(best.type, None))
        best, before = builder.select(odd, _call("smin", builder, best, gap), best), x
    return best


@emitted(_alike)
def transposed(builder: Any, eight: Any) -> Any:
    """Eight vectors of eight lanes with rows and lanes exchanged."""
    x, mask = eight, ir.VectorType(ir.IntType(32), 8)
    for distance in (4, 2, 1):
        low = ir.Constant(mask, [lane + (8 - distance if lane & distance else 0) for lane in range(8)])
        high = ir.Constant(mask, [lane + (8 if lane & distance else distance) for lane in range(8)])
        for i in range(8):
            if not i & distance:
                pair = x[i], x[i + distance]
                x[i], x[i + distance] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
    return x


# --- Integers that are compared as floats, whose bits they are -------------------------------------------------------


def _floats(vector: ir.VectorType) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if vector.element.width == 32 else ir.DoubleType(), vector.count)


def _call(name: str, builder: Any, *args: Any, **options: Any) -> Any:
    """Call one of LLVM's own functions on vectors, all of one type."""
    vector = args[0].type
    function_type = ir.FunctionType(vector, [vector] * len(args))
    full_name = f"llvm.{name}.v{vector.count}{vector.element.intrinsic_name}"
    return builder.call(builder.module.declare_intrinsic(full_name, fnty=function_type), args, **options)


def _order(builder: Any, a: Any, b: Any) -> list[Any]:
    # Calls, since LLVM would split a comparison and a selection again; there are no NaNs.
    pair = [builder.bitcast(x, _floats(x.type)) for x in (a, b)]
    ordered = [_call(name, builder, *pair, fastmath=("nnan", "nsz")) for name in ("minnum", "maxnum")]
    return [builder.bitcast(x, a.type) for x in ordered]


@emitted(lambda a, b: _several(a, 2)(a, b))
def order(builder: Any, a: Any, b: Any) -> Any:
    """The smaller, then the larger of two, for integers whose bits are those of a positive normal float.

    Such integers are ordered as the floats are, and 512-bit registers compare floats at twice the rate of integers.
    """
    return _order(builder, a, b)


@emitted(_alike)
def three_stages(builder: Any, eight: Any) -> Any:
    """Do three stages of a network on eight vectors, evenly spaced in a bitonic sequence; see `order`."""
    x = eight
    for distance in (4, 2, 1):
        for i in range(8):
            if not i & distance:
                x[i], x[i + distance] = _order(builder, x[i], x[i + distance])
    return x


# --- The bits of float64 ---------------------------------------------------------------------------------------------


@emitted(_alike)
def add_floats(builder: Any, a: Any, b: Any) -> Any:
    """The sum."""
    total = builder.fadd(*(builder.bitcast(x, _floats(x.type)) for x in (a, b)))
    return builder.bitcast(total, a.type)


@emitted(_alike)
def largest_within(builder: Any, end: Any, item: Any) -> Any:
    """About the largest float64 whose rounded sum with `item` is at most `end`."""
    floats = _floats(end.type)
    # Times a number, a little more than half of the gap to the next one: added to it, it gives that one.
    beyond_half = ir.Constant(floats, [2.0**-53 + 2.0**-105] * floats.count)
    half = ir.Constant(floats, [0.5] * floats.count)
    limit, item = (builder.bitcast(x, floats) for x in (end, item))
    following = builder.fadd(limit, builder.fmul(_call("fabs", builder, limit), beyond_half))
    # Sums as far as halfway to it are rounded down to the limit.
    x = builder.fadd(builder.fsub(limit, item), builder.fmul(builder.fsub(following, limit), half))
    before = builder.fsub(x, builder.fmul(_call("fabs", builder, x), beyond_half))
    passed = builder.fcmp_ordered(">", builder.fadd(x, item), limit)
    return builder.bitcast(builder.select(passed, before, x), end.type)


@emitted(lambda a, b, chosen: chosen(a, b, chosen))
def where_at_most(builder: Any, a: Any, b: Any, chosen: Any) -> Any:
    """`chosen` in the lanes where a <= b, else 0."""
    a, b = (builder.bitcast(x, _floats(x.type)) for x in (a, b))
    return builder.select(builder.fcmp_ordered("<=", a, b), chosen, ir.Constant(chosen.type, None))
