"""Waiting on a cluster without waiting forever.

Dask itself waits for as long as it takes, also for what can no longer happen. Here every wait is cut into slices, and between slices
the state of the cluster is looked at: is there still a scheduler, are there workers, do they show signs of life, does anybody still want
the result? Work may take as long as it needs; it is silence that has a deadline.

A worker that is silent for too long is struck off the scheduler's list. From then on it is as dead as one that was killed: Dask runs its
tasks elsewhere and computes again what it held, and should it wake up, it finds itself dismissed and ends.

Terms
-----
patience
    seconds of silence (no heartbeat of a worker, no worker at all) until it counts as lost. Workers report every half second to few
    seconds, from a thread of their own, however long their tasks compute. Where they are found to be slow at it (a busy machine),
    patience grows; so it does, up to a bound, with every worker that is struck off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from distributed import Client, Future, KilledWorker, get_worker, worker_client

from dtrees.cluster.errors import ClusterError, SchedulerLost, WorkerLost
from dtrees.cluster.fits import Fit, current_fit
from dtrees.cluster.questions import RUN_AGAIN, SCHEDULER_PATIENCE, answer, connected, explained

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

_SLICE = 0.5
_SECONDS_BETWEEN_LOOKS = 2.0
#: Silence is established by several looks at least.
_LOOKS = 5
#: Patience is at least so many times the longest silence that a worker broke.
_TIMES_THE_LONGEST = 4.0
#: After a worker was struck off, patience grows by this factor, up to so many times what it was to begin with: if it was a false alarm,
#: the next one takes longer.
_GROWTH, _MOST_GROWTH = 1.5, 3.0


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
            yield connected(client)
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
    """Which workers there are, and how long each has been silent.

    Silence is counted while somebody listens: if this process itself stood still (a suspended machine), nobody else is to blame.

    Parameters
    ----------
    patience : float
        Seconds, to begin with.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._most_patience = _MOST_GROWTH * patience
        self.n_departed = 0  # workers that were there once
        self._last_seen: dict[str, float] = {}  # by the scheduler's clock
        self._silence: dict[str, float] = {}
        self._without_workers = 0.0
        self._last_note = time.monotonic()

    @property
    def seconds_between_looks(self) -> float:
        """How often to listen."""
        return min(_SECONDS_BETWEEN_LOOKS, self.patience / _LOOKS)

    def note(self, workers: dict[str, dict[str, Any]]) -> None:
        """Take in what the scheduler knows of its workers (``identity()["workers"]``)."""
        now = time.monotonic()
        listened = min(now - self._last_note, 1.5 * self.seconds_between_looks)
        self._last_note = now
        self._without_workers = 0.0 if workers else self._without_workers + listened
        silence = {}
        for worker, facts in workers.items():
            if self._last_seen.get(worker) == facts["last_seen"]:
                silence[worker] = self._silence[worker] + listened
            else:
                silence[worker] = 0.0
                self.patience = max(self.patience, _TIMES_THE_LONGEST * self._silence.get(worker, 0.0))
        self.n_departed += len(self._last_seen.keys() - workers.keys())
        self._silence = silence
        self._last_seen = {worker: facts["last_seen"] for worker, facts in workers.items()}

    def silent(self) -> dict[str, float]:
        """Return the seconds of silence of the workers that have been silent for longer than the patience."""
        return {worker: seconds for worker, seconds in self._silence.items() if seconds > self.patience}

    def struck_off(self) -> None:
        """Take in that workers were struck off for their silence."""
        self.patience = max(self.patience, min(_GROWTH * self.patience, self._most_patience))

    @property
    def all_lost(self) -> bool:
        """Whether there has been no worker for longer than the patience."""
        return self._without_workers > self.patience


