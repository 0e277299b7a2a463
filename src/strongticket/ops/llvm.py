"""Functions written in LLVM, for compiled code to call where numba has no words for what a CPU can do."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def emitted(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make `emit(builder, *values)` callable from compiled code with the values alone.

    An array arrives as the address of its first element, a tuple as a list of its elements; a list returned is a tuple.

    Args:
        signature: numba's, or a function that returns it for the arguments' types.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        @wraps(emit)  # numba counts its parameters
        def typed(typing_context: Any, *kinds: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                values = (_plain(context, builder, *each) for each in zip(signature.args, args, strict=True))
                result = emit(builder, *values)
                if result is None:
                    return context.get_dummy_value()
                return context.make_tuple(builder, signature.return_type, result) if type(result) is list else result

            return signature(*kinds) if callable(signature) else signature, generate

        return intrinsic(typed)

    return decorate


def _plain(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    if isinstance(kind, types.UniTuple):
        return list(cgutils.unpack_tuple(builder, value, kind.count))  # type: ignore[no-untyped-call]
    return value
