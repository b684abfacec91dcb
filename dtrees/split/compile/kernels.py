"""Decorators that compile kernels.

Kernels release the interpreter lock, so that threads run in parallel, and are cached on disk. They never use ``parallel=True`` (its
threads abort under Dask's) nor ``fastmath`` (it reorders operations that decide a split). Divisions by zero give infinities and NaN, as
in NumPy, instead of a check at every division.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numba import njit, typeof, types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.sigutils import normalize_signature
from numpy.typing import NDArray

from dtrees.split.compile.cache import PATCHES_NUMBA, KernelCache, cache_folder, fetch_kernel
from dtrees.split.compile.separate import called_apart

if PATCHES_NUMBA:
    from dtrees.split.compile import numba_pipeline

#: Seconds after which a process stops waiting for another one that compiles the same kernel, which may hang.
_PATIENCE = 600


def _pipeline(name: str) -> dict[str, Any]:
    """Return the option that selects a compiler of :mod:`dtrees.split.compile.numba_pipeline`, if these are used."""
    return {"pipeline_class": getattr(numba_pipeline, name)} if PATCHES_NUMBA else {}


#: Options of all kernels and their parts.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
#: Options of the versions of :func:`~dtrees.split.compile.specialised.specialised`, which are inlined into their callers.
PART_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "forceinline": True, "_nrt": False, **_pipeline("PartCompiler")}
_numba_compiler = partial(njit, **_OPTIONS)


def _compiler(pipeline: str = "KernelCompiler", **options: Any) -> Callable[..., Any]:
    """Return a decorator for kernels, with options of Numba in addition to the common ones."""

    def decorate(function):
        dispatcher = _numba_compiler(**_pipeline(pipeline), **options)(function)
        dispatcher._cache = KernelCache(function)
        dispatcher.compile = partial(_compile_in_turn, dispatcher, dispatcher.compile)
        return dispatcher

    return decorate


def _part_compiler(**options: Any) -> Callable[..., Any]:
    """Return a decorator for parts of kernels, which Python never calls. They are cached within their callers, if possible."""
    if not PATCHES_NUMBA:
        return _compiler(no_cpython_wrapper=True, **options)
    return _numba_compiler(no_cpython_wrapper=True, **_pipeline("PartCompiler"), **options)


def _compile_in_turn(dispatcher, compile_now, signature):
    """Compile a kernel, or load it from disk, while no other process compiles it for the same types.

    The workers of a cluster need the same kernels at the same time: one compiles them, and the others load the result.

    The lock is held while the kernels called by this one are compiled, under their own locks. No two kernels call each other, so there
    is no deadlock. Numba's own lock, for the threads of a process, is taken first.
    """
    with global_compiler_lock, ExitStack() as held:
        arguments, _ = normalize_signature(signature)
        if not is_compiled(dispatcher, arguments):
            name = dispatcher._cache.file_name(arguments)
            with suppress(OSError, NotImplementedError, Timeout):  # not every file system supports locks
                held.enter_context(FileLock(cache_folder() / f"{name}.lock").acquire(timeout=_PATIENCE))
            fetch_kernel(name)
            if PATCHES_NUMBA:
                held.enter_context(numba_pipeline.quickly())
            held.enter_context(_without_collections())
        return compile_now(signature)


def is_compiled(kernel: Any, argument_types: tuple[Any, ...]) -> bool:
    """Return whether a kernel is in memory, or on disk, for given argument types."""
    return argument_types in kernel.overloads or kernel._cache.find(argument_types) is not None


@contextmanager
def _without_collections() -> Iterator[None]:
    """Suspend garbage collection, which would traverse Numba's data again and again and find nothing to free."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


#: Compile a part of kernels, never called from Python, together with its callers.
inner_kernel = _part_compiler(_nrt=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that Python calls. Other kernels may call it, too, and then include it."""
    dispatcher = _compiler(_nrt=True)(function)
    if PATCHES_NUMBA:
        part = inner_kernel(function)
        dispatcher.get_call_template, dispatcher.get_overload = part.get_call_template, part.get_overload
    return dispatcher


@kernel
def ZERO():
    """Return 0 that is not a literal: Numba compiles a kernel again for each literal argument."""
    return np.int64(0)


@kernel
def NONE():
    """Return -1 that is not a literal."""
    return np.int64(-1)


#: Compile a part of kernels that runs for each small node. It does not count references to arrays, which takes time, above all if
#: threads share arrays. Such a part must neither allocate nor return an array. (The parts that it calls would not count references
#: either, but for the explicit ``_nrt=True`` above.)
lean_kernel = _part_compiler(_nrt=False)

#: A lean kernel that is inlined into its caller: for a part with so many arrays that passing them costs as much as the work on a small
#: node.
inlined_kernel = _part_compiler(_nrt=False, forceinline=True)

#: A lean kernel that is never inlined, for parts that take longer than a call. An inlined kernel inlines the kernels that it calls, too:
#: a search called in four places is compiled four times.
shared_kernel = _part_compiler(_nrt=False, forceinline=False)


#: Compile a part of kernels that others call by its address.
alone = _compiler(_nrt=False, no_cpython_wrapper=True)


def separate_kernel(function: Callable[..., Any] | None = None, *, returns: Any = None) -> Any:
    """Compile a long part of kernels once, separately from its callers.

    For a part that takes long to compile, is not a closure, and is called so seldom that inlining gains nothing. If the type that it
    ``returns`` is given, it is compiled only when it is first called.
    """
    return partial(separate_kernel, returns=returns) if function is None else called_apart(alone(function), returns)


#: A lean kernel that Python calls.
lean_entry = _compiler(_nrt=False)


def pointer_to(context: Any, builder: Any, kind: Any, array: Any, places: Any) -> Any:
    """Return a pointer to an element of an array of a Numba type, in the code that an intrinsic generates."""
    return cgutils.get_item_pointer(context, builder, kind, context.make_array(kind)(context, builder, array), places)


#: The flags of arrays that decide their type, as NumPy numbers them: contiguous in C and in Fortran order, aligned, writeable.
_LAYOUT = 0x1 | 0x2 | 0x100 | 0x400
_bound: dict[Any, Callable[..., Any]] = {}


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in the layout that kernels are compiled for: contiguous, aligned and writeable. Others are copied."""
    return array if array.flags.carray else array.copy()


def bind(kernel: Any, *arguments: Any, any_layout: Sequence[NDArray[Any]] = ()) -> Callable[..., Any]:
    """Return a kernel's code for the types of these arguments, to be called with the same types only.

    Finding the types of a hundred arrays takes longer than many a call, so it is done once. Arrays given as ``any_layout`` may have any
    layout in later calls: contiguous or not, read-only or not, aligned or not.
    """
    anyhow = {id(array) for array in any_layout}
    key = kernel, tuple((value.dtype, value.ndim) if id(value) in anyhow else layout_of(value) for value in arguments)
    if key not in _bound:
        _bound[key] = kernel.compile(tuple(_any_layout(value) if id(value) in anyhow else typeof(value) for value in arguments))
    return _bound[key]


def _any_layout(array: Any) -> Any:
    return types.Array(typeof(array).dtype, array.ndim, "A", readonly=True, aligned=False)


def layout_of(value: Any) -> Any:
    """Return the properties of an argument that decide its compiled type."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.num & _LAYOUT
    return (type(value), tuple(map(layout_of, value))) if isinstance(value, tuple) else type(value)
