"""Tasks of a fit, and waits for them that always end.

Dask itself waits without a limit, even for events that can no longer happen. Here, every wait is divided into slices, and between slices
the state of the cluster is checked: whether there is a scheduler, whether there are workers and they show signs of life, whether the result
is still wanted, and whether the scheduler knows the awaited tasks. Work may take any time; deadlines apply to silence
(:class:`~dtrees.cluster.reliability.registry.Heartbeats`) and to work that cannot begin for lack of memory.

Dask pauses workers that use too much of their memory. Such a worker continues with its running tasks, and begins no others until it uses
less (by default, less than 80 % of its limit). Dask does not give it up either, so work that only such workers can do would be waited for
without end or message. Here, a message appears after a fit's patience, and after a multiple of that time the fit ends. Existing shards are
not affected: they are called directly and continue on paused workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Any, NoReturn
from uuid import uuid4

import dask
from dask.utils import format_bytes
from distributed import Client, Future, KilledWorker, futures_of

from dtrees.cluster.compat import close_connections
from dtrees.cluster.errors import ClusterError, FitCancelled, NotEnoughMemory, SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit import adopted, current_fit, is_coordinating
from dtrees.cluster.reliability.registry import belonging
from dtrees.cluster.transport.clients import NO_WORKER_YET, RUN_AGAIN, answer, asked, explained, in_loop, states
from dtrees.cluster.transport.events import publish

logger = logging.getLogger("dtrees.cluster")

_SLICE = 0.5
#: Time in which workers must close their connections to a silent one, in seconds.
_SECONDS_TO_CLOSE = 3.0
#: Seconds after which the scheduler knows a submitted task, and the number of tasks in one request about them.
_SECONDS_TO_BECOME_KNOWN, _ASKED_AT_ONCE = 60.0, 1000
#: A fit ends after this multiple of its patience.
_TIMES_PATIENCE = 9.0
#: Longest time between two notes that counts, in seconds: after a longer one, this process was suspended or waited for something else.
_MOST_LISTENED = 5.0
#: Activities of tasks on a working worker, as named in its counts: running, and fetching inputs.
_AT_WORK = ("executing", "flight")
_WAY_OUT = "Give workers more memory (dask worker --memory-limit), or have more of them, and run it again"


class WorkerMonitor:
    """Monitors the state of a cluster for the current fit.

    Parameters
    ----------
    client : distributed.Client

    Attributes
    ----------
    workers : dict from str to dict
        The result of the last look.
    heartbeats : Heartbeats
        Those of the fit.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._fit = current_fit()
        self.workers: dict[str, dict[str, Any]] = {}
        self.heartbeats = self._fit.heartbeats
        self._known: set[Any] = set()
        self._first_asked: dict[Any, float] = {}
        self._next_look = 0.0
        # For how long paused workers have held up the fit, and whether this was logged.
        self._held, self._logged = 0.0, False
        self._last_note = time.monotonic()
        self._before: Any = None

    def check(self) -> None:
        """Raise if the connection to the scheduler is lost, or the fit is no longer wanted."""
        self._fit.check()
        if self._client.status != "running":
            raise SchedulerLost(f"The connection to the Dask scheduler was lost during the fit. {RUN_AGAIN} once the scheduler is back.")

    async def look(self) -> dict[str, dict[str, Any]]:
        """Return the scheduler's data about its workers, without silent ones.

        Raises
        ------
        FitCancelled, SchedulerLost
            See :meth:`check`; also if the scheduler no longer knows the current worker.
        """
        self.check()
        known = await asked(partial(self._client.scheduler.identity, n_workers=-1), self.heartbeats.patience)
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
            with contextlib.suppress(OSError):  # will be tried again
                closing = self._client.run(close_connections, list(silent), workers=list(workers), on_error="ignore")
                await answer(closing, _SECONDS_TO_CLOSE)
        self.workers = workers
        return workers

    def check_pauses(self, awaited: object, needed: Iterable[str] | None = None) -> None:
        """Record, after a look, for how long paused workers have held up the fit.

        Parameters
        ----------
        awaited : object
            What is being waited for; a change means that the fit makes progress.
        needed : iterable of str, optional
            The only workers that can do the work; by default, any can.

        Raises
        ------
        NotEnoughMemory
            If Dask has paused these workers for too long.
        """
        now, workers, patience = time.monotonic(), self.workers, self._fit.settings.patience
        listened, self._last_note = min(now - self._last_note, _MOST_LISTENED), now
        able = workers if needed is None else {worker: workers[worker] for worker in needed if worker in workers}
        paused = sorted(worker for worker, facts in able.items() if facts["status"] == "paused")
        state = awaited, [(worker, _written(workers[worker])) for worker in paused]
        goes_on, self._before = state != self._before, state
        if not paused or goes_on or any(map(_is_at_work, able.values())):
            if self._logged:
                logger.info("%s goes on", self._fit.name)
            self._held, self._logged = 0.0, False
            return
        self._held += listened
        if self._held > patience and not self._logged:
            self._logged = True
            logger.warning("%s has waited %.0f s for workers that Dask has paused: %s", self._fit.name, self._held, _usage(workers, paused))
            publish(self._fit.name, "workers paused", workers=paused, seconds=self._held)
        if self._held > _TIMES_PATIENCE * patience:
            raise NotEnoughMemory(
                f"The fit has waited {self._held:.0f} s for {len(paused)} of {len(workers)} workers of the Dask cluster. Dask has paused "
                f"them, as they use too much of their memory: {_usage(workers, paused)}. {_WAY_OUT}."
            )

    async def unknown(self, futures: Sequence[Future]) -> list[Future]:
        """Return those pending futures that can never finish; checks a limited number in each call.

        Their tasks are unknown to the scheduler, and Dask would wait for them forever, without a message. A task that was known and is no
        longer is lost. One that never was may still be in transfer, in a graph with much data, so it has a minute.

        Raises
        ------
        SchedulerLost
            If the scheduler does not answer.
        """
        by_key = {future.key: future for future in futures[:_ASKED_AT_ONCE]}
        if not by_key:
            return []
        status = await asked(partial(self._client.scheduler.get_task_status, keys=list(by_key)))
        now = time.monotonic()
        unknown = []
        for key, future in by_key.items():
            if status[key] is not None:
                self._known.add(key)
            elif future.status == "pending" and (
                key in self._known or now - self._first_asked.setdefault(key, now) > _SECONDS_TO_BECOME_KNOWN
            ):
                unknown.append(future)
        return unknown


