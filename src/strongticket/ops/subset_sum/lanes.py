"""Vectors of integers for numba: one 64-byte register, one problem per lane.

numba vectorises loops it understands, but not a sorting network kept in registers. So this module gives compiled code
a new type, `Lanes`, with the few operations the network needs; LLVM turns each into one instruction on machines with
512-bit registers and into two or four on others. The results are the same everywhere.

Buffers are arrays of shape (length, lanes), int32 with 16 lanes or int64 with 8; see `lane_buffer`.
Of arrays of float64 a vector holds the bits of eight neighbours.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model
from numpy.typing import NDArray

BYTES = 64


class Lanes(types.Type):
    """The numba type of a vector with as many lanes of `dtype` as fill a register."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.count = BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """The LLVM representation of a vector."""

    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, _vector(fe_type))  # type: ignore[no-untyped-call]


def operation(build: Callable[..., Any]) -> Callable[..., Any]:
    """Make `build(typing context, argument types) -> signature, code generator` callable from compiled code."""
    compiled: Callable[..., Any] = intrinsic(build)
    return compiled


def lane_by_lane(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Make `emit(builder, vectors) -> vector`, all of one type, callable from compiled code with the vectors alone."""

    def build(typingctx: Any, *lanes: Lanes) -> Any:
        return lanes[0](*lanes), lambda context, builder, signature, args: emit(builder, *args)

    build.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]  # numba counts them
    return operation(build)


