"""How kernels are compiled.

Without the interpreter lock, so that threads run side by side; cached on disk; never ``parallel=True`` (its threads abort under Dask's) and
never ``fastmath`` (it reorders what decides a split). Divisions by zero give infinities and NaN, as in NumPy, rather than checks at
every division.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numba import njit, typeof, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.sigutils import normalize_signature
from numpy.typing import NDArray

from dtrees.split.compile.cache import PATCHES_NUMBA, KernelCache, cache_folder, fetch_kernel
from dtrees.split.compile.separate import called_apart

#: Seconds after which a process does not wait any longer for another one that compiles the same kernel, which may stand still.
_PATIENCE = 600


def _pipeline(name: str) -> dict[str, Any]:
    """Return the option for one of the compilers of :mod:`dtrees.split.compile.numba_pipeline`, if they are used."""
    if not PATCHES_NUMBA:
        return {}
    from dtrees.split.compile import numba_pipeline

    return {"pipeline_class": getattr(numba_pipeline, name)}


#: What all kernels and their parts have.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
#: The options of the versions of :func:`~dtrees.split.compile.specialised.specialised`: they become part of their callers.
PART_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "forceinline": True, "_nrt": False, **_pipeline("PartCompiler")}
_numba_compiler = partial(njit, **_OPTIONS)


def _compiler(pipeline: str = "KernelCompiler", **options: Any) -> Callable[..., Any]:
    """Return a decorator for kernels, with Numba's options beside those that all have."""

    def decorate(function):
        dispatcher = _numba_compiler(**_pipeline(pipeline), **options)(function)
        dispatcher._cache = KernelCache(function)
        dispatcher.compile = partial(_compile_in_turn, dispatcher, dispatcher.compile)
        return dispatcher

    return decorate


def _part_compiler(**options: Any) -> Callable[..., Any]:
    """Return a decorator for parts of kernels, which are never called from Python. They are cached within their callers, if possible."""
    if not _pipeline("PartCompiler"):
        return _compiler(no_cpython_wrapper=True, **options)
    return _numba_compiler(no_cpython_wrapper=True, **_pipeline("PartCompiler"), **options)


def _compile_in_turn(dispatcher, compile_now, signature):
    """Compile a kernel, or load it from disk, while no other process compiles it for the same types.

    The workers of a cluster need the same kernels at the same time: one compiles them and the others load the result.

    The lock is held while the kernels that this one calls are compiled, with locks of their own; as no two call each other, nobody waits
    for ever. Numba's own lock, for the threads of a process, is taken first.
    """
    with global_compiler_lock, ExitStack() as held:
        arguments, _ = normalize_signature(signature)
        if not is_compiled(dispatcher, arguments):
            name = dispatcher._cache.file_name(arguments)
            held.enter_context(_lock(name))
            fetch_kernel(name)
            held.enter_context(_quickly())
            held.enter_context(_without_collections())
        return compile_now(signature)


def is_compiled(kernel: Any, argument_types: tuple[Any, ...]) -> bool:
    """Tell whether a kernel is in memory, or on disk, for arguments of these types."""
    return argument_types in kernel.overloads or kernel._cache.find(argument_types) is not None


def _quickly():
    if not _pipeline("KernelCompiler"):
        return nullcontext()
    from dtrees.split.compile.numba_pipeline import quickly

    return quickly()


@contextmanager
def _without_collections() -> Iterator[None]:
    """Put off collections of garbage: what Numba makes of a kernel, they would look through again and again, and find nothing to free."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _lock(name):
    lock = FileLock(cache_folder() / f"{name}.lock")
    with ExitStack() as locked:
        with suppress(OSError, NotImplementedError, Timeout):  # not every file system knows locks
            locked.enter_context(lock.acquire(timeout=_PATIENCE))
        yield


#: Compile a part of kernels that is never called from Python, with its callers.
inner_kernel = _part_compiler(_nrt=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel. Within other kernels it is a part of them."""
    dispatcher = _compiler(_nrt=True)(function)
    if _pipeline("PartCompiler"):
        part = inner_kernel(function)
        dispatcher.get_call_template, dispatcher.get_overload = part.get_call_template, part.get_overload
    return dispatcher


@kernel
def ZERO():
    """Return 0. Numba compiles a kernel anew for each literal it is called with; this is none."""
    return np.int64(0)


@kernel
def NONE():
    """Return -1, which is no literal either."""
    return np.int64(-1)


#: Compile a part of kernels that runs for each small node: it does not count references to arrays, which costs time, most of all where
#: threads share arrays. Such a part must not allocate an array nor return one. (A part called by it would do without counting as well, but
#: for the explicit ``_nrt=True`` above.)
lean_kernel = _part_compiler(_nrt=False)

#: The same, made part of its caller: for what takes so many arrays that to pass them costs as much as the work on a node of few rows.
inlined_kernel = _part_compiler(_nrt=False, forceinline=True)

#: A lean kernel that callers share, where others become part of them. What becomes part of its callers has what it calls become so, too,
#: over and over: a search that four places call is compiled four times. For what takes longer than a call does.
shared_kernel = _part_compiler(_nrt=False, forceinline=False)


#: Compile a part of kernels that others call at its address.
alone = _compiler(_nrt=False, no_cpython_wrapper=True)


def separate_kernel(function: Callable[..., Any] | None = None, *, returns: Any = None) -> Any:
    """Compile a long part of kernels apart from its callers, and not once more with each.

    For what takes long to compile, is called seldom enough that nothing is gained by having it within its callers, and is no closure. Given
    the type that it ``returns``, it is compiled only when it is first called.
    """
    return partial(separate_kernel, returns=returns) if function is None else called_apart(alone(function), returns)


#: The same as a lean kernel for what is called from Python.
lean_entry = _compiler(_nrt=False)


#: The flags of arrays that decide their type: NumPy's numbers for contiguous in C's and in Fortran's order, aligned, writeable.
_LAYOUT = 0x1 | 0x2 | 0x100 | 0x400
_bound: dict[Any, Callable[..., Any]] = {}


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that kernels are compiled for: contiguous, aligned and writeable. Any other is copied."""
    return array if array.flags.carray else array.copy()


def bind(kernel: Any, *arguments: Any, any_layout: Sequence[NDArray[Any]] = ()) -> Callable[..., Any]:
    """Return a kernel's code for arguments of these types, to be called with such only.

    To look up the types of a hundred arrays takes longer than many a call does, so where calls are many, it is done once. Arrays given as
    ``any_layout`` may be contiguous or not, read only or not, and aligned or not, where the kernel is called: one code serves all.
    """
    anyhow = {id(array) for array in any_layout}
    key = kernel, tuple((value.dtype, value.ndim) if id(value) in anyhow else layout_of(value) for value in arguments)
    if key not in _bound:
        _bound[key] = kernel.compile(tuple(_any_layout(value) if id(value) in anyhow else typeof(value) for value in arguments))
    return _bound[key]


def _any_layout(array: Any) -> Any:
    return types.Array(typeof(array).dtype, array.ndim, "A", readonly=True, aligned=False)


def layout_of(value: Any) -> Any:
    """Return what decides the compiled type of an argument."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.num & _LAYOUT
    return (type(value), tuple(map(layout_of, value))) if isinstance(value, tuple) else type(value)