class FutureWaiter(WorkerMonitor):
    """Waits for futures, and raises if required data are lost."""

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of all futures, in order.

        Raises
        ------
        Exception
            The error of a task, as soon as one raises.
        WorkerLost, SchedulerLost
            If the results can no longer arrive.
        FitCancelled
            If the results are no longer wanted.
        """
        results = dict(self.as_completed(futures))
        return [results[i] for i in range(len(futures))]

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait for all futures without fetching their results; raises as :meth:`gather` does."""
        for _ in self._finished(futures):
            pass

    def as_completed(self, futures: Sequence[Future]) -> Iterator[tuple[int, Any]]:
        """Yield the position and the result of each future, in the order of completion; raises as :meth:`gather` does.

        More futures may be appended to ``futures`` in the meantime.
        """
        for ready in filter(None, self._finished(futures)):
            yield from zip(ready, self._fetch([futures[i] for i in ready]), strict=True)

    def _fetch(self, futures: list[Future]) -> list[Any]:
        """Return the results of finished futures. If their workers are lost at this point, Dask computes them again.

        Data in transfer from a suspended worker do not arrive, so when any worker is lost, all results are requested again.
        """
        while True:
            n_departed = self.heartbeats.n_departed
            again = time.monotonic() + self.heartbeats.patience
            coroutine = self._client.gather(futures, asynchronous=True)
            fetching = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
            try:
                while not wait([fetching], timeout=_SLICE).done:
                    self.attend()
                    heartbeats = self.heartbeats
                    if heartbeats.n_departed != n_departed or (heartbeats.silent and time.monotonic() > again):
                        break
                else:
                    with explained():
                        return list(fetching.result())
            finally:
                fetching.cancel()

    def _finished(self, futures: Sequence[Future]) -> Iterator[list[int]]:
        """Yield the positions of futures as they finish, and empty lists at intervals."""
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
                elif status in ("lost", "pending"):  # its worker was lost; Dask computes it again
                    await_result(i)
                else:
                    self.attend()
                    _raise_failure(futures[i])
            self.attend(futures)
            yield ready
            n_ready += len(ready)

    def attend(self, awaited: Sequence[Future] = ()) -> None:
        """Raise if waiting is pointless.

        That is the case if there is no scheduler, if there have been no workers for too long, if the fit is no longer wanted, if the
        scheduler does not know an awaited task, or if workers that Dask has paused do not resume.
        """
        self.check()
        if time.monotonic() < self._next_look:
            return
        pending = [future for future in awaited if future.status == "pending"]
        for future in in_loop(self._client, self.unknown, pending):
            raise SchedulerLost(f"The Dask scheduler does not know the task {future.key} of this fit any more. {RUN_AGAIN}.")
        in_loop(self._client, self.look)
        self._next_look = time.monotonic() + self.heartbeats.seconds_between_looks
        if self.heartbeats.all_lost:
            silent = len(self.heartbeats.silent)
            what = f"{silent} workers, none of which shows signs of life" if silent else "no workers left"
            raise WorkerLost(f"The Dask cluster has {what}. {RUN_AGAIN} when it has.")
        if pending:
            self.check_pauses(len(pending))


