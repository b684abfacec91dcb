"""Actors on workers, called all at once, and watched while their replies are awaited.

An actor is an object that lives on a worker, and is called from here. (A round trip to the actors of 4 workers takes 2 to 3 ms; with tasks
pinned to workers it takes 17, and a task pinned to a worker that died waits forever.) An actor may compute for as long as it needs, but
a worker that dies or falls silent raises :class:`~dtrees.cluster.errors.WorkerLost`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed import Client, Future

from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.tasks import task_keys
from dtrees.cluster.watch import PATIENCE, Heartbeats

_SECONDS_BETWEEN_LOOKS = 2.0
#: After a connection broke, the scheduler is given so long to say what it knows of the worker.
_SECONDS_TO_EXPLAIN = 5.0
#: Ending what an actor has under way is a courtesy; nobody waits long for it.
_SECONDS_TO_CLOSE = 2.0


class Actors:
    """One actor on each of some workers.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        For the names of tasks.
    make : callable
        Makes the actor, which must have a method ``close()``.
    arguments : mapping from str to tuple
        For each worker, what ``make`` is given there; futures become their results.
    patience : float
        Seconds of silence until a worker counts as lost.

    Attributes
    ----------
    workers : list of str
        The address of each actor's worker.

    Raises
    ------
    WorkerLost, SchedulerLost
        If an actor cannot be made any more.
    """

    def __init__(
        self,
        client: Client,
        stage: str,
        make: Callable[..., Any],
        arguments: Mapping[str, Sequence[Any]],
        patience: float = PATIENCE,
    ) -> None:
        self._client = client
        self._patience = patience
        self._actors: list[Any] = []
        self.workers = list(arguments)
        self._futures: list[Future] = []
        try:
            for worker, key in zip(self.workers, task_keys(stage, len(self.workers)), strict=True):
                future = client.submit(make, *arguments[worker], key=key, actor=True, workers=[worker], allow_other_workers=False)
                self._futures.append(future)
            client.sync(self._await_actors)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.workers)

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Call a method of some actors, and wait for all replies.

        Parameters
        ----------
        method : str
        arguments : mapping from int to sequence
            For each actor to call, what the method is given.

        Raises
        ------
        WorkerLost, SchedulerLost
            If a reply cannot come any more.
        Exception
            What the method raised.
        """
        return dict(self._client.sync(self._call, method, arguments))

    def close(self) -> None:
        """Free the actors."""
        actors, self._actors = self._actors, []
        futures, self._futures = self._futures, []
        if not futures or self._client.status != "running":
            return
        with contextlib.suppress(OSError, RuntimeError):
            self._client.sync(asyncio.wait_for, _close_all(actors), _SECONDS_TO_CLOSE)
        # Not merely released: proxies of an actor, which an error's traceback may hold, count as users of it.
        self._client.cancel(futures, force=True)

    async def _await_actors(self) -> None:
        made = await self._finish({i: asyncio.ensure_future(_result_of(future)) for i, future in enumerate(self._futures)})
        self._actors = [made[i] for i in range(len(made))]

    async def _call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        return await self._finish({i: asyncio.ensure_future(_reply_of(self._actors[i], method, given)) for i, given in arguments.items()})

    async def _finish(self, calls: Mapping[int, asyncio.Future[Any]]) -> dict[int, Any]:
        """Wait for calls, and look after their actors meanwhile."""
        heartbeats = Heartbeats(self._patience)
        pending = set(calls.values())
        try:
            while True:
                _, pending = await asyncio.wait(pending, timeout=_SECONDS_BETWEEN_LOOKS, return_when=asyncio.FIRST_EXCEPTION)
                for i, call in calls.items():
                    error = call.exception() if call.done() else None
                    if error is not None:
                        await self._raise_failure(i, error)
                if not pending:
                    return {i: call.result() for i, call in calls.items()}
                await self._look(heartbeats, [i for i, call in calls.items() if not call.done()])
        finally:
            for call in calls.values():
                call.cancel()

    async def _look(self, heartbeats: Heartbeats, awaited: list[int]) -> None:
        """Raise if the scheduler, or the worker of an actor whose reply is awaited, is lost."""
        self._check_scheduler()
        try:
            known = await asyncio.wait_for(self._client.scheduler.identity(n_workers=-1), self._patience)
        except (OSError, TimeoutError) as error:
            raise SchedulerLost(f"The Dask scheduler does not answer ({error}). Run the fit again once it is back.") from error
        heartbeats.note(known["workers"])
        for i in awaited:
            fault = heartbeats.lost(self.workers[i]) or ("is gone" if self._is_lost(i) else None)
            if fault is not None:
                raise self._worker_lost(i, fault)

    def _check_scheduler(self) -> None:
        if self._client.status != "running":
            raise SchedulerLost("The connection to the Dask scheduler was lost during the fit. Run it again once the scheduler is back.")

    async def _raise_failure(self, i: int, error: BaseException) -> None:
        """Raise what became of an actor: its worker's loss, where that explains the error, or the error itself."""
        self._check_scheduler()
        deadline = time.monotonic() + _SECONDS_TO_EXPLAIN
        disconnected = isinstance(error, OSError)
        while disconnected and not self._is_lost(i) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)  # the scheduler may hear of it a moment later than we do
        self._check_scheduler()
        if disconnected or self._is_lost(i):
            raise self._worker_lost(i, "is gone") from error
        raise error

    def _is_lost(self, i: int) -> bool:
        """Whether the scheduler has given up an actor for lost; making it may also have failed, which is another matter."""
        status = self._futures[i].status
        return status in ("cancelled", "lost") or (status == "error" and bool(self._actors))

    def _worker_lost(self, i: int, fault: str) -> WorkerLost:
        held = "all columns" if len(self) == 1 else f"one of {len(self)} shards of the columns"
        return WorkerLost(
            f"Worker {self.workers[i]} {fault}. It held {held} for boosting, so this fit cannot go on. "
            "Run it again, on the workers that are left or after adding some; if they run out of memory, give them more."
        )


async def _result_of(future: Future) -> Any:
    return await future


async def _reply_of(actor: Any, method: str, arguments: Sequence[Any]) -> Any:
    return await getattr(actor, method)(*arguments)


async def _close_all(actors: list[Any]) -> None:
    await asyncio.gather(*(actor.close() for actor in actors), return_exceptions=True)
