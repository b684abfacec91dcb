"""Memory and bits as the processor sees them: prefetching, unaligned numbers, and operations on bits.

The rows of a node are scattered over the table, so each visit to one is a cache miss, and the processor does not look far enough ahead
in loops with much work per row. If tables are larger than the cache, prefetching rows some distance ahead reduces such loops from three
nanoseconds an element to less than one. Rows are brought into the second-level cache only, since sums fill the first.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dtrees.split.compile.kernels import inner_kernel, pointer_to


def _prefetching(writes: int, locality: int) -> Any:
    """Return a function that prefetches the cache line of an element, given an array and a tuple of indices."""

    @intrinsic
    def prefetch_element(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = pointer_to(context, builder, signature.args[0], arguments[0], cgutils.unpack_tuple(builder, arguments[1]))
            pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
            i32 = ir.IntType(32)
            function_type = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], function_type)
            builder.call(function, [pointer, i32(writes), i32(locality), i32(1)])
            return context.get_dummy_value()

        return types.void(array, index), generate

    return prefetch_element


_prefetch = _prefetching(0, 2)
_prefetch_to_write = _prefetching(1, 3)


@inner_kernel
def prefetch(array, i):
    """Prefetch ``array[i]`` of a one-dimensional array."""
    _prefetch(array, (i,))


@inner_kernel
def prefetch_row(array, i):
    """Prefetch ``array[i]`` of a two-dimensional array: up to 64 numbers of two bytes, or a few larger ones.

    The rest of longer rows is read in sequence, which needs no prefetching.
    """
    last = array.shape[1] - 1
    _prefetch(array, (i, 0))
    _prefetch(array, (i, min(last, 32)))


@inner_kernel
def prefetch_to_write(array, i):
    """Prefetch ``array[i]`` of a one-dimensional array for writing by this thread."""
    _prefetch_to_write(array, (i,))


def _pointer(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), ir.IntType(64).as_pointer())


@intrinsic
def write_word(typing_context: Any, array: Any, place: Any, word: Any) -> Any:
    """Write 8 bytes to ``array[place:place + 8]``, of a contiguous array of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], arguments[0], arguments[1]), align=1)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64), generate


@intrinsic
def read_word(typing_context: Any, array: Any, place: Any) -> Any:
    """Return the 8 bytes at ``array[place:place + 8]``, of a contiguous array of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1]), align=1)

    return types.uint64(array, types.uint64), generate


@intrinsic
def read_float64(typing_context: Any, words: Any, i: Any) -> Any:
    """Return the float64 whose two halves are ``words[i]``, of a contiguous float32 array of shape (n, 2)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], [place, context.get_constant(types.intp, 0)])
        return builder.load(builder.bitcast(pointer, ir.DoubleType().as_pointer()), align=4)

    return types.float64(words, i), generate


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """Return the position of the lowest bit of a uint64 that is set, 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def count_bits(typing_context: Any, word: Any) -> Any:
    """Return the number of bits of a uint64 that are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
