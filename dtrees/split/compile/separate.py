"""Kernels that are compiled separately from their callers, when they are first called.

The caller stores the address of the other kernel. While the address is unknown, it calls back into Python, which loads or compiles the
kernel and returns its address. So a kernel that is seldom needed is compiled only when it is called, and a kernel with many callers is
compiled once.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import logging
import pickle
import threading
import zlib
from _thread import interrupt_main
from collections.abc import Callable
from importlib import import_module
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.serialize import dumps
from numba.core.typing.templates import Signature, signature
from numba.extending import intrinsic

_logger = logging.getLogger("dtrees")
_FINDER = "dtrees_find_kernel"
#: Kernels with their argument types, by the key that callers store.
_known: dict[bytes, tuple[Any, tuple[Any, ...]]] = {}


def called_apart(dispatcher: Any, returns: Any = None) -> Any:
    """Return the function that other kernels call in place of a separately compiled kernel.

    If the Numba type that it ``returns`` is given, the kernel is compiled when it is first called, otherwise with its callers.
    """

    def call(typing_context: Any, *arguments: Any) -> tuple[Signature, Callable[..., Any]]:
        kinds = tuple(types.unliteral(kind) for kind in arguments)  # type: ignore[attr-defined]
        result = returns
        if result is None:
            dispatcher.compile(kinds)
            result = dispatcher.overloads[kinds].signature.return_type
        return signature(result, *kinds), functools.partial(_generate, dispatcher)

    return calling(dispatcher, call)


def calling(dispatcher: Any, call: Callable[..., Any]) -> Any:
    """Return an intrinsic with the name and the parameters of a kernel, which ``call`` types and generates."""
    functools.update_wrapper(call, dispatcher.py_func)
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = inspect.Signature([context, *inspect.signature(dispatcher.py_func).parameters.values()])  # type: ignore[attr-defined]
    found = intrinsic(call)
    found.kernel = dispatcher
    return found


def _generate(dispatcher: Any, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Call a kernel by its address, which is requested if it is not known yet."""
    text = zlib.compress(dumps((dispatcher.__module__, dispatcher.__qualname__, tuple(signature.args))))
    _known[text] = dispatcher, tuple(signature.args)
    place = cgutils.add_global_variable(builder.module, ir.IntType(64), builder.module.get_unique_name("place"))
    place.linkage, place.initializer = "internal", ir.IntType(64)(0)

    def ask() -> ir.Value:
        held = cgutils.global_constant(builder, builder.module.get_unique_name("kernel"), cgutils.make_bytearray(text))
        kind = ir.FunctionType(ir.IntType(64), [cgutils.voidptr_t, cgutils.intp_t])
        finder = cgutils.get_or_insert_function(builder.module, kind, _FINDER)
        return builder.call(finder, [builder.bitcast(held, cgutils.voidptr_t), cgutils.intp_t(len(text))])

    return call_at(place, ask, dispatcher.__qualname__, context, builder, signature, arguments)


def call_at(place: ir.Value, ask: Callable[[], ir.Value], name: str, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Call a function at the address in ``place``; if there is none, the code that ``ask`` generates returns it, or 0."""
    address = cgutils.alloca_once_value(builder, builder.load_atomic(place, "acquire", 8))
    with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(address))):
        asked = ask()
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, asked)):
            context.call_conv.return_user_exc(builder, RuntimeError, (f"{name} could not be compiled",))
        builder.store_atomic(asked, place, "release", 8)
        builder.store(asked, address)
    kind = context.call_conv.get_function_type(signature.return_type, signature.args)
    function = builder.inttoptr(builder.load(address), kind.as_pointer())
    status, result = context.call_conv.call_function(builder, function, signature.return_type, signature.args, arguments)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return result


def address_of(dispatcher: Any, kinds: tuple[Any, ...]) -> int:
    """Return the address of a kernel, loaded or compiled for these argument types, for a calling kernel; 0 if that fails.

    An interrupt would be lost here, so it is raised again when the calling kernel continues.
    """
    interrupted = False
    while True:
        try:
            dispatcher.compile(kinds)
            break
        except KeyboardInterrupt:
            interrupted = True
        except BaseException:
            _logger.exception("a kernel could not be compiled")
            return 0
    if interrupted:
        threading.Timer(0.01, interrupt_main).start()
    compiled = dispatcher.overloads[kinds]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_ssize_t)
def _find(text: int, size: int) -> int:
    held = ctypes.string_at(text, size)
    if held not in _known:
        module, qualified_name, kinds = pickle.loads(zlib.decompress(held))
        found = functools.reduce(getattr, qualified_name.split("."), import_module(module))
        _known[held] = found.kernel, kinds
    return address_of(*_known[held])


ll.add_symbol(_FINDER, ctypes.cast(_find, ctypes.c_void_p).value)
