"""How many threads to use, and a pool to use them.

Threads belong to the engine; kernels know nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def available_cores() -> int:
    """Return the number of cores this process may use.

    Inside a Dask task that is the worker's own number of threads; inside a joblib worker what joblib left to it.
    """
    distributed = sys.modules.get("distributed.worker")
    if distributed is not None:
        try:
            return int(distributed.get_worker().state.nthreads)
        except ValueError:  # not in a task
            pass
    import joblib

    return int(joblib.effective_n_jobs(-1))


def effective_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that ``n_jobs`` stands for.

    Parameters
    ----------
    n_jobs : int or None
        None is 1; -1 is all cores this process may use, -2 all but one, and so on.

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
    return n_jobs


class Threads:
    """A pool of threads, or none for a single one.

    Examples
    --------
    >>> with Threads(2) as threads:
    ...     threads.map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = max(1, n_threads)
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="dtrees") if self.n_threads > 1 else None

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
        """Apply a function to every item; results come in order."""
        items = list(items)
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
