"""The current fit: its name and settings, whether it is still wanted, and the events that it sends.

A coordinator is a task on the cluster (:mod:`dtrees.cluster.growing.submission`), or any other code that runs ``fit`` there, such as a
user's own task. Instead of passing its fit through many functions, it is returned by :func:`current_fit`. Requests to the registry of fits
(:mod:`dtrees.cluster.reliability.registry`) have deadlines. The registry stores the finished trees of a fit over shards, so that a
coordinator that takes over from a lost one does not grow them again.

Terms
-----
settings
    the options of fits on a cluster, set by parameters of :func:`dtrees.submit` or in Dask's configuration, under ``dtrees``
    (:class:`Settings`). They are read at submission and sent with the fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import threading
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future, Worker, get_worker

from dtrees.cluster.compat import is_wanted
from dtrees.cluster.errors import FitCancelled, SchedulerLost
from dtrees.cluster.reliability.registry import FitRegistry, Heartbeats, adopting
from dtrees.cluster.transport.clients import ask, asked, own_client
from dtrees.cluster.transport.events import Timings, publish
from dtrees.engine.plan.plans import BoostingPlan, Callback, ForestPlan, Progress
from dtrees.engine.protocol.messages import Scores
from dtrees.tree.tree import Tree

#: See :mod:`dtrees.cluster.data.placement`.
PLACEMENTS = ("auto", "one-worker", "replicated", "sharded", "rows")
STORAGES = ("auto", "memory", "disk")


@dataclass(frozen=True)
class Settings:
    """Settings of fits on a cluster. Each is also an entry of Dask's configuration, such as ``dtrees.max-restarts``.

    Attributes
    ----------
    max_restarts : int
        How many times a fit may replace lost workers before it fails.
    patience : float
        Seconds without an answer after which a worker counts as lost. The fit increases it if workers prove to be slower.
    placement : {"auto", "one-worker", "replicated", "sharded", "rows"}
        Where the table is stored: all columns on one worker, all on each worker, or spread over all workers; or each worker keeps its rows.
    storage : {"auto", "memory", "disk"}
        Where workers store the cells of rows that they keep. "auto" uses the disk if nothing else fits the workers' memory; "disk" implies
        the placement "rows".

    Examples
    --------
    >>> Settings(patience=60.0)
    Settings(max_restarts=10, patience=60.0, placement='auto', storage='auto')
    """

    max_restarts: int = 10
    patience: float = 20.0
    placement: str = "auto"
    storage: str = "auto"

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Return the settings of Dask's configuration, overridden by given values that are not None.

        Examples
        --------
        >>> with dask.config.set({"dtrees.max-restarts": 3}):
        ...     Settings.read(patience=5.0)
        Settings(max_restarts=3, patience=5.0, placement='auto', storage='auto')
        """
        values = {field.name: dask.config.get(f"dtrees.{field.name}", field.default) for field in fields(cls)}
        settings = cls(**values | {name: value for name, value in given.items() if value is not None})
        if not isinstance(settings.max_restarts, int) or settings.max_restarts < 0:
            raise ValueError(f"max_restarts is {settings.max_restarts!r}; wants an integer of at least 0")
        if not isinstance(settings.patience, int | float) or not settings.patience > 0:
            raise ValueError(f"patience is {settings.patience!r}; wants a number of seconds above 0")
        if settings.placement not in PLACEMENTS:
            raise ValueError(f"placement is {settings.placement!r}; wants one of {', '.join(PLACEMENTS)}")
        if settings.storage not in STORAGES:
            raise ValueError(f"storage is {settings.storage!r}; wants one of {', '.join(STORAGES)}")
        if settings.storage == "disk" and settings.placement not in ("auto", "rows"):
            raise ValueError(
                f"storage is 'disk', and placement is {settings.placement!r}: cells are on disk only where rows stay; wants placement "
                "'rows', or 'auto', which is the same then"
            )
        return replace(settings, placement="rows") if settings.storage == "disk" else settings


