"""The number of threads to use, and a pool of threads.

Threads belong to the engine; kernels do not create any.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

#: Python handles Ctrl-C only between two of its own instructions. Kernels on at least this many cells, which take tens of milliseconds, are
#: therefore called in other threads, while the main thread waits for them or for Ctrl-C.
INTERRUPTIBLE_CELLS = 1_000_000
#: Longest wait for threads that are asked to stop, in seconds. They stop after their current node.
_SECONDS_TO_END = 0.5
_SLICE = 0.1
#: More than the number of cores of any machine, so that a number from a model file cannot exhaust a machine.
_MOST_THREADS = 1024


def dask_worker() -> Any:
    """Return the Dask worker whose task this thread runs; None if it runs none."""
    distributed = sys.modules.get("distributed.worker")
    with contextlib.suppress(ValueError):
        return None if distributed is None else distributed.get_worker()
    return None


def available_cores() -> int:
    """Return the number of cores this process may use.

    In a Dask task, that is the worker's number of threads; in a joblib worker, the share that joblib assigned, which joblib passes in the
    environment variable ``NUMBA_NUM_THREADS`` (users may set it, too). Elsewhere, the limit on OpenMP threads by
    ``threadpoolctl.threadpool_limits`` or ``OMP_NUM_THREADS`` counts as well, as in scikit-learn.
    """
    if (worker := dask_worker()) is not None:
        return int(worker.state.nthreads)
    import joblib

    cores = int(joblib.effective_n_jobs(-1))
    # The largest limit, as a limit on a single library is not meant for others.
    cores = min(cores, max((library.num_threads for library in _openmp_libraries()), default=cores))
    with contextlib.suppress(ValueError):  # unset, or not a number
        cores = min(cores, max(1, int(os.environ.get("NUMBA_NUM_THREADS", ""))))
    return cores


@functools.cache
def _openmp_libraries() -> list[Any]:
    """Return the loaded OpenMP libraries. Finding them takes some milliseconds, reading their limits less than one."""
    import sklearn.utils  # noqa: F401 (brings one along)
    import threadpoolctl

    return list(threadpoolctl.ThreadpoolController().select(user_api="openmp").lib_controllers)


def effective_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that ``n_jobs`` stands for.

    Parameters
    ----------
    n_jobs : int or None
        None is 1; -1 is all cores this process may use, -2 all but one, and so on. At most 1,024.

    Raises
    ------
    ValueError
        If ``n_jobs`` is 0.
    """
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs is 0; use a positive number of threads, or -1 for all cores")
    if n_jobs < 0:
        return max(1, available_cores() + 1 + n_jobs)
    return min(n_jobs, _MOST_THREADS)


class GivenUp(RuntimeError):
    """The work of a thread was stopped before its end, as the result is no longer wanted."""


def in_main_thread() -> bool:
    """Return whether this is the thread that Ctrl-C interrupts."""
    return threading.current_thread() is threading.main_thread()


