"""Numbers as words: those of two precisions from one kind of array, so that no kernel is compiled for each; and the bits of words."""

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


def same_bits(source: Any, target: Any) -> Any:
    """Return a function that takes the bits of a number for those of another type."""

    @intrinsic
    def convert(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return convert


bits_of_float32, float32_of_bits = same_bits(types.float32, types.uint32), same_bits(types.uint32, types.float32)


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """Return the number of the lowest bit of a uint64 that is set, 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def count_bits(typing_context: Any, word: Any) -> Any:
    """Return how many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
