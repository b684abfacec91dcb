"""Reading and writing 8 bytes at any place of an array of bytes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _pointer(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), ir.IntType(64).as_pointer())


@intrinsic
def write_word(typing_context: Any, array: Any, place: Any, word: Any) -> Any:
    """Write a number of 8 bytes to ``array[place:place + 8]``, of a contiguous array of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], arguments[0], arguments[1]), align=1)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64), generate


@intrinsic
def read_word(typing_context: Any, array: Any, place: Any) -> Any:
    """Return the number of 8 bytes at ``array[place:place + 8]``, of a contiguous array of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1]), align=1)

    return types.uint64(array, types.uint64), generate
