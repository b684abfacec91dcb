"""Methods of a task: parts of a kernel that depend on a type that the kernel does not see.

A *task* is a named tuple that kernels receive by reference. The code that depends on one of its fields is in *methods* of the task:
other kernels, which see the type of that field. The kernel that calls them sees the field as :class:`Hidden`, so it is compiled once for
all types of it. It finds the addresses of methods in a table (:class:`Methods`) in the task. If an address is missing, the kernel calls
back into Python, which loads or compiles the method.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as ll
import numpy as np
from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.typing.templates import Signature, signature
from numba.core.typing.typeof import typeof_impl
from numba.extending import NativeValue, intrinsic, register_model, unbox
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import Reference, ReferenceModel, read_field
from dtrees.split.compile.kernels import alone, bind, layout_of, lean_entry
from dtrees.split.compile.separate import address_of, call_at, calling

_FINDER = "dtrees_find_method"
#: The name of the argument that is the task, and of its field that holds the table.
_TASK, _TABLE = "task", "methods"
#: The largest size of a hidden field, in numbers of 64 bits.
_MOST_NUMBERS = 128


class Hidden(NamedTuple):
    """A named tuple whose last field kernels do not see.

    Attributes
    ----------
    seen : named tuple
        The tuple with an empty tuple as its last field.
    address : int
        Address of the memory.
    memory : ndarray of int64
        The named tuple as methods read it.
    hidden : named tuple
        The named tuple itself, which owns the arrays that the memory refers to.
    """

    seen: Any
    address: int
    memory: NDArray[np.int64]
    hidden: Any


class HiddenType(Reference):
    """The type of :class:`Hidden`: the type of its field ``seen``, at the address of its memory."""


@typeof_impl.register(Hidden)
def _type_of(value: Hidden, context: Any) -> HiddenType:
    return HiddenType(typeof(value.seen).content)


register_model(HiddenType)(ReferenceModel)


@unbox(HiddenType)
def _from_python(kind: HiddenType, value: Any, context: Any) -> NativeValue:
    number = context.pyapi.object_getattr_string(value, "address")
    address = context.pyapi.long_as_longlong(number)
    context.pyapi.decref(number)
    return NativeValue(context.builder.inttoptr(address, context.context.get_value_type(kind)))


@intrinsic
def _copy(typing_context: Any, value: Any, memory: Any) -> tuple[Signature, Callable[..., Any]]:
    """Copy a named tuple that is passed by reference to an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, array = arguments
        size = context.get_abi_sizeof(pointer.type.pointee)
        if size > 8 * _MOST_NUMBERS:
            raise NotImplementedError(f"{value} takes {size} bytes, more than {8 * _MOST_NUMBERS}")
        data = context.make_array(memory)(context, builder, array).data
        cgutils.raw_memcpy(builder, data, builder.bitcast(pointer, data.type), ir.IntType(64)(size), 1)
        return context.get_dummy_value()

    return types.none(value, memory), generate


@lean_entry
def _write(value, memory):
    """Write a named tuple to an array as kernels read it."""
    _copy(value, memory)


def hide(value: Any, seen: Any) -> Hidden:
    """Hide the last field of a named tuple; ``seen`` is the tuple with an empty one there. Its memory is not written yet."""
    memory = np.empty(_MOST_NUMBERS, np.int64)
    return Hidden(seen, memory.ctypes.data, memory, value)


class Methods(NamedTuple):
    """The methods of the tasks of one type.

    Attributes
    ----------
    addresses : ndarray of int64
        The number of this table, and the address of each method, or 0 while it is unknown.
    kinds : dict
        The types of the arguments that several methods have, by name, including the task.
    write : callable
        Writes the hidden field to its memory.
    kernels : dict
        Kernels bound to arguments of these types, which call methods, and lists of methods for a helper to compile.
    """

    addresses: NDArray[np.int64]
    kinds: dict[str, Any]
    write: Callable[[Any, NDArray[np.int64]], None]
    kernels: dict[Any, Any]

    def arguments(self, method: Any) -> tuple[Any, ...]:
        """Return the types of the arguments of a method."""
        return tuple(self.kinds.get(name, kind) for name, kind in method.parameters.items())


#: The table of a task whose methods are not known yet.
UNKNOWN = Methods(np.zeros(1, np.int64), {}, lambda value, memory: None, {})
_tables: list[tuple[MethodSet, Methods]] = []
_adding = threading.Lock()


class MethodSet:
    """Methods that kernels call by number: the order in which they are defined, so that a kernel on disk can call them."""

    def __init__(self) -> None:
        self.methods: list[Any] = [None]
        self._known: dict[Any, Methods] = {}

    def of(self, task: Any, hidden: str, **others: Any) -> Methods:
        """Return the table of methods for a task, one field of which is :class:`Hidden`.

        Its field for the table may have any value yet. Other arguments that several methods have are given by name.
        """
        _, _, memory, value = getattr(task, hidden)
        revealed = {_TASK: task._replace(**{hidden: value}), **others}
        key = tuple(map(layout_of, revealed.values()))
        with _adding:
            if key not in self._known:
                kinds = {name: typeof(argument) for name, argument in revealed.items()}
                self._known[key] = Methods(np.zeros(len(self.methods), np.int64), kinds, bind(_write, value, memory), {})
                self._known[key].addresses[0] = len(_tables)
                _tables.append((self, self._known[key]))
            return self._known[key]

    def method(self, *kinds: Any, returns: Any = types.none) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator for a method; its last parameters have these Numba types, and it returns the given one.

        The parameters before are arguments that several methods have (:meth:`of`).
        """

        def decorate(function: Callable[..., Any]) -> Any:
            number, dispatcher = len(self.methods), alone(function)
            names = list(inspect.signature(function).parameters)
            parameters = dict.fromkeys(names) | dict(zip(names[len(names) - len(kinds) :], kinds, strict=True))

            def call(typing_context: Any, *arguments: Any) -> tuple[Signature, Callable[..., Any]]:
                wanted = signature(returns, *[kind or seen for kind, seen in zip(parameters.values(), arguments, strict=True)])
                return wanted, functools.partial(_generate, number, function.__qualname__, names.index(_TASK))

            found = calling(dispatcher, call)
            found.parameters = parameters
            self.methods.append(found)
            return found

        return decorate


def _generate(number: int, name: str, place_of_task: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Call a method by its address, which is requested if the task's table lacks it."""
    task = signature.args[place_of_task]
    kind = task.content.types[task.content.fields.index(_TABLE)]
    addresses = read_field(context, builder, task, arguments[place_of_task], _TABLE)
    data = context.make_array(kind)(context, builder, addresses).data

    def ask() -> ir.Value:
        finder = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 2), _FINDER)
        return builder.call(finder, [builder.load(data), ir.IntType(64)(number)])

    return call_at(builder.gep(data, [ir.IntType(64)(number)]), ask, name, context, builder, signature, arguments)


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def _find(table: int, number: int) -> int:
    methods, found = _tables[table]
    return address_of(methods.methods[number].kernel, found.arguments(methods.methods[number]))


ll.add_symbol(_FINDER, ctypes.cast(_find, ctypes.c_void_p).value)