class Fit:
    """A fit on the cluster, from the point of view of the process that runs it.

    Parameters
    ----------
    name : str
        The key of its task, if it was submitted.
    settings : Settings
    turn : int
        The number of this run of its coordinator, from 1; 0 if it was not submitted, in which case Dask does not run it again after the
        loss of its worker.

    Attributes
    ----------
    heartbeats : Heartbeats
        The heartbeats of workers, as recorded by waiting code of this fit in this process.
    task : str or None
        The key of the task that runs this code.
    next_closing : float
        The time (``time.monotonic()``) at which others will again be told to close their connections to silent workers.
    awaits_worker : bool
        Whether it was logged that there was no worker at the start.
    """

    def __init__(self, name: str, settings: Settings, turn: int = 0) -> None:
        self.name = name
        self.settings = settings
        self.turn = turn
        self.heartbeats = Heartbeats(settings.patience)
        self.next_closing = 0.0
        self.awaits_worker = False
        self._futures: list[Future] = []
        self._worker: Worker | None = None
        self.task: str | None = None
        with contextlib.suppress(ValueError, KeyError):  # not on a worker, or not in a task
            worker = get_worker()
            self.task = worker.get_current_task()
            self._worker = worker

    @property
    def worker(self) -> str | None:
        """The address of the current worker."""
        return None if self._worker is None else str(self._worker.address)

    def note(self, workers: Container[str]) -> None:
        """Record which workers the scheduler knows.

        Raises
        ------
        FitCancelled
            If the worker of this fit is not among them: the scheduler has given it up, and runs the fit elsewhere.
        """
        if self.worker is not None and self.worker not in workers:
            raise FitCancelled(f"The fit {self.name} was given up by the scheduler on {self.worker}, with all that runs there.")

    def own(self, *futures: Future) -> None:
        """Release futures when the fit ends."""
        self._futures += futures

    def release(self) -> None:
        """Release the futures owned by the fit, even if others refer to them, such as tracebacks of errors that were recovered from."""
        futures, self._futures = self._futures, []
        for future in futures:
            future.release()

    def check(self, progress: object = None) -> None:
        """Raise if the task that runs the fit was cancelled. Dask cannot stop a thread, so the thread must check, also after each tree.

        Raises
        ------
        FitCancelled
        """
        if self._worker is None:
            return
        if not is_wanted(self._worker, self.task):
            raise FitCancelled(f"The fit {self.name} was cancelled.")


class _Current(threading.local):
    fit: Fit | None = None


_current = _Current()


def is_coordinating() -> bool:
    """Return whether this thread coordinates a fit."""
    return _current.fit is not None


def current_fit() -> Fit:
    """Return the fit that this thread coordinates; a new one if there is none."""
    return _current.fit or Fit(new_name(), Settings.read())


def new_name() -> str:
    """Return a name for a fit, which is also a task key that Dask's dashboard shows as ``dtrees-fit``."""
    return f"dtrees-fit-{uuid4().hex[:10]}"


@contextlib.contextmanager
def coordinating(fit: Fit) -> Iterator[None]:
    """Have this thread coordinate a fit within the block; at its end, futures owned by the fit are released."""
    before, _current.fit = _current.fit, fit
    try:
        yield
    finally:
        _current.fit = before
        fit.release()


logger = logging.getLogger("dtrees.cluster")

#: Smallest interval between events of trees, which may take less than a millisecond.
_SECONDS_BETWEEN_TREES = 0.2
#: Smallest interval between messages with trees: a message takes the event loops of this worker and of the scheduler a millisecond.
_SECONDS_BETWEEN_MESSAGES = 0.05
#: Interval of checks whether the fit should be stopped.
_SECONDS_BETWEEN_QUESTIONS = 0.5
#: Strong references, as an event loop only has weak ones to its tasks.
_registering: set[asyncio.Future[Any]] = set()


