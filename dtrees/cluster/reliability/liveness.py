"""Waiting on a cluster without waiting for ever.

Dask itself waits for as long as it takes, also for what can no longer happen. Here every wait is cut into slices, and between slices
the state of the cluster is looked at: is there still a scheduler, are there workers, do they show signs of life, does anybody still want
the result, does the scheduler know the tasks that are awaited? Work may take as long as it needs; it is silence that has a deadline
(:mod:`dtrees.cluster.reliability.heartbeats`), and what workers cannot begin for want of memory (:mod:`dtrees.cluster.reliability.pauses`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any, NoReturn, TypeVar

from distributed import Client, Future, KilledWorker, get_worker, worker_client

from dtrees.cluster.compat import close_connections
from dtrees.cluster.errors import ClusterError, SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit_context import Fit, current_fit
from dtrees.cluster.reliability.heartbeats import Heartbeats, last_seen
from dtrees.cluster.reliability.pauses import Pauses
from dtrees.cluster.transport.scheduler_rpc import NO_WORKER_YET, RUN_AGAIN, SCHEDULER_PATIENCE, answer, connected, explained, in_loop

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

_SLICE = 0.5
#: Workers are given so long to close their connections to one that is silent.
_SECONDS_TO_CLOSE = 3.0
#: A task is known to the scheduler so many seconds after it was submitted; it is asked about so many tasks at a time.
_SECONDS_TO_BECOME_KNOWN, _ASKED_AT_ONCE = 60.0, 1000


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
    return checked_client(client)


def checked_client(client: Any) -> Client:
    """Return a client that fit can wait with.

    Raises
    ------
    ClusterError
        If it is asynchronous.
    TypeError
        If it is none.
    """
    if not isinstance(client, Client):
        raise TypeError(f"client is {client!r}; wants a distributed.Client, or None for the current one")
    if client.asynchronous:
        raise ClusterError(
            "The current Dask client is asynchronous, and fit waits for its result; "
            "use model = await dtrees.submit(model, X, y), or a Client without asynchronous=True."
        )
    return client


class WorkerMonitor:
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
        self.heartbeats = self._fit.heartbeats if patience is None else Heartbeats(patience)
        self._pauses = Pauses(self._fit)

    def check(self) -> None:
        """Raise if the connection to the scheduler is lost, or nobody wants the fit any more."""
        self._fit.check()
        if self._client.status != "running":
            raise SchedulerLost(f"The connection to the Dask scheduler was lost during the fit. {RUN_AGAIN} once the scheduler is back.")

    async def look(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows of its workers, without those that are silent.

        Raises
        ------
        FitCancelled, SchedulerLost
            See :meth:`check`; also if the scheduler does not know the worker any more that this runs on.
        """
        self.check()
        with explained():
            known = await answer(self._client.scheduler.identity(n_workers=-1), max(self.heartbeats.patience, SCHEDULER_PATIENCE))
        workers: dict[str, dict[str, Any]] = known["workers"]
        self._fit.note(workers)
        before = self.heartbeats.silent
        self.heartbeats.note(last_seen(workers), self._fit.worker)
        if self.heartbeats.awaits_first and not self._fit.awaits_worker:
            self._fit.awaits_worker = True
            logger.warning("%s %s", self._fit.name, NO_WORKER_YET)
        silent = self.heartbeats.silent
        for worker in silent:
            del workers[worker]
            if worker not in before:
                logger.warning("%s does without worker %s, which has been silent for %.0f s", self._fit.name, worker, silent[worker])
        if silent and (silent.keys() - before.keys() or time.monotonic() > self._fit.next_closing):
            self._fit.next_closing = time.monotonic() + self.heartbeats.patience
            with contextlib.suppress(OSError):  # there will be another time
                closing = self._client.run(close_connections, list(silent), workers=list(workers), on_error="ignore")
                await answer(closing, _SECONDS_TO_CLOSE)
        self.workers = workers
        return workers

    def check_pauses(self, awaited: object, needed: Iterable[str] | None = None) -> None:
        """Take in that something is waited for, after a look, and that only some workers can do it (by default, any).

        Raises
        ------
        NotEnoughMemory
            If Dask has paused these, for too long.
        """
        self._pauses.note(self.workers, self._fit.settings.patience, awaited, needed)


