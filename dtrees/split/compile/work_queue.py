"""Work that the threads inside a kernel share out among themselves.

Many steps of a level of a tree are tens of microseconds of work for a thread: less than it costs to start one from Python. So a kernel is
called once by each thread, and the threads claim tasks from a common counter until none is left. Tasks are numbered in an order in which
each comes after those it has to wait for; a thread that has claimed one waits until enough are finished. Every claimed task is under way in
some thread, so nothing waits for a thread that has not come; the work is done also if only one comes. The caller waits for the tasks, not
for the threads.

The counters are read and written atomically, with the memory order that makes what one task wrote visible to those after it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel

_SPINS = 2000


def make_queue() -> NDArray[np.int64]:
    """Return the counters of tasks claimed and finished, both 0."""
    return np.zeros(16, np.int64)


@intrinsic
def _add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to an element and return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def _exchange(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Set an element and return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Return an element that another thread may set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(array, types.intp), generate


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> ir.Value:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])


if hasattr(os, "sched_yield"):
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @inner_kernel
    def _let_others_run():
        _sched_yield()

else:

    @inner_kernel
    def _let_others_run():
        pass


@inner_kernel
def rest(spins):
    """Wait a moment, for the ``spins``-th time; return how often that was."""
    if spins > _SPINS:  # the thread that is waited for may have no core
        _let_others_run()
    return spins + 1


@inner_kernel
def acquire(array, i):
    """Wait for the lock that is an element of an array, 0 at first, and take it."""
    spins = ZERO()
    while _exchange(array, i, 1) != 0:
        spins = rest(spins)


@inner_kernel
def release(array, i):
    """Let go of a lock."""
    _exchange(array, i, 0)


@inner_kernel
def increase(array, i, value):
    """Add to an element that other threads may add to."""
    _add(array, i, value)


@inner_kernel
def claim(queue):
    """Return the number of a task that no other thread has."""
    return _add(queue, 0, 1)


@inner_kernel
def wait_for(queue, n_tasks):
    """Wait until so many tasks are finished."""
    spins = ZERO()
    while load(queue, 8) < n_tasks:
        spins = rest(spins)


@inner_kernel
def finish(queue):
    """Note that a claimed task is finished."""
    _add(queue, 8, 1)


def give_up(queue: NDArray[np.int64]) -> None:
    """Have nobody claim another task nor wait for one: a thread has failed."""
    queue[0] = queue[8] = 2**40


@kernel
def wait_for_all(queue, n_tasks):
    """Wait until all tasks are finished."""
    wait_for(queue, n_tasks)