def lane_buffer(length: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """Allocate an uninitialised buffer of `length` vectors, aligned so that no vector straddles two cache lines."""
    size = np.dtype(dtype).itemsize
    raw = np.empty((length + 1) * BYTES, np.uint8)
    start = -raw.__array_interface__["data"][0] % BYTES
    return raw[start : start + length * BYTES].view(dtype).reshape(length, BYTES // size)


def _vector(lanes: Lanes) -> ir.VectorType:
    return ir.VectorType(ir.IntType(lanes.dtype.bitwidth), lanes.count)


def _several(lanes: Lanes, count: int) -> Any:
    return types.UniTuple(lanes, count)  # type: ignore[no-untyped-call]


def _vectors(builder: Any, eight: Any) -> list[Any]:
    return list(cgutils.unpack_tuple(builder, eight, 8))  # type: ignore[no-untyped-call]


def _address(context: Any, builder: Any, buffer_type: Any, buffer: Any, index: Any) -> Any:
    array = context.make_array(buffer_type)(context, builder, buffer)
    vector = _vector(Lanes(buffer_type.dtype))
    start = builder.bitcast(array.data, vector.as_pointer())
    return builder.gep(start, [index])


def _load(context: Any, builder: Any, buffer_type: Any, buffer: Any, index: Any) -> Any:
    address = _address(context, builder, buffer_type, buffer, index)
    return builder.load(address, align=buffer_type.dtype.bitwidth // 8)


def _store(context: Any, builder: Any, buffer_type: Any, buffer: Any, index: Any, vector: Any) -> None:
    address = _address(context, builder, buffer_type, buffer, index)
    builder.store(vector, address, align=buffer_type.dtype.bitwidth // 8)


@operation
def load(typingctx: Any, buffer: Any, index: Any) -> Any:
    """Load the vector at an index of a buffer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature.args[0], *args)

    return Lanes(buffer.dtype)(buffer, types.intp), codegen


@operation
def store(typingctx: Any, buffer: Any, index: Any, lanes: Lanes) -> Any:
    """Store a vector in a buffer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(context, builder, signature.args[0], *args)
        return context.get_dummy_value()

    return types.void(buffer, types.intp, lanes), codegen


@operation
def load_eight(typingctx: Any, buffer: Any, index: Any, step: Any) -> Any:
    """Load eight vectors, `step` apart."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole, index, step = args
        eight = []
        for _ in range(8):
            eight.append(_load(context, builder, signature.args[0], whole, index))
            index = builder.add(index, step)
        return context.make_tuple(builder, signature.return_type, eight)

    return _several(Lanes(buffer.dtype), 8)(buffer, types.intp, types.intp), codegen


@operation
def store_eight(typingctx: Any, buffer: Any, index: Any, step: Any, eight: Any) -> Any:
    """Store eight vectors, `step` apart."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole, index, step, eight = args
        for vector in _vectors(builder, eight):
            _store(context, builder, signature.args[0], whole, index, vector)
            index = builder.add(index, step)
        return context.get_dummy_value()

    return types.void(buffer, types.intp, types.intp, eight), codegen


@lane_by_lane
def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.add(a, b)


@lane_by_lane
def _subtract(builder: Any, a: Any, b: Any) -> Any:
    return builder.sub(a, b)


@overload(operator.add)
def _overload_add(a: Any, b: Any) -> Callable[[Any, Any], Any] | None:
    def implementation(a: Any, b: Any) -> Any:
        return _add(a, b)

    return implementation if isinstance(a, Lanes) else None


@overload(operator.sub)
def _overload_subtract(a: Any, b: Any) -> Callable[[Any, Any], Any] | None:
    def implementation(a: Any, b: Any) -> Any:
        return _subtract(a, b)

    return implementation if isinstance(a, Lanes) else None


def _call(name: str, builder: Any, *args: Any, **options: Any) -> Any:
    """Call one of LLVM's own functions on vectors, all of one type."""
    vector = args[0].type
    function_type = ir.FunctionType(vector, [vector] * len(args))
    full_name = f"llvm.{name}.v{vector.count}{vector.element.intrinsic_name}"
    return builder.call(builder.module.declare_intrinsic(full_name, fnty=function_type), args, **options)


def _order(builder: Any, a: Any, b: Any) -> tuple[Any, Any]:
    # Calls, since LLVM would split a comparison and a selection again; there are no NaNs.
    floats = ir.VectorType(ir.FloatType() if a.type.element.width == 32 else ir.DoubleType(), a.type.count)
    pair = builder.bitcast(a, floats), builder.bitcast(b, floats)
    low, high = (_call(name, builder, *pair, fastmath=("nnan", "nsz")) for name in ("minnum", "maxnum"))
    return builder.bitcast(low, a.type), builder.bitcast(high, a.type)


@operation
def order(typingctx: Any, a: Lanes, b: Lanes) -> Any:
    """The smaller, then the larger of two, for integers whose bits are those of a positive normal float.

    Such integers are ordered as the floats are, and 512-bit registers compare floats at twice the rate of integers.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_tuple(builder, signature.return_type, _order(builder, *args))

    return _several(a, 2)(a, b), codegen


@operation
def three_stages(typingctx: Any, eight: Any) -> Any:
    """Do three stages of a network on eight vectors, evenly spaced in a bitonic sequence; see `order`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x = _vectors(builder, args[0])
        for distance in (4, 2, 1):
            for i in range(8):
                if not i & distance:
                    x[i], x[i + distance] = _order(builder, x[i], x[i + distance])
        return context.make_tuple(builder, signature.return_type, x)

    return eight(eight), codegen


@lane_by_lane
def add_floats(builder: Any, a: Any, b: Any) -> Any:
    """The sum of two vectors that hold the bits of float64, as such bits."""
    floats = ir.VectorType(ir.DoubleType(), a.type.count)
    return builder.bitcast(builder.fadd(builder.bitcast(a, floats), builder.bitcast(b, floats)), a.type)


@lane_by_lane
def largest_within(builder: Any, end: Any, item: Any) -> Any:
    """About the largest float64 whose rounded sum with `item` is at most `end`, all as bits."""
    floats = ir.VectorType(ir.DoubleType(), end.type.count)
    # Times a number, a little more than half of the gap to the next one: added to it, it gives that one.
    beyond_half = ir.Constant(floats, [2.0**-53 + 2.0**-105] * end.type.count)
    half = ir.Constant(floats, [0.5] * end.type.count)
    limit, item = (builder.bitcast(x, floats) for x in (end, item))
    following = builder.fadd(limit, builder.fmul(_call("fabs", builder, limit), beyond_half))
    # Sums as far as halfway to it are rounded down to the limit.
    x = builder.fadd(builder.fsub(limit, item), builder.fmul(builder.fsub(following, limit), half))
    before = builder.fsub(x, builder.fmul(_call("fabs", builder, x), beyond_half))
    passed = builder.fcmp_ordered(">", builder.fadd(x, item), limit)
    return builder.bitcast(builder.select(passed, before, x), end.type)


@lane_by_lane
def magnitude(builder: Any, a: Any) -> Any:
    """The absolute value."""
    return builder.select(builder.icmp_signed("<", a, ir.Constant(a.type, None)), builder.neg(a), a)


@operation
def least_odd_gap(typingctx: Any, none: Lanes, before: Lanes, eight: Any) -> Any:
    """The least odd one of the gaps between `before` and eight ascending vectors, or `none` if all are even."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        best, before = args[:2]
        one = ir.Constant(best.type, [ir.Constant(best.type.element, 1)] * best.type.count)
        for x in _vectors(builder, args[2]):
            gap = builder.sub(x, before)
            odd = builder.icmp_signed("!=", builder.and_(gap, one), ir.Constant(best.type, None))
            best, before = builder.select(odd, _call("smin", builder, best, gap), best), x
        return best

    return none(none, before, eight), codegen


@lane_by_lane
def smaller(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two, for any integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@lane_by_lane
def where_equal(builder: Any, a: Any, b: Any, chosen: Any, otherwise: Any) -> Any:
    """`chosen` in the lanes where a equals b, else `otherwise`."""
    return builder.select(builder.icmp_signed("==", a, b), chosen, otherwise)


@operation
def bits_not_above(typingctx: Any, a: Lanes, b: Lanes) -> Any:
    """One bit per lane, lane 0 the lowest: whether a <= b."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flags = builder.icmp_signed("<=", args[0], args[1])
        bits = builder.bitcast(flags, ir.IntType(signature.args[0].count))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(a, b), codegen


@operation
def look_up(typingctx: Any, array: Any, places: Any, index: Any, step: Any) -> Any:
    """The bits of the elements of an array that lie `step` beyond the places at an index of a buffer.

    They are loaded one by one: the instruction for all at once takes twenty times as long on some CPUs.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole, buffer = (
            context.make_array(kind)(context, builder, x) for kind, x in zip(signature.args[:2], args[:2], strict=True)
        )
        vector = _vector(signature.return_type)
        start = builder.gep(builder.bitcast(whole.data, vector.element.as_pointer()), [args[3]])
        first = builder.mul(args[2], ir.Constant(args[2].type, vector.count))
        found = ir.Constant(vector, ir.Undefined)
        for lane in range(vector.count):
            place = builder.load(builder.gep(buffer.data, [builder.add(first, ir.Constant(first.type, lane))]))
            element = builder.load(builder.gep(start, [place]))
            found = builder.insert_element(found, element, ir.Constant(ir.IntType(32), lane))
        return found

    return Lanes(array.dtype)(array, places, types.intp, types.intp), codegen


@operation
def where_at_most(typingctx: Any, a: Lanes, b: Lanes, chosen: Lanes) -> Any:
    """`chosen` in the lanes where a <= b as float64, else 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats = ir.VectorType(ir.DoubleType(), signature.args[0].count)
        a, b = (builder.bitcast(x, floats) for x in args[:2])
        return builder.select(builder.fcmp_ordered("<=", a, b), args[2], ir.Constant(args[2].type, None))

    return chosen(a, b, chosen), codegen


@operation
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The index of the lowest set bit; at least one must be set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@operation
def transposed(typingctx: Any, eight: Any) -> Any:
    """Eight vectors of eight lanes with rows and lanes exchanged."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, mask = _vectors(builder, args[0]), ir.VectorType(ir.IntType(32), 8)
        for distance in (4, 2, 1):
            low = ir.Constant(mask, [lane + (8 - distance if lane & distance else 0) for lane in range(8)])
            high = ir.Constant(mask, [lane + (8 if lane & distance else distance) for lane in range(8)])
            for i in range(8):
                if not i & distance:
                    pair = x[i], x[i + distance]
                    x[i], x[i + distance] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
        return context.make_tuple(builder, signature.return_type, x)

    return eight(eight), codegen


@operation
def spread(typingctx: Any, value: Any, like: Lanes) -> Any:
    """A vector of the type of `like` with the same value in every lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _vector(signature.args[1])
        scalar = context.cast(builder, args[0], signature.args[0], signature.args[1].dtype)
        scalar = builder.bitcast(scalar, vector.element)
        single = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), zeros)

    return like(value, like), codegen
