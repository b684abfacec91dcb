"""Work that threads inside a kernel share among themselves.

Many steps of a level take a thread only tens of microseconds, less than starting a thread from Python. So each thread calls a kernel
once, and the threads claim tasks from a common counter until none is left. Tasks are numbered such that each comes after those that it
depends on; a thread that has claimed a task waits until enough others are finished. Every claimed task is already running, so no task
waits for a thread that has not started, and a single thread can do all the work. The caller waits for the tasks, not for the threads.

The counters are read and written atomically, with a memory order that makes the results of one task visible to the tasks after it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, pointer_to

_SPINS = 2000


def make_queue() -> NDArray[np.int64]:
    """Return the counters of claimed and finished tasks, both 0."""
    return np.zeros(16, np.int64)


def _atomic(operation: str) -> Any:
    """Return a function that changes an element by an operation of LLVM with a value, and returns the element's previous value."""

    @intrinsic
    def change(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element = pointer_to(context, builder, signature.args[0], arguments[0], [arguments[1]])
            return builder.atomic_rmw(operation, element, arguments[2], "seq_cst")

        return types.int64(array, types.intp, types.int64), generate

    return change


_add, _exchange = _atomic("add"), _atomic("xchg")


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Return an element that another thread may write."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(pointer_to(context, builder, signature.args[0], arguments[0], [arguments[1]]), "seq_cst", 8)

    return types.int64(array, types.intp), generate


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
    """Wait a moment, for the ``spins``-th time; return ``spins + 1``."""
    if spins > _SPINS:  # the other thread may have no core to run on
        _let_others_run()
    return spins + 1


@inner_kernel
def acquire(array, i):
    """Acquire a lock: an element of an array that is 0 while the lock is free."""
    spins = ZERO()
    while _exchange(array, i, 1) != 0:
        spins = rest(spins)


@inner_kernel
def release(array, i):
    """Release a lock."""
    _exchange(array, i, 0)


@inner_kernel
def increase(array, i, value):
    """Add to an element atomically."""
    _add(array, i, value)


@inner_kernel
def claim(queue):
    """Return the number of the next task."""
    return _add(queue, 0, 1)


@kernel
def wait_for(queue, n_tasks):
    """Wait until ``n_tasks`` tasks are finished."""
    spins = ZERO()
    while load(queue, 8) < n_tasks:
        spins = rest(spins)


@inner_kernel
def finish(queue):
    """Count a claimed task as finished."""
    _add(queue, 8, 1)


@inner_kernel
def claimed(queue, n_tasks):
    """Yield the numbers of tasks, as long as there are any that no thread has claimed; each is finished when the next is claimed."""
    k = claim(queue)
    while k < n_tasks:
        yield k
        finish(queue)
        k = claim(queue)


def give_up(queue: NDArray[np.int64]) -> None:
    """Stop all threads from claiming tasks or waiting for them: a thread has failed."""
    queue[0] = queue[8] = 2**40