class Lookout:
    """Looks at a cluster now and then.

    Parameters
    ----------
    client : distributed.Client
    patience : float, optional
        By default that of the fit.
    fit : Fit, optional
        By default the current one.

    Attributes
    ----------
    workers : dict from str to dict
        What the last look showed.
    """

    def __init__(self, client: Client, patience: float | None = None, fit: Fit | None = None) -> None:
        self._client = client
        self._fit = fit or current_fit()
        self.workers: dict[str, dict[str, Any]] = {}
        self.heartbeats = Heartbeats(self._fit.settings.patience if patience is None else patience)

    def check(self) -> None:
        """Raise if the connection to the scheduler is lost, or nobody wants the fit any more."""
        self._fit.check()
        if self._client.status != "running":
            raise SchedulerLost(f"The connection to the Dask scheduler was lost during the fit. {RUN_AGAIN} once the scheduler is back.")

    async def look(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows of its workers, after striking off the silent ones.

        Raises
        ------
        FitCancelled, SchedulerLost
            See :meth:`check`; also if the worker that this runs on was struck off itself.
        """
        self.check()
        asked = time.monotonic()
        with explained():
            known = await answer(self._client.scheduler.identity(n_workers=-1), max(self.heartbeats.patience, SCHEDULER_PATIENCE))
        workers: dict[str, dict[str, Any]] = known["workers"]
        self._fit.note(workers, asked)
        self.heartbeats.note(workers)
        silent = self.heartbeats.silent()
        for worker, seconds in silent.items():
            logger.warning("striking off worker %s, which has been silent for %.0f s", worker, seconds)
            with explained():
                await self._client.scheduler.unregister(address=worker, stimulus_id=f"dtrees-silent-{uuid4().hex[:8]}")
            del workers[worker]
        if silent:
            self.heartbeats.struck_off()
        self.workers = workers
        return workers


def confirm(client: Client, fit: Fit) -> None:
    """See to it that the fit is still this worker's, before something is done that would outlast it.

    A worker that stood still and was struck off goes on where it was when it wakes up, and the fit may be long over. Who was known to the
    scheduler a moment ago need not ask.

    Raises
    ------
    FitCancelled, SchedulerLost
        See :meth:`Lookout.look`.
    """
    if fit.may_be_given_up:
        client.sync(Lookout(client, fit=fit).look)


class Watch:
    """Waits for futures, and raises when what they need is lost.

    Parameters
    ----------
    client : distributed.Client
    patience : float, optional
        See :mod:`dtrees.cluster.watch`; by default that of the fit.
    """

    def __init__(self, client: Client, patience: float | None = None) -> None:
        self._client = client
        self._lookout = Lookout(client, patience)
        self._next_look = 0.0

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knew of its workers when it was last asked, if it was."""
        return self._lookout.workers

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of all futures, in order.

        Raises
        ------
        Exception
            What a task raised, as soon as one did.
        WorkerLost, SchedulerLost
            If the results cannot come any more.
        FitCancelled
            If nobody wants them.
        """
        results: dict[int, Any] = {}
        for i, result in self.as_completed(futures):
            results[i] = result
        return [results[i] for i in range(len(futures))]

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait for all futures, and leave their results where they are; raises as :meth:`gather` does."""
        for _ in self._finished(futures):
            pass

    def wait_undisturbed(self, futures: Sequence[Future], seconds: float) -> bool:
        """Wait for all futures, unless a worker is lost meanwhile or it takes longer; tell whether all are there.

        Raises as :meth:`gather` does.
        """
        deadline = time.monotonic() + seconds
        self._client.sync(self._lookout.look)
        n_departed = self._lookout.heartbeats.n_departed
        heartbeats = self._lookout.heartbeats
        return all(heartbeats.n_departed == n_departed and time.monotonic() < deadline for _ in self._finished(futures))

    def as_completed(self, futures: Sequence[Future]) -> Iterator[tuple[int, Any]]:
        """Yield the position and the result of each future, in the order in which they finish; raises as :meth:`gather` does.

        More futures may be put to the end of ``futures`` meanwhile.
        """
        for ready in filter(None, self._finished(futures)):
            yield from zip(ready, self._fetch([futures[i] for i in ready]), strict=True)

    def _fetch(self, futures: list[Future]) -> list[Any]:
        """Return the results of finished futures. Their workers may be lost even now; Dask then computes them again.

        What was on its way from a worker that stands still stays on its way; so when any worker goes, all is asked for again.
        """
        while True:
            n_departed = self._lookout.heartbeats.n_departed
            coroutine = self._client.gather(futures, asynchronous=True)
            fetching = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
            try:
                while not wait([fetching], timeout=_SLICE).done:
                    self.look()
                    if self._lookout.heartbeats.n_departed != n_departed:
                        break
                else:
                    with explained():
                        return list(fetching.result())
            finally:
                fetching.cancel()

    def _finished(self, futures: Sequence[Future]) -> Iterator[list[int]]:
        """Yield the positions of futures as they finish; none of them, now and then."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()

        def await_result(i: int) -> None:
            futures[i].add_done_callback(lambda _: done.put(i))

        n_awaited = n_ready = 0
        while n_ready < len(futures):
            for i in range(n_awaited, len(futures)):
                await_result(i)
            n_awaited = len(futures)
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
            yield ready
            n_ready += len(ready)

    def look(self) -> None:
        """Raise if there is no scheduler any more, if there have been no workers for too long, or if nobody wants the fit."""
        self._lookout.check()
        if time.monotonic() < self._next_look:
            return
        self._client.sync(self._lookout.look)
        self._next_look = time.monotonic() + self._lookout.heartbeats.seconds_between_looks
        if self._lookout.heartbeats.all_lost:
            raise WorkerLost(f"The Dask cluster has no workers left. {RUN_AGAIN} when it has.")


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
        raise SchedulerLost(f"The task {future.key} of this fit was cancelled on the Dask cluster. {RUN_AGAIN}.")
    error = future.exception()
    if isinstance(error, KilledWorker):
        raise WorkerLost(
            f"Workers died {error.allowed_failures + 1} times over the same task, {error.task}, mostly for want of memory. "
            "Give the workers more memory, or have fewer and larger ones; the workers' logs say more."
        ) from error
    raise error.with_traceback(future.traceback())