def _take_all(items: queue.SimpleQueue[int], timeout: float) -> list[int]:
    """Return all items of a queue, sorted; wait for the first item if there is none yet."""
    taken = []
    with contextlib.suppress(queue.Empty):
        taken.append(items.get(timeout=timeout))
        while True:
            taken.append(items.get_nowait())
    return sorted(taken)


def _raise_failure(future: Future) -> NoReturn:
    """Raise the error of a task, or the reason of its loss."""
    if future.status != "error":
        raise SchedulerLost(f"The task {future.key} of this fit was cancelled on the Dask cluster. {RUN_AGAIN}.")
    error = future.exception()
    if isinstance(error, KilledWorker):
        raise killed_worker_error(error) from error
    raise error.with_traceback(future.traceback())


def killed_worker_error(error: KilledWorker) -> WorkerLost:
    """Return the error for a user if one task has killed too many workers."""
    return WorkerLost(
        f"Workers died {error.allowed_failures + 1} times over the same task, {error.task}; their logs say why. Either it takes more "
        "memory than they have: give them more, or have fewer and larger ones. Or it ends their process: a call of os._exit, or a crash in "
        "compiled code."
    )


def _usage(workers: Mapping[str, Mapping[str, Any]], paused: Sequence[str]) -> str:
    """Return a description of the memory use of some workers."""
    some = [
        f"{worker} uses {format_bytes(workers[worker]['metrics'].get('memory', 0))} of {format_bytes(workers[worker]['memory_limit'])}"
        for worker in paused[:3]
    ]
    return "; ".join([*some, *["and so on"] * (len(paused) > 3)])


def _is_at_work(facts: Mapping[str, Any]) -> bool:
    """Return whether a worker runs tasks or fetches their inputs; the calling coordinator, which waits, does not count."""
    counts = facts["metrics"].get("task_counts", {})
    return any(counts.get(state, 0) for state in (*_AT_WORK, *(() if is_coordinating() else ("long-running",))))


def _written(facts: Mapping[str, Any]) -> int:
    """Return the bytes that a worker has on disk: an increase shows that it is reducing its memory."""
    return int(facts["metrics"].get("spilled_bytes", {}).get("disk", 0))


def task_keys(stage: str, n: int) -> list[str]:
    """Return ``n`` new keys that Dask's dashboard groups as ``dtrees-<stage>``."""
    token = f"0{uuid4().hex[:9]}"  # the digit prevents Dask from treating it as a word
    return [f"dtrees-{stage}-{token}-{i}" for i in range(n)]


