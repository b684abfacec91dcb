"""Named tuples that kernels receive by reference.

Numba passes a tuple by value: each array in it becomes seven arguments of every function. A task of growing a subtree has a hundred
arrays, so each function of its kernels had nine hundred arguments to compile and to pass. A named tuple of a class marked here is
written to memory once, when Python calls a kernel, and functions pass its address. Its fields are read only. Kernels cannot create such
a tuple.
"""

from __future__ import annotations

from typing import Any, TypeVar

from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.core.typing.typeof import typeof_impl
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, unbox

C = TypeVar("C", bound=type)


class Reference(types.Type):
    """The type of a named tuple that is passed by reference.

    Parameters
    ----------
    content : numba.types.BaseNamedTuple
    """

    def __init__(self, content: Any) -> None:
        self.content = content
        self.instance_class = content.instance_class
        super().__init__(name=f"reference({content.instance_class.__module__}.{content.name})")


def by_reference(cls: C) -> C:
    """Make kernels receive named tuples of a class by reference."""
    typeof_impl.register(cls)(_type_of)
    return cls


def _type_of(value: Any, context: Any) -> Reference:
    return Reference(types.BaseTuple.from_types([typeof(field) for field in value], type(value)))  # type: ignore[attr-defined]


@register_model(Reference)
class ReferenceModel(models.PrimitiveModel):
    """A pointer to the fields of a named tuple."""

    def __init__(self, manager: Any, reference: Reference) -> None:
        super().__init__(manager, reference, manager.lookup(reference.content).get_value_type().as_pointer())


@infer_getattr
class _ReferenceAttributes(AttributeTemplate):
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> Any:
        fields = reference.content.fields
        return reference.content.types[fields.index(name)] if name in fields else None


@lower_getattr_generic(Reference)
def read_field(context: Any, builder: Any, reference: Reference, pointer: ir.Value, name: str) -> Any:
    """Read a field of a named tuple at an address."""
    place = reference.content.fields.index(name)
    value = _read(builder, builder.gep(pointer, [ir.IntType(32)(0), ir.IntType(32)(place)], inbounds=True))
    return impl_ret_borrowed(context, builder, reference.content.types[place], value)


def _read(builder: Any, pointer: ir.Value) -> ir.Value:
    """Read an immutable value number by number, so that unused numbers are not read."""
    kind = pointer.type.pointee
    if isinstance(kind, ir.Aggregate):
        value = ir.Constant(kind, ir.Undefined)
        for i in range(len(kind)):
            part = _read(builder, builder.gep(pointer, [ir.IntType(32)(0), ir.IntType(32)(i)], inbounds=True))
            value = builder.insert_value(value, part, i)
        return value
    value = builder.load(pointer)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@unbox(Reference)
def _from_python(reference: Reference, value: Any, context: Any) -> Any:
    """Write a named tuple to memory and return its address.

    Reads from this address are marked as invariant, so LLVM must not see the write: the address passes through an empty instruction that
    LLVM does not analyse.
    """
    builder = context.builder
    native = context.unbox(reference.content, value)
    pointer = cgutils.alloca_once_value(builder, native.value)
    hidden = ir.InlineAsm(ir.FunctionType(pointer.type, [pointer.type]), "", "=r,0,~{memory}", side_effect=True)

    def release() -> None:
        if native.cleanup is not None:
            native.cleanup()
        if context.context.enable_nrt:
            context.context.nrt.decref(builder, reference.content, native.value)

    return NativeValue(builder.call(hidden, [pointer]), is_error=native.is_error, cleanup=release)
