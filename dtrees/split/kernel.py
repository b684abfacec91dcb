"""How kernels are compiled.

Without the interpreter lock, so that threads run side by side; cached on disk; never ``parallel=True`` (its threads abort under Dask's) and
never ``fastmath`` (it reorders what decides a split). Divisions by zero give infinities and NaN, as in NumPy, rather than checks at
every division.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numba import njit, typeof, version_info
from numba.core.compiler_lock import global_compiler_lock

#: The Numba whose inner workings :mod:`dtrees.split.parts` relies on. With any other, parts of kernels are compiled as kernels are.
_NUMBA_OF_PARTS = (0, 68)

#: Seconds after which a process does not wait any longer for another one that compiles the same kernel, which may stand still.
_PATIENCE = 600

#: Numba's decorator, with the options that all kernels and their parts have.
_numba_compiler = partial(njit, nogil=True, error_model="numpy", no_cfunc_wrapper=True)


def _compiler(**options):
    """Return a decorator for kernels, with Numba's options beside those that all have."""
    numba_compiler = _numba_compiler(cache=True, **options)

    def decorate(function):
        dispatcher = numba_compiler(function)
        dispatcher.compile = partial(_compile_in_turn, dispatcher, dispatcher.compile)
        dispatcher._cache.save_overload = partial(_save_in_turn, dispatcher, dispatcher._cache.save_overload)
        return dispatcher

    return decorate


def _part_compiler(**options):
    """Return a decorator for parts of kernels, which are never called from Python. They are cached within their callers, if possible."""
    if version_info.short != _NUMBA_OF_PARTS:
        return _compiler(no_cpython_wrapper=True, **options)
    from dtrees.split.parts import PartCompiler

    return _numba_compiler(no_cpython_wrapper=True, pipeline_class=PartCompiler, **options)


def _compile_in_turn(dispatcher, compile_now, signature):
    """Compile a kernel, or load it from Numba's cache, while no other process does so for the same types.

    The workers of a cluster need the same kernels at the same time: one compiles them and the others load the result.

    The lock is held while the kernels that this one calls are compiled, with locks of their own; as no two call each other, nobody waits
    for ever. Numba's own lock, for the threads of a process, is taken first.
    """
    types = hashlib.sha256(str(signature).encode()).hexdigest()[:16]
    with global_compiler_lock, _lock(dispatcher, types):
        return compile_now(signature)


def _save_in_turn(dispatcher, save_now, signature, compiled):
    """Put a kernel into Numba's cache while no other process does so for other types.

    Each might overwrite what the other has put there, or take it for its own.
    """
    with _lock(dispatcher, "cache"):
        save_now(signature, compiled)


@contextmanager
def _lock(dispatcher, what):
    lock = FileLock(Path(dispatcher.stats.cache_path) / f"{dispatcher.__module__}.{dispatcher.__qualname__}.{what}.lock")
    with ExitStack() as locked:
        with suppress(OSError, NotImplementedError, Timeout):  # not every file system knows locks
            locked.enter_context(lock.acquire(timeout=_PATIENCE))
        yield


#: Compile a kernel.
kernel = _compiler(_nrt=True)


@kernel
def ZERO():
    """Return 0. Numba compiles a kernel anew for each literal it is called with; this is none."""
    return np.int64(0)


@kernel
def NONE():
    """Return -1, likewise."""
    return np.int64(-1)


#: Compile a part of kernels that is never called from Python, with its callers.
inner_kernel = _part_compiler(_nrt=True)

#: Compile a part of kernels that runs for each small node: it does not count references to arrays, which costs time, most of all where
#: threads share arrays. Such a part must not allocate an array nor return one. (A part called by it would do without counting as well, but
#: for the explicit ``_nrt=True`` above.)
lean_kernel = _part_compiler(_nrt=False)

#: The same, made part of its caller: for what takes so many arrays that to pass them costs as much as the work on a node of few rows.
inlined_kernel = _part_compiler(_nrt=False, forceinline=True)

#: A long part of one kernel, which stands apart to be read: it is merged into its only caller, rather than compiled by itself and then once
#: more as part of it.
merged_kernel = _compiler(_nrt=False, inline="always")

#: The same as a lean kernel for what is called from Python.
lean_entry = _compiler(_nrt=False)


_bound: dict[Any, Callable[..., Any]] = {}


def bind(kernel: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a kernel's code for arguments of these types, to be called with such only.

    To look up the types of a hundred arrays takes longer than many a call does, so where calls are many, it is done once.
    """
    key = kernel, _kind(arguments)
    if key not in _bound:
        _bound[key] = kernel.compile(tuple(typeof(argument) for argument in arguments))
    return _bound[key]


def _kind(value: Any) -> Any:
    """Return what decides the compiled type of an argument."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_kind, value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, value.flags.f_contiguous, value.flags.writeable, value.flags.aligned
    return type(value)
