"""Reading numbers of one of two precisions from one kind of array, so that no kernel is compiled for each."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def read_float64(typing_context: Any, words: Any, i: Any) -> Any:
    """Return the float64 whose two halves are ``words[i]``, of a contiguous float32 array of shape (n, 2)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = cgutils.get_item_pointer(context, builder, kind, array, [place, context.get_constant(types.intp, 0)])
        return builder.load(builder.bitcast(pointer, ir.DoubleType().as_pointer()), align=4)

    return types.float64(words, i), generate


@intrinsic
def bits_of_float32(typing_context: Any, x: Any) -> Any:
    """Return the bits of a float32 as a uint32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def float32_of_bits(typing_context: Any, bits: Any) -> Any:
    """Return the float32 that has the bits of a uint32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate
