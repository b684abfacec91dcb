"""Waiting on a cluster without waiting for ever.

Dask itself waits for as long as it takes, also for what can no longer happen. Here every wait is cut into slices, and between slices
the state of the cluster is looked at: is there still a scheduler, are there workers, do they show signs of life, does anybody still want
the result, does the scheduler know the tasks that are awaited? Work may take as long as it needs; it is silence that has a deadline
(:mod:`dtrees.cluster.reliability.heartbeats`), and what workers cannot begin for want of memory.

Dask pauses workers that use too much of their memory. Such a worker goes on with the tasks that it runs, and begins no others until it uses
less (by default, less than 80 % of its limit). Nor does Dask give it up. So what only such workers can do would be waited for without end,
and without a word. Here that is said after a fit's patience, and after some times as long the fit ends. Shards that are there already are
called past all this: paused or not, they go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Any, NoReturn

from dask.utils import format_bytes
from distributed import Client, Future, KilledWorker

from dtrees.cluster.compat import close_connections
from dtrees.cluster.errors import NotEnoughMemory, SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit_context import Fit, current_fit, is_coordinating
from dtrees.cluster.reliability.heartbeats import Heartbeats
from dtrees.cluster.transport.clients import NO_WORKER_YET, RUN_AGAIN, SCHEDULER_PATIENCE, answer, explained, in_loop
from dtrees.cluster.transport.events import tell

logger = logging.getLogger("dtrees.cluster")

_SLICE = 0.5
#: Workers are given so long to close their connections to one that is silent.
_SECONDS_TO_CLOSE = 3.0
#: A task is known to the scheduler so many seconds after it was submitted; it is asked about so many tasks at a time.
_SECONDS_TO_BECOME_KNOWN, _ASKED_AT_ONCE = 60.0, 1000
#: A fit is given up after so many times its patience.
_TIMES_PATIENCE = 9.0
#: Between two notes so many seconds count at most: in longer ones, this process stood still, or waited for something else.
_MOST_LISTENED = 5.0
#: What tasks do on a worker that is at work, as its counts of them call it: run, and fetch what they need.
_AT_WORK = ("executing", "flight")
_WAY_OUT = "Give workers more memory (dask worker --memory-limit), or have more of them, and run it again"


class Pauses:
    """How long a fit has been held up by paused workers.

    Parameters
    ----------
    fit : Fit
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._held = 0.0
        self._told = False
        self._last_note = time.monotonic()
        self._before: Any = None

    def note(self, workers: Mapping[str, Mapping[str, Any]], patience: float, awaited: object, needed: Iterable[str] | None = None) -> None:
        """Take in what the scheduler knows of workers, while something is waited for.

        Parameters
        ----------
        workers : mapping from str to mapping
        patience : float
            Seconds until it is said.
        awaited : object
            What is waited for: where it is another than before, the fit goes on.
        needed : iterable of str, optional
            The workers that alone can do it; by default, any can.

        Raises
        ------
        NotEnoughMemory
            If it has taken too long.
        """
        now = time.monotonic()
        listened, self._last_note = min(now - self._last_note, _MOST_LISTENED), now
        able = dict(workers) if needed is None else {worker: workers[worker] for worker in needed if worker in workers}
        paused = sorted(worker for worker, facts in able.items() if facts["status"] == "paused")
        state = awaited, [(worker, _written(workers[worker])) for worker in paused]
        goes_on, self._before = state != self._before, state
        if not paused or goes_on or any(map(_is_at_work, able.values())):
            if self._told:
                logger.info("%s goes on", self._fit.name)
            self._held, self._told = 0.0, False
            return
        self._held += listened
        if self._held > patience and not self._told:
            self._told = True
            logger.warning("%s has waited %.0f s for workers that Dask has paused: %s", self._fit.name, self._held, _said(workers, paused))
            tell(self._fit.name, "workers paused", workers=paused, seconds=self._held)
        if self._held > _TIMES_PATIENCE * patience:
            raise NotEnoughMemory(
                f"The fit has waited {self._held:.0f} s for {len(paused)} of {len(workers)} workers of the Dask cluster. Dask has paused "
                f"them, as they use too much of their memory: {_said(workers, paused)}. {_WAY_OUT}."
            )


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
        self.heartbeats.note({worker: facts["last_seen"] for worker, facts in workers.items()}, self._fit.worker)
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
        "memory than they have: give them more, or have fewer and larger ones. Or it ends their process: a call of os._exit, or a crash in "
        "compiled code."
    )


def _said(workers: Mapping[str, Mapping[str, Any]], paused: Iterable[str]) -> str:
    """Say what workers use, a few of them."""
    some = [
        f"{worker} uses {format_bytes(workers[worker]['metrics'].get('memory', 0))} of {format_bytes(workers[worker]['memory_limit'])}"
        for worker in list(paused)[:3]
    ]
    return "; ".join([*some, *(["and so on"] if len(list(paused)) > 3 else [])])


def _is_at_work(facts: Mapping[str, Any]) -> bool:
    """Tell whether a worker runs tasks, or fetches what they need; the coordinator, which waits, does not count where it asks itself."""
    counts = facts["metrics"].get("task_counts", {})
    return any(counts.get(state, 0) for state in (*_AT_WORK, *(() if is_coordinating() else ("long-running",))))


def _written(facts: Mapping[str, Any]) -> int:
    """Return how many bytes a worker has on disk: one that writes more there does something about its memory."""
    return int(facts["metrics"].get("spilled_bytes", {}).get("disk", 0))
