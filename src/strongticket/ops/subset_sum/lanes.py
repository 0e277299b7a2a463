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
    start = -raw.ctypes.data % BYTES
    return raw[start : start + length * BYTES].view(dtype).reshape(length, BYTES // size)


def _vector(lanes: Lanes) -> ir.VectorType:
    return ir.VectorType(ir.IntType(lanes.dtype.bitwidth), lanes.count)


def _address(context: Any, builder: Any, buffer_type: Any, buffer: Any, index: Any) -> Any:
    array = context.make_array(buffer_type)(context, builder, buffer)
    vector = _vector(Lanes(buffer_type.dtype))
    start = builder.bitcast(array.data, vector.as_pointer())
    return builder.gep(start, [index])


@operation
def load(typingctx: Any, buffer: Any, index: Any) -> Any:
    """Load the vector at an index of a buffer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.load(address, align=signature.args[0].dtype.bitwidth // 8)

    return Lanes(buffer.dtype)(buffer, types.intp), codegen


@operation
def store(typingctx: Any, buffer: Any, index: Any, lanes: Lanes) -> Any:
    """Store a vector in a buffer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], address, align=signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(buffer, types.intp, lanes), codegen


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


def _compare_as_floats(name: str, builder: Any, *args: Any) -> Any:
    # A call, since LLVM would split a comparison and a selection again; there are no NaNs.
    vector = args[0].type
    floats = ir.VectorType(ir.FloatType() if vector.element.width == 32 else ir.DoubleType(), vector.count)
    vectors = [builder.bitcast(x, floats) for x in args]
    return builder.bitcast(_call(name, builder, *vectors, fastmath=("nnan", "nsz")), vector)


@lane_by_lane
def lower(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two, for integers whose bits are those of a positive normal float.

    Such integers are ordered as the floats are, and 512-bit registers compare floats at twice the rate of integers.
    """
    return _compare_as_floats("minnum", builder, a, b)


@lane_by_lane
def upper(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two, under the same condition as `lower`."""
    return _compare_as_floats("maxnum", builder, a, b)


@lane_by_lane
def add_floats(builder: Any, a: Any, b: Any) -> Any:
    """The sum of two vectors that hold the bits of float64, as such bits."""
    floats = ir.VectorType(ir.DoubleType(), a.type.count)
    return builder.bitcast(builder.fadd(builder.bitcast(a, floats), builder.bitcast(b, floats)), a.type)


@lane_by_lane
def magnitude(builder: Any, a: Any) -> Any:
    """The absolute value."""
    return builder.select(builder.icmp_signed("<", a, ir.Constant(a.type, None)), builder.neg(a), a)


@lane_by_lane
def least_odd(builder: Any, best: Any, candidate: Any) -> Any:
    """The smaller of `best` and `candidate` where the candidate is odd, else `best`."""
    one = ir.Constant(best.type, [ir.Constant(best.type.element, 1)] * best.type.count)
    odd = builder.icmp_signed("!=", builder.and_(candidate, one), ir.Constant(best.type, None))
    return builder.select(odd, _call("smin", builder, best, candidate), best)


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
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The index of the lowest set bit; at least one must be set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


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