def register(client: Client) -> asyncio.Future[Any] | None:
    """Have the scheduler store records of fits; return an awaitable for an asynchronous client.

    Fits that such a client submits in the meantime are registered afterwards, if they are still wanted.
    """
    if not client.asynchronous:
        ask(client, lambda: client.register_plugin(FitRegistry()))
        return None
    registering = asyncio.ensure_future(registered(client))
    _registering.add(registering)
    registering.add_done_callback(_registering.discard)
    return registering


async def registered(client: Client) -> None:
    """Have the scheduler store records of fits; runs in the client's event loop."""
    await client.register_plugin(FitRegistry())


def take_turn(client: Client, fit: str, role: str, worker: str | None, task: str | None) -> tuple[int, dict[str, Any]]:
    """Return the number of a new turn, and the state of heartbeats.

    Raises
    ------
    FitCancelled
        If the fit is no longer wanted, or if the task that takes the turn should no longer run on this worker (None: on none).
    SchedulerLost
        If the scheduler does not answer.
    """
    turn: tuple[int, dict[str, Any]] | None
    turn = ask(client, lambda: client.scheduler.dtrees_take_turn(fit=fit, role=role, worker=worker, task=task))
    if turn is None:
        raise FitCancelled(f"The fit {fit} was cancelled, or taken over by another worker.")
    return turn


@contextlib.contextmanager
def coordinating_task(name: str, settings: Settings, listeners: Sequence[str] = (), *, is_logged: bool = True) -> Iterator[Fit]:
    """Have the task of a submitted fit, or of many fits, coordinate it within the block.

    Parameters
    ----------
    name : str
        Its key.
    settings : Settings
    listeners : sequence of str
        The names of callbacks in the user's own process.
    is_logged : bool
        Whether its trees are stored on the scheduler. Those of many fits are not: Dask knows only the task that runs them.

    Raises
    ------
    FitCancelled, SchedulerLost
        See :func:`take_turn`.
    """
    worker = get_worker().address
    turn, heartbeats = take_turn(own_client(), name, "coordinator", worker, name)
    publish(name, "began", turn=turn, worker=worker, listeners=list(listeners))
    fit = Fit(name, settings, turn if is_logged else 0)
    fit.heartbeats.take_over(heartbeats)
    with coordinating(fit):
        yield fit


class StopAsked:
    """The callback that ends a fit at its user's request; it polls the scheduler.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._next = 0.0

    def __call__(self, progress: object) -> bool:
        """Return whether the fit should end."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _SECONDS_BETWEEN_QUESTIONS
        client = own_client()
        return ask(client, lambda: client.scheduler.dtrees_is_stopped(fit=self._fit))

    def __getstate__(self) -> dict[str, Any]:
        return {"_fit": self._fit, "_next": 0.0}  # clocks of other machines differ


def adopted(client: Client, keys: Sequence[Any], detached: bool = True) -> list[Future]:
    """Return futures of tasks that the scheduler knows; does not wait.

    If ``detached`` is False, fits among them belong only to this client from now on.
    """
    futures = [Future(key, client) for key in keys]  # before the scheduler sends updates about them
    with dask.annotate(**adopting(keys, detached)):
        client.submit(_nothing, key=f"dtrees-adopt-0{uuid4().hex[:9]}").release()
    return futures


def _nothing() -> None:
    """A task without a result, whose annotation the scheduler reads."""


def log_of(fit: Fit, client: Client, plan: BoostingPlan | ForestPlan) -> ClusterTreeLog | None:
    """Return the log of a fit's trees; None if the fit is unknown to Dask, which then cannot run it again.

    Also None with a checkpoint, which restores finished trees as well: the two could differ.
    """
    return ClusterTreeLog(client, fit) if fit.turn and plan.checkpoint is None else None


