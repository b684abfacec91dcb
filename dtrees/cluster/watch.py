"""Waiting on a cluster without waiting forever.

Dask itself waits for as long as it takes, also for what can no longer happen. Here every wait is cut into slices, and between slices
the state of the cluster is looked at: is there still a scheduler, are there workers, do they show signs of life? Work may take as
long as it needs; it is silence that has a deadline.

Terms
-----
patience
    seconds of silence (no heartbeat of a worker, no worker at all) until it counts as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, wait
from typing import Any, NoReturn

from distributed import Client, Future, KilledWorker, get_worker, worker_client

from dtrees.cluster.errors import ClusterError, SchedulerLost, WorkerLost

#: Seconds of silence until a worker counts as lost. Workers report every half second to few seconds, so that this is no tight limit.
PATIENCE = 30.0

_SLICE = 1.0
_SECONDS_BETWEEN_LOOKS = 3.0
_RUN_AGAIN = "Nothing of this fit is left on the cluster; run it again"


@contextlib.contextmanager
def current_client() -> Iterator[Client | None]:
    """Give the client that Dask collections are computed with by default, or None where there is none.

    Inside a task, the thread is :func:`out_of_the_way`.

    Raises
    ------
    ClusterError
        If the client is asynchronous: then nothing here could wait.
    """
    if in_task():
        with worker_client() as client:
            yield client
    else:
        yield default_client()


@contextlib.contextmanager
def out_of_the_way() -> Iterator[None]:
    """Inside a task, leave the worker's pool for as long as the block lasts: tasks that it waits for may need the thread."""
    if in_task():
        with worker_client():
            yield
    else:
        yield


def in_task() -> bool:
    """Tell whether this is a thread of a worker."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def default_client() -> Client | None:
    """Return the client that Dask collections are computed with by default, or None where there is none.

    Raises
    ------
    ClusterError
        If it is asynchronous.
    """
    try:
        client = Client.current()
    except ValueError:
        return None
    if client.asynchronous:
        raise ClusterError(
            "The current Dask client is asynchronous, and fit waits for its result; "
            "use model = await dtrees.submit(model, X, y), or a Client without asynchronous=True."
        )
    return client


class Heartbeats:
    """Which workers there are, and how long each has been silent, by the clock of this process.

    Parameters
    ----------
    patience : float
        Seconds.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._reports: dict[str, tuple[float, float]] = {}  # worker -> (its last report by the scheduler's clock, when we noticed it)
        self._last_worker = time.monotonic()

    def note(self, workers: dict[str, dict[str, Any]]) -> None:
        """Take in what the scheduler knows of its workers (``identity()["workers"]``)."""
        now = time.monotonic()
        if workers:
            self._last_worker = now
        known = self._reports
        self._reports = {
            worker: known[worker] if worker in known and known[worker][0] == facts["last_seen"] else (facts["last_seen"], now)
            for worker, facts in workers.items()
        }

    def lost(self, worker: str) -> str | None:
        """Return what is wrong with a worker, None if nothing is."""
        if worker not in self._reports:
            return "is gone"
        silence = time.monotonic() - self._reports[worker][1]
        return f"has been silent for {silence:.0f} s" if silence > self._patience else None

    @property
    def all_lost(self) -> bool:
        """Whether there has been no worker for longer than the patience."""
        return not self._reports and time.monotonic() - self._last_worker > self._patience


class Watch:
    """Waits for futures, and raises when what they need is lost.

    Parameters
    ----------
    client : distributed.Client
    patience : float
        See :mod:`dtrees.cluster.watch`.
    """

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client = client
        self._patience = patience
        self._heartbeats = Heartbeats(patience)
        self._next_look = 0.0

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of all futures, in order.

        Raises
        ------
        Exception
            What a task raised, as soon as one did.
        WorkerLost, SchedulerLost
            If the results cannot come any more.
        """
        results: dict[int, Any] = {}
        for i, result in self.as_completed(futures):
            results[i] = result
        return [results[i] for i in range(len(futures))]

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait for all futures, and leave their results where they are; raises as :meth:`gather` does."""
        for _ in self._finished(futures):
            pass

    def as_completed(self, futures: Sequence[Future]) -> Iterator[tuple[int, Any]]:
        """Yield the position and the result of each future, in the order in which they finish; raises as :meth:`gather` does."""
        for ready in self._finished(futures):
            yield from zip(ready, self._fetch([futures[i] for i in ready]), strict=True)

    def _fetch(self, futures: list[Future]) -> list[Any]:
        """Return the results of finished futures. Their workers may be lost even now; Dask then waits for them to be computed again."""
        coroutine = self._client.gather(futures, asynchronous=True)
        fetching = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
        try:
            while not wait([fetching], timeout=_SLICE).done:
                self.look()
            with _explained():
                return list(fetching.result())
        finally:
            fetching.cancel()

    def _finished(self, futures: Sequence[Future]) -> Iterator[list[int]]:
        """Yield the positions of futures as they finish."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()

        def await_result(i: int) -> None:
            futures[i].add_done_callback(lambda _: done.put(i))

        for i in range(len(futures)):
            await_result(i)
        n_left = len(futures)
        while n_left:
            ready = []
            for i in _take_all(done, _SLICE):
                status = futures[i].status
                if status == "finished":
                    ready.append(i)
                elif status in ("lost", "pending"):  # its worker was lost since; Dask computes it again
                    await_result(i)
                else:
                    self.look()
                    _raise_failure(futures[i])
            self.look()
            if ready:
                yield ready
            n_left -= len(ready)

    def look(self) -> None:
        """Raise if there is no scheduler any more, or there have been no workers for too long."""
        if self._client.status != "running":
            raise SchedulerLost(f"The connection to the Dask scheduler was lost during the fit. {_RUN_AGAIN} once the scheduler is back.")
        if time.monotonic() < self._next_look:
            return
        with _explained():
            known = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=self._patience)
        self._heartbeats.note(known["workers"])
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        if self._heartbeats.all_lost:
            raise WorkerLost(f"The Dask cluster has no workers left. {_RUN_AGAIN} when it has.")


def _take_all(items: queue.SimpleQueue[int], timeout: float) -> list[int]:
    """Return all that is in a queue, sorted, waiting for a first item if there is none yet."""
    taken = []
    with contextlib.suppress(queue.Empty):
        taken.append(items.get(timeout=timeout))
        while True:
            taken.append(items.get_nowait())
    return sorted(taken)


def _raise_failure(future: Future) -> NoReturn:
    """Raise what a task raised, or what became of it."""
    if future.status != "error":
        raise SchedulerLost(f"The task {future.key} of this fit was cancelled on the Dask cluster. {_RUN_AGAIN}.")
    error = future.exception()
    if isinstance(error, KilledWorker):
        raise WorkerLost(
            f"Workers died {error.allowed_failures + 1} times over the same task, {error.task}, mostly for want of memory. "
            "Give the workers more memory, or have fewer and larger ones; the workers' logs say more."
        ) from error
    raise error.with_traceback(future.traceback())


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Put Dask's errors about its connections into words that say what to do."""
    try:
        yield
    except CancelledError as error:
        raise SchedulerLost(f"The fit's tasks on the Dask cluster were cancelled ({error}). {_RUN_AGAIN}.") from error
    except OSError as error:
        raise SchedulerLost(f"The Dask scheduler does not answer ({error}). {_RUN_AGAIN} once it is back.") from error
