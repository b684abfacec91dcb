"""What clients and workers ask of the registry of fits (:mod:`dtrees.cluster.reliability.fit_registry`), each with a deadline.

There the finished trees of a fit over shards are kept: if the coordinator is lost, the one that takes over does not grow them again.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, Future

from dtrees.cluster.errors import FitCancelled
from dtrees.cluster.reliability.fit_context import Fit
from dtrees.cluster.reliability.fit_registry import FitRegistry, adopting
from dtrees.cluster.transport.clients import SCHEDULER_PATIENCE, answer, ask, own_client
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Scores
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")

#: Trees that come faster are sent together: a message takes the event loops of this worker and of the scheduler a millisecond.
_SECONDS_BETWEEN_MESSAGES = 0.05
#: A fit that may be stopped asks so often.
_SECONDS_BETWEEN_QUESTIONS = 0.5
#: Strong references: an event loop has weak ones of what runs in it.
_registering: set[asyncio.Future[Any]] = set()


def register(client: Client) -> asyncio.Future[Any] | None:
    """Have the scheduler keep records of fits; return what an asynchronous client has to wait for.

    Fits that it submits meanwhile are taken up then, if somebody still wants them.
    """
    if not client.asynchronous:
        ask(client, lambda: client.register_plugin(FitRegistry()))
        return None
    registering = asyncio.ensure_future(client.register_plugin(FitRegistry()))
    _registering.add(registering)
    registering.add_done_callback(_registering.discard)
    return registering


def take_turn(client: Client, fit: str, role: str, worker: str | None, task: str | None) -> tuple[int, dict[str, Any]] | None:
    """Return the number of a new turn, and what was heard of workers; None if there is none.

    That is if nobody wants the fit any more, or if the task that takes the turn is not to run on this worker any more (None: on none).

    Raises
    ------
    SchedulerLost
        If there is no answer.
    """
    return ask(client, lambda: client.scheduler.dtrees_take_turn(fit=fit, role=role, worker=worker, task=task))


class StopAsked:
    """The callback that ends a fit when its user has asked for that; it asks the scheduler now and then.

    Parameters
    ----------
    fit : str
    """

    def __init__(self, fit: str) -> None:
        self._fit = fit
        self._next = 0.0

    def __call__(self, progress: object) -> bool:
        """Tell whether the fit is to end."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _SECONDS_BETWEEN_QUESTIONS
        client = own_client()
        return ask(client, lambda: client.scheduler.dtrees_is_stopped(fit=self._fit))

    def __getstate__(self) -> dict[str, Any]:
        return {"_fit": self._fit, "_next": 0.0}  # clocks of other machines differ


def adopted(client: Client, keys: Sequence[Any], detached: bool = True) -> list[Future]:
    """Return futures of tasks that the scheduler knows; does not wait.

    Where ``detached`` is False, fits among them are kept by this client only from now on.
    """
    futures = [Future(key, client) for key in keys]  # before the scheduler tells of them
    with dask.annotate(**adopting(keys, detached)):
        client.submit(_nothing, key=f"dtrees-adopt-0{uuid4().hex[:9]}").release()
    return futures


def _nothing() -> None:
    """Be the task whose annotation the scheduler reads."""


def log_of(fit: Fit, client: Client, plan: BoostingPlan | ForestPlan) -> ClusterTreeLog | None:
    """Return the log of a fit's trees; there is none where Dask does not know the fit, and cannot run it again.

    Nor with a checkpoint: that brings finished trees back as well, and two accounts of them could differ.
    """
    return ClusterTreeLog(client, fit) if fit.turn and plan.checkpoint is None else None


class ClusterTreeLog:
    """A log of trees on the scheduler; see :class:`dtrees.engine.run.lasting.TreeLog`.

    Trees are sent in the background. Those that were not when this process is lost are grown again.

    Parameters
    ----------
    client : distributed.Client
    fit : Fit
        Its name is the same however often it is run.

    Raises
    ------
    FitCancelled
        If nobody wants the fit any more, or another worker has taken over.
    """

    def __init__(self, client: Client, fit: Fit) -> None:
        turn = take_turn(client, fit.name, "trees", fit.worker, fit.task)
        if turn is None:
            raise FitCancelled(f"The fit {fit.name} was cancelled, or taken over by another worker.")
        self._client = client
        self._fit = fit
        self._turn, _ = turn
        self._n_sent = 0
        self._unsent: list[bytes] = []
        self._sending = self._is_refused = False

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees kept by an earlier run."""
        client, fit = self._client, self._fit.name
        kept: list[bytes] = []
        while more := ask(client, lambda: client.scheduler.dtrees_trees(fit=fit, first=len(kept))):  # noqa: B023 - used at once
            kept += more
        self._n_sent = len(kept)
        return [pickle.loads(tree) for tree in kept]

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree.

        Raises
        ------
        FitCancelled
            If the fit has been taken over by another run, or is not wanted any more.
        """
        if self._is_refused:
            raise FitCancelled(f"The fit {self._fit.name} has been given up on {self._fit.worker}, or taken over by another worker.")
        self._client.loop.add_callback(self._send, pickle.dumps((tree, scores), pickle.HIGHEST_PROTOCOL))

    async def _send(self, tree: bytes) -> None:
        """Send a tree, with those that follow it closely. All this is done in the thread of the loop."""
        self._unsent.append(tree)
        if self._sending:  # the one that is sending sees to all
            return
        self._sending = True
        try:
            while self._unsent and not self._is_refused:
                await asyncio.sleep(_SECONDS_BETWEEN_MESSAGES)
                trees, self._unsent = self._unsent, []
                keeping = self._client.scheduler.dtrees_keep_trees(fit=self._fit.name, turn=self._turn, first=self._n_sent, trees=trees)
                self._is_refused = not await answer(keeping, SCHEDULER_PATIENCE)
                self._n_sent += len(trees)
        except OSError:  # without the scheduler, there is nobody to keep them
            logger.warning("%s: its last trees are not kept, since the scheduler does not answer", self._fit.name)
        finally:
            self._sending = False
