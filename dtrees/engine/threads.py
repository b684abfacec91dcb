"""How many threads to use, and a pool to use them.

Threads belong to the engine; kernels know nothing of them.
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

#: Python looks for Ctrl-C only between two of its own steps. Kernels on so many cells, which take tens of milliseconds, are called by other
#: threads, while the main one waits for them, or for that.
INTERRUPTIBLE_CELLS = 1_000_000
#: Threads that are to give up their work end after the node that they are at; they are waited for no longer than this.
_SECONDS_TO_END = 0.5
_SLICE = 0.1
#: More threads than machines have cores: a number from a model file must not exhaust a machine.
_MOST_THREADS = 1024


def available_cores() -> int:
    """Return the number of cores this process may use.

    Inside a Dask task that is the worker's own number of threads; inside a joblib worker what joblib left to it. joblib tells its processes
    by the environment: ``NUMBA_NUM_THREADS``, which users may set too. Elsewhere a limit on OpenMP's threads counts as well, that of
    ``threadpoolctl.threadpool_limits`` or ``OMP_NUM_THREADS``, as it does for scikit-learn.
    """
    distributed = sys.modules.get("distributed.worker")
    if distributed is not None:
        try:
            return int(distributed.get_worker().state.nthreads)
        except ValueError:  # not in a task
            pass
    import joblib

    cores = int(joblib.effective_n_jobs(-1))
    # The largest: a limit that one library was given for itself is not meant for others.
    cores = min(cores, max((library.num_threads for library in _openmp_libraries()), default=cores))
    with contextlib.suppress(ValueError):  # none, or no number
        cores = min(cores, max(1, int(os.environ.get("NUMBA_NUM_THREADS", ""))))
    return cores


@functools.cache
def _openmp_libraries() -> list[Any]:
    """Return the loaded libraries of OpenMP. Finding them takes some milliseconds, asking them less than one."""
    import sklearn.utils  # noqa: F401 (brings one along)
    import threadpoolctl

    return list(threadpoolctl.ThreadpoolController().select(user_api="openmp").lib_controllers)


def effective_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that ``n_jobs`` stands for.

    Parameters
    ----------
    n_jobs : int or None
        None is 1; -1 is all cores this process may use, -2 all but one, and so on. There are never more than 1,024.

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
    """What a thread was at is not finished, as nobody wants it any more."""


def in_main_thread() -> bool:
    """Tell whether this is the thread that Ctrl-C interrupts."""
    return threading.current_thread() is threading.main_thread()


class Threads:
    """The calling thread and some helpers, which start when they are first wanted: the work on a small table may never want one.

    A level of a tree takes well under a millisecond, so handing out work must be cheap: half the time of ``concurrent.futures``, which
    makes a future of each item, or less.

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
        self, function: Callable[[Any], T], items: Iterable[Any], most: int | None = None, give_up: Callable[[], None] | None = None
    ) -> list[T]:
        """Apply a function to every item, in ``most`` threads at most; results come in order.

        The first error ends the work and is raised. On Ctrl-C, ``give_up`` is called, which has the other threads end soon.
        """
        items = list(items)
        helpers = self._helpers_for(min(len(items), most or len(items)))
        if not helpers:
            return [function(item) for item in items]
        numbered = enumerate(items)  # its next is atomic
        results: list[Any] = [None] * len(items)
        errors: list[BaseException] = []
        finished: SimpleQueue[None] = SimpleQueue()

        def work() -> None:
            try:
                for i, item in numbered:
                    results[i] = function(item)
                    if errors:
                        break
            except BaseException as error:
                errors.append(error)

        def help_out() -> None:
            work()
            finished.put(None)

        def end() -> None:
            errors.append(GivenUp())  # nobody begins with another item
            if give_up is not None:
                give_up()

        for queue in helpers:
            queue.put(help_out)
        work()
        self._wait_for(finished, len(helpers), end, interrupted=any(isinstance(error, KeyboardInterrupt) for error in errors))
        if errors:
            raise errors[0]
        return results

    def map_ranges(self, function: Callable[[slice], T], n_rows: int, least: int) -> list[T]:
        """Apply a function to ranges of ``least`` rows or more each, as many as there are threads at most; results come in order."""
        if n_rows <= least:
            return [function(slice(0, n_rows))]
        step = max(least, -(-n_rows // self.n_threads))
        return self.map(function, [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)])

    def over_rows(self, function: Callable[..., object], arrays: Sequence[NDArray[Any]], least: int) -> None:
        """Apply a function to ranges of ``least`` rows or more each, the last axis of some arrays, the first of which has all rows."""
        n_rows = arrays[0].shape[-1]
        if n_rows <= least:
            function(*arrays)
        else:
            self.map_ranges(lambda rows: function(*[array[..., rows] for array in arrays]), n_rows, least)

    def share(self, n_tasks: int, function: Callable[[NDArray[np.int64], int], None], most: int | None = None) -> None:
        """Have threads, not more than ``most``, call a kernel that claims its tasks from a queue (:mod:`dtrees.split.compile.work_queue`).

        ``function`` gets the queue and the number of its thread. The tasks are finished when this returns, also if a helper has not even
        come: it will find nothing to do. The first error ends the work and is raised.
        """
        from dtrees.split.compile.work_queue import give_up, make_queue, wait_for_all  # Numba, which counting cores does not need

        queue = make_queue()
        n_threads = min(self.n_threads, n_tasks, most or n_tasks)
        if n_threads <= 1:
            function(queue, 0)
            return
        self.together(
            n_threads, lambda thread: function(queue, thread), lambda: wait_for_all(queue, n_tasks), give_up=lambda: give_up(queue)
        )

    def together(self, n_threads: int, function: Callable[[int], None], wait: Callable[[], None], give_up: Callable[[], None]) -> None:
        """Have so many threads, if there are, call a kernel with their numbers.

        Parameters
        ----------
        n_threads : int
        function : callable
            Calls the kernel; this thread is number 0. Helpers that come late find nothing to do.
        wait : callable
            Returns when the work that threads have begun is done.
        give_up : callable
            Called where a thread fails: nobody may wait any longer for what it has begun. Its error is raised in the end.
        """
        errors: list[BaseException] = []
        for thread, helper in enumerate(self._helpers_for(n_threads), 1):
            helper.put(functools.partial(_run, function, thread, errors, give_up))
        _run(function, 0, errors, give_up)
        wait()
        if errors:
            raise errors[0]

    def apart(self, n_threads: int, function: Callable[[int], None], give_up: Callable[[], None]) -> None:
        """Have so many threads, if there are, call a kernel with their numbers, but not this one: it waits, and can be interrupted.

        Parameters
        ----------
        n_threads : int
        function : callable
            Calls the kernel. The first error ends the work and is raised.
        give_up : callable
            Called on an error or Ctrl-C, to have all threads end soon.
        """
        finished: SimpleQueue[None] = SimpleQueue()
        errors: list[BaseException] = []
        helpers = self._start(max(1, min(n_threads, self.n_threads)))
        for thread, helper in enumerate(helpers):
            helper.put(functools.partial(_run, function, thread, errors, give_up, finished))
        self._wait_for(finished, len(helpers), give_up)
        if errors:
            raise errors[0]

    def _wait_for(self, finished: SimpleQueue[None], n: int, give_up: Callable[[], None], interrupted: bool = False) -> None:
        """Wait for so many helpers. On Ctrl-C, those that take long to give up are not waited for any more, nor when this closes."""
        try:
            if interrupted:
                raise KeyboardInterrupt
            while n:
                _take(finished)
                n -= 1
        except BaseException:
            give_up()
            deadline = time.monotonic() + _SECONDS_TO_END
            try:
                for _ in range(n):
                    finished.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                self._left_behind = True
            raise

    def _helpers_for(self, n_threads: int) -> list[SimpleQueue[Callable[[], None] | None]]:
        """Return the queues of the helpers of so many threads, or of all there may be."""
        return self._start(max(0, min(n_threads, self.n_threads) - 1))

    def _start(self, n: int) -> list[SimpleQueue[Callable[[], None] | None]]:
        """Return the queues of so many helpers."""
        while len(self._queues) < n:
            self._queues.append(SimpleQueue())
            self._helpers.append(threading.Thread(target=_help, args=(self._queues[-1],), name="dtrees", daemon=True))
            self._helpers[-1].start()
        return self._queues[:n]

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


def _run(
    function: Callable[[int], None],
    thread: int,
    errors: list[BaseException],
    give_up: Callable[[], None],
    finished: SimpleQueue[None] | None = None,
) -> None:
    """Do a thread's part; keep its error, and have the others give up then."""
    try:
        function(thread)
    except BaseException as error:
        errors.append(error)
        give_up()
    if finished is not None:
        finished.put(None)


def _take(queue: SimpleQueue[T]) -> T:
    """Take an item; Ctrl-C ends the wait on every system."""
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=_SLICE)


def _help(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := queue.get()) is not None:
        work()
        del work  # not to keep its arrays while waiting