class Tasks:
    """Creates tasks. Futures that were not passed to :meth:`keep` are released at the end of the block, also after an error.

    Explicit release matters after an error: its traceback refers to futures, and while the traceback exists, the cluster would store their
    results.

    Parameters
    ----------
    client : distributed.Client

    Attributes
    ----------
    client : distributed.Client
    waiter : FutureWaiter
        Waits for the futures.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waiter = FutureWaiter(client)
        self._fit = current_fit()
        self._annotations = belonging(self._fit.name, self._fit.turn)
        self._futures: list[Future] = []

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *exc: object) -> None:
        release(self._futures)
        self._futures.clear()

    def submit(self, stage: str, function: Callable[..., Any], *args: Any, on: str | None = None, **options: Any) -> Future:
        """Return the future of one call, preferably on a given worker; ``options`` are those of :meth:`distributed.Client.submit`."""
        with dask.annotate(**self._annotations):
            future = self.client.submit(function, *args, key=task_keys(stage, 1)[0], **_preferred(on), **options)
        self._futures.append(future)
        return future

    def send(self, stage: str, value: Any, on: str | None = None) -> Future:
        """Return the future of a value of any size, preferably on a given worker.

        The value is the result of a task, not scattered data: the task is run again if the worker with its result is lost.
        """
        with however_large():
            return self.submit(stage, partial(same, value), on=on)

    def map(
        self, stage: str, function: Callable[..., Any], *sequences: Sequence[Any], on: str | None = None, **options: Any
    ) -> list[Future]:
        """Return futures of a call for each element, preferably on a given worker.

        The options are passed to each call. They are sent as one task, as they are large for a table with many columns or categories, and
        Dask would create a task for each.
        """
        n_calls = len(sequences[0])
        if options and n_calls:
            sequences = ([self.send("options", options, on)] * n_calls, *sequences)
            function = partial(_with_options, function)
        with dask.annotate(**self._annotations):
            futures = self.client.map(function, *sequences, key=task_keys(stage, n_calls), **_preferred(on))
        self._futures += futures
        return list(futures)

    def compute(self, delayed: Sequence[Any]) -> list[Future]:
        """Return futures of Dask's delayed objects, computed in one graph so that shared parts are computed once."""
        with dask.annotate(**self._annotations):
            futures = self.client.compute(delayed)
        self._futures += futures
        return list(futures)

    def find(self, keys: Sequence[str]) -> list[Future]:
        """Return futures of tasks that the scheduler knows already.

        Raises
        ------
        SchedulerLost
            If it no longer knows some of them, or does not answer.
        """
        unknown = [key for key, state in states(self.client, keys).items() if state is None]
        if unknown:
            raise SchedulerLost(f"The Dask scheduler does not know {len(unknown)} of {len(keys)} tasks of this fit any more. {RUN_AGAIN}.")
        futures = adopted(self.client, keys)
        self._futures += futures
        return futures

    def keep(self, *futures: Future) -> None:
        """Have some futures released at the end of the fit instead of the block."""
        given = set(map(id, futures))
        self._futures = [future for future in self._futures if id(future) not in given]
        self._fit.own(*futures)


#: Suppress Dask's warning of large graphs: ``with however_large():``.
however_large = partial(dask.config.set, {"distributed.admin.large-graph-warning-threshold": "1 PiB"})


def _preferred(worker: str | None) -> dict[str, Any]:
    """Return Dask's options for tasks that run on a given worker unless it is lost."""
    return {} if worker is None else {"workers": [worker], "allow_other_workers": True}


def same(value: Any) -> Any:
    """Return the argument."""
    return value


def _with_options(function: Callable[..., Any], options: dict[str, Any], *args: Any) -> Any:
    return function(*args, **options)


def release(futures: Iterable[Future]) -> None:
    """Release futures; the cluster frees results that no other client wants."""
    for future in futures:
        future.release()


@contextlib.contextmanager
def lost_data_named(client: Client, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Name the lost data if an error of the cluster in the block is caused by them.

    Data from ``client.scatter`` are lost with the last worker that holds them. Dask then cancels all tasks that need them, without giving
    the reason.

    Parameters
    ----------
    client : distributed.Client
    arguments : mapping from str to Any
        The user's arguments, by name.

    Raises
    ------
    WorkerLost
        Replaces that error.
    """
    try:
        yield
    except FitCancelled:
        raise
    except ClusterError as error:
        for name, given in arguments.items():
            n_chunks, n_lost = _count_lost(client, given)
            if n_lost:
                raise WorkerLost(
                    f"{name} is lost in part: {n_lost} of the {n_chunks} futures that it is made of were data of client.scatter. They went "
                    "with the worker that held them, and cannot be computed again. Scatter them again, with broadcast=True to have them on "
                    f"several workers, or make {name} of what can be read again (dask.dataframe.read_parquet, dask.array.from_array). "
                    "Then run the fit again."
                ) from error
        raise


def _count_lost(client: Client, given: Any) -> tuple[int, int]:
    """Return the number of futures in an object, and the number of those that the cluster no longer knows."""
    keys = [future.key for future in futures_of([given])]
    known: Mapping[Any, Any] = {}
    with contextlib.suppress(SchedulerLost, RuntimeError):  # without a scheduler, this is unknown
        known = states(client, keys) if keys else {}
    return len(keys), sum(state is None for state in known.values())