class ClusterTreeLog:
    """A log of trees on the scheduler; see :class:`dtrees.engine.run.lasting.TreeLog`.

    Trees are sent in the background. Trees that were not sent before this process is lost are grown again.

    Parameters
    ----------
    client : distributed.Client
    fit : Fit
        Its name is the same for all runs of its coordinator.

    Raises
    ------
    FitCancelled
        If the fit is no longer wanted, or another worker has taken over.
    """

    def __init__(self, client: Client, fit: Fit) -> None:
        self._turn, _ = take_turn(client, fit.name, "trees", fit.worker, fit.task)
        self._client = client
        self._fit = fit
        self._n_sent = 0
        self._unsent: list[bytes] = []
        self._sending = self._is_refused = False

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees stored by an earlier run."""
        client, fit = self._client, self._fit.name
        stored: list[bytes] = []
        while more := ask(client, lambda: client.scheduler.dtrees_trees(fit=fit, first=len(stored))):  # noqa: B023 - used at once
            stored += more
        self._n_sent = len(stored)
        return [pickle.loads(tree) for tree in stored]

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Store the next tree.

        Raises
        ------
        FitCancelled
            If another run has taken over the fit, or it is no longer wanted.
        """
        if self._is_refused:
            raise FitCancelled(f"The fit {self._fit.name} has been given up on {self._fit.worker}, or taken over by another worker.")
        self._client.loop.add_callback(self._send, pickle.dumps((tree, scores), pickle.HIGHEST_PROTOCOL))

    async def _send(self, tree: bytes) -> None:
        """Send a tree together with those that follow shortly. Runs in the thread of the event loop."""
        self._unsent.append(tree)
        if self._sending:  # the coroutine that is sending includes this one
            return
        self._sending = True
        try:
            while self._unsent and not self._is_refused:
                await asyncio.sleep(_SECONDS_BETWEEN_MESSAGES)
                if self._client.scheduler is None:  # the client has been closed
                    return
                trees, self._unsent = self._unsent, []
                keep, turn = self._client.scheduler.dtrees_keep_trees, self._turn
                self._is_refused = not await asked(partial(keep, fit=self._fit.name, turn=turn, first=self._n_sent, trees=trees))
                self._n_sent += len(trees)
        except SchedulerLost:  # trees cannot be stored
            logger.warning("%s: its last trees are not stored, since the scheduler does not answer", self._fit.name)
        finally:
            self._sending = False


class Reporting:
    """The callback of a fit that sends an event for trees or rounds, and ends a fit that is no longer wanted.

    Parameters
    ----------
    fit : Fit
    unit : {"tree", "round"}
        There is an event for every round, but only for some trees.
    callback : callable or None
        The user's callback; called first.
    timings : Timings or None
        The timings of exchanges with shards. None if the trees grow in this process.
    """

    def __init__(self, fit: Fit, unit: str, callback: Callback | None = None, timings: Timings | None = None) -> None:
        self._fit = fit
        self._unit = unit
        self._callback = callback
        self._timings = timings
        self._next = 0.0

    def __call__(self, progress: Progress) -> bool:
        """Send an event of a tree or round; return whether the fit should end."""
        self._fit.check()
        now = time.monotonic()
        if self._unit == "round" or now >= self._next or progress.done == progress.total:
            self._next = now + _SECONDS_BETWEEN_TREES
            self._tell(progress)
        return self._callback is not None and bool(self._callback(progress))

    def _tell(self, progress: Progress) -> None:
        # Not asdict, whose deep copies take fifty microseconds, while a round of a small table takes some hundreds.
        facts: dict[str, Any] = {} if self._timings is None else vars(self._timings)
        event = {self._unit: progress.done, "total": progress.total, "seconds": progress.seconds, "progress": dict(vars(progress))}
        publish(self._fit.name, self._unit, **event, **facts)


class WholeTables(Reporting):
    """The callback for trees or rounds grown by one worker from a whole table: the time is the worker's own."""

    def _tell(self, progress: Progress) -> None:
        self._timings = Timings(scan={} if self._fit.worker is None else {self._fit.worker: progress.seconds})
        super()._tell(progress)