class Threads:
    """The calling thread and some helpers, which start on first use: the work on a small table may need none.

    A level of a tree takes well under a millisecond, so distributing work must be cheap. This takes at most half the time of
    ``concurrent.futures``, which creates a future for each item.

    Examples
    --------
    >>> with Threads(2) as threads:
    ...     threads.map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = max(1, n_threads)
        self._queues: list[SimpleQueue[Callable[[], None] | None]] = []
        self._helpers: list[threading.Thread] = []
        self._left_behind = False

    def map(
        self, function: Callable[[Any], T], items: Iterable[Any], most: int | None = None, give_up: Callable[[], None] = lambda: None
    ) -> list[T]:
        """Apply a function to every item, in ``most`` threads at most; results are in the order of items.

        The first error ends the work and is raised. On Ctrl-C, ``give_up`` is called, which has the other threads stop soon.
        """
        items = list(items)
        n_helpers = self._n_helpers(min(len(items), most or len(items)))
        if not n_helpers:
            return [function(item) for item in items]
        numbered = enumerate(items)  # its next is atomic
        results: list[Any] = [None] * len(items)

        def work(_: int) -> None:
            for i, item in numbered:
                results[i] = function(item)

        def skip_rest() -> None:
            for _ in numbered:
                pass

        def end() -> None:
            skip_rest()
            give_up()

        shared = _Shared(work, skip_rest)
        self._begin(shared, range(1, n_helpers + 1))
        shared.run(0)
        self._wait_for(shared, n_helpers + 1, end)
        return results

    def map_ranges(self, function: Callable[[slice], T], n_rows: int, least: int) -> list[T]:
        """Apply a function to ranges of at least ``least`` rows, at most one for each thread; results are in order."""
        if n_rows <= least:
            return [function(slice(0, n_rows))]
        step = max(least, -(-n_rows // self.n_threads))
        return self.map(function, [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)])

    def over_rows(self, function: Callable[..., object], arrays: Sequence[NDArray[Any]], least: int) -> None:
        """Apply a function to ranges of at least ``least`` rows, along the last axis of arrays; the first array has all rows."""
        n_rows = arrays[0].shape[-1]
        if n_rows <= least:
            function(*arrays)
        else:
            self.map_ranges(lambda rows: function(*[array[..., rows] for array in arrays]), n_rows, least)

    def share(self, n_tasks: int, function: Callable[[NDArray[np.int64], int], None], most: int | None = None) -> None:
        """Have at most ``most`` threads call a kernel that claims its tasks from a queue (:mod:`dtrees.split.compile.work_queue`).

        ``function`` gets the queue and its thread number. The tasks are finished when this returns, even if a helper has not started yet;
        it will find no tasks. The first error ends the work and is raised.
        """
        from dtrees.split.compile.work_queue import give_up, make_queue, wait_for  # imports Numba, which counting cores does not need

        queue = make_queue()
        n_threads = min(self.n_threads, n_tasks, most or n_tasks)
        if n_threads <= 1:
            function(queue, 0)
            return
        self.together(n_threads, lambda thread: function(queue, thread), lambda: wait_for(queue, n_tasks), give_up=lambda: give_up(queue))

    def together(self, n_threads: int, function: Callable[[int], None], wait: Callable[[], None], give_up: Callable[[], None]) -> None:
        """Have up to ``n_threads`` threads, including this one, call a kernel with their numbers.

        Parameters
        ----------
        n_threads : int
        function : callable
            Calls the kernel; this thread is number 0. Helpers that start late find no work.
        wait : callable
            Returns when all work in progress is done.
        give_up : callable
            Called if a thread fails, so that no other waits for its result. The error is raised in the end.
        """
        shared = _Shared(function, give_up)
        self._begin(shared, range(1, self._n_helpers(n_threads) + 1))
        shared.run(0)
        wait()
        shared.raise_first()

    def run_interruptibly(self, n_threads: int, function: Callable[[int], None], give_up: Callable[[], None]) -> None:
        """Have up to ``n_threads`` other threads call a kernel with their numbers, while this one waits and can be interrupted.

        Parameters
        ----------
        n_threads : int
        function : callable
            Calls the kernel. The first error ends the work and is raised.
        give_up : callable
            Called on an error or Ctrl-C, to have all threads stop soon.
        """
        shared, n_helpers = _Shared(function, give_up), max(1, min(n_threads, self.n_threads))
        self._begin(shared, range(n_helpers))
        self._wait_for(shared, n_helpers, give_up)

    def _wait_for(self, shared: _Shared, n: int, give_up: Callable[[], None]) -> None:
        """Wait until ``n`` threads have done their shares, and raise the first error.

        On Ctrl-C, helpers that do not stop in time are abandoned, also when the pool is closed.
        """
        try:
            if any(isinstance(error, KeyboardInterrupt) for error in shared.errors):
                raise KeyboardInterrupt
            while n:
                _take(shared.finished)
                n -= 1
        except BaseException:
            give_up()
            deadline = time.monotonic() + _SECONDS_TO_END
            try:
                for _ in range(n):
                    shared.finished.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                self._left_behind = True
            raise
        shared.raise_first()

    def _n_helpers(self, n_threads: int) -> int:
        """Return the number of helpers of ``n_threads`` threads, or of all possible helpers if these are fewer."""
        return max(0, min(n_threads, self.n_threads) - 1)

    def _begin(self, shared: _Shared, numbers: range) -> None:
        """Have a helper, which is started if it is missing, do the share of each of these numbers."""
        while len(self._queues) < len(numbers):
            self._queues.append(SimpleQueue())
            self._helpers.append(threading.Thread(target=_help, args=(self._queues[-1],), name="dtrees", daemon=True))
            self._helpers[-1].start()
        for thread, queue in zip(numbers, self._queues, strict=False):
            queue.put(functools.partial(shared.run, thread))

    def close(self) -> None:
        """End the threads."""
        for queue in self._queues:
            queue.put(None)
        for helper in self._helpers if not self._left_behind else ():
            helper.join()
        self._queues, self._helpers = [], []

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Shared:
    """Work that several threads share, each with its number."""

    def __init__(self, function: Callable[[int], None], give_up: Callable[[], None]) -> None:
        self._function, self._give_up = function, give_up
        self.errors: list[BaseException] = []
        self.finished: SimpleQueue[None] = SimpleQueue()

    def run(self, thread: int) -> None:
        """Do a thread's share; store its error, and have the others stop in that case."""
        try:
            self._function(thread)
        except BaseException as error:
            self.errors.append(error)
            self._give_up()
        self.finished.put(None)

    def raise_first(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            raise self.errors[0]


def _take(queue: SimpleQueue[T]) -> T:
    """Take an item; the wait can be interrupted by Ctrl-C on every system."""
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=_SLICE)


def _help(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := queue.get()) is not None:
        work()
        del work  # releases its arrays while waiting