class UnknownTasks:
    """Finds futures whose tasks the scheduler does not know: Dask would wait for them for ever, without a word.

    A task that was known once is forgotten if it is not known any more. One that never was may still be on its way, in a graph with much
    data, so it is given a minute.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: set[Any] = set()
        self._first_asked: dict[Any, float] = {}

    async def among(self, futures: Sequence[Future]) -> list[Future]:
        """Return those of some futures, pending as far as their client knows, that can never finish; looks at so many at a time.

        Raises
        ------
        SchedulerLost
            If the scheduler does not answer.
        """
        asked = {future.key: future for future in futures[:_ASKED_AT_ONCE]}
        if not asked:
            return []
        with explained():
            status = await answer(self._client.scheduler.get_task_status(keys=list(asked)), SCHEDULER_PATIENCE)
        now = time.monotonic()
        unknown = []
        for key, future in asked.items():
            if status[key] is not None:
                self._known.add(key)
            elif future.status == "pending" and (
                key in self._known or now - self._first_asked.setdefault(key, now) > _SECONDS_TO_BECOME_KNOWN
            ):
                unknown.append(future)
        return unknown


class FutureWaiter:
    """Waits for futures, and raises when what they need is lost.

    Parameters
    ----------
    client : distributed.Client
    patience : float, optional
        See :class:`~dtrees.cluster.reliability.heartbeats.Heartbeats`; by default that of the fit.
    """

    def __init__(self, client: Client, patience: float | None = None) -> None:
        self._client = client
        self._monitor = WorkerMonitor(client, patience)
        self._unknown = UnknownTasks(client)
        self._next_look = 0.0

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knew of its workers when it was last asked, if it was."""
        return self._monitor.workers

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
        in_loop(self._client, self._monitor.look)
        n_departed = self._monitor.heartbeats.n_departed
        heartbeats = self._monitor.heartbeats
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
            n_departed = self._monitor.heartbeats.n_departed
            again = time.monotonic() + self._monitor.heartbeats.patience
            coroutine = self._client.gather(futures, asynchronous=True)
            fetching = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
            try:
                while not wait([fetching], timeout=_SLICE).done:
                    self.look()
                    heartbeats = self._monitor.heartbeats
                    if heartbeats.n_departed != n_departed or (heartbeats.silent and time.monotonic() > again):
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
            self.look(futures)
            yield ready
            n_ready += len(ready)

    def look(self, awaited: Sequence[Future] = ()) -> None:
        """Raise if there is nothing to wait for any more.

        That is if there is no scheduler, if there have been no workers for too long, if nobody wants the fit, or if the scheduler does not
        know a task that is awaited, or if workers that Dask has paused do not go on.
        """
        self._monitor.check()
        if time.monotonic() < self._next_look:
            return
        pending = [future for future in awaited if future.status == "pending"]
        for future in in_loop(self._client, self._unknown.among, pending):
            raise SchedulerLost(f"The Dask scheduler does not know the task {future.key} of this fit any more. {RUN_AGAIN}.")
        in_loop(self._client, self._monitor.look)
        self._next_look = time.monotonic() + self._monitor.heartbeats.seconds_between_looks
        if self._monitor.heartbeats.all_lost:
            silent = len(self._monitor.heartbeats.silent)
            what = f"{silent} workers, none of which shows signs of life" if silent else "no workers left"
            raise WorkerLost(f"The Dask cluster has {what}. {RUN_AGAIN} when it has.")
        if pending:
            self._monitor.check_pauses(len(pending))


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
        raise died_too_often(error) from error
    raise error.with_traceback(future.traceback())


def died_too_often(error: KilledWorker) -> WorkerLost:
    """Return what a user is told when workers died over one task again and again."""
    return WorkerLost(
        f"Workers died {error.allowed_failures + 1} times over the same task, {error.task}; their logs say why. Either it takes more "
        "memory "
        "than they have: give them more, or have fewer and larger ones. Or it ends their process: a call of os._exit, or a crash in "
        "compiled "
        "code."
    )
